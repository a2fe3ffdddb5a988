package kafka_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var (
	services = &object.Resource{Version: "v1", Name: "services", Kind: "Service", Namespaced: true}
	nodes    = &object.Resource{Version: "v1", Name: "nodes", Kind: "Node"}

	scopeAt = bustest.ScopeAt
)

// reportOf is the progress number n of the agent, in the run 0-1.
func reportOf(tb testing.TB, n uint64, scopes ...object.ScopeReport) *encode.Event {
	tb.Helper()
	return bustest.EncodeProgress(tb, encode.Structured, "0-1", bustest.Progress(n, scopes...))
}

// changeIn is a change of a pod in the cluster of reportOf.
func changeIn(namespace, scope string, rv uint64) *encode.Event {
	ev := podIn(namespace, rv)
	ev.ClusterUID, ev.Delta.Scope = []byte("11e0"), scope
	return ev
}

func isReport(r *modelRecord) bool { return strings.Contains(r.key, "/progress/") }

// progressIn returns the progress events in a partition, as "n: pods=7 pods/a=8".
func progressIn(tb testing.TB, m *model, topic string, partition int) (all []string) {
	tb.Helper()
	for _, r := range m.logOf(topic, partition) {
		if !isReport(&r) {
			continue
		}
		e := eventOf(tb, &r)
		text := fmt.Sprintf("%d:", e.Progress.Number)
		for _, s := range e.Progress.Scopes {
			text += fmt.Sprintf(" %s=%s", cmp.Or(s.Scope, s.Resource), s.ResourceVersion)
		}
		all = append(all, text)
	}
	return all
}

// eventOf reads a record as a consumer does.
func eventOf(tb testing.TB, r *modelRecord) *consume.Event {
	tb.Helper()
	header := map[string][]string{}
	for _, h := range r.headers {
		header[strings.Replace(h.Key, "ce_", "ce-", 1)] = []string{strings.ReplaceAll(string(h.Value), "%", "%25")}
	}
	e, err := consume.FromMessage(header, []byte(r.value))
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// numbersIn returns the numbers of the progress events in a topic, all of whose partitions must
// have the same.
func numbersIn(tb testing.TB, m *model, topic string, partitions int) string {
	tb.Helper()
	text := ""
	for p := range partitions {
		var numbers []string
		for _, s := range progressIn(tb, m, topic, p) {
			n, _, _ := strings.Cut(s, ":")
			numbers = append(numbers, n)
		}
		if got := strings.Join(numbers, " "); p == 0 {
			text = got
		} else if got != text {
			tb.Errorf("%s has %q in partition 0 and %q in partition %d", topic, text, got, p)
		}
	}
	return text
}

// The progress of the agent goes to each partition of the topic, whole, and with the same id.
func TestReportGoesToEveryPartition(t *testing.T) {
	for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(2)
			m.topic("dead.prod-eu-1", 1)
			m.topic("kubecdc.prod-eu-1", 3)
			k := runKafka(t, kafkaConfig(m.addrs...), m)
			for n, scopes := range [][]object.ScopeReport{nil, {
				scopeAt(pods, "", 7), scopeAt(pods, "pods/a", 0), scopeAt(nodes, "", 9),
			}} {
				ev := bustest.EncodeProgress(t, mode, "0-1", bustest.Progress(uint64(n), scopes...))
				id, body := string(ev.ID), string(ev.Body)
				publishEach(t, k, ev)
				for p := range 3 {
					log := m.logOf("kubecdc.prod-eu-1", p)
					if len(log) != n+1 {
						t.Fatalf("%s: partition %d has %d records", mode, p, len(log))
					}
					r := &log[n]
					want := fmt.Sprintf("prod-eu-1/progress/%s/%d", bustest.Writer, p)
					if e := eventOf(t, r); e.ID != id || r.value != body || r.key != want ||
						r.time != e.Time.UnixMilli() {
						t.Errorf("%s: partition %d: id %s, key %s, time %d, %s", mode, p, e.ID, r.key, r.time, r.value)
					}
				}
			}
			if got := m.logOf("dead.prod-eu-1", 0); len(got) > 0 {
				t.Errorf("dead letters: %v", got)
			}
		})
	}
}

// With several topics, each gets the entries of the scopes that may have objects in it. The topic
// of cluster-scoped objects has them all.
func TestReportIsReduced(t *testing.T) {
	apps := &object.Resource{Group: "apps", Version: "v1", Name: "deployments", Kind: "Deployment", Namespaced: true}
	scopes := []object.ScopeReport{
		scopeAt(pods, "", 1), scopeAt(pods, "pods/a", 2), scopeAt(pods, "pods/b?labelSelector=x=y", 3),
		scopeAt(pods, "pods/a,c*", 4),
		scopeAt(services, "services/a", 5), scopeAt(nodes, "", 6),
		scopeAt(apps, "deployments.apps?any=a?labelSelector=x|b", 7),
	}
	const ofPods, all = "1: pods=1 pods/a=2 pods/b?labelSelector=x=y=3 pods/a,c*=4",
		" services/a=5 nodes=6 deployments.apps?any=a?labelSelector=x|b=7"
	for template, want := range map[string]map[string]string{
		"cdc.{resource}": {
			"cdc.pods": ofPods, "cdc.services": "1: services/a=5", "cdc.nodes": "1: nodes=6",
			"cdc.deployments": "1: deployments.apps?any=a?labelSelector=x|b=7", "cdc.configmaps": "",
		},
		"cdc.{namespace}": {
			"cdc._":  ofPods + all,
			"cdc.a":  "1: pods=1 pods/a=2 pods/a,c*=4 services/a=5 deployments.apps?any=a?labelSelector=x|b=7",
			"cdc.b":  "1: pods=1 pods/b?labelSelector=x=y=3 deployments.apps?any=a?labelSelector=x|b=7",
			"cdc.c1": "1: pods=1 pods/a,c*=4", "cdc.d": "1: pods=1", "other": "",
		},
		"{namespace}.{group}.{resource}": {
			"a.core.pods": "1: pods=1 pods/a=2 pods/a,c*=4", "b.core.pods": "1: pods=1 pods/b?labelSelector=x=y=3",
			"_.core.services": "1: services/a=5", "b.core.services": "", "a.core.services": "1: services/a=5",
			"_.core.nodes":       "1: nodes=6",
			"a.core.nodes":       "",
			"a.apps.deployments": "1: deployments.apps?any=a?labelSelector=x|b=7",
			"a.b.core.pods":      "",
		},
	} {
		for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
			t.Run(template+" "+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel(1)
					m.topic("dead.prod-eu-1", 1)
					for name := range want {
						m.topic(name, 2)
					}
					cfg := kafkaConfig(m.addrs...)
					cfg.Topic = template
					k := runKafka(t, cfg, m)
					ev := bustest.EncodeProgress(t, mode, "0-1", bustest.Progress(1, scopes...))
					id := string(ev.ID)
					publishEach(t, k, ev)
					for name, want := range want {
						for p := range 2 {
							if diff := gocmp.Diff(want, strings.Join(progressIn(t, m, name, p), ", ")); diff != "" {
								t.Errorf("%s, partition %d (-want +got):\n%s", name, p, diff)
							}
							for _, r := range m.logOf(name, p) {
								e := eventOf(t, &r)
								if e.ID != id || e.Progress.Writer != bustest.Writer || e.Progress.Since.IsZero() ||
									e.Progress.To.IsZero() {
									t.Errorf("%s: %s lacks what is not about scopes: %+v", name, e.ID, e.Progress)
								}
							}
						}
					}
				})
			})
		}
	}
}

// If objects go to the topics of their namespaces, a report goes to the topics with new events of
// its scopes, and to one topic of each scope. It goes to all topics once an hour, and the first
// time in a run.
func TestReportGoesWhereEventsAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := namespaces(t, "a", "b", "c")
		check := func(after string, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, namespace := range []string{"a", "b", "c"} {
				got = append(got, namespace+": "+numbersIn(t, m, "cdc."+namespace, 2))
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("%s: progress (-want +got):\n%s", after, diff)
			}
		}
		all := func(rv uint64) object.ScopeReport { return scopeAt(pods, "", rv) }
		publishEach(t, k, reportOf(t, 1, all(1)))
		check("the first one", "a: 1", "b: 1", "c: 1")
		publishEach(t, k, reportOf(t, 2, all(2)), reportOf(t, 3, all(3)))
		check("at rest", "a: 1 2 3", "b: 1", "c: 1")
		// The first report was made before the change was acknowledged.
		publishEach(t, k, changeIn("b", "pods/b", 10), changeIn("b", "pods", 12), reportOf(t, 4, all(9)),
			reportOf(t, 5, all(12)), reportOf(t, 6, all(13)))
		check("a change", "a: 1 2 3 4 5 6", "b: 1 4 5", "c: 1")

		// An entry with the name of a scope counts for that scope alone.
		named := func(n uint64, rv uint64) *encode.Event { return reportOf(t, n, all(99), scopeAt(pods, "pods/c", rv)) }
		publishEach(t, k, changeIn("b", "pods/c", 20), changeIn("c", "pods/c", 20), named(7, 0))
		check("nothing is claimed", "a: 1 2 3 4 5 6 7", "b: 1 4 5", "c: 1 7") // its own topic has each report about it
		publishEach(t, k, named(8, 19), named(9, 20), named(10, 21))
		check("an entry of its own", "a: 1 2 3 4 5 6 7 8 9 10", "b: 1 4 5 8 9", "c: 1 7 8 9 10")

		restored := scopeAt(pods, "", 5)
		restored.History = 1
		publishEach(t, k, changeIn("b", "pods", 200), reportOf(t, 11, restored), reportOf(t, 12, all(300)))
		check("etcd was restored", "a: 1 2 3 4 5 6 7 8 9 10 11 12", "b: 1 4 5 8 9 11", "c: 1 7 8 9 10")

		// Another resource does not follow a pod, and is new.
		publishEach(t, k, changeIn("b", "pods", 400), reportOf(t, 13, scopeAt(services, "", 999)),
			reportOf(t, 14, scopeAt(services, "", 999)), reportOf(t, 15, all(400)))
		check("another resource", "a: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", "b: 1 4 5 8 9 11 13 15", "c: 1 7 8 9 10 13")

		// Events of another cluster are not those of the agent, and an event without a scope is of
		// any.
		other := changeIn("b", "pods", 500)
		other.ClusterUID = []byte("22f1")
		ofAny := changeIn("c", "", 500)
		publishEach(t, k, other, ofAny, reportOf(t, 16, all(501)), reportOf(t, 17, scopeAt(services, "", 999)),
			reportOf(t, 18, scopeAt(pods, "pods/x", 502)),
			reportOf(t, 18, scopeAt(pods, "pods?labelSelector=x=y", 503)))
		check("other events", "a: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18", "b: 1 4 5 8 9 11 13 15",
			"c: 1 7 8 9 10 13 16 18")

		<-time.After(time.Hour)
		publishEach(t, k, reportOf(t, 19, all(600)))
		check("an hour later", "a: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19", "b: 1 4 5 8 9 11 13 15 19",
			"c: 1 7 8 9 10 13 16 18 19")
		publishEach(t, k, bustest.EncodeProgress(t, encode.Structured, "0-2", bustest.Progress(20, all(600))))
		check("another run", "a: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20", "b: 1 4 5 8 9 11 13 15 19 20",
			"c: 1 7 8 9 10 13 16 18 19 20")

		// No report is known to include the event of an API server whose resourceVersions are no
		// numbers.
		publishEach(t, k, changeIn("c", "pods", 0))
		for n := uint64(21); n < 23; n++ {
			publishEach(t, k,
				bustest.EncodeProgress(t, encode.Structured, "0-2", bustest.Progress(n, all(600+n))))
		}
		check("no order", "a: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22", "b: 1 4 5 8 9 11 13 15 19 20",
			"c: 1 7 8 9 10 13 16 18 19 20 21 22")
	})
}

// A partition without a leader delays its own events, and a report for ten seconds. It gets one
// report, in its place, and no second one until it has stored that. Other partitions continue.
func TestReportAndPartitionWithoutLeader(t *testing.T) {
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
		at := func(n uint64) *encode.Event { return reportOf(t, n, scopeAt(pods, "", n)) }
		publishEach(t, k, at(1))
		lead(-1)
		began := time.Now()
		publishEach(t, k, at(2))
		if waited := time.Since(began); waited < 5*time.Second || waited > 15*time.Second {
			t.Errorf("the report waited %v", waited)
		}
		keys := [3]string{}
		for i := 0; slices.Contains(keys[:], ""); i++ {
			key := fmt.Sprint("k", i)
			keys[kafka.PartitionOf([]byte(key), 3)] = key
		}
		held := make(chan error, 1)
		go func() { held <- k.Publish(t.Context(), keyed(keys[1], 7)) }()
		synctest.Wait()
		for n := range uint64(10) {
			began := time.Now()
			publishEach(t, k, keyed(keys[0], int(n)+1), keyed(keys[2], int(n)+1), at(n+3))
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("report %d waited %v", n+3, waited)
			}
		}
		// A gap is a barrier: it waits for all partitions.
		barrier := make(chan error, 1)
		go func() { barrier <- k.Publish(t.Context(), streamEvent(object.Gap)) }()
		<-time.After(time.Minute)
		select {
		case err := <-barrier:
			t.Fatalf("the gap is acknowledged (%v), and a partition does not have it", err)
		default:
		}
		lead(0)
		for _, published := range []chan error{held, barrier} {
			if err := <-published; err != nil {
				t.Fatal(err)
			}
		}
		publishEach(t, k, at(13))
		var got []string
		for _, r := range m.logOf("kubecdc.prod-eu-1", 1) {
			if isReport(&r) {
				got = append(got, fmt.Sprint("report ", eventOf(t, &r).Progress.Number))
				continue
			}
			got = append(got, r.value)
		}
		if diff := gocmp.Diff([]string{"report 1", "report 2", "7", "gap", "report 13"}, got); diff != "" {
			t.Errorf("the partition that had no leader (-want +got):\n%s", diff)
		}
		for _, p := range []int{0, 2} {
			if got := m.logOf("kubecdc.prod-eu-1", p); len(got) != 24 || eventOf(t, &got[23]).ID != string(at(13).ID) {
				t.Errorf("partition %d: %v", p, got)
			}
		}
	})
}

// A topic with a partition that lacks a report still lags behind: if it has an event, and if the
// report goes to all topics.
func TestReportComesToPartitionsThatMissedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, m := namespaces(t, "a", "b", "c")
		at := func(n uint64) *encode.Event { return reportOf(t, n, scopeAt(pods, "", n)) }
		lead := func(leader int) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, topic := range []string{"cdc.b", "cdc.c"} {
				m.topics[topic].partitions[1].leader = leader
			}
		}
		lead(-1)
		publishEach(t, k, at(1)) // to all topics
		publishEach(t, k, at(2))
		lead(0)
		<-time.After(time.Minute)
		publishEach(t, k, at(3), at(4))
		for _, topic := range []string{"cdc.b", "cdc.c"} {
			if diff := gocmp.Diff([]string{"1: pods=1", "3: pods=3"}, progressIn(t, m, topic, 1)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", topic, diff)
			}
		}
		publishEach(t, k, changeIn("b", "pods", 5))
		lead(-1)
		publishEach(t, k, at(6), at(7))
		lead(0)
		<-time.After(time.Minute)
		publishEach(t, k, at(8), at(9))
		if diff := gocmp.Diff([]string{"1: pods=1", "3: pods=3", "6: pods=6", "8: pods=8"},
			progressIn(t, m, "cdc.b", 1)); diff != "" {
			t.Errorf("cdc.b (-want +got):\n%s", diff)
		}
	})
}

func streamOf(r *object.Resource) *encode.Event {
	ev := streamEvent(object.Gap)
	ev.Delta.Stream.Resource, ev.Delta.Stream.Scope = r, r.String()
	return ev
}

func TestNamespaceInTopic(t *testing.T) {
	apps := &object.Resource{Group: "apps", Name: "deployments", Namespaced: true}
	for _, c := range []struct {
		template, topic string
		resource        *object.Resource
		want            string // "-": not a topic of the resource
	}{
		{"cdc.{namespace}", "cdc.shop", pods, "shop"},
		{"cdc.{namespace}", "cdc._", pods, ""},
		{"cdc.{namespace}", "cdc.", pods, "-"},
		{"cdc.{namespace}", "cdc", pods, "-"},
		{"cdc.{namespace}", "cdc.a.b", pods, "-"},
		{"cdc.{namespace}", "cda.shop", pods, "-"},
		{"{namespace}.{group}.{resource}", "shop.core.pods", pods, "shop"},
		{"{namespace}.{group}.{resource}", "shop.apps.deployments", pods, "-"},
		{"{namespace}.{group}.{resource}", "shop.apps.deployments", apps, "shop"},
		{"{namespace}-{namespace}", "a-b-a-b", pods, "a-b"},
		{"{namespace}-{namespace}", "a-b", pods, "-"},
		{"{namespace}-{namespace}", "_-_", pods, ""},
		{"x{namespace}.{cluster}", "xshop.prod", pods, "shop"},
		{"x{namespace}.{cluster}", "xshop.test", pods, "-"},
		{"cdc.{resource}", "cdc.pods", pods, "-"},
	} {
		topics, err := kafkaconfig.NewTopics(c.template, "prod")
		if err != nil {
			t.Fatal(err)
		}
		got, ok := topics.NamespaceIn(c.topic, c.resource)
		if !ok {
			got = "-"
		}
		if got != c.want {
			t.Errorf("%s, %s: got %q, want %q", c.template, c.topic, got, c.want)
		}
	}
}
