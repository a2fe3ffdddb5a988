package kafka_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish/kafka"
)

// progressOf reports that all pods up to rv are on the bus.
func progressOf(rv uint64) *encode.Event {
	ev := streamEvent(object.Progress)
	ev.Delta.Stream.ResourceVersion, ev.Source = rv, keyed("any", 1).Source
	ev.Body = fmt.Appendf(nil, "progress %d", rv)
	return ev
}

// podIn is a change of a pod.
func podIn(namespace string, rv uint64) *encode.Event {
	ev := keyed("prod-eu-1/pods/"+namespace, int(rv))
	ev.Delta.Ref = object.NewRef(pods, namespace, "a", "uid")
	ev.Delta.Scope, ev.Delta.ResourceVersion = "pods", rv
	return ev
}

// namespaces runs a publisher with a topic of two partitions for each namespace.
func namespaces(t *testing.T, all ...string) (*kafkaRun, *model) {
	t.Helper()
	m := newModel(1)
	m.topic("dead.prod-eu-1", 1)
	for _, namespace := range all {
		m.topic("cdc."+namespace, 2)
	}
	cfg := kafkaConfig(m.addrs...)
	cfg.Topic = "cdc.{namespace}"
	return runKafka(t, cfg, m), m
}

// values returns the values in a partition of a topic.
func values(m *model, topic string, partition int) (all []string) {
	for _, r := range m.logOf(topic, partition) {
		all = append(all, r.value)
	}
	return all
}

// publishEach publishes the events one after the other.
func publishEach(t *testing.T, k *kafkaRun, events ...*encode.Event) {
	t.Helper()
	for _, ev := range events {
		if err := k.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
}

// If objects of a resource go to the topics of their namespaces, progress goes to the topics with new events. It always goes to one
// topic, and to all topics once an hour.
func TestProgressGoesWhereEventsAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := namespaces(t, "a", "b", "c")
		check := func(after string, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, namespace := range []string{"a", "b", "c"} {
				for p := range 2 {
					var told []string
					for _, v := range values(m, "cdc."+namespace, p) {
						if rv, ok := strings.CutPrefix(v, "progress "); ok {
							told = append(told, rv)
						}
					}
					if text := namespace + ": " + strings.Join(told, " "); p == 0 {
						got = append(got, text)
					} else if got[len(got)-1] != text {
						t.Errorf("%s: partition 1 has %s", after, text)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: progress (-want +got):\n%s", after, diff)
			}
		}
		publishEach(t, k, progressOf(1))
		check("the first one", "a: 1", "b: 1", "c: 1")
		publishEach(t, k, progressOf(2), progressOf(3))
		check("at rest", "a: 1 2 3", "b: 1", "c: 1")
		// The first progress was made before the change was acknowledged.
		publishEach(t, k, podIn("b", 10), podIn("b", 12), progressOf(9), progressOf(11), progressOf(12), progressOf(13))
		check("a change", "a: 1 2 3 9 11 12 13", "b: 1 9 11 12", "c: 1")
		restored := progressOf(5)
		restored.Delta.Stream.History = 1
		publishEach(t, k, podIn("c", 20), restored, progressOf(14))
		check("etcd was restored", "a: 1 2 3 9 11 12 13 5 14", "b: 1 9 11 12", "c: 1 5")
		unordered := podIn("c", 0) // of an API server whose resourceVersions are no numbers
		publishEach(t, k, unordered, progressOf(0), progressOf(0))
		check("no order", "a: 1 2 3 9 11 12 13 5 14 0 0", "b: 1 9 11 12", "c: 1 5 0 0")
		<-time.After(time.Hour)
		publishEach(t, k, progressOf(15))
		check("an hour later", "a: 1 2 3 9 11 12 13 5 14 0 0 15", "b: 1 9 11 12 15", "c: 1 5 0 0 15")
	})
}

// Another scope of the same topics has progress of its own, and so have a relay's events, which name no scope.
func TestProgressIsOfAScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := namespaces(t, "a", "b")
		services := &object.Resource{Version: "v1", Name: "services", Kind: "Service", Namespaced: true}
		other := progressOf(2)
		other.Delta.Stream.Resource, other.Delta.Stream.Scope = services, "services"
		relayed := podIn("b", 8)
		relayed.Delta.Scope = ""
		publishEach(t, k, progressOf(1), other, podIn("b", 7), other)
		if got := values(m, "cdc.b", 0); slices.Contains(got[2:], "progress 2") {
			t.Errorf("progress of services follows a pod: %v", got)
		}
		publishEach(t, k, progressOf(7), relayed, progressOf(8), progressOf(9))
		got := values(m, "cdc.b", 0)
		if want := []string{"progress 7", "progress 8", "progress 9"}; !cmp.Equal(want, slices.DeleteFunc(got, func(v string) bool {
			return !slices.Contains(want, v)
		})) {
			t.Errorf("progress behind events without a scope: %v", got)
		}
	})
}

// A partition without a leader holds back its own events, but not the progress or the events of the others. When it has a leader
// again, it gets the progress in its place, and once.
func TestPartitionWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(1)
		m.topic("dead.prod-eu-1", 1)
		topic := m.topic("kubecdc.prod-eu-1", 3)
		lead := func(leader int) {
			m.mu.Lock()
			defer m.mu.Unlock()
			topic.partitions[1].leader = leader
		}
		k := runKafka(t, kafkaConfig(m.addrs...), m)
		publishEach(t, k, progressOf(1))
		lead(-1)
		keys := [3]string{}
		for i := 0; slices.Contains(keys[:], ""); i++ {
			key := fmt.Sprint("k", i)
			keys[kafka.PartitionOf([]byte(key), 3)] = key
		}
		began := time.Now()
		publishEach(t, k, progressOf(2))
		if waited := time.Since(began); waited > 15*time.Second {
			t.Errorf("progress waited %v", waited)
		}
		var held sync.WaitGroup
		held.Go(func() {
			if err := k.Publish(t.Context(), keyed(keys[1], 7)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for rv := range uint64(10) {
			began := time.Now()
			publishEach(t, k, keyed(keys[0], int(rv)+1), keyed(keys[2], int(rv)+1), progressOf(rv+3))
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("progress %d waited %v", rv+3, waited)
			}
		}
		// A gap is a barrier: it waits for all partitions.
		barrier := make(chan struct{})
		held.Go(func() {
			if err := k.Publish(t.Context(), streamEvent(object.Gap)); err != nil {
				t.Error(err)
			}
			close(barrier)
		})
		<-time.After(time.Minute)
		select {
		case <-barrier:
			t.Error("the gap is acknowledged, and a partition does not have it")
		default:
		}
		lead(0)
		held.Wait()
		publishEach(t, k, progressOf(13))
		if diff := cmp.Diff([]string{"progress 1", "progress 2", "7", "gap", "progress 13"}, values(m, "kubecdc.prod-eu-1", 1)); diff != "" {
			t.Errorf("the partition that had no leader (-want +got):\n%s", diff)
		}
		for _, p := range []int{0, 2} {
			if got := values(m, "kubecdc.prod-eu-1", p); len(got) != 24 || got[23] != "progress 13" {
				t.Errorf("partition %d: %v", p, got)
			}
		}
	})
}

// A topic with a partition that lacks a progress still lags behind.
func TestProgressComesToPartitionsThatMissedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := namespaces(t, "a", "b")
		publishEach(t, k, progressOf(1), podIn("b", 5))
		lead := func(leader int) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.topics["cdc.b"].partitions[1].leader = leader
		}
		lead(-1)
		publishEach(t, k, progressOf(6), progressOf(7))
		lead(0)
		<-time.After(time.Minute)
		publishEach(t, k, progressOf(8), progressOf(9))
		if diff := cmp.Diff([]string{"progress 1", "progress 6", "progress 8"}, slices.DeleteFunc(values(m, "cdc.b", 1), func(v string) bool {
			return !strings.HasPrefix(v, "progress")
		})); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
}

// The publisher drops topics that have not been used for an hour. They come back when they are used.
func TestForgetsIdleTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []string
		for i := range 30 {
			all = append(all, fmt.Sprintf("n%02d", i))
		}
		k, m := namespaces(t, all...)
		inMemory := func(when string, want int) {
			t.Helper()
			if got := k.Topics(); len(got) != want {
				t.Errorf("%s: %d topics are in memory, want %d: %v", when, len(got), want, got)
			}
		}
		publishEach(t, k, progressOf(1))
		inMemory("at first", 31)
		goroutines := runtime.NumGoroutine()
		for _, namespace := range all[10:20] {
			publishEach(t, k, podIn(namespace, 5))
		}
		for rv := range uint64(20) {
			<-time.After(time.Minute)
			publishEach(t, k, progressOf(6+rv))
		}
		inMemory("minutes later", 12) // with the topic of dead letters and the one that progress always goes to
		for rv := range uint64(45) {
			<-time.After(time.Minute)
			publishEach(t, k, progressOf(30+rv))
		}
		<-time.After(10 * time.Minute)
		publishEach(t, k, progressOf(80))
		inMemory("after an hour", 2)
		synctest.Wait()
		if got := runtime.NumGoroutine(); got > goroutines-2*29+10 {
			t.Errorf("%d goroutines after an hour, %d before: those of 58 partitions are to end", got, goroutines)
		}
		publishEach(t, k, podIn("n15", 90), podIn("n29", 91), progressOf(91))
		inMemory("used again", 4)
		for namespace, want := range map[string][]string{"n15": {"5", "90"}, "n29": {"91"}} {
			var got []string
			for p := range 2 {
				log := values(m, "cdc."+namespace, p)
				if log[len(log)-1] != "progress 91" {
					t.Errorf("%s, partition %d: %v", namespace, p, log)
				}
				got = append(got, slices.DeleteFunc(log, func(v string) bool { return strings.HasPrefix(v, "progress") })...)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", namespace, diff)
			}
		}
		if err := k.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// A topic is deleted while a progress is sent to it, or waits in it for a leader. The agent does not end, stays ready, and keeps
// nothing of the topic.
func TestTopicIsDeletedWhileProgressGoesThere(t *testing.T) {
	for name, leaderless := range map[string]bool{"on its way": false, "without a leader": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, m := namespaces(t, "a", "b")
				publishEach(t, k, progressOf(1), podIn("b", 5))
				if leaderless {
					m.mu.Lock()
					m.topics["cdc.b"].partitions[1].leader = -1
					m.mu.Unlock()
					publishEach(t, k, progressOf(6))
				}
				m.mu.Lock()
				delete(m.topics, "cdc.b")
				m.mu.Unlock()
				for i := range 10 {
					publishEach(t, k, progressOf(uint64(7+i)))
					<-time.After(time.Minute)
				}
				if err := k.Ready(); err != nil {
					t.Errorf("not ready: %v", err)
				}
				for i := range 70 {
					publishEach(t, k, progressOf(uint64(17+i)))
					<-time.After(time.Minute)
				}
				if d := cmp.Diff([]string{"cdc.a", "dead.prod-eu-1"}, k.Topics()); d != "" {
					t.Errorf("topics in memory (-want +got):\n%s", d)
				}
			})
		})
	}
}

// A progress is published once a topic has it: if the only one is deleted meanwhile, it waits for another.
func TestProgressNeedsATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := namespaces(t, "a")
		publishEach(t, k, podIn("a", 5), progressOf(6))
		m.mu.Lock()
		delete(m.topics, "cdc.a")
		m.mu.Unlock()
		published := make(chan error, 1)
		go func() { published <- k.Publish(t.Context(), progressOf(7)) }()
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
		if got := values(m, "cdc._", 0); !slices.Contains(got, "progress 7") {
			t.Errorf("the topic has %q", got)
		}
	})
}
