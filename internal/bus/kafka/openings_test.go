package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// opening is a stream event about the scope "pods" with a text of its own. Starts name the writer.
type opening struct {
	kind     object.StreamKind
	text     string
	run      string
	writer   string
	snapshot string
}

func (o opening) event() *encode.Event {
	ev := streamEvent(o.kind)
	ev.ID = []byte("pods/" + o.text)
	ev.Body = []byte(o.text)
	ev.ClusterUID = []byte("11e0")
	ev.Delta.Stream.Snapshot = o.snapshot
	if o.kind == object.ScopeStarted || o.kind == object.SnapshotStarted {
		ev.Writer, ev.Run = []byte(o.writer), []byte(o.run)
	}
	return ev
}

func start(writer, run string) *encode.Event {
	return opening{kind: object.ScopeStarted, text: writer + run + " starts", writer: writer, run: run}.event()
}

func snapshot(writer, run, id string) *encode.Event {
	return opening{kind: object.SnapshotStarted, text: id + " starts", writer: writer, run: run, snapshot: id}.event()
}

func complete(id string) *encode.Event {
	return opening{kind: object.SnapshotCompleted, text: id + " ends", snapshot: id}.event()
}

func gap(text string) *encode.Event { return opening{kind: object.Gap, text: text}.event() }

func end() *encode.Event { return opening{kind: object.ScopeEnded, text: "scope ends"}.event() }

// TestOpeningsOfANewTopic publishes stream events, and objects of namespaces whose topics do not
// exist yet. A topic begins with the events that the others have of the scope: its start, the last
// snapshot, and what followed that.
func TestOpeningsOfANewTopic(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []*encode.Event
		want   map[string][]string // by namespace, the stream events in each partition
	}{
		{
			"created in a snapshot and after it",
			[]*encode.Event{
				start("a", "1"), snapshot("a", "1", "s1"), changeIn("old", "pods", 1), changeIn("within", "pods", 2),
				complete("s1"), changeIn("after", "pods", 3), gap("gap"), changeIn("later", "pods", 4),
			},
			map[string][]string{
				"old":    {"a1 starts", "s1 starts", "s1 ends", "gap"},
				"within": {"~a1 starts", "~s1 starts", "s1 ends", "gap"},
				"after":  {"~a1 starts", "~s1 starts", "~s1 ends", "gap"},
				"later":  {"~a1 starts", "~s1 starts", "~s1 ends", "~gap"},
			},
		},
		{
			"only the last snapshot counts",
			[]*encode.Event{
				start("a", "1"), snapshot("a", "1", "s1"), complete("s1"), gap("gap"), snapshot("a", "1", "s2"),
				changeIn("new", "pods", 2), complete("s2"),
			},
			map[string][]string{"new": {"~a1 starts", "~s2 starts", "s2 ends"}},
		},
		{
			"a scope that has ended opens nothing",
			[]*encode.Event{start("a", "1"), snapshot("a", "1", "s1"), end(), changeIn("new", "pods", 2)},
			map[string][]string{"new": nil},
		},
		{
			"a later run of the writer replaces the former one",
			[]*encode.Event{
				start("a", "1"), snapshot("a", "1", "s1"), start("a", "2"), complete("s1"), snapshot("a", "1", "s3"),
				changeIn("new", "pods", 2),
			},
			map[string][]string{"new": {"~a2 starts"}},
		},
		{
			"each writer has openings of its own, and a gap is of all",
			[]*encode.Event{
				start("a", "1"), start("b", "1"), snapshot("a", "1", "s1"), snapshot("b", "1", "s2"), complete("s2"),
				gap("gap"),
				changeIn("new", "pods", 2), complete("s1"),
			},
			map[string][]string{
				"new": {"~a1 starts", "~b1 starts", "~s1 starts", "~s2 starts", "~s2 ends", "~gap", "s1 ends"},
			},
		},
		{
			"without a writer there are none",
			[]*encode.Event{start("", ""), snapshot("", "", "s1"), changeIn("new", "pods", 2), complete("s1")},
			map[string][]string{"new": {"s1 ends"}},
		},
		{
			"objects of another resource have other topics",
			[]*encode.Event{start("a", "1"), snapshot("a", "1", "s1"), serviceIn("new")},
			map[string][]string{"new": nil},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, m := creating(t)
				publishEach(t, k, c.events...)
				<-time.After(time.Second) // the other partition has them, too
				for namespace, want := range c.want {
					for p := range 2 {
						if diff := cmp.Diff(want, streamEventsIn(m, namespace, p)); diff != "" {
							t.Errorf("%s, partition %d (-want +got):\n%s", namespace, p, diff)
						}
					}
				}
			})
		})
	}
}

// TestOpeningsPrecedeObjects publishes an object of a new namespace. Its topic begins with the
// openings.
func TestOpeningsPrecedeObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := creating(t)
		publishEach(t, k, start("a", "1"), snapshot("a", "1", "s1"), changeIn("new", "pods", 7))
		var all []string
		for p := range 2 {
			if got := values(m, topicOf("new"), p); len(got) > 2 {
				all = got
			}
		}
		if diff := cmp.Diff([]string{"a1 starts", "s1 starts", "7"}, all); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestDeletedTopicHasNoOpenings deletes a topic and publishes another object of its namespace. The
// topic is created again and gets no openings: a snapshot does not say what it had.
func TestDeletedTopicHasNoOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := creating(t)
		publishEach(t, k, start("a", "1"), snapshot("a", "1", "s1"), changeIn("new", "pods", 1), complete("s1"))
		for range 80 { // until the agent drops the topic from its memory
			<-time.After(time.Minute)
		}
		m.mu.Lock()
		delete(m.topics, topicOf("new"))
		m.mu.Unlock()
		<-time.After(time.Minute)
		publishEach(t, k, changeIn("new", "pods", 2))
		<-time.After(time.Second)
		for p := range 2 {
			if got := streamEventsIn(m, "new", p); len(got) > 0 {
				t.Errorf("partition %d: %v", p, got)
			}
		}
	})
}

// TestAnOpeningIsBounded publishes more gaps than an opening may have. A new topic gets nothing of
// the scope until the next start.
func TestAnOpeningIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := creating(t)
		publishEach(t, k, start("a", "1"), snapshot("a", "1", "s1"), complete("s1"))
		for i := range 100 {
			publishEach(t, k, gap(fmt.Sprint("gap ", i)))
		}
		publishEach(t, k, changeIn("new", "pods", 2))
		<-time.After(time.Second)
		if got := streamEventsIn(m, "new", 0); len(got) > 0 {
			t.Errorf("%v", got)
		}
		publishEach(t, k, start("a", "1"), changeIn("newer", "pods", 3))
		<-time.After(time.Second)
		if diff := cmp.Diff([]string{"~a1 starts"}, streamEventsIn(m, "newer", 1)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestAnOpeningThatDoesNotFit lowers the limit of topics below the size of the start of a snapshot.
// A new topic lacks that start, the log says so, and the object is published.
func TestAnOpeningThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := creating(t)
		large := snapshot("a", "1", "s1")
		large.Body = []byte(bustest.Text(800 << 10))
		publishEach(t, k, start("a", "1"), large)
		m.mu.Lock()
		m.config["max.message.bytes"] = "500000"
		m.mu.Unlock()
		publishEach(t, k, changeIn("new", "pods", 2))
		<-time.After(time.Second)
		if diff := cmp.Diff([]string{"~a1 starts"}, streamEventsIn(m, "new", 0)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if n := bustest.Lines(k.log.String(), "topic lacks the start of a scope"); n != 2 {
			t.Errorf("%d lines in the log, want one for each partition", n)
		}
	})
}

func topicOf(namespace string) string { return "cdc.core.pods." + namespace }

// creating runs a publisher that creates a topic of two partitions for each resource and namespace.
// One is there: that of pods in "old".
func creating(t *testing.T) (*kafkaRun, *model) {
	t.Helper()
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	m.topic(topicOf("old"), 2)
	cfg := kafkaConfig(m.addrs...)
	cfg.Topic = "cdc.{group}.{resource}.{namespace}"
	cfg.Create = &kafkaconfig.Topic{Partitions: 2, ReplicationFactor: 1}
	return runKafka(t, cfg, m), m
}

// streamEventsIn returns the stream events in a partition. Those that are openings have a "~".
func streamEventsIn(m *model, namespace string, partition int) (all []string) {
	for _, r := range m.logOf(topicOf(namespace), partition) {
		if strings.HasPrefix(r.key, "prod-eu-1/pods/") && len(r.key) == len("prod-eu-1/pods/0") {
			text := r.value
			if slices.ContainsFunc(r.headers, func(h kafkago.Header) bool { return h.Key == consume.OpeningHeader }) {
				text = "~" + text
			}
			all = append(all, text)
		}
	}
	return all
}

// serviceIn is a change of a service.
func serviceIn(namespace string) *encode.Event {
	ev := podIn(namespace, 9)
	ev.Delta.Ref = object.NewRef(services, namespace, "a", "uid")
	return ev
}
