package informers_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// has reports whether a delta with this short form was recorded.
func (r *recorder) has(want string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.deltas, func(d *object.Delta) bool { return short(d) == want })
}

// A selection is replaced before its new scopes have begun. The positions at which they were to
// begin are not lost, and later changes are sent.
func TestReloadTwice(t *testing.T) {
	red := map[string]string{"colour": "red"}
	begins := func(t *testing.T) (*apiServer, *life) {
		s := newAPIServer(t)
		s.put("a", "1", red)
		s.put("b", "1", nil)
		l := live(t, s, newMemory(), nil)
		eventually(t, "to be captured", func() bool { return captured(l.set) })
		return s, l
	}
	first := specOf(rule(selected("colour=red", "")))
	second := specOf(rule(func(r *selection.Rule) {
		r.LabelSelector = "colour=red"
		r.Redact = []string{"metadata.labels"}
	}))
	told := func(t *testing.T, l *life) {
		t.Helper()
		for _, want := range []string{"d a uid-1 1→-", "~l b uid-2 1→-"} {
			eventually(t, want, func() bool { return l.has(want) })
		}
	}
	t.Run("bus", func(t *testing.T) { // the tombstone of the scope that they replace is not acknowledged
		synctest.Test(t, func(t *testing.T) {
			s, l := begins(t)
			l.mu.Lock()
			l.holds = func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.Gap }
			l.mu.Unlock()
			l.reload(t, first)
			s.delete("a")
			eventually(t, "the tombstone", func() bool { return l.has("gap 0 selection-changed") })
			done := make(chan error, 1)
			go func() { done <- l.set.Reload(t.Context(), second) }()
			l.acknowledge()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			told(t, l)
		})
	})
	t.Run("lists", func(t *testing.T) { // the new scopes cannot be listed
		synctest.Test(t, func(t *testing.T) {
			s, l := begins(t)
			s.do(func() {
				s.fault = func(w http.ResponseWriter, r *http.Request) bool {
					q := r.URL.Query()
					if q.Get("labelSelector") == "" || q.Get("watch") != "" {
						return false
					}
					fail(w, http.StatusInternalServerError, "InternalError")
					return true
				}
			})
			l.reload(t, first)
			s.delete("a")
			l.reload(t, second)
			s.do(func() { s.fault = nil })
			told(t, l)
		})
	})
	t.Run("lists, and the history is lost", func(t *testing.T) {
		// the first informer has detected that, and cannot list again
		synctest.Test(t, func(t *testing.T) {
			s, l := begins(t)
			from := s.now1()
			s.do(func() {
				s.fault = func(w http.ResponseWriter, r *http.Request) bool {
					q := r.URL.Query()
					if q.Get("labelSelector") == "" || q.Get("watch") != "" || q.Get("limit") == "1" {
						return false
					}
					if q.Get("resourceVersionMatch") == "Exact" {
						fail(w, http.StatusGone, metav1.StatusReasonExpired)
					} else {
						fail(w, http.StatusInternalServerError, "InternalError")
					}
					return true
				}
			})
			l.reload(t, first)
			s.delete("a")
			wait(t.Context(), 10*time.Second)
			l.reload(t, second)
			s.do(func() { s.compacted, s.fault = s.rv, nil })
			eventually(t, "the gap", func() bool { return l.has("gap 0 compacted") })
			gap := l.ofScope("configmaps?labelSelector=colour=red")[0].Stream
			if gap == nil || gap.Kind != object.Gap || gap.From != from || gap.To < s.now1() {
				t.Errorf("the scope begins with %+v, want a gap from %d to %d", gap, from, s.now1())
			}
		})
	})
}

// Snapshots that follow one another within a second have different ids, which identify their reads
// on the bus.
func TestReloadSnapshotsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", map[string]string{"colour": "red"})
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(selected("colour=red", "")) })
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		pass(time.Millisecond)
		s.do(func() { s.rv++ }) // another object has changed: a tombstone waits for a later resourceVersion
		l.reload(t, specOf(rule(nil)))
		<-l.set.Captured()
		ids := map[string]int{}
		eventually(t, "both snapshots", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			clear(ids)
			reads := 0
			for _, d := range l.deltas {
				if d.Op == object.Read && d.Stream == nil && d.Ref.Name() == "a" {
					ids[d.Snapshot]++
					reads++
				}
			}
			return reads == 2
		})
		if len(ids) != 2 {
			t.Errorf("two snapshots have the ids %v", ids)
		}
	})
}

// If a selection is taken before the first list is loaded, the snapshot of a start is still sent.
func TestReloadBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := live(t, s, m, nil)
		eventually(t, "the scope to be remembered", func() bool {
			_ = m.Flush(t.Context())
			c, ok := m.saved("configmaps")
			return ok && c.Snapshot == nil
		})
		l.end()
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/configmaps") {
					return false
				}
				fail(w, http.StatusInternalServerError, "InternalError")
				return true
			}
		})
		again := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Snapshot = informer.SnapshotAlways })
		eventually(t, "the list to fail", func() bool {
			st := again.set.Status()
			return len(st) > 0 && st[0].Health == informer.HealthFailing
		})
		again.reload(t, specOf(rule(redacted("metadata.labels"))))
		s.do(func() { s.fault = nil })
		again.wait(t, "gap 0 content-changed", "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
	})
}

// The scopes of a deleted node continue under a new selection, and end when no object is left.
func TestReloadTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1", "n2"), newMemory()
		c := startCentral(t, s, m, nil)
		s.deleteIn("", "n1")
		scope := unbound + "n1"
		count := func(want string) (n int) {
			for _, d := range c.ofScope(scope) {
				if strings.HasPrefix(short(d), want) {
					n++
				}
			}
			return n
		}
		eventually(t, "the node's objects to be taken over", func() bool { return count("snapshot.completed") == 1 })
		c.reload(t, specOf(rule(redacted("metadata.labels"))))
		s.put("n1", "2", nil)
		eventually(t, "them to be observed", func() bool { return count("u n1 uid-2 1→2") == 1 })
		c.reload(t, specOf(rule(func(r *selection.Rule) {
			filtered("u")(r)
			redacted("metadata.labels")(r)
		})))
		last := s.put("n1", "3", nil)
		eventually(t, "the update to be withheld", func() bool {
			_ = m.Flush(t.Context())
			at, _ := m.saved(scope)
			return at.ResourceVersion >= last.rv
		})
		s.delete("n1")
		eventually(t, "the deletion", func() bool { return count("d n1 uid-2 3→-") == 1 })
		if n := count("u "); n != 1 {
			t.Errorf("%d updates were sent, want 1", n)
		}
		c.nothingLeft(t, m)
		c.reload(t, specOf(rule(nil), rule(func(r *selection.Rule) {
			r.Resources, r.Redact = []selection.Pattern{pattern("nodes")}, []string{"data"}
		})))
		gone := s.deleteIn("", "n2")
		nodesReach(t, m, gone.rv)
		for _, d := range c.ofScope(nodeObject("n2")) {
			if got := short(d); got != "d n2 uid-3 →-" {
				t.Errorf("the deletion of a Node is %q: what the new selection redacts is there", got)
			}
		}
		if len(c.ofScope(nodeObject("n2"))) == 0 {
			t.Error("nothing tells of the deletion of a Node")
		}
	})
}

// blockingLane acknowledges what it takes. Put of an update blocks until returns is closed.
type blockingLane struct {
	*recorder
	returns chan struct{}
}

func (b *blockingLane) Put(ctx context.Context, key string, bytes int, d *object.Delta) error {
	err := b.recorder.Put(ctx, key, bytes, d)
	if d.Stream == nil && d.Op == object.Updated {
		<-b.returns
	}
	return err
}

// An informer that drains while the store applies an event is drained once the event is applied,
// even if nothing else changes.
func TestReloadWhileAnEventIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		returns := make(chan struct{})
		l := live(t, s, m, func(o *informers.Options, r *recorder) {
			o.Lane = func(string) store.Lane { return &blockingLane{r, returns} }
		})
		l.awaitCaptured(t)
		s.put("a", "2", nil)
		eventually(t, "the change to be acknowledged", func() bool { return l.has("u a uid-1 1→2") })
		done := make(chan error, 1)
		go func() { done <- l.set.Reload(t.Context(), specOf(rule(redacted("metadata.labels")))) }()
		synctest.Wait()
		close(returns)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		l.awaitPhases(t, "configmaps live")
	})
}

// The definition is deleted and created again while the bus takes nothing, and a reload replaces
// the informer that waits for the bus. The creation must not be the start of a scope of a later
// reload: it has objects.
func TestReloadsAfterADefinitionIsCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newCustoms(t), newMemory()
		l := live(t, s.apiServer, m, takes(widgets(nil)))
		l.awaitPhases(t, "widgets.shop.test waiting notserved")
		l.mu.Lock()
		l.holds = func(*object.Delta) bool { return true }
		l.mu.Unlock()
		s.define(true)
		wait(t.Context(), time.Second)
		s.define(false)
		wait(t.Context(), time.Second)
		s.define(true)
		wait(t.Context(), 10*time.Second)
		l.reload(t, specOf(widgets(redacted("metadata.annotations"))))
		l.acknowledge()
		s.put("a", "1", map[string]string{"in": "1"})
		eventually(t, "the creation", func() bool { return l.has("c a uid-1 -→1") })
		_ = m.Flush(t.Context())
		s.do(func() { s.compacted = s.rv + 1 }) // a watch cannot resume, so the objects are listed
		l.reload(t, specOf(widgets(selected("in=1", ""))))
		s.put("later", "1", nil)
		wait(t.Context(), 10*time.Second)
		var got []string
		for _, d := range l.ofScope("widgets.shop.test?labelSelector=in=1") {
			got = append(got, short(d))
		}
		if diff := cmp.Diff([]string{"gap 0 compacted", "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"},
			got); diff != "" {
			t.Errorf("the scope of the second reload (-want +got):\n%s", diff)
		}
	})
}

// While the bus does not acknowledge the events of a scope, a changed selection does not apply to
// it. That is shown since the first such change.
func TestUnappliedReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		l := live(t, s, newMemory(), nil)
		l.wait(t, "snapshot.started 0", "snapshot.completed 0")
		wantNone := func() {
			t.Helper()
			if scopes, since := l.set.Unapplied(); len(scopes) > 0 || !since.IsZero() {
				t.Errorf("%q wait since %v, want none", scopes, since)
			}
		}
		wantNone()
		l.hold(func(*object.Delta) bool { return true })
		s.put("a", "1", nil)
		pass(time.Second)
		began := time.Now()
		for _, path := range []string{"data.value", "metadata.labels"} {
			l.reload(t, specOf(rule(redacted(path))))
			pass(time.Minute)
			scopes, since := l.set.Unapplied()
			if !slices.Equal(scopes, []string{"configmaps"}) || !since.Equal(began) {
				t.Errorf("%q wait since %v, want configmaps since %v", scopes, since, began)
			}
		}
		l.acknowledge()
		l.awaitPhases(t, "configmaps live")
		wantNone()
	})
}
