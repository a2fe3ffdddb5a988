package informers_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// retiringNodes leaves a checkpoint in which Nodes are retiring, and nothing of their tombstone is
// sent.
func retiringNodes(t *testing.T, m *memory) *apiServer {
	t.Helper()
	s, l := stuck(t, m)
	l.reload(t, specOf(rule(nil)))
	eventually(t, "Nodes to be remembered as retiring", func() bool {
		_ = m.Flush(t.Context())
		c, _ := m.saved("nodes")
		return c.Retiring != nil
	})
	l.end()
	return s
}

// isLeft reports whether a delta is a left event.
func isLeft(d *object.Delta) bool { return d.Stream == nil && d.Op == object.Left }

// A retiring scope is selected again, and then no longer. The checkpoint keeps the scope until its
// tombstone is sent.
func TestRetiringScopeIsSelectedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := live(t, retiringNodes(t, m), m, func(o *informers.Options, r *recorder) {
			takes(rule(nil))(o, r)
			r.holdNodes()
		})
		informers.Impatient(l.set)
		eventually(t, "the tombstone", func() bool { return l.has("gap 0 selection-changed") })
		l.reload(t, specOf(rule(nil), nodeRule(nil)))
		l.reload(t, specOf(rule(nil)))
		l.awaitPhases(t, "configmaps live", "nodes retiring")
		_ = m.Flush(t.Context())
		if c, ok := m.saved("nodes"); !ok || c.Retiring == nil {
			t.Errorf("the checkpoint has %+v (known: %t), want a retiring scope: the bus has nothing of its tombstone",
				c, ok)
		}
		l.acknowledge()
		eventually(t, "the scope to be forgotten", func() bool {
			_ = m.Flush(t.Context())
			_, known := m.saved("nodes")
			return !known
		})
		l.wantOfNodes(t, "gap 0 selection-changed", "~l node uid-1 1→-")
	})
}

// lateMemory saves nothing before open is closed.
type lateMemory struct {
	*memory
	asked, open chan struct{}
}

func (m *lateMemory) Flush(ctx context.Context) error {
	select {
	case m.asked <- struct{}{}:
	default:
	}
	select {
	case <-m.open:
		return m.memory.Flush(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A scope is selected again while its tombstone is sent. If the agent then ends, the next run reads
// the objects again: consumers may have received their left events.
func TestRetiringScopeIsSelectedDuringItsTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := retiringNodes(t, m)
		late := &lateMemory{memory: m, asked: make(chan struct{}, 1), open: make(chan struct{})}
		l := live(t, s, m, func(o *informers.Options, r *recorder) {
			takes(rule(nil))(o, r)
			o.Memory = late
			r.holds = isLeft
		})
		<-late.asked
		l.reload(t, specOf(rule(nil), nodeRule(nil)))
		close(late.open)
		eventually(t, "what left", func() bool { return l.has("~l node uid-1 1→-") })
		_ = m.Flush(t.Context())
		if c, ok := m.saved("nodes"); !ok || c.Retiring == nil || !c.Retiring.Announced {
			t.Errorf("the checkpoint has %+v (known: %t), want one that has the tombstone begun", c, ok)
		}
		l.end()
		l = live(t, s, m, takes(rule(nil), nodeRule(nil)))
		l.awaitCaptured(t)
		l.wantOfNodes(t, "snapshot.started 1", "r node uid-1 -→2", "snapshot.completed 1")
	})
}

// twoNodes is a run over two Nodes and a ConfigMap, with a log that can be replaced.
func twoNodes(t *testing.T, m *memory) (*apiServer, *life, *replaceable) {
	t.Helper()
	s, log := newAPIServer(t), new(replaceable)
	s.nodes = true
	s.putIn("", "n1", "1", map[string]string{"colour": "red"})
	s.putIn("", "n2", "1", map[string]string{"colour": "red"})
	s.put("a", "1", nil)
	l := live(t, s, m, takesOn(log, nodeRule(nil), rule(nil)))
	l.awaitCaptured(t)
	return s, l, log
}

func takesOn(log *replaceable, rules ...selection.Rule) func(*informers.Options, *recorder) {
	return func(o *informers.Options, r *recorder) {
		log.use(o, r)
		takes(rules...)(o, r)
	}
}

// holdSecondLeft withholds the acknowledgements of all left events except the first.
func (r *recorder) holdSecondLeft() {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	r.holds = func(d *object.Delta) bool {
		if !isLeft(d) {
			return false
		}
		n++
		return n > 1
	}
}

func (l *life) awaitLeft(t *testing.T) {
	t.Helper()
	eventually(t, "both to have left", func() bool { return l.has("~l n1 uid-1 1→-") && l.has("~l n2 uid-2 1→-") })
}

func (l *life) awaitForgotten(t *testing.T, m *memory) {
	t.Helper()
	eventually(t, "the scope to be forgotten", func() bool {
		_ = m.Flush(t.Context())
		_, known := m.saved("nodes")
		return !known
	})
}

// wantSweep checks that the last events of Nodes are a gap and an empty snapshot.
func (l *life) wantSweep(t *testing.T) {
	t.Helper()
	of, want := l.ofNodes(), []string{"gap 0 selection-changed", "snapshot.started 0", "snapshot.completed 0"}
	if d := cmp.Diff(want, of[max(0, len(of)-len(want)):]); d != "" {
		t.Errorf("the last of Nodes (-want +got):\n%s", d)
	}
}

// If the log is replaced before the bus has all of a tombstone, the tombstone is sent to the new
// log.
func TestLogIsReplacedDuringTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, l, log := twoNodes(t, m)
		s.put("a", "2", nil)
		l.holdSecondLeft()
		l.reload(t, specOf(rule(nil)))
		l.awaitLeft(t)
		log.replace(l.set)
		l.acknowledge()
		l.awaitForgotten(t, m)
		l.wantSweep(t)
	})
}

// The agent stops after it has sent all left events, and the bus acknowledges them while the queue
// drains. The next run does not repeat them: it sends the end of the scope.
func TestTombstoneIsAcknowledgedAfterTheAgentStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, l, log := twoNodes(t, m)
		s.put("a", "2", nil)
		l.hold(isLeft)
		l.reload(t, specOf(rule(nil)))
		l.awaitLeft(t)
		l.end()
		l.acknowledge()
		_ = m.Flush(t.Context())
		if c, known := m.saved("nodes"); !known || c.Ended == nil || c.Retiring != nil {
			t.Errorf("the checkpoint has %+v (known: %t), want a scope that has ended", c, known)
		}
		l = live(t, s, m, withScopes(takesOn(log, rule(nil))))
		l.awaitCaptured(t)
		l.wantOfNodes(t, "scope.ended 0")
		l.awaitForgotten(t, m)
	})
}

// A scope is retired before the snapshot after a gap is complete. An empty one replaces it, for
// objects that were deleted before the gap.
func TestRetiringScopeInsideSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, l, log := twoNodes(t, m)
		s.deleteIn("", "n2")
		eventually(t, "the deletion", func() bool { return l.has("d n2 uid-2 1→-") })
		l.mu.Lock()
		l.holds = func(d *object.Delta) bool { return d.Stream == nil && d.Op == object.Read }
		l.mu.Unlock()
		log.replace(l.set)
		eventually(t, "the snapshot to have begun", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("nodes")
			return c.Log == 1 && c.Snapshot != nil
		})
		l.end()
		s.put("a", "2", nil)
		l = live(t, s, m, takesOn(log, rule(nil)))
		l.awaitForgotten(t, m)
		l.wantSweep(t)
	})
}

// The previous run ended in the middle of a tombstone. A scope that now takes a part of the objects
// reads them at a later resourceVersion than that at which they left. Objects that were deleted
// since then leave again.
func TestScopeBeginsAfterTombstoneOfAnEarlierRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, l, log := twoNodes(t, m)
		_ = m.Flush(t.Context())
		l.end()
		s.put("a", "2", nil)
		left := s.put("a", "3", nil).rv
		l = live(t, s, m, func(o *informers.Options, r *recorder) {
			takesOn(log, rule(nil))(o, r)
			r.holdSecondLeft()
		})
		l.awaitLeft(t)
		_ = m.Flush(t.Context())
		l.end()
		s.deleteIn("", "n2")
		l = live(t, s, m, takesOn(log, rule(nil), nodeRule(selected("colour=red", ""))))
		l.awaitCaptured(t)
		l.wantOfNodes(t, "gap 0 selection-changed", "~l n2 uid-2 1→-", "snapshot.started 1", "r n1 uid-1 -→1",
			"snapshot.completed 1")
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, d := range l.deltas {
			if d.Stream != nil && d.Stream.Kind == object.SnapshotStarted && d.Stream.Resource.Name == "nodes" &&
				d.Stream.ResourceVersion < left {
				t.Errorf("the snapshot is of resourceVersion %d, the objects left at %d", d.Stream.ResourceVersion,
					left)
			}
		}
	})
}

// The tombstones of a scope make lists through the informer that now observes the resource. These
// say nothing about the watch of that informer: neither that it is alive, nor that a list of its
// own is not answered.
func TestTombstoneIsNoSignOfLife(t *testing.T) {
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprintf("refused=%t", refused), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.putIn("other", "b", "1", nil)
				s.put("a", "1", nil)
				l := live(t, s, m, takes(rule(inNamespaces("shop", "other"))))
				l.awaitCaptured(t)
				last := s.put("a", "2", nil) // a tombstone waits for a later resourceVersion
				eventually(t, "the change", func() bool { return l.has("u a uid-2 1→2") })
				<-time.After(time.Minute)
				var lists atomic.Int32
				s.do(func() {
					s.fault = func(w http.ResponseWriter, r *http.Request) bool {
						if r.URL.Path != "/api/v1/namespaces/shop/configmaps" ||
							r.URL.Query().Get("resourceVersionMatch") != "Exact" {
							return false
						}
						lists.Add(1)
						if refused {
							fail(w, http.StatusGone, metav1.StatusReasonExpired)
						}
						return refused
					}
				})
				l.reload(t, specOf(rule(inNamespaces("shop"))))
				eventually(t, "the scope to be forgotten", func() bool {
					_ = m.Flush(t.Context())
					_, known := m.saved("configmaps/other")
					return !known
				})
				synctest.Wait() // the checkpoint drops the scope a moment before the tombstones have ended
				if l.set.IsRetiring("configmaps/other") {
					t.Error("the scope is still said to be retiring")
				}
				if st := l.set.Status()[0]; st.Silence < time.Minute {
					t.Errorf("the watch was silent for %v, want a minute: its last event was %d", st.Silence, last.rv)
				}
				<-time.After(3 * time.Minute)
				if lists.Load() == 0 {
					t.Error("the tombstones took no list through the informer")
				}
				l.wantReady(t)
			})
		})
	}
}
