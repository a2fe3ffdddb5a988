package kafka_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

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

// The publisher drops topics that have not been used for an hour. They come back when they are
// used.
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
		at := func(n uint64) *encode.Event { return reportOf(t, n, scopeAt(pods, "", n)) }
		publishEach(t, k, at(1))
		inMemory("at first", 31)
		goroutines := runtime.NumGoroutine()
		for _, namespace := range all[10:20] {
			publishEach(t, k, changeIn(namespace, "pods", 5))
		}
		for n := range uint64(20) {
			<-time.After(time.Minute)
			publishEach(t, k, at(6+n))
		}
		inMemory("minutes later", 12) // with the topic of dead letters and the one that each report goes to
		for n := range uint64(45) {
			<-time.After(time.Minute)
			publishEach(t, k, at(30+n))
		}
		<-time.After(10 * time.Minute)
		publishEach(t, k, at(80))
		inMemory("after an hour", 2)
		synctest.Wait()
		if got := runtime.NumGoroutine(); got > goroutines-2*29+10 {
			t.Errorf("%d goroutines after an hour, %d before: those of 58 partitions are to end", got, goroutines)
		}
		publishEach(t, k, changeIn("n15", "pods", 90), changeIn("n29", "pods", 91), at(91))
		inMemory("used again", 4)
		for namespace, want := range map[string][]string{"n15": {"5", "90"}, "n29": {"91"}} {
			var got []string
			for p := range 2 {
				log := m.logOf("cdc."+namespace, p)
				if told := progressIn(t, m, "cdc."+namespace, p); !isReport(&log[len(log)-1]) ||
					told[len(told)-1] != "91: pods=91" {
					t.Errorf("%s, partition %d: %v", namespace, p, log)
				}
				for _, r := range log {
					if !isReport(&r) {
						got = append(got, r.value)
					}
				}
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
