package informers_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// All nodes of a cluster are deleted at once.
func TestManyDeletedNodes(t *testing.T) {
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
			c.waitScope(t, unbound+name,
				append(takenOver(fmt.Sprintf("r %s %s -→1", name, uid)), fmt.Sprintf("d %s %s 1→-", name, uid))...)
			c.waitScope(t, nodeObject(name), fmt.Sprintf("d %s uid-%d node→-", name, 2*n+1))
		}
		c.nothingLeft(t, m)
	})
}

// The end of a deleted node waits for the bus. Nodes that are deleted meanwhile do not wait for it,
// neither another one nor the same one again.
func TestNodeIsDeletedWhileAnotherEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1", "n2"), newMemory()
		c := startCentral(t, s, m, nil)
		want := takenOver("r n1 uid-2 -→1")
		s.deleteIn("", "n1")
		c.waitScope(t, unbound+"n1", want...)
		c.hold(isEndOf(unbound + "n1"))
		back := s.putIn("", "n1", "node", nil).rv
		nodesReach(t, m, back)
		c.awaitHeld(t)

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

// A deleted node is taken over while the bus is asked about the resource.
func TestNodeDepartsWhileTheBusIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1", "n2"), newMemory()
		var busy atomic.Bool
		free, asked := make(chan struct{}), make(chan struct{}, 10)
		c := startCentral(t, s, m, func(o *informers.Options, _ *recorder) {
			o.LastEvent = func(ctx context.Context, _ *object.Resource) (informer.LastEvent, bool, error) {
				if busy.Load() {
					asked <- struct{}{}
					select {
					case <-free:
					case <-ctx.Done():
						return informer.LastEvent{}, false, context.Cause(ctx)
					}
				}
				return informer.LastEvent{}, false, nil
			}
		})
		s.deleteIn("", "n1")
		c.waitScope(t, unbound+"n1", takenOver("r n1 uid-2 -→1")...)
		busy.Store(true)
		c.reload(t, specOf(rule(redacted("metadata.labels")), rule(func(r *selection.Rule) {
			r.Resources = []selection.Pattern{pattern("nodes")}
		})))
		<-asked
		s.putIn("", "n1", "node", nil)
		eventually(t, "the scopes to end", func() bool { return !c.observes(unbound + "n1") })
		s.deleteIn("", "n2")
		c.awaitScope(t, unbound+"n2")
		close(free)
	})
}

// A node is deleted before a reload is in force, because the bus does not have all events of the
// resource. Its objects are sent under the new selection once that is in force.
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

// The objects of a deleted node cannot be read during a reload. They are taken over once they can
// be read. Until then, the Nodes' checkpoint does not pass the deletion.
func TestReloadWhileADeletedNodeCannotBeRead(t *testing.T) {
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
					case q.Get("fieldSelector") != "metadata.name=n1" || r.URL.Path != "/api/v1/configmaps" ||
						q.Get("limit") == "1":
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
					return slices.ContainsFunc(l.set.Status(), func(st informer.Status) bool {
						return st.Scope == of && st.Reason == "server_error"
					})
				})
				for _, content := range []string{"metadata.labels", "metadata.annotations"} {
					l.reload(t, specOf(rule(redacted(content)), nodeRule(nil)))
					pass(10 * time.Second)
				}
				_ = m.Flush(t.Context())
				if p, _ := m.saved(nodes); p.ResourceVersion >= gone {
					t.Errorf("the Nodes' checkpoint is at %d, and nothing is known of the deletion at %d",
						p.ResourceVersion, gone)
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
