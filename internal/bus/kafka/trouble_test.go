package kafka_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// delete deletes a topic with all its records.
func (m *model) delete(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.topics, name)
}

// A topic that is deleted and not recreated, for instance that of a namespace, does not hold back
// the stream events of the others. Once no event waits for it, the publisher is ready.
func TestDeletedTopicHoldsNoStreamEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		for _, name := range []string{"cdc.pods.shop", "cdc.pods.going", "cdc.pods.unseen"} {
			m.topic(name, 2)
		}
		cfg := kafkaConfig(m.addrs...)
		cfg.Topic = "cdc.{resource}.{namespace}"
		k := runKafka(t, cfg, m, func(k *kafka.Bus) { k.SetAbsentToBeGone(4) })
		wait(t, "ready", func() bool { return k.Ready() == nil })
		services := streamEvent(object.SnapshotStarted) // so that topics are listed
		services.Delta.Stream.Resource = &object.Resource{
			Version:    "v1",
			Name:       "services",
			Kind:       "Service",
			Namespaced: true,
		}
		m.topic("cdc.services.shop", 1)
		if err := k.Publish(t.Context(), services); err != nil {
			t.Fatal(err)
		}
		m.delete("cdc.pods.unseen")
		if err := k.Publish(t.Context(), streamEvent(object.SnapshotStarted)); err != nil {
			t.Fatal(err)
		}
		m.delete("cdc.pods.going")
		if err := k.Publish(t.Context(), streamEvent(object.SnapshotCompleted)); err != nil {
			t.Fatal(err)
		}
		for p := range 2 {
			if log := m.logOf("cdc.pods.shop", p); len(log) != 2 {
				t.Errorf("partition %d has %d records, want 2", p, len(log))
			}
		}
		// The event that nobody waits for any more came back with the topic: it is not stored, and
		// the next one is.
		m.topic("cdc.pods.going", 2)
		if err := k.Publish(t.Context(), reportOf(t, 1, scopeAt(pods, "", 1))); err != nil {
			t.Fatal(err)
		}
		for p := range 2 {
			if log := m.logOf("cdc.pods.going", p); len(log) != 1 || !isReport(&log[0]) {
				t.Errorf("partition %d of the topic that came back: %v", p, log)
			}
		}
		wait(t, "ready again", func() bool { return k.Ready() == nil })
	})
}

// A missing topic does not affect readiness as long as only scopes that are no longer selected wait
// for it.
func TestTopicOfARetiringScopeIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		var retiring atomic.Bool
		cfg := kafkaConfig(m.addrs...)
		cfg.Topic = "cdc.{resource}"
		scope := streamEvent(object.Gap).Delta.Stream.Scope
		cfg.Retiring = func(s string) bool { return s == scope && retiring.Load() }
		k := runKafka(t, cfg, m)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := k.Publish(t.Context(), streamEvent(object.Gap)); err != nil {
				t.Error(err)
			}
		})
		wait(t, "trouble", func() bool {
			err := k.Ready() // Once: the publisher may have connected between two calls.
			return err != nil && strings.Contains(err.Error(), "does not exist")
		})
		retiring.Store(true)
		if err := k.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		wg.Go(func() {
			if err := k.Publish(t.Context(), keyed("k", 1)); err != nil {
				t.Error(err)
			}
		})
		wait(t, "trouble of another scope", func() bool { return k.Ready() != nil })
		m.topic("cdc.pods", 1)
		wg.Wait()
		wait(t, "ready", func() bool { return k.Ready() == nil })
	})
}

// A partition in trouble is reported, whatever the state of the others.
func TestReadyIsAboutEachPartition(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	topic := m.topic("kubecdc.prod-eu-1", 2)
	sick := topic.partitions[0]
	m.fault = func(p *modelPartition) (f fault) {
		if p == sick {
			f.code = kafkago.NotEnoughReplicas
		}
		return f
	}
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	keys := [2]string{}
	for i := 0; keys[0] == "" || keys[1] == ""; i++ {
		key := "k" + strconv.Itoa(i)
		keys[kafka.PartitionOf([]byte(key), 2)] = key
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := k.Publish(t.Context(), keyed(keys[0], 1)); err != nil {
			t.Error(err)
		}
	})
	wait(t, "trouble", func() bool {
		err := k.Ready() // Once: the publisher may have connected between two calls.
		return err != nil && strings.Contains(err.Error(), "partition 0")
	})
	if err := k.Publish(t.Context(), keyed(keys[1], 1)); err != nil {
		t.Fatal(err)
	}
	if err := k.Ready(); err == nil {
		t.Error("ready while one partition takes nothing")
	}
	m.mu.Lock()
	sick = nil
	m.mu.Unlock()
	wg.Wait()
	wait(t, "ready", func() bool { return k.Ready() == nil })
}

// If events wait for partitions that no longer exist, the publisher is not ready.
func TestShrunkTopicIsNotReady(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 3)
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	wait(t, "ready", func() bool { return k.Ready() == nil })
	m.topic("kubecdc.prod-eu-1", 1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { _ = k.Publish(ctx, keyed("k"+strconv.Itoa(i), 1)) })
	}
	wait(t, "advice", func() bool {
		err := k.Ready()
		return err != nil && strings.Contains(err.Error(), "restart the agent")
	})
	m.topic("kubecdc.prod-eu-1", 3)
	wg.Go(func() { _ = k.Publish(ctx, keyed("again", 1)) })
	wait(t, "ready again", func() bool { return k.Ready() == nil })
	cancel()
	wg.Wait()
}

// Answers of a broker that has just started are no errors.
func TestFreshBrokerIsNoError(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	m.denied = kafkago.GroupLoadInProgress
	// if it cannot describe a topic's configuration, the topic is used as it is
	m.undescribed = kafkago.UnsupportedVersion
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := k.Publish(t.Context(), keyed("a", 1)); err != nil {
			t.Error(err)
		}
	})
	wait(t, "it is tried again", func() bool { return strings.Contains(k.log.String(), "get a producer id") })
	if log := k.log.String(); strings.Contains(log, "ERROR") || k.Ready() != nil {
		t.Errorf("ready: %v, log:\n%s", k.Ready(), log)
	}
	m.mu.Lock()
	m.denied = 0
	m.mu.Unlock()
	wg.Wait()
}

// If batches are refused because the topic's bound was lowered, batches for all partitions become
// only as small as needed, and grow again later.
func TestBatchesShrinkAndGrow(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	wait(t, "ready", func() bool { return k.Ready() == nil })
	first := k.MaxBatch("kubecdc.prod-eu-1")
	k.block(t, m)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ev := keyed("k"+strconv.Itoa(i), 1)
			var b strings.Builder
			for b.Len() < 40<<10 {
				b.WriteString(strconv.FormatUint(rand.Uint64(), 36))
			}
			ev.Body = []byte(b.String())
			if err := k.Publish(t.Context(), ev); err != nil {
				t.Error(err)
			}
		})
	}
	m.mu.Lock()
	m.config["max.message.bytes"] = "200000"
	m.mu.Unlock()
	k.unblock(t, m)
	wg.Wait()
	low := k.MaxBatch("kubecdc.prod-eu-1")
	if low >= first || low < 100_000 {
		t.Errorf("from %d bytes to %d, want some above 100,000", first, low)
	}
	for range 10 {
		k.Grow("kubecdc.prod-eu-1")
	}
	if got := k.MaxBatch("kubecdc.prod-eu-1"); got != first {
		t.Errorf("%d bytes, want %d again", got, first)
	}
}

func TestBrokerWithPasswordIsNotShown(t *testing.T) {
	cfg := kafkaConfig("agent:s3cret@kafka:9092")
	err := cfg.Validate(field.NewPath("kafka"), new(driver.Facts)).ToAggregate()
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
}

// New partitions of a topic that grows receive events, and stream events too.
func TestTopicGrows(t *testing.T) {
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic("kubecdc.prod-eu-1", 1)
	k := runKafka(t, kafkaConfig(m.addrs...), m)
	if err := k.Publish(t.Context(), keyed("a", 1)); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	topic := m.topics["kubecdc.prod-eu-1"]
	for range 2 {
		topic.partitions = append(topic.partitions, &modelPartition{producers: map[int64]*modelProducer{}})
	}
	failed := false
	m.fault = func(*modelPartition) fault { // makes the bus look up the cluster
		if failed {
			return fault{}
		}
		failed = true
		return fault{code: kafkago.LeaderNotAvailable}
	}
	m.mu.Unlock()
	if err := k.Publish(t.Context(), keyed("b", 1)); err != nil {
		t.Fatal(err)
	}
	wait(t, "it is seen", func() bool { return strings.Contains(k.log.String(), "topic has more partitions") })
	if err := k.Publish(t.Context(), streamEvent(object.SnapshotStarted)); err != nil {
		t.Fatal(err)
	}
	for p := range 3 {
		log := m.logOf("kubecdc.prod-eu-1", p)
		if len(log) == 0 || log[len(log)-1].value != string(object.SnapshotStarted) {
			t.Errorf("partition %d: %v", p, log)
		}
	}
	if err := k.Ready(); err != nil {
		t.Error(err)
	}
}

// cutting is a connection to a broker that is cut if events are sent on it; other requests are
// answered.
type cutting struct{ *model }

func (c cutting) RoundTrip(ctx context.Context, addr net.Addr, req kafkago.Request) (kafkago.Response, error) {
	if _, ok := req.(*rawproduce.Request); ok {
		return nil, kafkanet.ErrCut
	}
	return c.model.RoundTrip(ctx, addr, req)
}

// A broker closes the connection of a request that is larger than its socket.request.max.bytes. A
// smaller event may be accepted. If the event is already small, it is retried alone again and
// again.
func TestEventThatIsCutForItsSizeIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		m.topic("kubecdc.prod-eu-1", 1)
		k := runKafka(t, kafkaConfig(m.addrs...), cutting{m})
		large := keyed("a", 1)
		large.Body = []byte(strings.Repeat("x", 100<<10))
		if err := k.once(large); errors.Is(err, publish.ErrRefused) {
			t.Errorf("before it was tried alone: %v", err)
		}
		if err := k.Publish(t.Context(), large); !errors.Is(err, publish.ErrTooLarge) {
			t.Errorf("got %v", err)
		}
		within, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := k.Publish(within, keyed("b", 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a small event: %v", err)
		}
	})
}
