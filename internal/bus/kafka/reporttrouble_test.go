package kafka_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// A missing topic of one resource does not delay the progress of the others, and is no trouble as
// long as nothing else waits for it.
func TestReportAndMissingTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		m.topic("cdc.pods", 2)
		cfg := kafkaConfig(m.addrs...)
		cfg.Topic = "cdc.{resource}"
		k := runKafka(t, cfg, m)
		watched := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			wait(t, "ready", func() bool { return k.Ready() == nil })
			for {
				select {
				case <-watched:
					return
				case <-time.After(10 * time.Millisecond):
					if err := k.Ready(); err != nil {
						t.Errorf("not ready: %v", err)
						return
					}
				}
			}
		}()
		for n := range uint64(3) {
			began := time.Now()
			publishEach(t, k, reportOf(t, n+1, scopeAt(pods, "", n), scopeAt(services, "", n)))
			if waited := time.Since(began); waited > 11*time.Second {
				t.Errorf("report %d waited %v", n+1, waited)
			}
		}
		close(watched)
		<-ended
		published := make(chan error, 1)
		go func() { published <- k.Publish(t.Context(), streamOf(services)) }()
		wait(t, "trouble", func() bool { return k.Ready() != nil })
		m.topic("cdc.services", 1)
		if err := <-published; err != nil {
			t.Fatal(err)
		}
		publishEach(t, k, reportOf(t, 4, scopeAt(pods, "", 4), scopeAt(services, "", 4)))
		if got := progressIn(t, m, "cdc.services", 0); !slices.Equal(got, []string{"4: services=4"}) {
			t.Errorf("the topic that was missing has %v", got)
		}
		if got := numbersIn(t, m, "cdc.pods", 2); got != "1 2 3 4" {
			t.Errorf("the other topic has %s", got)
		}
	})
}

// A report waits for a topic, whichever comes. If none of the topics may have objects of its
// scopes, or if it has none, nobody needs it.
func TestReportNeedsATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := namespaces(t)
		published := make(chan error, 1)
		go func() { published <- k.Publish(t.Context(), reportOf(t, 1, scopeAt(pods, "", 1))) }()
		<-time.After(5 * time.Minute)
		select {
		case err := <-published:
			t.Fatalf("published to no topic: %v", err)
		default:
		}
		m.topic("cdc.late", 1)
		if err := <-published; err != nil {
			t.Fatal(err)
		}
		if got := progressIn(t, m, "cdc.late", 0); !slices.Equal(got, []string{"1: pods=1"}) {
			t.Errorf("the topic has %q", got)
		}
		publishEach(t, k, reportOf(t, 2, scopeAt(pods, "pods/other", 2)), reportOf(t, 3))
		if got := progressIn(t, m, "cdc.late", 0); len(got) != 1 {
			t.Errorf("the topic has %q", got)
		}
		if err := k.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// A report is published once a topic has it: if the only one is deleted meanwhile, it waits for
// another.
func TestReportNeedsAnotherTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := namespaces(t, "a")
		publishEach(t, k, changeIn("a", "pods", 5), reportOf(t, 1, scopeAt(pods, "", 6)))
		m.delete("cdc.a")
		published := make(chan error, 1)
		go func() { published <- k.Publish(t.Context(), reportOf(t, 2, scopeAt(pods, "", 7))) }()
		<-time.After(5 * time.Minute)
		select {
		case err := <-published:
			t.Fatalf("published to no topic: %v", err)
		default:
		}
		m.topic("cdc._", 1)
		if err := <-published; err != nil {
			t.Fatal(err)
		}
		if got := progressIn(t, m, "cdc._", 0); !slices.Equal(got, []string{"2: pods=7"}) {
			t.Errorf("the topic has %q", got)
		}
	})
}

// A topic is deleted while a report is sent to it, or waits in it for a leader. The agent stays
// ready, and keeps nothing of the topic.
func TestTopicIsDeletedWhileReportGoesThere(t *testing.T) {
	for name, leaderless := range map[string]bool{"on its way": false, "without a leader": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, m := namespaces(t, "a", "b")
				at := func(n int) *encode.Event { return reportOf(t, uint64(n), scopeAt(pods, "", uint64(n))) }
				publishEach(t, k, at(1), changeIn("b", "pods", 5))
				if leaderless {
					m.mu.Lock()
					m.topics["cdc.b"].partitions[1].leader = -1
					m.mu.Unlock()
					publishEach(t, k, at(6))
				}
				m.delete("cdc.b")
				for i := range 80 {
					publishEach(t, k, at(7+i))
					<-time.After(time.Minute)
					if err := k.Ready(); i > 2 && err != nil {
						t.Fatalf("not ready: %v", err)
					}
				}
				if diff := gocmp.Diff([]string{"cdc.a", "dead.prod-eu-1"}, k.Topics()); diff != "" {
					t.Errorf("topics in memory (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A report that a topic refuses is refused, and the others have it. Its size is then too large for
// later ones.
func TestReportIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := namespaces(t, "a", "b", "c")
		if got := k.MaxEventBytes(); got != 900<<10 {
			t.Errorf("before: %d bytes", got)
		}
		var scopes []object.ScopeReport
		for i := range 2000 {
			scopes = append(scopes, scopeAt(pods, fmt.Sprintf("pods/b?labelSelector=team=t%d", i), 7))
		}
		publishEach(t, k, changeIn("a", "pods", 1), changeIn("b", "pods", 1), changeIn("c", "pods", 1))
		m.mu.Lock()
		m.config = map[string]string{"max.message.bytes": "100000"} // lowered while the agent runs
		m.mu.Unlock()
		ev := reportOf(t, 2, append(scopes, scopeAt(pods, "", 1))...)
		size := ev.Size()
		err := k.once(ev)
		if !errors.Is(err, publish.ErrTooLarge) {
			t.Errorf("got %v, want ErrTooLarge", err)
		}
		if got := progressIn(t, m, "cdc.a", 0); !slices.Equal(got, []string{"2: pods=1"}) {
			t.Errorf("another topic has %v", got)
		}
		if got := k.MaxEventBytes(); got >= size || got < 16<<10 {
			t.Errorf("after %d bytes were refused: %d bytes", size, got)
		}
		publishEach(t, k, reportOf(t, 3, scopeAt(pods, "", 1)), reportOf(t, 4, scopeAt(pods, "", 2)),
			reportOf(t, 5, append(scopes[:300], scopeAt(pods, "", 1))...))
		for topic, want := range map[string]string{"cdc.a": "2 3 4 5", "cdc.b": "3 5", "cdc.c": "2"} {
			// c has had what goes to all topics
			if got := numbersIn(t, m, topic, 2); got != want {
				t.Errorf("%s has %s, want %s", topic, got, want)
			}
		}
	})
}

// The limit is that of the topic with the least.
func TestLargestEventOfTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		m.topic("cdc.pods", 1)
		m.config["max.message.bytes"] = "300000"
		cfg := kafkaConfig(m.addrs...)
		cfg.Topic, cfg.MaxEventBytes = "cdc.{resource}", 200_000
		k := runKafka(t, cfg, m)
		if got := k.MaxEventBytes(); got != 200_000 {
			t.Errorf("got %d, want the configured limit", got)
		}
		cfg.MaxEventBytes = 0
		if k, err := kafka.New(cfg, discard, nil); err != nil || k.MaxEventBytes() != 0 {
			t.Errorf("nothing is known: %d, %v", k.MaxEventBytes(), err)
		}
		k = runKafka(t, cfg, m)
		publishEach(t, k, keyed("k", 1))
		if got := k.MaxEventBytes(); got != 300_000-4<<10 {
			t.Errorf("got %d, want the limit of the topic", got)
		}
	})
}

// A body that is not that of the report is refused: no topic gets entries of another scope.
func TestReportIsNotWhatItsBodySays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := namespaces(t, "a", "b")
		for name, change := range map[string]func(body string) string{
			"fewer entries": func(s string) string {
				return strings.Replace(s, `{"resource":"pods","scope":"pods/a","resourceVersion":"2"},`, "", 1)
			},
			"no entries": func(s string) string { return strings.Replace(s, `"scopes"`, `"others"`, 1) },
			"no JSON":    func(s string) string { return strings.Replace(s, `"pods/a",`, `"pods/a`, 1) },
		} {
			ev := reportOf(t, 1, scopeAt(pods, "", 1), scopeAt(pods, "pods/a", 2), scopeAt(pods, "pods/b", 3))
			changed := change(string(ev.Body))
			if changed == string(ev.Body) {
				t.Fatalf("%s: nothing was changed in %s", name, changed)
			}
			ev.Body = []byte(changed)
			if err := k.once(ev); !errors.Is(err, publish.ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, topic := range slices.Sorted(maps.Keys(m.topics)) {
			if log := m.logOf(topic, 0); len(log) > 0 {
				t.Errorf("%s has %v", topic, log)
			}
		}
	})
}

// A broker that refuses a report in one partition ends it, without the wait for others.
func TestReportIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		topic := m.topic("kubecdc.prod-eu-1", 2)
		sick := topic.partitions[1]
		m.fault = func(p *modelPartition) (f fault) {
			if p == sick {
				f.code = kafkago.PolicyViolation
			}
			return f
		}
		k := runKafka(t, kafkaConfig(m.addrs...), m)
		if err := k.once(reportOf(t, 1, scopeAt(pods, "", 1))); !errors.Is(err, publish.ErrRefused) ||
			errors.Is(err, publish.ErrTooLarge) {
			t.Errorf("got %v", err)
		}
	})
}
