package informers_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
)

// The objects of a deleted node are captured until none is left. Then nothing of the node is kept.
func TestNodeIsDeleted(t *testing.T) {
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
		s.put("n2", "2", nil) // Its own agent sends that.
		c.waitScope(t, scope, append(want, "u n1 uid-2 2→3")...)
		nodesReach(t, m, gone)
		if _, err := c.set.Snapshot(t.Context(), "nodes", ""); err == nil {
			t.Error("a snapshot of Nodes began, which the central agent does not capture")
		}
		last := s.delete("n1").rv
		c.waitScope(t, scope, append(want, "u n1 uid-2 2→3", "d n1 uid-2 3→-")...)
		c.nothingLeft(t, m)
		if p, ok := m.saved(scope); ok {
			t.Errorf("%s is saved at %d, after its end at %d", scope, p.ResourceVersion, last)
		}
		for _, d := range c.deltas {
			if d.Scope == unbound+"n2" {
				t.Errorf("%s is of a node that is there", short(d))
			}
		}
	})
}

// Transient errors are retried.
func TestDeletedNodeAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		c := startCentral(t, s, m, nil)
		s.refuse("n1", http.StatusInternalServerError, metav1.StatusReasonInternalError)
		s.deleteIn("", "n1")
		of := unbound + "n1"
		eventually(t, "the failure to show", func() bool {
			return slices.ContainsFunc(c.set.Status(), func(st informer.Status) bool {
				return st.Scope == of && st.Reason == "server_error"
			})
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

// History does not go back to the deletion. The gap still claims nothing about the time before.
func TestDeletedNodeCompacted(t *testing.T) {
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
			t.Errorf("the gap is from %d to %d (recovered: %t), want from 1 to %d or above", g.From, g.To, g.Recovered,
				gone)
		}
	})
}

// Objects that are taken over have the history number of the central agent, also if it learned of
// restores only in this run.
func TestDeletedNodeInARestoredHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		c := startCentral(t, s, m, func(o *informers.Options, _ *recorder) {
			o.LastEvent = func(context.Context, *object.Resource) (informer.LastEvent, bool, error) {
				return informer.LastEvent{Scope: unbound + "n2", ResourceVersion: 100, History: 3}, true, nil
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

// A central agent that ends before it has saved the scopes of a node receives the deletion again.
// After the scopes are saved, the next run resumes them, and sends the changes since then.
func TestDeletedNodeAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		first := startCentral(t, s, m, func(_ *informers.Options, rec *recorder) {
			rec.holds = func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.Gap }
		})
		nodesReach(t, m, 1) // The Nodes are loaded, and their position is saved.
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
