package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// The bus is asked through these.
var (
	_ driver.Limiter        = (*kafka.Bus)(nil)
	_ driver.LastProgresser = (*kafka.Bus)(nil)
)

// lastOf is what LastProgress returns, as "run number: pods=7 pods/a=8".
func lastOf(tb testing.TB, k *kafkaRun) string {
	tb.Helper()
	p, ok, err := k.LastProgress(tb.Context(), bustest.Writer)
	if err != nil {
		tb.Fatal(err)
	}
	if !ok {
		return ""
	}
	text := fmt.Sprintf("%s %v:", p.Run, p.Time.Sub(bustest.Began).Minutes())
	for _, s := range p.Scopes {
		name := s.Scope
		if name == "" {
			name = s.Resource
		}
		text += fmt.Sprintf(" %s=%d", name, s.ResourceVersion)
	}
	return text
}

func expectLast(tb testing.TB, k *kafkaRun, want string) {
	tb.Helper()
	if diff := gocmp.Diff(want, lastOf(tb, k)); diff != "" {
		tb.Errorf("-want +got\n%s", diff)
	}
}

// fillLog adds so many records of changes to a partition, one in each second from the time of the
// progress number n on.
func (m *model) fillLog(topic string, partition, records int, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.topics[topic].partitions[partition]
	for i := range records {
		at := bustest.Began.Add(time.Duration(n)*time.Minute + time.Duration(i)*time.Second)
		p.log = append(p.log, modelRecord{key: "prod-eu-1/pods/x", value: "{}", time: at.UnixMilli()})
	}
}

// The last progress of a writer is found behind any events, in each mode, and whatever the broker
// answers at a time.
func TestLastProgressOfATopic(t *testing.T) {
	for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
		for _, page := range []int{0, 7} {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(2)
				m.page = page
				m.topic("dead.prod-eu-1", 1)
				m.topic("kubecdc.prod-eu-1", 3)
				k := runKafka(t, kafkaConfig(m.addrs...), m)
				send := func(run string, d *object.Delta) {
					t.Helper()
					publishEach(t, k, bustest.EncodeProgress(t, mode, run, d))
				}
				expectLast(t, k, "")
				send("0-1", bustest.Progress(9, scopeAt(pods, "", 1)))
				expectLast(t, k, "0-1 9: pods=1")
				send("0-2", bustest.Progress(1, scopeAt(services, "", 2)))
				send("0-2", bustest.Progress(4, scopeAt(pods, "", 3)))
				for p := range 3 {
					m.fillLog("kubecdc.prod-eu-1", p, 50, 4)
				}
				send("0-2", bustest.Progress(5, scopeAt(services, "", 5)))
				for p := range 3 {
					m.fillLog("kubecdc.prod-eu-1", p, 600, 5) // more than are read first
				}
				send("0-2", bustest.Progress(6, scopeAt(pods, "pods/a", 6), scopeAt(pods, "pods/b", 7)))
				const want = "0-2 6: pods/a=6 pods/b=7 services=5"
				expectLast(t, k, want)
				for p := range 3 {
					m.fillLog("kubecdc.prod-eu-1", p, 3000*p+300, 6)
				}
				expectLast(t, k, want)

				// Records of others under such keys do not count.
				m.mu.Lock()
				for _, p := range m.topics["kubecdc.prod-eu-1"].partitions {
					for i := range 3 {
						p.log = append(p.log,
							modelRecord{key: fmt.Sprintf("x/progress/%s/%d", bustest.Writer, i), value: "hello"},
							modelRecord{key: fmt.Sprintf("x/progress/other/%d", i), value: "hello"})
					}
				}
				m.mu.Unlock()
				expectLast(t, k, want)
				if p, ok, err := k.LastProgress(t.Context(), "another"); ok || err != nil {
					t.Errorf("another writer: %+v, %v", p, err)
				}

				// Retention has removed the older ones.
				m.mu.Lock()
				for _, p := range m.topics["kubecdc.prod-eu-1"].partitions {
					p.removed = len(p.log) - 100
				}
				m.mu.Unlock()
				expectLast(t, k, "")
				send("0-2", bustest.Progress(7, scopeAt(pods, "", 8)))
				expectLast(t, k, "0-2 7: pods=8")
			})
		}
	}
}

// A partition without a leader, which is late, does not hide what the others have.
func TestLastProgressOfPartitionsThatAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		topic := m.topic("kubecdc.prod-eu-1", 3)
		k := runKafka(t, kafkaConfig(m.addrs...), m)
		publishEach(t, k, reportOf(t, 1, scopeAt(pods, "", 1)))
		lead := func(leaders ...int) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for i, leader := range leaders {
				topic.partitions[i].leader = leader
			}
		}
		lead(-1, 0, 0)
		publishEach(t, k, reportOf(t, 2, scopeAt(pods, "", 2)), reportOf(t, 3, scopeAt(pods, "", 3)))
		expectLast(t, k, "0-1 3: pods=3")
		if err := k.stop(); err != nil { // what waits for the leader is lost
			t.Fatal(err)
		}
		again := runKafka(t, kafkaConfig(m.addrs...), m)
		lead(0, -1, -1)
		expectLast(t, again, "0-1 1: pods=1")
		lead(0, 0, -1)
		expectLast(t, again, "0-1 3: pods=3")

		// Without any leader the question is asked again.
		lead(-1, -1, -1)
		answered := make(chan string, 1)
		go func() { answered <- lastOf(t, again) }()
		<-time.After(time.Minute)
		select {
		case got := <-answered:
			t.Fatalf("answered %q", got)
		default:
		}
		lead(0, 0, 0)
		if got := <-answered; got != "0-1 3: pods=3" {
			t.Errorf("got %q", got)
		}
	})
}

// With several topics, those of cluster-scoped objects have all scopes of their resources. Without
// them, each topic has its own.
func TestLastProgressOfSeveralTopics(t *testing.T) {
	for template, c := range map[string]struct {
		topics []string
		reads  int
		want   string
	}{
		"cdc.{resource}": {[]string{
			"cdc.pods", "cdc.services", "cdc.nodes", "cdc.other", "x",
		}, 4, "0-1 3: services=1 nodes=2 pods/a=3 pods/b=4 pods=5"},
		"cdc.{namespace}": {[]string{
			"cdc._", "cdc.a", "cdc.b",
		}, 1, "0-1 3: services=1 nodes=2 pods/a=3 pods/b=4 pods=5"},
		"{namespace}.core.{resource}": {[]string{
			"a.core.pods", "b.core.pods", "a.core.services",
		}, 3, "0-1 3: services=1 pods/a=3 pods=5 pods/b=4"},
	} {
		t.Run(template, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(2)
				m.topic("dead.prod-eu-1", 1)
				cfg := kafkaConfig(m.addrs...)
				cfg.Topic = template
				k := runKafka(t, cfg, m)
				expectLast(t, k, "")
				for _, name := range c.topics {
					m.topic(name, 2)
				}
				expectLast(t, k, "")
				scopes := []object.ScopeReport{
					scopeAt(services, "", 1), scopeAt(nodes, "", 2), scopeAt(pods, "pods/a", 3),
					scopeAt(pods, "pods/b", 4), scopeAt(pods, "", 5),
				}
				publishEach(t, k, reportOf(t, 2, scopes[:2]...), reportOf(t, 3, scopes...))
				m.mu.Lock()
				m.topics[c.topics[0]].partitions[0].leader = -1 // the other partition is read
				m.reads = 0
				m.mu.Unlock()
				if got, want := sorted(lastOf(t, k)), sorted(c.want); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				if m.reads > c.reads {
					t.Errorf("%d requests to read", m.reads)
				}
			})
		})
	}
}

// sorted sorts the entries in a result of lastOf: their order is that of the topics.
func sorted(text string) string {
	head, entries, _ := strings.Cut(text, ": ")
	all := strings.Fields(entries)
	slices.Sort(all)
	return head + ": " + strings.Join(all, " ")
}

// A user who may not read gets no progress, and the log says what to grant. A topic that does not
// exist has none.
func TestLastProgressThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		k := runKafka(t, kafkaConfig(m.addrs...), m)
		began := time.Now()
		expectLast(t, k, "")
		if waited := time.Since(began); waited > 5*time.Second {
			t.Errorf("waited %v for a topic that is not there", waited)
		}
		m.topic("kubecdc.prod-eu-1", 2)
		publishEach(t, k, reportOf(t, 1, scopeAt(pods, "", 1)))
		m.mu.Lock()
		m.unreadable = kafkago.TopicAuthorizationFailed
		m.mu.Unlock()
		expectLast(t, k, "")
		if !strings.Contains(k.log.String(), "grant the user Read and Describe on the topics") {
			t.Errorf("the log does not say what to grant:\n%s", k.log)
		}
		m.mu.Lock()
		m.unreadable = kafkago.BrokerNotAvailable
		m.mu.Unlock()
		gone := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, gone)
		defer cancel()
		if _, _, err := k.LastProgress(ctx, bustest.Writer); !errors.Is(err, gone) {
			t.Errorf("got %v, want %v", err, gone)
		}
		if n := bustest.Lines(k.log.String(), "cannot read the last progress of the agent, retrying"); n < 1 ||
			n > 3 {
			t.Errorf("%d lines about attempts:\n%s", n, k.log)
		}
		if err := k.stop(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := k.LastProgress(t.Context(), bustest.Writer); !errors.Is(err, publish.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// The search ends after a bounded number of records, and of bytes.
func TestLastProgressIsTooFarBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		m.topic("kubecdc.prod-eu-1", 1)
		m.page = 1000
		large := strings.Repeat("x", 4<<10)
		k := runKafka(t, kafkaConfig(m.addrs...), m)
		publishEach(t, k, reportOf(t, 1, scopeAt(pods, "", 1)))
		m.fillLog("kubecdc.prod-eu-1", 0, 100_000, 1)
		expectLast(t, k, "0-1 1: pods=1")
		m.fillLog("kubecdc.prod-eu-1", 0, 40_000, 2)
		expectLast(t, k, "")
		m.mu.Lock()
		log := m.topics["kubecdc.prod-eu-1"].partitions[0].log
		for i := 1; i < len(log); i++ { // fewer, and larger
			log[i].value = large
		}
		m.topics["kubecdc.prod-eu-1"].partitions[0].log = log[:20_000]
		m.mu.Unlock()
		expectLast(t, k, "")
	})
}
