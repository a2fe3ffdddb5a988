package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

const (
	podsOfNoNode = "pods?fieldSelector=spec.nodeName="
	podsOf       = podsOfNoNode
	nodeObject   = "nodes?fieldSelector=metadata.name="
)

// fleet is an agent on each of some simulated nodes, and the central agent.
type fleet struct {
	plane     *world.Plane
	bus       *world.Bus
	namespace string
	nodes     []string
	agents    map[string]*world.Agent // By node.
	central   *world.Agent
}

func startFleet(t *testing.T, p *world.Plane, namespace string, nodes int) *fleet {
	t.Helper()
	p.NewNamespace(t, namespace)
	f := &fleet{plane: p, bus: world.StartBus(t), namespace: namespace, agents: map[string]*world.Agent{}}
	for i := range nodes {
		name := fmt.Sprintf("%s-%02d", namespace, i)
		f.nodes = append(f.nodes, name)
		f.addNode(t, name)
		// Already deleted, or no longer used.
		t.Cleanup(func() { _ = p.API.Remove(context.WithoutCancel(t.Context()), "/api/v1/nodes/"+name) })
	}
	f.central = world.StartAgent(t, p, world.AgentConfig{
		Bus:   f.bus,
		Watch: "  - resources: [pods, nodes]",
		Extra: "mode: central",
	})
	for _, name := range f.nodes {
		f.agents[name] = f.startOn(t, name)
	}
	for _, a := range f.all() {
		a.Ready(t)
	}
	return f
}

func (f *fleet) addNode(t *testing.T, name string) {
	t.Helper()
	node := obj{"apiVersion": "v1", "kind": "Node", "metadata": world.Meta(name)}
	if _, err := f.plane.API.Create(t.Context(), "/api/v1/nodes", node); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) startOn(t *testing.T, node string) *world.Agent {
	t.Helper()
	return world.StartAgent(t, f.plane, world.AgentConfig{
		Bus: f.bus, Watch: "  - resources: [pods, nodes]", Extra: "mode: node", Env: []string{"NODE_NAME=" + node},
	})
}

// all returns the agents, the central agent first.
func (f *fleet) all() []*world.Agent {
	all := []*world.Agent{f.central}
	for _, node := range f.nodes {
		if a := f.agents[node]; a != nil {
			all = append(all, a)
		}
	}
	return all
}

// rss returns the resident memory of each agent, sorted.
func (f *fleet) rss(t *testing.T) []int64 {
	t.Helper()
	var list []int64
	for _, a := range f.all() {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(a.PID()), "statm"))
		if err != nil {
			t.Fatal(err)
		}
		pages, err := strconv.ParseInt(strings.Fields(string(raw))[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pages*int64(os.Getpagesize()))
	}
	slices.Sort(list)
	return list
}

// expected is a record that one agent of a fleet must send.
type expected struct {
	id, op, scope string
	rev           uint64
	prev, next    *oracle.Version
}

// predict derives from etcd's history the records of Pods and Nodes that the agents of all nodes
// and the central agent must send. It starts after the snapshots of their scopes, which are given
// by their resourceVersions.
func predict(
	history map[oracle.ObjectKey][]*oracle.Version, namespace string, snapshots map[string]uint64, until uint64,
) map[string]expected {
	want := make(map[string]expected)
	for key, versions := range history {
		if key.Namespace != namespace && (key.Resource != "nodes" || !strings.HasPrefix(key.Name, namespace+"-")) {
			continue
		}
		var prev *oracle.Version
		for _, next := range versions {
			if next.Rev > until {
				break
			}
			for _, w := range predictChange(key, prev, next) {
				if at, ok := snapshots[w.scope]; ok && next.Rev > at {
					want[w.id] = w
				}
			}
			prev = next
			if next.Deleted {
				prev = nil
			}
		}
	}
	return want
}

func predictChange(key oracle.ObjectKey, prev, next *oracle.Version) []expected {
	scopeOf := func(v *oracle.Version) string {
		if key.Resource == "nodes" {
			return nodeObject + key.Name
		}
		return podsOf + v.Node
	}
	switch {
	case next.Deleted:
		return []expected{{oracle.DeleteID(prev), oracle.Deleted, scopeOf(prev), next.Rev, prev, nil}}
	case prev == nil:
		return []expected{{oracle.ChangeID(next), oracle.Created, scopeOf(next), next.Rev, nil, next}}
	case scopeOf(prev) == scopeOf(next):
		return []expected{{oracle.ChangeID(next), oracle.Updated, scopeOf(next), next.Rev, prev, next}}
	default:
		return []expected{
			{oracle.LeftID(next), oracle.Left, scopeOf(prev), next.Rev, prev, nil},
			{oracle.ChangeID(next), oracle.Entered, scopeOf(next), next.Rev, prev, next},
		}
	}
}

// compareExpected compares the records of a fleet with the wanted ones, and returns the number of
// copies.
func compareExpected(t *testing.T, want map[string]expected, records []oracle.Record, until uint64) (copies int) {
	t.Helper()
	type place struct {
		scope string
		key   oracle.ObjectKey
	}
	seen := make(map[string]bool)
	last := make(map[place]uint64) // The highest revision.
	faults := make(map[string]int)
	fault := func(kind, format string, args ...any) {
		faults[kind]++
		if faults[kind] <= world.MostShown {
			t.Errorf(kind+": "+format, args...)
		}
	}
	for i := range records {
		rec := &records[i]
		for _, p := range rec.Problems {
			fault("contract", "record %d, %s: %s", rec.Position, rec.ID, p)
		}
		switch {
		case rec.Stream == oracle.Gap:
			fault("gap", "record %d, %s, %s, though no history was lost", rec.Position, rec.ID, rec.Reason)
			continue
		case rec.Stream != "" || rec.Op == oracle.Read || rec.Rev > until:
			continue
		}
		w, ok := want[rec.ID]
		switch {
		case !ok:
			fault("unexpected", "record %d, %s, %s of scope %s: etcd knows no such change", rec.Position, rec.ID,
				rec.Op, rec.Scope.Text)
			continue
		case rec.Op != w.op || rec.Scope.Text != w.scope || rec.Rev != w.rev || rec.Inferred:
			fault("wrong", "record %d, %s: %s of scope %q at %d (inferred: %t), want %s of %q at %d", rec.Position,
				rec.ID, rec.Op,
				rec.Scope.Text, rec.Rev, rec.Inferred, w.op, w.scope, w.rev)
		case w.prev != nil && (rec.Before != oracle.Present || rec.BeforeDigest != w.prev.Digest):
			fault("before", "record %d, %s %s: is not revision %d", rec.Position, rec.Op, rec.ID, w.prev.Rev)
		case w.next != nil && (rec.After != oracle.Present || rec.AfterDigest != w.next.Digest):
			fault("after", "record %d, %s %s: is not revision %d", rec.Position, rec.Op, rec.ID, w.next.Rev)
		}
		if seen[rec.ID] {
			copies++
			continue
		}
		seen[rec.ID] = true
		at := place{rec.Scope.Text, rec.Key}
		if rec.Rev < last[at] {
			fault("order", "record %d, %s comes behind revision %d of its scope", rec.Position, rec.ID, last[at])
		}
		last[at] = max(last[at], rec.Rev)
	}
	for id, w := range want {
		if !seen[id] {
			fault("missing", "%s %s of scope %s at revision %d", w.op, id, w.scope, w.rev)
		}
	}
	if len(faults) > 0 {
		oracle.Fail(t, "faults by kind: %v", faults)
	}
	return copies
}

// waitExpected waits until all wanted records are on the bus, or no more come.
func waitExpected(t *testing.T, s *world.Stream, want map[string]expected, idle time.Duration) {
	t.Helper()
	list := make([]oracle.Expectation, 0, len(want))
	for id := range want {
		list = append(list, oracle.Expectation{ID: id})
	}
	s.WaitFor(t, map[oracle.ObjectKey][]oracle.Expectation{{}: list}, idle)
}

// podWriter creates, binds, changes, moves and deletes Pods.
type podWriter struct {
	*world.Writer
	nodes  []string
	bound  map[string]bool // Pods without an entry do not exist.
	counts *podCounts
}

type podCounts struct{ bornBound, bound, moved, deleted, deletedUnbound atomic.Int64 }

func (w *podWriter) node() string { return w.nodes[w.RNG.IntN(len(w.nodes))] }

func (w *podWriter) step(ctx context.Context) error {
	all := world.Collection("pods", w.Namespace)
	name := w.Name()
	uri := all + "/" + name
	w.N++
	make := func(node string) error {
		spec := obj{"containers": []obj{{"name": "c", "image": "none.invalid/c:" + fmt.Sprint(w.N)}}}
		if node != "" {
			spec["nodeName"] = node
			w.counts.bornBound.Add(1)
		}
		_, err := w.API.Create(ctx, all, obj{
			"apiVersion": "v1",
			"kind":       "Pod",
			"metadata":   world.Meta(name),
			"spec":       spec,
		})
		w.bound[name] = node != ""
		return err
	}
	bind := func() error {
		target := obj{"apiVersion": "v1", "kind": "Node", "name": w.node()}
		_, err := w.API.Create(ctx, uri+"/binding", obj{
			"apiVersion": "v1",
			"kind":       "Binding",
			"metadata":   world.Meta(name),
			"target":     target,
		})
		w.bound[name] = true
		w.counts.bound.Add(1)
		return err
	}
	remove := func() error {
		if !w.bound[name] {
			w.counts.deletedUnbound.Add(1)
		}
		delete(w.bound, name)
		w.counts.deleted.Add(1)
		return w.API.Remove(ctx, uri+"?gracePeriodSeconds=0")
	}
	bound, exists := w.bound[name]
	luck := w.RNG.IntN(10)
	switch {
	case !exists && luck < 3: // Like a static Pod.
		return make(w.node())
	case !exists:
		if err := make(""); err != nil || luck < 6 {
			return err // It is bound later, or never.
		}
		return bind()
	case luck == 0:
		return remove()
	case luck == 1: // Moved: deleted, and created again under the same name on another node.
		if err := remove(); err != nil {
			return err
		}
		w.counts.moved.Add(1)
		return make(w.node())
	case !bound && luck < 6:
		return bind()
	case luck < 4:
		_, err := w.API.MergePatch(ctx, uri, obj{"metadata": obj{"labels": obj{"step": fmt.Sprint(w.N)}}})
		return err
	default:
		_, err := w.API.MergePatch(ctx, uri+"/status", obj{"status": obj{"phase": "Running", "message": w.Text()}})
		return err
	}
}

// TestNodes runs an agent on each of many simulated nodes, and the central agent. Pods are created,
// bound, changed, moved and deleted under load, while agents are killed and restarted. Together the
// agents must send each version of each Pod once, and each binding as two records of two agents.
func TestNodes(t *testing.T) {
	slow(t)
	nodes, revisions := size(12, 16, 50), size(1_200, 2_000, 5_000)
	p := world.SharedPlane(t)
	began := time.Now()
	f := startFleet(t, p, "fleet", nodes)
	s := world.ReadStream(t, f.bus, p.Reader())
	snapshots := f.snapshots(t, s)
	up := time.Since(began)

	// The load shows that a snapshot of one node does not sweep the Pods of another.
	count := func() int { return p.History.Count("pods", "nodes") }
	from, writing := count(), time.Now()
	written := func() int { return count() - from }
	ws := &world.Writers{API: p.API, Done: func() bool { return written() >= revisions }}
	counts := &podCounts{}
	var steps []func(context.Context) error
	for i := range 8 {
		w := &podWriter{
			Writer: ws.Writer(fmt.Sprint("pod", i), f.namespace, 100),
			nodes:  f.nodes,
			bound:  map[string]bool{},
			counts: counts,
		}
		steps = append(steps, w.step)
	}
	restarts := 0
	var unrest sync.WaitGroup
	unrest.Go(func() { restarts = f.unsettle(t, written, revisions) })
	ws.Run(t, steps...)
	unrest.Wait()
	wrote := time.Since(writing)

	wait.Settled(t, 500*time.Millisecond, time.Minute, p.History.ChangesIn(f.namespace))
	until := p.Now(t)
	want := predict(p.History.Of("pods", "nodes"), f.namespace, snapshots, until)
	waitExpected(t, s, want, 20*time.Second)
	all := time.Since(writing)
	records := s.All()
	copies := compareExpected(t, want, records, until)
	f.compareTable(t, s)
	if counts.bornBound.Load() == 0 || counts.bound.Load() == 0 || counts.moved.Load() == 0 ||
		counts.deletedUnbound.Load() == 0 {
		t.Errorf("not everything came up: %+v", counts)
	}
	rss := f.rss(t)
	t.Logf(
		"%d agents up in %s; %d revisions in %s, %d restarts; %d pods made bound, %d bound later, %d moved, %d deleted (%d unbound)",
		nodes+1, up.Round(time.Millisecond), written(), wrote.Round(time.Millisecond), restarts,
		counts.bornBound.Load(),
		counts.bound.Load(), counts.moved.Load(), counts.deleted.Load(), counts.deletedUnbound.Load())
	t.Logf(
		"%d records expected, %d on the bus, %d copies, all there after %s; memory of an agent: median %s, largest %s; %s",
		len(want), len(records), copies, all.Round(time.Millisecond), world.MiB(rss[len(rss)/2]),
		world.MiB(rss[len(rss)-1]), countOps(records))
}

// snapshots waits until each scope has its first snapshot on the bus, and returns the
// resourceVersions, by scope.
func (f *fleet) snapshots(t *testing.T, s *world.Stream) map[string]uint64 {
	t.Helper()
	found := make(map[string]uint64)
	wait.Eventually(t, time.Minute, func() error {
		for _, rec := range s.All() {
			if rec.Stream == oracle.SnapshotCompleted && found[rec.Scope.Text] == 0 {
				found[rec.Scope.Text] = rec.Rev
			}
		}
		if missing := 1 + 2*len(f.nodes) - len(found); missing > 0 {
			return fmt.Errorf("%d snapshots are not on the bus", missing)
		}
		return nil
	})
	return found
}

// unsettle kills and restarts agents under load, and returns how many.
func (f *fleet) unsettle(t *testing.T, written func() int, revisions int) (restarts int) {
	for round := 1; round <= 5; round++ {
		err := wait.For(t.Context(), time.Minute, func() error {
			if n := written(); n < round*revisions/7 {
				return fmt.Errorf("%d revisions are written", n)
			}
			return nil
		})
		if err != nil {
			return restarts
		}
		victims := f.all()[round*2 : round*2+2]
		if round%2 == 0 {
			victims = append(victims, f.central)
		}
		for i, a := range victims {
			if i%2 == 0 {
				a.Crash()
			} else if err := a.Stop(time.Minute); err != nil {
				t.Errorf("agent, asked to stop: %v", err)
			}
			a.Again(t)
			restarts++
		}
	}
	return restarts
}

// compareTable compares the Pods that a consumer of the stream has with the existing ones.
func (f *fleet) compareTable(t *testing.T, s *world.Stream) {
	t.Helper()
	var tracker consume.Tracker
	for _, rec := range s.All() {
		body, err := s.Body(t.Context(), rec.Lane, rec.Position)
		if err != nil {
			t.Fatal(err)
		}
		e, err := consume.Parse(body)
		if err != nil {
			t.Fatalf("record %d: %v", rec.Position, err)
		}
		tracker.Apply(e)
	}
	known := make(map[string]bool)
	for o := range tracker.All() {
		if o.Resource == "pods" && o.Namespace == f.namespace {
			known[o.Name+" "+o.UID] = true
		}
	}
	there := make(map[string]bool)
	for _, v := range listAt(t, f.plane, "pods", f.plane.Now(t)) {
		if v.Key.Namespace == f.namespace {
			there[v.Key.Name+" "+v.UID] = true
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(there), cmp.Compare) {
		if !known[name] {
			oracle.Fail(t, "pod %s exists, and a consumer does not know it", name)
		}
	}
	for name := range known {
		if !there[name] {
			oracle.Fail(t, "a consumer knows pod %s, which does not exist", name)
		}
	}
	if len(there) == 0 {
		t.Error("there are no pods to compare")
	}
}
