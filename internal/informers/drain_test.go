package informers_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

func nodeRule(change func(*selection.Rule)) selection.Rule {
	return rule(func(r *selection.Rule) {
		r.Resources = []selection.Pattern{pattern("nodes")}
		if change != nil {
			change(r)
		}
	})
}

// holdNodes withholds the acknowledgements of Nodes, like a bus without a topic for Nodes.
func (r *recorder) holdNodes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds = func(d *object.Delta) bool {
		return d.Stream != nil && d.Stream.Resource.Name == "nodes" || d.Stream == nil && d.Ref.Resource.Name == "nodes"
	}
}

// ofNodes returns the recorded deltas and stream events of Nodes.
func (r *recorder) ofNodes() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deltas {
		if d.Stream != nil && d.Stream.Resource.Name == "nodes" || d.Stream == nil && d.Ref.Resource.Name == "nodes" {
			out = append(out, short(d))
		}
	}
	return out
}

// stuck returns a run over Nodes, which the bus no longer acknowledges.
func stuck(t *testing.T, m *memory) (*apiServer, *life) {
	t.Helper()
	s := newAPIServer(t)
	s.nodes = true
	s.putIn("", "node", "1", nil)
	s.put("a", "1", nil)
	l := live(t, s, m, takes(nodeRule(nil)))
	informers.Impatient(l.set)
	l.awaitCaptured(t)
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.holdNodes()
	s.putIn("", "node", "2", nil)
	eventually(t, "the change to be sent", func() bool { return l.has("u node uid-1 1→2") })
	return s, l
}

var sentOfNodes = []string{"snapshot.started 1", "r node uid-1 -→1", "snapshot.completed 1", "u node uid-1 1→2"}

func (l *life) wantOfNodes(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "all of Nodes", func() bool { return len(l.ofNodes()) >= len(want) })
	if d := cmp.Diff(want, l.ofNodes()); d != "" {
		t.Errorf("of Nodes (-want +got):\n%s", d)
	}
}

func (l *life) wantReady(t *testing.T) {
	t.Helper()
	if err := l.set.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

// A selection takes effect at once for all resources except those that the bus does not
// acknowledge. The newest one wins.
func TestReloadWithAStuckResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stuck(t, newMemory())
		l.reload(t, specOf(rule(nil)))
		l.awaitPhases(t, "configmaps live", "nodes retiring")
		eventually(t, "ConfigMaps to be read", func() bool { return l.has("r a uid-2 -→1") })
		l.wantReady(t)
		if !l.set.IsRetiring("nodes") || l.set.IsRetiring("configmaps") {
			t.Error("nodes are retiring, configmaps are not")
		}
		// Back again, and to something else.
		l.reload(t, specOf(nodeRule(nil)))
		s.putIn("", "node", "3", nil) // a tombstone waits for a later resourceVersion
		eventually(t, "ConfigMaps to have left", func() bool { return len(l.set.Status()) == 1 })
		l.awaitPhases(t, "nodes draining")
		l.reload(t, specOf(rule(nil), nodeRule(redacted("metadata.labels"))))
		l.awaitPhases(t, "configmaps live", "nodes draining")
		l.wantOfNodes(t, sentOfNodes...)

		l.acknowledge()
		l.awaitPhases(t, "configmaps live", "nodes live")
		l.wantOfNodes(t, append(sentOfNodes, "gap 0 content-changed", "u node uid-1 2→3")...)
	})
}

// If the bus does not acknowledge the tombstone of a scope, or the deltas before it, the scope is
// kept for the next run.
func TestRetiringScopeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, l := stuck(t, m)
		l.reload(t, specOf(rule(nil)))
		l.awaitPhases(t, "configmaps live", "nodes retiring")
		retiring := func(told bool) {
			t.Helper()
			eventually(t, "the scope to be remembered as retiring", func() bool {
				_ = m.Flush(t.Context())
				c, _ := m.saved("nodes")
				return c.Retiring != nil && c.Retiring.Announced == told
			})
		}
		retiring(false)
		l.end()

		for range 2 { // each start tries again
			l = live(t, s, m, func(o *informers.Options, r *recorder) {
				takes(rule(nil))(o, r)
				r.holdNodes()
			})
			l.awaitCaptured(t)
			eventually(t, "the tombstone", func() bool { return len(l.ofNodes()) > 0 })
			l.awaitPhases(t, "configmaps live", "nodes retiring")
			l.wantReady(t)
			retiring(true)
			l.wantOfNodes(t, "gap 0 selection-changed")
			if n := len(l.ofNodes()); n != 1 {
				t.Errorf("%d deltas of Nodes are on their way, want 1", n)
			}
			l.end()
		}

		kept, _ := m.saved("nodes")
		{ // selected again
			again := newMemory()
			again.scopes["nodes"] = kept
			l := live(t, s, again, takes(nodeRule(nil)))
			l.awaitCaptured(t)
			l.wantOfNodes(t, "snapshot.started 1", "r node uid-1 -→2", "snapshot.completed 1")
			_ = again.Flush(t.Context())
			if c, ok := again.saved("nodes"); !ok || c.Retiring != nil {
				t.Errorf("selected again: the checkpoint has %+v", c)
			}
			l.end()
		}
		{ // the bus takes it
			l := live(t, s, m, takes(rule(nil)))
			eventually(t, "the scope to be forgotten", func() bool {
				_ = m.Flush(t.Context())
				_, known := m.saved("nodes")
				return !known
			})
			l.wantOfNodes(t, "gap 0 selection-changed", "~l node uid-1 1→-")
			l.end()
		}
		{ // the checkpoint no longer has the scope
			forgotten := newMemory()
			forgotten.scopes = map[string]checkpoint.Scope{}
			l := live(t, s, forgotten, takes(rule(nil)))
			l.awaitCaptured(t)
			if of := l.ofNodes(); len(of) > 0 {
				t.Errorf("forgotten: of Nodes was sent: %s", strings.Join(of, ", "))
			}
		}
	})
}
