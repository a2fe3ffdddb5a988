package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// kafkaRun is a running Kafka publisher.
type kafkaRun struct {
	*kafka.Bus
	log  *logBuffer
	reg  *prometheus.Registry
	stop func() error
}

// kafkaConfig leaves batches uncompressed. The model reads them with kafka-go, which keeps decoders
// in a global pool. A decoder made in one bubble of testing/synctest ends the process in another.
// TestTombstonesAndBinaryMode of package producer compresses.
func kafkaConfig(brokers ...string) kafka.Config {
	return kafka.Config{
		Brokers: brokers, Compression: "none",
		Env: driver.Env{Cluster: "prod-eu-1", MaxEventBytes: 900 << 10, DeadLetter: "dead.{cluster}"},
	}
}

func runKafka(tb testing.TB, cfg kafka.Config, rt kafkago.RoundTripper, with ...func(*kafka.Bus)) *kafkaRun {
	tb.Helper()
	r := &kafkaRun{log: new(logBuffer), reg: prometheus.NewPedanticRegistry()}
	k, err := kafka.New(cfg, r.log.Logger(), publish.NewMetrics(r.reg))
	if err != nil {
		tb.Fatal(err)
	}
	if rt != nil {
		k.SetRoundTripper(rt)
	}
	for _, f := range with {
		f(k)
	}
	r.Bus = k
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	tb.Cleanup(func() {
		_ = r.stop()
		if tb.Failed() {
			tb.Logf("log of the publisher:\n%s", r.log)
		}
	})
	return r
}

// keyed is version n of the object with the given key.
func keyed(key string, n int) *encode.Event {
	ev := event(key, n, strconv.Itoa(n))
	ev.PartitionKey = []byte(key)
	return ev
}

// With random faults, the log has each object's records in order, and none is missing. A duplicate
// is there only if the producer's epoch or id changed in between, and then next to the first; or if
// a call ended before it was answered.
func TestOrderSurvivesFaults(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 8
	}
	var copies, fenced, lateHits atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := range seeds {
			t.Run(strconv.Itoa(seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { kafkaFaults(t, seed, &copies, &fenced, &lateHits) })
			})
		}
	})
	t.Logf("%d copies behind new epochs, %d records of later epochs, %d late copies were appended", copies.Load(),
		fenced.Load(), lateHits.Load())
	if fenced.Load() == 0 || lateHits.Load() == 0 {
		t.Error("the faults were too tame")
	}
}

func kafkaFaults(t *testing.T, seed int, copies, fenced, lateHits *atomic.Int64) {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	m := newModel(3)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 3)
	quiet := false
	m.fault = func(p *modelPartition) fault {
		if rng.IntN(60) == 0 && !quiet { // another producer has our producer ids: INVALID_PRODUCER_EPOCH
			for _, s := range p.producers {
				*s = modelProducer{epoch: s.epoch + 500, last: -1}
			}
		}
		if quiet {
			return fault{deliver: true}
		}
		f := fault{deliver: rng.IntN(2) == 0, move: rng.IntN(12) == 0}
		switch rng.IntN(12) {
		case 0, 1:
			f.lostBefore = true
		case 2, 3:
			f.lostAfter = true
		case 4:
			f.after = kafkago.NotEnoughReplicasAfterAppend
		case 5:
			f.code = []kafkago.Error{
				kafkago.RequestTimedOut, kafkago.KafkaStorageError, kafkago.LeaderNotAvailable,
				kafkago.MessageSizeTooLarge,
				kafkago.OutOfOrderSequenceNumber, kafkago.UnknownProducerId, kafkago.InvalidTimestamp,
			}[rng.IntN(7)]
		}
		return f
	}
	cfg := kafkaConfig(m.addrs...)
	cfg.Tombstones = true
	k := runKafka(t, cfg, m)
	const keys, versions = 12, 15
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			key := "k" + strconv.Itoa(i)
			for n := 1; n <= versions; n++ {
				for again := false; ; again = true {
					ev := keyed(key, n)
					if n%4 == 0 {
						ev.Delta.Op = object.Deleted
					}
					ctx, cancel := context.WithCancel(t.Context())
					if seed%2 == 1 && !again { // some callers give up, at any time
						go cancel()
					}
					err := k.Publish(ctx, ev)
					cancel()
					if err == nil {
						break
					}
					if errors.Is(err, context.Canceled) {
						continue
					}
					if !errors.Is(err, publish.ErrTooLarge) { // as the broker has answered; a retry is safe
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	m.mu.Lock()
	quiet = true
	m.mu.Unlock()
	for i := 0; i < 40 && !t.Failed(); i++ { // everything that is late arrives
		if err := k.Publish(t.Context(), keyed("end"+strconv.Itoa(i), 1)); err != nil {
			t.Error(err)
		}
	}
	for p := range 3 {
		last := map[string]modelRecord{}
		for at, r := range m.logOf("kubecdc.prod-eu-1", p) {
			if r.null {
				if number(last[r.key])%4 != 0 {
					t.Errorf("seed %d: partition %d, record %d: a tombstone behind %s of %s", seed, p, at,
						last[r.key].value, r.key)
				}
				continue
			}
			before, now := number(last[r.key]), number(r)
			switch {
			case now == before+1:
			case now == before && seed%2 == 1: // possibly of a call that had ended
				copies.Add(1)
			case now == before && (r.id != last[r.key].id || r.epoch != last[r.key].epoch):
				copies.Add(1)
			default:
				t.Errorf("seed %d: partition %d, record %d: key %s: %d follows %d (epochs %d and %d)", seed, p, at,
					r.key, now, before, r.epoch, last[r.key].epoch)
			}
			if r.epoch > 0 {
				fenced.Add(1)
			}
			last[r.key] = r
		}
		for key, r := range last {
			if strings.HasPrefix(key, "k") && number(r) != versions {
				t.Errorf("seed %d: key %s ends with %s", seed, key, r.value)
			}
		}
	}
	lateHits.Add(int64(m.lateHit))
	_ = k.stop()
}

func number(r modelRecord) int {
	n, _ := strconv.Atoi(r.value)
	return n
}

// A lost answer alone causes no duplicate: the very same bytes are sent again.
func TestLostAnswersMakeNoCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		m.topic("kubecdc.prod-eu-1", 1)
		n := 0
		m.fault = func(*modelPartition) fault { n++; return fault{lostAfter: n%3 != 0} }
		k := runKafka(t, kafkaConfig(m.addrs...), m)
		for i := 1; i <= 20; i++ {
			if err := k.Publish(t.Context(), keyed("a", i)); err != nil {
				t.Fatal(err)
			}
		}
		log := m.logOf("kubecdc.prod-eu-1", 0)
		if len(log) != 20 || log[19].epoch != 0 {
			t.Errorf("%d records, the last of epoch %d; want 20 of epoch 0", len(log), log[len(log)-1].epoch)
		}
	})
}

// A batch is in doubt when the broker loses track of its producer. Its first copy, which arrives
// after later versions of the object were stored, is refused.
func TestNewEpochShutsOutLateCopies(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	script := []fault{{}, {lostBefore: true}, {code: kafkago.OutOfOrderSequenceNumber}, {}, {}, {deliver: true}}
	m.fault = func(*modelPartition) (f fault) {
		if len(script) > 0 {
			f, script = script[0], script[1:]
		}
		return f
	}
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	for n := 1; n <= 4; n++ {
		if err := k.Publish(t.Context(), keyed("a", n)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, r := range m.logOf("kubecdc.prod-eu-1", 0) {
		got = append(got, fmt.Sprint(r.value, "@", r.epoch))
	}
	if want := "1@0 2@1 3@1 4@1"; strings.Join(got, " ") != want || len(script) > 0 || len(m.late) > 0 {
		t.Errorf("log is %s, want %s (%d of the script left)", got, want, len(script))
	}
}

func TestRefusals(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	k.block(t, m)

	// One poisoned event among twenty, in one batch: the others arrive.
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() {
			ev := keyed("k"+strconv.Itoa(i), 1)
			if i == 7 {
				ev.Body = []byte("poison")
			}
			errs[i] = k.Publish(t.Context(), ev)
		})
	}
	k.unblock(t, m)
	wg.Wait()
	for i, err := range errs {
		if want := i == 7; errors.Is(err, publish.ErrRefused) != want || errors.Is(err, publish.ErrTooLarge) {
			t.Errorf("event %d: %v", i, err)
		}
	}
	if got := len(m.logOf("kubecdc.prod-eu-1", 0)); got != 19 {
		t.Errorf("%d records, want 19", got)
	}

	large := keyed("large", 1)
	var b strings.Builder
	for b.Len() < 3<<20 {
		b.WriteString(strconv.FormatUint(rand.Uint64(), 36))
	}
	large.Body = []byte(b.String())
	err := k.Publish(t.Context(), large)
	if !errors.Is(err, publish.ErrTooLarge) || !errors.Is(err, publish.ErrRefused) {
		t.Errorf("want ErrTooLarge, got %v", err)
	}
	if err := k.once(keyed("k7", 1), deadLetter); err != nil {
		t.Error(err)
	}
	if got := len(m.logOf("dead.prod-eu-1", 0)); got != 1 {
		t.Errorf("%d dead letters, want 1", got)
	}
}

// block makes every produce request fail.
func (k *kafkaRun) block(tb testing.TB, m *model) {
	tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = func(*modelPartition) fault { return fault{code: kafkago.NotEnoughReplicas} }
}

func (k *kafkaRun) unblock(tb testing.TB, m *model) {
	tb.Helper()
	wait(tb, "requests fail", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.sends > 2 })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = nil
}

// A call returns when its ctx ends, and its event does not get in the way.
func TestCallEndsWithItsContext(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	k.block(t, m)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if err := k.Publish(ctx, keyed("k"+strconv.Itoa(i), 1)); !errors.Is(err, cause) {
				t.Errorf("want the cause, got %v", err)
			}
		})
	}
	wait(t, "requests fail", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.sends > 2 })
	cancel(cause)
	wg.Wait()
	k.unblock(t, m)
	if err := k.Publish(t.Context(), keyed("last", 1)); err != nil {
		t.Fatal(err)
	}
	log := m.logOf("kubecdc.prod-eu-1", 0)
	if log[len(log)-1].key != "last" || len(log) > 11 {
		t.Errorf("log: %v", log)
	}
	if err := k.stop(); err != nil {
		t.Error(err)
	}
	if err := k.Publish(t.Context(), keyed("late", 1)); !errors.Is(err, publish.ErrClosed) {
		t.Errorf("want ErrClosed, got %v", err)
	}
}

func streamEvent(kind object.StreamKind) *encode.Event {
	return &encode.Event{
		Delta: &object.Delta{Stream: &object.StreamEvent{
			Kind:     kind,
			Resource: pods,
			Scope:    "pods",
		}, Observed: 1_700_000_000_123_456_789},
		ID:           []byte("pods/" + string(kind)),
		PartitionKey: []byte("prod-eu-1/pods"),
		ContentType:  "application/cloudevents+json",
		Body:         []byte(kind),
	}
}

// Stream events go to every partition of every topic for objects of the resource, even an empty
// one, and to no other.
func TestStreamEventsGoToEveryPartition(t *testing.T) {
	m := newModel(2)
	m.topic("dead.prod-eu-1", 1)
	for _, name := range []string{
		"cdc.core.pods.shop", "cdc.core.pods._", "cdc.core.services.shop", "cdc.apps.deployments.shop", "other",
	} {
		m.topic(name, 3)
	}
	cfg := kafkaConfig(m.addrs...)
	cfg.Topic = "cdc.{group}.{resource}.{namespace}"
	cfg.Create = &kafkaconfig.Topic{Partitions: 2, ReplicationFactor: 1}
	k := runKafka(t, cfg, m)
	born := keyed("a", 1) // its topic is created
	born.Delta.Ref = object.NewRef(pods, "newborn", "a", "uid")
	for _, ev := range []*encode.Event{
		streamEvent(object.SnapshotStarted), born, streamEvent(object.SnapshotCompleted),
	} {
		if err := k.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int{
		"cdc.core.pods.shop": 6, "cdc.core.pods._": 6, "cdc.core.pods.newborn": 3,
		"cdc.core.services.shop": 0, "cdc.apps.deployments.shop": 0, "other": 0, "dead.prod-eu-1": 0,
	} {
		got := 0
		for p := range m.topics[name].partitions {
			for _, r := range m.logOf(name, p) {
				got++
				if r.key != "a" && r.key != fmt.Sprintf("prod-eu-1/pods/%d", p) {
					t.Errorf("topic %s, partition %d: key %s", name, p, r.key)
				}
			}
		}
		if got != want {
			t.Errorf("topic %s has %d records, want %d", name, got, want)
		}
	}
}

// A limit that is lowered while the agent runs also applies to topics that it finds later. The
// dispatcher shortens their larger events; the bus does not end.
func TestTopicWithALimitThatWasLoweredDoesNotEndTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		m.topic("cdc.shop", 1)
		m.config["max.message.bytes"] = "1048588"
		cfg := kafkaConfig(m.addrs...)
		cfg.Topic = "cdc.{namespace}"
		k := runKafka(t, cfg, m)
		if err := k.Publish(t.Context(), keyed("a", 1)); err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		m.config["max.message.bytes"] = "500000"
		m.mu.Unlock()
		m.topic("cdc.newborn", 1)
		in := func(namespace string, rv, size int) *encode.Event {
			ev := keyed(namespace, rv)
			ev.Delta.Ref = object.NewRef(pods, namespace, "a", "uid")
			ev.Body = []byte(bustest.Text(size))
			return ev
		}
		for _, namespace := range []string{"shop", "newborn"} {
			if err := k.Publish(t.Context(), in(namespace, 2, 900<<10)); !errors.Is(err, publish.ErrTooLarge) {
				t.Errorf("in %s: got %v, want ErrTooLarge", namespace, err)
			}
			if err := k.Publish(t.Context(), in(namespace, 3, 10)); err != nil {
				t.Errorf("in %s: %v", namespace, err)
			}
		}
		if n := bustest.Lines(k.log.String(), "the limit of the bus is below event.maxBytes"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
	})
}

func TestChecksTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		m.topic("kubecdc.prod-eu-1", 1)
		m.config["max.message.bytes"] = "500000"
		k, err := kafka.New(kafkaConfig(m.addrs...), discard, nil)
		if err != nil {
			t.Fatal(err)
		}
		k.SetRoundTripper(m)
		if err = k.Run(t.Context()); !errors.Is(err, publish.ErrStream) ||
			!strings.Contains(err.Error(), "max.message.bytes") {
			t.Errorf("want a refusal with advice, got %v", err)
		}

		m = newModel(1)
		r := runKafka(t, kafkaConfig(m.addrs...), m)
		wait(t, "the missing topic is said", func() bool {
			return strings.Contains(r.log.String(), "create the topic, or set bus.kafka.create")
		})
		if err := r.Ready(); err == nil {
			t.Error("ready without a topic")
		}
		m.topic("dead.prod-eu-1", 1)
		m.topic("kubecdc.prod-eu-1", 1)
		wait(t, "ready", func() bool { return r.Ready() == nil })

		m.mu.Lock()
		m.denied = kafkago.ClusterAuthorizationFailed
		m.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Publish(ctx, keyed("a", 1)) })
		wait(t, "advice", func() bool { return strings.Contains(r.log.String(), "IdempotentWrite") })
		if err := r.Ready(); err == nil {
			t.Error("ready without permission")
		}
		m.mu.Lock()
		m.denied = 0
		m.mu.Unlock()
		wg.Wait()
		wait(t, "ready again", func() bool { return r.Ready() == nil })
	})
}

func TestRefusesConfigurations(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*kafka.Config)
		want   string
	}{
		"compression": {func(c *kafka.Config) { c.Compression = "br" }, "must be zstd, lz4, snappy, gzip or none"},
		"dead":        {func(c *kafka.Config) { c.DeadLetter = "kubecdc.prod-eu-1" }, "use another"},
		"topic":       {func(c *kafka.Config) { c.Topic = "a/{cluster}" }, "at byte 1"},
	} {
		cfg := kafkaConfig("127.0.0.1:9092")
		c.change(&cfg)
		if _, err := kafka.New(cfg, discard, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, got %v", name, c.want, err)
		}
	}
}
