package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	kafkabus "github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// startPublisher starts a publisher for its own topic, which it creates.
func startPublisher(t *testing.T, cfg kafkabus.Config) *agent {
	t.Helper()
	cfg.Cluster, cfg.MaxEventBytes = "c", 512<<10
	a := &agent{log: new(logText)}
	var err error
	a.Bus, err = kafkabus.New(cfg, slog.New(slog.NewTextHandler(a.log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if t.Failed() {
			t.Logf("the publisher's log:\n%s", a.log)
		}
	})
	return a
}

// version returns event n of the object key; every seventh is large and incompressible.
func version(key string, n int) *encode.Event {
	body := strconv.Itoa(n)
	if n%7 == 0 {
		var b strings.Builder
		b.WriteString(body + " ")
		for b.Len() < 100<<10 {
			b.WriteString(strconv.FormatUint(rand.Uint64(), 36))
		}
		body = b.String()
	}
	pods := &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	return &encode.Event{
		Delta: &object.Delta{
			Op:       object.Updated,
			Ref:      object.NewRef(pods, "shop", key, "uid-"+key),
			Observed: time.Now().UnixNano(),
		},
		ID:           fmt.Appendf(nil, "pods/%s/%d", key, n),
		PartitionKey: []byte(key),
		ContentType:  "application/cloudevents+json",
		Body:         []byte(body),
	}
}

// acknowledged counts the versions of each object that the bus has acknowledged.
type acknowledged []atomic.Int64

func (a acknowledged) total() (n int64) {
	for k := range a {
		n += a[k].Load()
	}
	return n
}

func (a acknowledged) least() int64 {
	n := a[0].Load()
	for k := range a {
		n = min(n, a[k].Load())
	}
	return n
}

// counts returns the numbers of now.
func (a acknowledged) counts() []int64 {
	counts := make([]int64, len(a))
	for k := range a {
		counts[k] = a[k].Load()
	}
	return counts
}

// awaitEach waits until each object has more than its former number, or the last one.
func (a acknowledged) awaitEach(t *testing.T, former []int64, last int64) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		for k, n := range a.counts() {
			if n <= former[k] && n < last {
				return fmt.Errorf("k%d: %d versions acknowledged", k, n)
			}
		}
		return nil
	})
}

// publishVersions publishes n versions of each of keys objects, in order per object, and counts
// them in acked.
func publishVersions(t *testing.T, a *agent, keys, n int, acked acknowledged) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for k := range keys {
		wg.Go(func() {
			for i := 1; i <= n; i++ {
				if err := a.await(ctx, version("k"+strconv.Itoa(k), i)); err != nil {
					t.Error(err)
					return
				}
				acked[k].Add(1)
			}
		})
	}
	wg.Wait()
}

// checkVersions reads a topic: each object's versions are there, in order, once.
func checkVersions(t *testing.T, c *kafka.Cluster, topic string, keys, n int) {
	t.Helper()
	partitions, err := c.Records(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]int{}
	for p, records := range partitions {
		for _, r := range records {
			text, _, _ := strings.Cut(string(r.Value), " ")
			got, err := strconv.Atoi(text)
			if err != nil || got != last[string(r.Key)]+1 {
				oracle.Fail(t, "partition %d, offset %d: %s: version %s follows %d", p, r.Offset, r.Key, text,
					last[string(r.Key)])
			}
			last[string(r.Key)] = got
		}
	}
	if len(last) != keys {
		oracle.Fail(t, "%d objects, want %d", len(last), keys)
	}
	for key, got := range last {
		if got != n {
			oracle.Fail(t, "%s ends with version %d, want %d", key, got, n)
		}
	}
}

// The broker and librdkafka can read every compression.
func TestPublisherCompresses(t *testing.T) {
	t.Parallel()
	c, brokers := lasting.get(t), lasting.get(t).Inside()
	for _, compression := range []string{"zstd", "lz4", "snappy", "gzip", "none"} {
		a := startPublisher(t, kafkabus.Config{
			Brokers: brokers, Topic: "compressed-" + compression, Compression: kafkaconfig.Compression(compression),
			Create: &kafkaconfig.Topic{Partitions: 3, ReplicationFactor: 1, Config: map[string]string{
				"retention.ms": "-1",
			}},
		})
		publishVersions(t, a, 8, 30, make(acknowledged, 8))
		checkVersions(t, c, "compressed-"+compression, 8, 30)
		if kcat, err := exec.LookPath("kcat"); err == nil {
			out, err := exec.CommandContext(t.Context(), kcat, "-C", "-q", "-e", "-b", brokers[0], "-t",
				"compressed-"+compression, "-o", "beginning", "-f", "%k %h\n").CombinedOutput()
			if err != nil || strings.Count(string(out), "content-type=application/cloudevents+json") != 240 {
				t.Errorf("%s: kcat reads otherwise: %v: %.500s", compression, err, out)
			}
		}
	}
}

// Answers are lost with their connections after the broker has stored the records: nothing is
// there twice. The publisher has only the address of the proxy, and the broker sends it to the
// leader through the proxy. A batch whose connection is cut four times in a row may be stored
// twice, so each cut waits until each object has advanced since the one before.
func TestPublisherLosesAnswers(t *testing.T) {
	t.Parallel()
	c := lasting.get(t)
	p := lasting.proxy
	a := startPublisher(t, kafkabus.Config{
		Brokers: []string{p.Addr()}, Topic: "lost", Create: &kafkaconfig.Topic{Partitions: 3, ReplicationFactor: 1},
	})
	const keys, versions = 12, 60
	acked := make(acknowledged, keys)
	var wg sync.WaitGroup
	wg.Go(func() {
		for acked.least() < versions*9/10 && t.Context().Err() == nil {
			former := acked.counts()
			p.Cut()
			acked.awaitEach(t, former, versions)
		}
	})
	publishVersions(t, a, keys, versions, acked)
	wg.Wait()
	checkVersions(t, c, "lost", keys, versions)

	conn, err := kafkago.DialContext(t.Context(), "tcp", lasting.plain)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	partitions, err := conn.ReadPartitions("lost")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range partitions {
		if got := net.JoinHostPort(p.Leader.Host, strconv.Itoa(p.Leader.Port)); got != c.Brokers()[0] ||
			got != lasting.proxy.Addr() {
			t.Errorf("the leader is at %s, want the proxy's %s", got, lasting.proxy.Addr())
		}
	}
}

// The leader of a partition is killed repeatedly. With one node that is the whole cluster.
// LEADERS=4,400 kills four times, and publishes 400 versions of each object.
func TestPublisherSurvivesItsLeaders(t *testing.T) {
	t.Parallel()
	n, size := nodes(t), sizes(t, "LEADERS", 2, 200)
	c := mortal.hold(t)
	a := startPublisher(t, kafkabus.Config{
		Brokers: c.Brokers(), Topic: "led", Create: &kafkaconfig.Topic{Partitions: 3, ReplicationFactor: min(n, 3)},
	})
	const keys = 12
	kills, versions := size[0], size[1]
	acked := make(acknowledged, keys)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range kills {
			wait.Eventually(t, time.Minute, func() error {
				if acked.total() < int64((i+1)*keys*versions/(kills+2)) {
					return fmt.Errorf("%d acknowledged", acked.total())
				}
				return nil
			})
			leader, err := c.Leader(t.Context(), "led", i%3)
			if err != nil {
				t.Error(err)
				return
			}
			c.Node(leader).Kill()
			if err := c.Node(leader).Start(t.Context()); err != nil {
				t.Error(err)
				return
			}
			if err := c.WaitInSync(t.Context(), "led"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	publishVersions(t, a, keys, versions, acked)
	wg.Wait()
	checkVersions(t, c, "led", keys, versions)
}

// The broker is away for longer than the topic's maximum age of a record. Waiting records are
// stored all the same, with another timestamp.
func TestPublisherReplacesOldTimestamps(t *testing.T) {
	t.Parallel()
	c := mortal.holdOne(t)
	const oldest = 2 * time.Second
	config := map[string]string{"message.timestamp.before.max.ms": strconv.FormatInt(oldest.Milliseconds(), 10)}
	if err := c.CreateTopic(t.Context(), "aged", 2, config); err != nil {
		t.Fatal(err)
	}
	a := startPublisher(t, kafkabus.Config{Brokers: c.Brokers(), Topic: "aged"})
	wait.Eventually(t, time.Minute, a.Ready)
	if err := c.Node(0).Pause(); err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() { publishVersions(t, a, 50, 2, make(acknowledged, 50)) })
	wait.Eventually(t, time.Minute, func() error {
		if time.Since(paused) < oldest+oldest/2 {
			return errors.New("the outage is too short")
		}
		return nil
	})
	if err := c.Node(0).Continue(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	checkVersions(t, c, "aged", 50, 2)
	if log := a.log.String(); !strings.Contains(log, "reason=timestamp") || strings.Contains(log, "ERROR") {
		t.Errorf("the log:\n%s", log)
	}
}

// sizes returns the numbers in the environment variable, or these.
func sizes(t *testing.T, variable string, otherwise ...int) []int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			t.Fatalf("%s=%q: want numbers", variable, text)
		}
		all = append(all, n)
	}
	if len(all) != len(otherwise) {
		t.Fatalf("%s=%q: want %d numbers", variable, text, len(otherwise))
	}
	return all
}

// Without changes, an agent sends a record per minute to each partition of one topic, however many
// topics and scopes there are. AT_REST=20,12,10 has 20 namespaces, 12 partitions and 10 scopes.
func TestPublisherAtRest(t *testing.T) {
	size := sizes(t, "AT_REST", 4, 3, 2)
	namespaces := size[0]
	partitions := size[1]
	scopes := size[2]
	t.Parallel()
	c := lasting.get(t)
	a := startPublisher(t, kafkabus.Config{
		Brokers: c.Inside(), Topic: "rest.{namespace}", Create: &kafkaconfig.Topic{
			Partitions:        partitions,
			ReplicationFactor: 1,
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	publishEach := func(n int, event func(i int) *encode.Event) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := a.await(ctx, event(i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	resource := func(i int) *object.Resource {
		return &object.Resource{Version: "v1", Name: "r" + strconv.Itoa(i), Kind: "R", Namespaced: true}
	}
	publishEach(namespaces*scopes, func(i int) *encode.Event {
		r := resource(i % scopes)
		ev := version("o"+strconv.Itoa(i), 1)
		ev.Delta.Ref, ev.Delta.Scope = object.NewRef(r, "n"+strconv.Itoa(i/scopes), "a", "uid"), r.Name
		ev.Delta.ResourceVersion = 7
		return ev
	})
	count := func() (records int) {
		t.Helper()
		for i := range namespaces {
			all, err := c.Records(ctx, "rest.n"+strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range all {
				records += len(one)
			}
		}
		return records
	}
	before := count()
	for minute, want := range []int{namespaces * partitions, partitions, partitions} {
		var all []object.ScopeReport
		for i := range scopes {
			all = append(all, bustest.ScopeAt(resource(i), "", 7))
		}
		report := bustest.EncodeProgress(t, encode.Structured, "0-1",
			bustest.Progress(uint64(minute+1), all...))
		publishEach(1, func(int) *encode.Event { return report })
		now := count()
		t.Logf("minute %d: %d records", minute, now-before)
		if now-before != want {
			t.Errorf("minute %d: %d records, want %d", minute, now-before, want)
		}
		before = now
	}
}

// deleteTopic deletes a topic and waits until the cluster no longer has it.
func deleteTopic(t *testing.T, c *kafka.Cluster, topic string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pool := &kafkago.Transport{Context: ctx}
	defer pool.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(c.Inside()...), Transport: pool}
	res, err := client.DeleteTopics(t.Context(), &kafkago.DeleteTopicsRequest{Topics: []string{topic}})
	if err == nil {
		err = res.Errors[topic]
	}
	if err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, time.Minute, func() error {
		if _, err := c.Partitions(t.Context(), topic); err == nil {
			return fmt.Errorf("topic %s is there still", topic)
		}
		return nil
	})
}

// A deleted topic is created again if the publisher may do that; otherwise stream events do not
// wait for it.
func TestPublisherSurvivesDeletedTopics(t *testing.T) {
	t.Parallel()
	c := lasting.get(t)
	for _, topic := range []string{"cdc.shop", "cdc.going"} {
		if err := c.CreateTopic(t.Context(), topic, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	a := startPublisher(t, kafkabus.Config{Brokers: c.Inside(), Topic: "cdc.{namespace}"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	pods := &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	for i, kind := range []object.StreamKind{object.SnapshotStarted, object.SnapshotCompleted} {
		if i == 1 {
			deleteTopic(t, c, "cdc.going")
		}
		if err := a.await(ctx, &encode.Event{
			Delta: &object.Delta{Stream: &object.StreamEvent{
				Kind:     kind,
				Resource: pods,
				Scope:    "pods",
			}, Observed: time.Now().UnixNano()},
			ID:           []byte(kind),
			PartitionKey: []byte("pods"),
			ContentType:  "application/cloudevents+json",
			Body:         []byte(kind),
		}); err != nil {
			t.Fatal(err)
		}
	}
	partitions, err := c.Records(ctx, "cdc.shop")
	if err != nil {
		t.Fatal(err)
	}
	for p, records := range partitions {
		if len(records) != 2 {
			t.Errorf("partition %d has %d records, want 2", p, len(records))
		}
	}

	a = startPublisher(t, kafkabus.Config{Brokers: c.Inside(), Topic: "again", Create: &kafkaconfig.Topic{
		Partitions:        2,
		ReplicationFactor: 1,
	}})
	publishVersions(t, a, 4, 20, make(acknowledged, 4))
	deleteTopic(t, c, "again")
	publishVersions(t, a, 4, 20, make(acknowledged, 4))
	checkVersions(t, c, "again", 4, 20)
	if !strings.Contains(a.log.String(), "creating it again") {
		t.Error("the log does not say that records are gone")
	}
}
