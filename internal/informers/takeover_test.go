package informers_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// ConfigMaps stand for Pods here: that of a node has the node's name, and of what no node has there is none.
const (
	unbound = "configmaps?fieldSelector=metadata.name="
	nodes   = "nodes"
)

// nodeObject is the scope in which the agent of a node observes its Node.
func nodeObject(name string) string { return "nodes?fieldSelector=metadata.name=" + name }

// central is a run of the set that looks after what nodes that are gone have left.
type central struct {
	*life
	reg *prometheus.Registry
}

func startCentral(t *testing.T, s *apiServer, m *memory, change func(*informers.Options, *recorder)) *central {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	l := live(t, s, m, func(o *informers.Options, rec *recorder) {
		o.TakeOver, o.Registerer = true, reg
		o.Rules = append(o.Rules, rule(func(r *selection.Rule) { r.Resources = []selection.Pattern{pattern("nodes")} }))
		o.Part = func(_, resource string) selection.Part {
			if resource == "nodes" {
				return selection.Part{None: true}
			}
			return selection.Part{FieldSelector: "metadata.name="}
		}
		if change != nil {
			change(o, rec)
		}
	})
	eventually(t, "to be ready", func() bool { return captured(l.set) && l.set.Ready() == nil && len(l.set.Status()) >= 2 })
	return &central{life: l, reg: reg}
}

// cluster is an API server with Nodes, each with one ConfigMap.
func cluster(t *testing.T, names ...string) *apiServer {
	t.Helper()
	s := newAPIServer(t)
	s.nodes = true
	for _, name := range names {
		s.putIn("", name, "node", nil)
		s.put(name, "1", nil)
	}
	return s
}

// waitScope waits until the deltas of one scope are those of want.
func (c *central) waitScope(t *testing.T, scope string, want ...string) {
	t.Helper()
	got := c.waitFor(t, scope, len(want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s: -want +got\n%s", scope, diff)
	}
}

// waitFor returns the deltas of a scope, once there are n or more, without progress.
func (c *central) waitFor(t *testing.T, scope string, n int) (got []string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s to have %d deltas", scope, n), func() bool {
		got = nil
		for _, d := range c.ofScope(scope) {
			if d.Stream == nil || d.Stream.Kind != object.Progress {
				got = append(got, short(d))
			}
		}
		return len(got) >= n
	})
	return got
}

func (r *recorder) ofScope(scope string) (list []*object.Delta) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deltas {
		if d.Scope == scope || d.Stream != nil && d.Stream.Scope == scope {
			list = append(list, d)
		}
	}
	return list
}

// nothingLeft checks that of scopes that were taken over nothing is kept: no informer, no place in the checkpoint, no series.
func (c *central) nothingLeft(t *testing.T, m *memory) {
	t.Helper()
	want := []string{unbound, nodes}
	eventually(t, "only the central agent's own scopes to be observed", func() bool { return len(c.set.Status()) == len(want) })
	kept := func() []string {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.Sorted(maps.Keys(m.tracked))
	}
	eventually(t, "only they to be tracked", func() bool { return slices.Equal(kept(), want) })
	eventually(t, "only they to be in the metrics", func() bool {
		families, err := c.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, series := range f.GetMetric() {
				for _, l := range series.GetLabel() {
					if l.GetName() == "scope" && !slices.Contains(want, l.GetValue()) {
						return false
					}
				}
			}
		}
		return true
	})
}

// nodesReach waits until the checkpoint of the Nodes has passed rv.
func nodesReach(t *testing.T, m *memory, rv uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the Nodes' checkpoint to pass %d", rv), func() bool {
		_ = m.Flush(t.Context())
		c, ok := m.saved(nodes)
		return ok && c.ResourceVersion >= rv
	})
}

// refuse has the lists of one node's objects fail.
func (s *apiServer) refuse(node string, code int, reason metav1.StatusReason) {
	s.do(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			q := r.URL.Query()
			if r.URL.Path != "/api/v1/configmaps" || q.Get("watch") != "" || q.Get("fieldSelector") != "metadata.name="+node {
				return false
			}
			fail(w, code, reason)
			return true
		}
	})
}

func takenOver(objects ...string) []string {
	all := []string{"gap 0 checkpoint-lost", fmt.Sprintf("snapshot.started %d", len(objects))}
	return append(append(all, objects...), fmt.Sprintf("snapshot.completed %d", len(objects)))
}

// What a node that is gone has left is told until there is nothing more, and nothing of it is kept then.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1", "n2"), newMemory()
		c := startCentral(t, s, m, nil)
		s.put("n1", "2", nil)
		gone := s.deleteIn("", "n1").rv
		scope := unbound + "n1"
		want := takenOver("r n1 uid-2 -→2")
		c.waitScope(t, scope, want...)
		c.waitScope(t, nodeObject("n1"), "d n1 uid-1 node→-")
		c.waitScope(t, nodes)
		if g := c.ofScope(scope)[0].Stream; g.From != 1 || g.To != gone-1 {
			t.Errorf("the gap is from %d to %d, want from 1 to %d: right before the deletion", g.From, g.To, gone-1)
		}
		s.put("n1", "3", nil)
		s.put("n2", "2", nil) // Its own agent tells that.
		c.waitScope(t, scope, append(want, "u n1 uid-2 2→3")...)
		nodesReach(t, m, gone)
		if _, err := c.set.Snapshot(t.Context(), "nodes", ""); err == nil {
			t.Error("a snapshot of Nodes began, which the central agent does not capture")
		}
		last := s.delete("n1").rv
		c.waitScope(t, scope, append(want, "u n1 uid-2 2→3", "d n1 uid-2 3→-")...)
		c.nothingLeft(t, m)
		told := c.ofScope(scope)
		if p := told[len(told)-1].Stream; p == nil || p.Kind != object.Progress || p.ResourceVersion < last {
			t.Errorf("the last word on %s is %s, want progress up to %d", scope, short(told[len(told)-1]), last)
		}
		for _, d := range c.deltas {
			if d.Scope == unbound+"n2" {
				t.Errorf("%s is of a node that is there", short(d))
			}
		}
	})
}

// A Node that is made again has an agent of its own: it is left to that one, whatever there is on it, also when it goes once more.
func TestTakeoverNodeReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		c := startCentral(t, s, m, nil)
		scope := unbound + "n1"
		want := takenOver("r n1 uid-2 -→1")
		for range 2 {
			gone := s.deleteIn("", "n1").rv
			c.waitScope(t, scope, want...)
			nodesReach(t, m, gone)
			back := s.putIn("", "n1", "node", nil).rv
			c.nothingLeft(t, m)
			nodesReach(t, m, back)
			want = append(want, want[:4]...)
		}
	})
}

// A Node that comes back before the API server could say what it had left: nothing waits for that any more.
func TestTakeoverNodeReturnsTooSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		c := startCentral(t, s, m, nil)
		s.refuse("n1", http.StatusForbidden, metav1.StatusReasonForbidden)
		gone := s.deleteIn("", "n1").rv
		of := unbound + "n1"
		eventually(t, "the refusal to show", func() bool {
			return slices.ContainsFunc(c.set.Status(), func(st scope.Status) bool { return st.Scope == of && st.Reason == "forbidden" })
		})
		_ = m.Flush(t.Context())
		if p, _ := m.saved(nodes); p.ResourceVersion >= gone {
			t.Errorf("the Nodes' checkpoint is at %d, and nothing is remembered of the deletion at %d", p.ResourceVersion, gone)
		}
		back := s.putIn("", "n1", "node", nil).rv
		c.nothingLeft(t, m)
		nodesReach(t, m, back)
	})
}

// Errors that pass are waited out.
func TestTakeoverAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		c := startCentral(t, s, m, nil)
		s.refuse("n1", http.StatusInternalServerError, metav1.StatusReasonInternalError)
		s.deleteIn("", "n1")
		of := unbound + "n1"
		eventually(t, "the failure to show", func() bool {
			return slices.ContainsFunc(c.set.Status(), func(st scope.Status) bool { return st.Scope == of && st.Reason == "server_error" })
		})
		s.put("n1", "2", nil)
		s.do(func() { s.fault = nil })
		const read, update = "r n1 uid-2 -→1", "u n1 uid-2 1→2"
		want := takenOver(read)
		got := c.waitFor(t, of, len(want)+1)
		// The update may come before or after the end of the snapshot.
		at := slices.Index(got, update)
		if at < slices.Index(got, read) {
			t.Fatalf("%s: got %q, want the update after the read", of, got)
		}
		if diff := cmp.Diff(want, slices.Delete(got, at, at+1)); diff != "" {
			t.Fatalf("%s without the update: -want +got\n%s", of, diff)
		}
	})
}

// History that does not go back to the deletion: the gap still claims nothing of what was before.
func TestTakeoverCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		c := startCentral(t, s, m, nil)
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				q := r.URL.Query()
				if q.Get("fieldSelector") != "metadata.name=n1" || q.Get("resourceVersionMatch") != "Exact" {
					return false
				}
				fail(w, http.StatusGone, metav1.StatusReasonExpired)
				return true
			}
		})
		gone := s.deleteIn("", "n1").rv
		scope := unbound + "n1"
		c.waitScope(t, scope, "gap 0 compacted", "snapshot.started 1", "r n1 uid-2 -→1", "snapshot.completed 1")
		if g := c.ofScope(scope)[0].Stream; g.From != 1 || g.To < gone || g.Recovered {
			t.Errorf("the gap is from %d to %d (recovered: %t), want from 1 to %d or above", g.From, g.To, g.Recovered, gone)
		}
	})
}

// What is taken over is of the history that the central agent is in, also where it has heard of restores in this run only.
func TestTakeoverInARestoredHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		c := startCentral(t, s, m, func(o *informers.Options, _ *recorder) {
			o.LastEvent = func(context.Context, *object.Resource) (scope.LastEvent, bool, error) {
				return scope.LastEvent{Scope: unbound + "n2", ResourceVersion: 100, History: 3}, true, nil
			}
		})
		s.deleteIn("", "n1")
		scope := unbound + "n1"
		c.waitScope(t, scope, takenOver("r n1 uid-2 -→1")...)
		for _, d := range c.ofScope(scope) {
			if d.Stream == nil && d.History != 3 || d.Stream != nil && d.Stream.History != 3 {
				t.Errorf("%s is not of history 3: %+v", short(d), d)
			}
		}
	})
}

// A central agent that ends before what it takes over is saved hears of the deletion again. Behind that it goes on with the scope,
// and tells what has changed meanwhile.
func TestTakeoverAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		first := startCentral(t, s, m, func(_ *informers.Options, rec *recorder) {
			rec.holds = func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.Gap }
		})
		nodesReach(t, m, 1) // The Nodes are loaded, and where is saved.
		gone := s.deleteIn("", "n1").rv
		scope := unbound + "n1"
		first.waitScope(t, scope, "gap 0 checkpoint-lost")
		first.waitScope(t, nodeObject("n1"), "d n1 uid-1 node→-")
		_ = m.Flush(t.Context())
		first.end()
		if p, _ := m.saved(nodes); p.ResourceVersion >= gone {
			t.Fatalf("the Nodes' checkpoint has passed %d before what was taken over is saved", gone)
		}

		second := startCentral(t, s, m, nil)
		second.waitScope(t, nodeObject("n1"), "d n1 uid-1 node→-")
		second.waitScope(t, scope, takenOver("r n1 uid-2 -→1")...)
		nodesReach(t, m, gone)
		eventually(t, "the snapshot to be done with", func() bool {
			_ = m.Flush(t.Context())
			p, ok := m.saved(scope)
			return ok && p.Snapshot == nil
		})
		second.end()
		s.put("n1", "2", nil)

		third := startCentral(t, s, m, nil)
		third.waitScope(t, nodeObject("n1"))
		third.waitScope(t, scope, "u n1 uid-2 1→2")
		s.delete("n1")
		third.waitScope(t, scope, "u n1 uid-2 1→2", "d n1 uid-2 2→-")
		third.nothingLeft(t, m)
	})
}

// A Node that came back while nobody could see it: its own agent observes it all the same.
func TestTakeoverNodeReturnsUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		first := startCentral(t, s, m, nil)
		gone := s.deleteIn("", "n1").rv
		scope := unbound + "n1"
		first.waitScope(t, scope, takenOver("r n1 uid-2 -→1")...)
		nodesReach(t, m, gone)
		eventually(t, "the scope to be saved", func() bool {
			_ = m.Flush(t.Context())
			_, ok := m.saved(scope)
			return ok
		})
		first.end()
		s.putIn("", "n1", "node", nil)
		s.compact()
		second := startCentral(t, s, m, nil)
		second.nothingLeft(t, m)
		if _, ok := s.now["shop/n1"]; !ok {
			t.Fatal("the node was left because it was empty")
		}
	})
}

// Half of a cluster goes at once.
func TestManyTakeovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprintf("n%d", i))
		}
		s, m := cluster(t, names...), newMemory()
		c := startCentral(t, s, m, nil)
		for _, name := range names {
			s.deleteIn("", name)
		}
		for n, name := range names {
			c.waitScope(t, unbound+name, takenOver(fmt.Sprintf("r %s uid-%d -→1", name, 2*n+2))...)
		}
		if len(c.set.Status()) != len(names)+2 {
			t.Errorf("%d scopes are observed, want %d", len(c.set.Status()), len(names)+2)
		}
		for _, name := range names {
			s.delete(name)
		}
		for n, name := range names {
			uid := fmt.Sprintf("uid-%d", 2*n+2)
			c.waitScope(t, unbound+name, append(takenOver(fmt.Sprintf("r %s %s -→1", name, uid)), fmt.Sprintf("d %s %s 1→-", name, uid))...)
			c.waitScope(t, nodeObject(name), fmt.Sprintf("d %s uid-%d node→-", name, 2*n+1))
		}
		c.nothingLeft(t, m)
	})
}

// Nobody is asked for Nodes where a cluster is observed whole.
func TestNoNodesAreFollowedForAWholeCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		asked := make(chan string, 1)
		s.fault = func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/api/v1/nodes") {
				select {
				case asked <- r.URL.String():
				default:
				}
			}
			return false
		}
		l := live(t, s, m, nil)
		eventually(t, "to be ready", func() bool { return captured(l.set) && l.set.Ready() == nil })
		s.deleteIn("", "n1")
		s.put("n1", "2", nil)
		l.wait(t, "snapshot.started 1", "r n1 uid-2 -→1", "snapshot.completed 1", "u n1 uid-2 1→2")
		select {
		case url := <-asked:
			t.Errorf("asked for %s", url)
		default:
		}
	})
}

// Of a Node that goes, what the rules take of Nodes is told, and nothing else; what it has left is looked after all the same.
func TestTakeoverOfANodeOfNoRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1", "n2", "n3"), newMemory()
		yes := map[string]string{"told": "yes"}
		s.putIn("", "n2", "node", yes)
		s.putIn("", "n3", "node", yes)
		ofNodes := func(change func(*selection.Rule)) selection.Rule {
			return rule(func(r *selection.Rule) {
				r.Resources, r.LabelSelector = []selection.Pattern{pattern("nodes")}, "told=yes"
				change(r)
			})
		}
		c := startCentral(t, s, m, func(o *informers.Options, _ *recorder) {
			o.Rules = []selection.Rule{rule(nil), ofNodes(func(*selection.Rule) {})}
		})
		for _, name := range []string{"n1", "n2"} {
			gone := s.deleteIn("", name)
			c.waitScope(t, unbound+name, takenOver(fmt.Sprintf("r %s %s -→1", name, s.uidOf(name)))...)
			nodesReach(t, m, gone.rv)
		}
		c.reload(t, specOf(rule(nil), ofNodes(filtered("d"))))
		nodesReach(t, m, s.deleteIn("", "n3").rv)
		c.waitScope(t, nodeObject("n2"), "d n2 uid-3 node→-")
		if n, same := informers.NodesOutstanding(c.set); n != 0 || !same {
			t.Errorf("%d deltas of Nodes are outstanding, and what is acknowledged is what there is: %t", n, same)
		}
		for _, name := range []string{"n1", "n3"} {
			c.waitScope(t, nodeObject(name))
		}
	})
}

func isProgressOf(scope string) func(*object.Delta) bool {
	return func(d *object.Delta) bool {
		return d.Stream != nil && d.Stream.Kind == object.Progress && d.Stream.Scope == scope
	}
}

func (c *central) awaitScope(t *testing.T, scope string) {
	t.Helper()
	eventually(t, scope+" to be observed", func() bool { return c.observes(scope) })
}

func (c *central) observes(name string) bool {
	return slices.ContainsFunc(c.set.Status(), func(st scope.Status) bool { return st.Scope == name })
}

// A take-over that ends waits for the bus. Nodes that go meanwhile do not wait for it, neither another one nor the same one again.
func TestNodeDepartsWhileATakeOverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1", "n2"), newMemory()
		c := startCentral(t, s, m, nil)
		want := takenOver("r n1 uid-2 -→1")
		s.deleteIn("", "n1")
		c.waitScope(t, unbound+"n1", want...)
		c.hold(isProgressOf(unbound + "n1"))
		back := s.putIn("", "n1", "node", nil).rv
		nodesReach(t, m, back)
		c.awaitDelta(t, isProgressOf(unbound+"n1"))

		s.deleteIn("", "n2")
		c.waitScope(t, unbound+"n2", takenOver("r n2 uid-4 -→1")...)
		s.deleteIn("", "n1")
		s.deleteIn("shop", "n2")
		synctest.Wait()
		c.acknowledge()
		c.waitScope(t, unbound+"n1", append(want, takenOver("r n1 uid-2 -→1")...)...)
		s.deleteIn("shop", "n1")
		c.nothingLeft(t, m)
	})
}

func (c *central) awaitDelta(t *testing.T, is func(*object.Delta) bool) {
	t.Helper()
	eventually(t, "a delta", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.ContainsFunc(c.deltas, is)
	})
}

// A reload replaces the informer of a node while its take-over ends. The new informer is observed and remembered.
func TestReloadWhileATakeOverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		c := startCentral(t, s, m, nil)
		scope := unbound + "n1"
		s.deleteIn("", "n1")
		c.waitScope(t, scope, takenOver("r n1 uid-2 -→1")...)
		c.hold(isProgressOf(scope))
		s.delete("n1")
		c.awaitDelta(t, isProgressOf(scope))
		nodesAndAll := func(change func(*selection.Rule)) selection.Spec {
			return specOf(rule(change), rule(func(r *selection.Rule) { r.Resources = []selection.Pattern{pattern("nodes")} }))
		}
		c.reload(t, nodesAndAll(redacted("metadata.labels")))
		c.awaitScope(t, scope)
		s.put("n1", "2", nil) // bound by somebody who does not know yet
		c.awaitDelta(t, func(d *object.Delta) bool { return d.Scope == scope && d.Op == object.Created })
		c.acknowledge()
		synctest.Wait()
		m.mu.Lock()
		tracked := m.tracked[scope] != nil
		m.mu.Unlock()
		if !tracked || !c.observes(scope) {
			t.Errorf("the scope of the node is remembered: %t, observed: %t; want both", tracked, c.observes(scope))
		}
		s.delete("n1")
		c.nothingLeft(t, m)
	})
}

// A node that goes is taken over while the bus is asked for the resource.
func TestNodeDepartsWhileTheBusIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1", "n2"), newMemory()
		var busy atomic.Bool
		free, asked := make(chan struct{}), make(chan struct{}, 10)
		c := startCentral(t, s, m, func(o *informers.Options, _ *recorder) {
			o.LastEvent = func(ctx context.Context, _ *object.Resource) (scope.LastEvent, bool, error) {
				if busy.Load() {
					asked <- struct{}{}
					select {
					case <-free:
					case <-ctx.Done():
						return scope.LastEvent{}, false, context.Cause(ctx)
					}
				}
				return scope.LastEvent{}, false, nil
			}
		})
		s.deleteIn("", "n1")
		c.waitScope(t, unbound+"n1", takenOver("r n1 uid-2 -→1")...)
		busy.Store(true)
		c.reload(t, specOf(rule(redacted("metadata.labels")), rule(func(r *selection.Rule) { r.Resources = []selection.Pattern{pattern("nodes")} })))
		<-asked
		s.putIn("", "n1", "node", nil)
		eventually(t, "the take-over to end", func() bool { return !c.observes(unbound + "n1") })
		s.deleteIn("", "n2")
		c.awaitScope(t, unbound+"n2")
		close(free)
	})
}

// A node that goes while a reload is not in force yet, since the bus has not all that was sent of the resource, is read as the new
// selection says once it is.
func TestNodeDepartsWhileAReloadIsNotInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		s.put("n1", "1", map[string]string{"red": "1"})
		c := startCentral(t, s, m, nil)
		informers.Impatient(c.set)
		c.hold(func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Scope == unbound })
		go func() { _, _ = c.set.Snapshot(t.Context(), "configmaps", "") }()
		synctest.Wait()
		c.reload(t, specOf(rule(redacted("metadata.labels")), nodeRule(nil)))
		c.awaitPhases(t, unbound+" draining", "nodes live")
		s.deleteIn("", "n1")
		c.waitScope(t, unbound+"n1", takenOver("r n1 uid-2 -→1")...)
		c.acknowledge()
		c.waitScope(t, unbound+"n1", append(takenOver("r n1 uid-2 -→1"), "gap 0 content-changed")...)
		s.put("n1", "2", map[string]string{"red": "1"})
		c.waitScope(t, unbound+"n1", append(takenOver("r n1 uid-2 -→1"), "gap 0 content-changed", "u n1 uid-2 1→2")...)
		all := c.ofScope(unbound + "n1")
		if b, err := all[len(all)-1].After.AppendJSON(nil); err != nil || strings.Contains(string(b), "red") {
			t.Errorf("%s has labels, which are redacted (%v)", b, err)
		}
	})
}

// A reload while the objects of a deleted node cannot be read: they are still taken over once they can be, and until then the Nodes' checkpoint
// does not pass the deletion.
func TestReloadWhileATakeoverFails(t *testing.T) {
	for name, c := range map[string]struct {
		compacted bool
		gap       string
	}{"server error": {false, "gap 0 checkpoint-lost"}, "compacted": {true, "gap 0 compacted"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := cluster(t, "n1"), newMemory()
				l := startCentral(t, s, m, nil)
				refuse := func(w http.ResponseWriter, r *http.Request, others bool) bool {
					q := r.URL.Query()
					exact := q.Get("resourceVersionMatch") == "Exact"
					switch {
					case q.Get("fieldSelector") != "metadata.name=n1" || r.URL.Path != "/api/v1/configmaps" || q.Get("limit") == "1":
						return false
					case exact && c.compacted:
						fail(w, http.StatusGone, metav1.StatusReasonExpired)
					case others:
						fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
					default:
						return false
					}
					return true
				}
				s.do(func() {
					s.fault = func(w http.ResponseWriter, r *http.Request) bool { return refuse(w, r, true) }
				})
				of := unbound + "n1"
				gone := s.deleteIn("", "n1").rv
				eventually(t, "the failure to show", func() bool {
					return slices.ContainsFunc(l.set.Status(), func(st scope.Status) bool { return st.Scope == of && st.Reason == "server_error" })
				})
				for _, content := range []string{"metadata.labels", "metadata.annotations"} {
					l.reload(t, specOf(rule(redacted(content)), nodeRule(nil)))
					pass(10 * time.Second)
				}
				_ = m.Flush(t.Context())
				if p, _ := m.saved(nodes); p.ResourceVersion >= gone {
					t.Errorf("the Nodes' checkpoint is at %d, and nothing is known of the deletion at %d", p.ResourceVersion, gone)
				}
				s.do(func() {
					s.fault = func(w http.ResponseWriter, r *http.Request) bool { return refuse(w, r, false) }
				})
				want := append([]string{c.gap}, takenOver("r n1 uid-2 -→1")[1:]...)
				l.waitScope(t, of, want...)
				if g := l.ofScope(of)[0].Stream; g.From != 1 || g.Recovered {
					t.Errorf("the gap is from %d (recovered: %t), want from 1", g.From, g.Recovered)
				}
				nodesReach(t, m, gone)
				s.delete("n1")
				l.waitScope(t, of, append(want, "d n1 uid-2 1→-")...)
				l.nothingLeft(t, m)
			})
		})
	}
}
