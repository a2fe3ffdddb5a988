package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/world"
)

// pastKinds maps the kinds of TestGetIsTheListDespiteFaults to their resources.
var pastKinds = map[string]string{
	"ConfigMap":      "configmaps",
	"Secret":         "secrets",
	"ServiceAccount": "serviceaccounts",
	"Pod":            "pods",
	"Deployment":     "deployments.apps",
	"ReplicaSet":     "replicasets.apps",
	"Widget":         oracle.Widgets,
	"Namespace":      "namespaces",
}

// savedLists are the lists of the API server at a revision.
type savedLists struct {
	rev   uint64
	lists map[string][]*oracle.Version
	when  string
}

// pastWorld is a control plane, an agent and a bus with faults, and the lists that were saved
// meanwhile.
type pastWorld struct {
	p      *world.Plane
	api    *proxy.Proxy
	buses  []*proxy.Proxy // between the agent and the bus
	agent  *world.Agent
	stream *world.Stream
	url    string // of the bus, for kubecdc
	rng    *rand.Rand
	saved  []savedLists

	compacted []uint64 // revisions up to which history was compacted
}

// TestGetIsTheListDespiteFaults saves lists of the API server at exact revisions, while writers
// run, the agent is killed, the bus is blocked, the API server restarts and history is compacted.
// `kubecdc get --at rv:N` must return each of these lists, or report that it is not certain. It may
// be uncertain only inside a gap that begins before a compaction and ends after it.
func TestGetIsTheListDespiteFaults(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	t.Run("nats", func(t *testing.T) {
		t.Parallel()
		w := newPastWorld(t)
		bus := world.StartBus(t)
		via := world.RunProxy(t, world.HostPort(bus.URL))
		w.url, w.buses = bus.URL, []*proxy.Proxy{via}
		w.begin(t, &world.Bus{URL: "nats://" + via.Addr()}, bus)
		w.run(t)
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		kafka.Require(t)
		w := newPastWorld(t)
		k := world.StartKafka(t, kafka.Options{Advertise: func(_ int, _ kafka.Listener, addr string) (string, error) {
			via := world.RunProxy(t, addr)
			w.buses = append(w.buses, via)
			return via.Addr(), nil
		}})
		w.url = "kafka://" + k.Inside()[0] + "/" + k.Topic
		w.begin(t, k, k)
		w.run(t)
	})
}

func newPastWorld(t *testing.T) *pastWorld {
	t.Helper()
	p := world.StartPlane(t, controlplane.Options{}) // Its API server is restarted, and its history compacted.
	return &pastWorld{p: p, api: world.RunProxy(t, world.HostPort(p.APIServerURL(0))), rng: rand.New(rand.NewPCG(7, 8))}
}

// begin starts an agent and waits for its first snapshot.
func (w *pastWorld) begin(t *testing.T, to, read world.Destination) {
	t.Helper()
	for _, ns := range []string{"past-a", "past-b"} {
		w.p.NewNamespace(t, ns)
		w.p.MakeConfigMaps(t, ns, "still", 100)
	}
	resources := append([]string{"namespaces"}, truthResources...)
	// With the definition of the widgets, the record shows that they are custom resources: these
	// are in the common etcd, unless progress says otherwise.
	watch := "  - resources: [customresourcedefinitions, " + strings.Join(resources, ", ") + "]"
	w.agent = world.StartAgent(t, w.p, world.AgentConfig{
		Bus:        to,
		Kubeconfig: world.KubeconfigVia(t, w.p, w.api),
		Watch:      watch,
	})
	w.stream = read.Read(t, w.p.Reader())
	w.stream.Completed(t, resources...)
}

// run injects the faults, and compares the lists with the answers of get at their revisions.
func (w *pastWorld) run(t *testing.T) {
	t.Helper()
	sw := &world.SteadyWriters{Every: 30 * time.Millisecond, APIs: []*world.API{w.p.API}}
	var steps []func(*world.Writers) func(context.Context) error
	for _, ns := range []string{"past-a", "past-b"} {
		steps = append(steps,
			func(ws *world.Writers) func(context.Context) error { return ws.Writer("cm", ns, 15).ConfigMaps },
			func(ws *world.Writers) func(context.Context) error { return ws.Writer("secret", ns, 15).Secrets },
			func(ws *world.Writers) func(context.Context) error { return ws.Writer("deploy", ns, 4).Deployments },
			func(ws *world.Writers) func(context.Context) error { return ws.Writer("widget", ns, 15).Widgets })
	}
	stop := sw.Run(t, steps...)
	faults := []func(*testing.T){w.killAgent, w.restartAPIServer, w.compact, w.blockBus, w.cutBus}
	moments := size(14, 14, 50) // 14: each fault occurs once
	for n := 0; len(w.saved) < moments*4/5; n++ {
		w.save(t, "in peace")
		faults[n%len(faults)](t)
	}
	w.loseHistory(t)
	for n := 0; n < 2 || len(w.saved) < moments; n++ {
		w.save(t, "after the loss")
		world.Pass(t.Context(), 300*time.Millisecond)
	}
	stop()
	w.settle(t)
	w.compare(t)
}

// save lists all resources at the current revision.
func (w *pastWorld) save(t *testing.T, when string) {
	t.Helper()
	world.Pass(t.Context(), time.Duration(w.rng.IntN(500))*time.Millisecond)
	s := savedLists{rev: w.p.Now(t), lists: map[string][]*oracle.Version{}, when: when}
	for _, resource := range pastKinds {
		s.lists[resource] = listAt(t, w.p, resource, s.rev)
	}
	w.saved = append(w.saved, s)
}

func (w *pastWorld) killAgent(t *testing.T) {
	w.agent.Crash()
	w.save(t, "without an agent")
	w.agent.Again(t)
	w.save(t, "while the agent starts")
}

func (w *pastWorld) blockBus(t *testing.T) {
	for _, b := range w.buses {
		b.Hold(true)
	}
	w.save(t, "while the bus is blocked")
	world.Pass(t.Context(), time.Second)
	for _, b := range w.buses {
		b.Hold(false)
	}
}

func (w *pastWorld) cutBus(t *testing.T) {
	for _, b := range w.buses {
		b.Cut()
	}
	w.save(t, "while the bus is cut")
}

func (w *pastWorld) restartAPIServer(t *testing.T) {
	w.p.KillAPIServer(0)
	if err := w.p.StartAPIServer(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.save(t, "after the API server is back")
}

// compact compacts a history that the agent has read. An agent that is killed right after that may
// resume before that revision.
func (w *pastWorld) compact(t *testing.T) {
	w.forget(t)
	w.save(t, "after a compaction")
}

func (w *pastWorld) forget(t *testing.T) {
	rev := w.p.Now(t)
	if err := w.p.Compact(t.Context(), int64(rev)); err != nil {
		t.Fatal(err)
	}
	w.compacted = append(w.compacted, rev)
}

// lost reports whether the history of a span was compacted before its end.
func (w *pastWorld) lost(from, to uint64) bool {
	return slices.ContainsFunc(w.compacted, func(rev uint64) bool { return from < rev && rev <= to })
}

// loseHistory compacts a history that the agent has not read.
func (w *pastWorld) loseHistory(t *testing.T) {
	w.agent.Crash()
	w.save(t, "in the gap")
	w.save(t, "in the gap")
	world.Pass(t.Context(), time.Second)
	w.forget(t)
	w.restartAPIServer(t) // it has lost the history, too
	gaps := w.gaps()
	w.agent.Again(t)
	world.Pass(t.Context(), time.Second)
	w.awaitRecovery(t, gaps)
}

func (w *pastWorld) gaps() (n int) {
	for _, rec := range w.stream.All() {
		if rec.Stream == oracle.Gap {
			n++
		}
	}
	return n
}

// isOfPast reports whether the lists of a resource are compared.
func isOfPast(resource string) bool {
	return slices.Contains(slices.Collect(maps.Values(pastKinds)), resource)
}

// awaitRecovery waits for a snapshot of each resource after the gap.
func (w *pastWorld) awaitRecovery(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		gaps, completed := 0, map[string]bool{}
		for _, rec := range w.stream.All() {
			switch {
			case rec.Stream == oracle.Gap:
				gaps++
			case rec.Stream == oracle.SnapshotCompleted && gaps > before && isOfPast(rec.Scope.Text):
				completed[rec.Scope.Text] = true
			}
		}
		if len(completed) == len(pastKinds) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d gaps, and snapshots of %v only", gaps-before, completed)
		}
		world.Pass(t.Context(), 200*time.Millisecond)
	}
}

// settle stops the agent when the bus has all changes: its last progress event confirms that.
func (w *pastWorld) settle(t *testing.T) {
	t.Helper()
	world.Pass(t.Context(), 3*time.Second)
	if err := w.agent.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// cameAndWent returns the uids of the objects of a resource that were created and deleted between
// two revisions.
func (w *pastWorld) cameAndWent(resource string, from, to uint64) map[string]bool {
	uids := map[string]bool{}
	for _, versions := range w.p.History.Of(resource) {
		created, exists := uint64(0), false
		for _, v := range versions {
			switch {
			case v.Deleted && created > from && v.Rev <= to:
				uids[v.UID] = true
			case !v.Deleted && !exists:
				created = v.Rev
			}
			exists = !v.Deleted
		}
	}
	return uids
}

// changes reports whether a resource changes after a revision.
func (w *pastWorld) changes(resource string, after uint64) bool {
	for _, versions := range w.p.History.Of(resource) {
		if slices.ContainsFunc(versions, func(v *oracle.Version) bool { return v.Rev > after }) {
			return true
		}
	}
	return false
}

// compare compares each list with the answer of get.
func (w *pastWorld) compare(t *testing.T) {
	t.Helper()
	words := map[string]int{}
	objects := 0
	for _, s := range w.saved {
		a := ask(t, "all", "--at", fmt.Sprint("rv:", s.rev), "--bus", w.url)
		got := map[string]map[oracle.ObjectKey]*oracle.Version{}
		for key, v := range a.versions(t, func(o map[string]any) string { return pastKinds[fmt.Sprint(o["kind"])] }) {
			if got[key.Resource] == nil {
				got[key.Resource] = map[oracle.ObjectKey]*oracle.Version{}
			}
			got[key.Resource][key] = v
		}
		seen := map[string]bool{}
		for _, scope := range a.Kubecdc.Scopes {
			if !isOfPast(scope.Resource) {
				continue
			}
			seen[scope.Resource] = true
			words[scope.Certainty]++
			switch {
			case scope.Certainty == "exact",
				scope.Certainty == "unknown" && scope.cause().From.ResourceVersion > 0 &&
					scope.cause().From.ResourceVersion < s.rev &&
					!w.changes(scope.Resource, scope.cause().From.ResourceVersion):
				// Nothing shows that the record of a resource is complete up to a revision after
				// its last change. It is, because the agent was stopped when the bus had all
				// changes.
				objects += len(s.lists[scope.Resource])
				compareAt(t, s.rev, s.lists[scope.Resource], got[scope.Resource])
			case scope.Certainty == "uncertain" && scope.cause().Kind == "recovered-gap" &&
				scope.cause().From.ResourceVersion < s.rev && s.rev <= scope.cause().To.ResourceVersion:
				// Only objects that were created and deleted inside the gap may be missing, or be
				// in a state that a killed agent had sent.
				vague := w.cameAndWent(scope.Resource, scope.cause().From.ResourceVersion,
					scope.cause().To.ResourceVersion)
				listed := slices.DeleteFunc(slices.Clone(s.lists[scope.Resource]), func(v *oracle.Version) bool {
					return vague[v.UID]
				})
				maps.DeleteFunc(got[scope.Resource], func(_ oracle.ObjectKey, v *oracle.Version) bool {
					return vague[v.UID]
				})
				objects += len(listed)
				compareAt(t, s.rev, listed, got[scope.Resource])
			case scope.Certainty == "uncertain" && scope.cause().From.ResourceVersion < s.rev &&
				s.rev <= scope.cause().To.ResourceVersion &&
				w.lost(scope.cause().From.ResourceVersion, scope.cause().To.ResourceVersion):
			default:
				oracle.Fail(t, "%s at %d (%s): %+v", scope.Resource, s.rev, s.when, scope)
			}
		}
		if len(seen) != len(pastKinds) {
			t.Errorf("at %d there are %d resources in the answer, want %d", s.rev, len(seen), len(pastKinds))
		}
		if t.Failed() {
			t.Fatalf("at %d: %s; scopes: %+v", s.rev, s.when, a.Kubecdc.Scopes)
		}
	}
	if words["uncertain"] == 0 || words["exact"] == 0 || objects < 100*len(w.saved) {
		t.Errorf("%d objects compared, certainties %v: too few for what was done", objects, words)
	}
	t.Logf("%d objects compared at %d moments; certainties of scopes: %v", objects, len(w.saved), words)
}
