package informers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// A Node that is created again has its own agent, so the central agent stops, whatever objects it
// has. If it is deleted once more, it is taken over again.
func TestDeletedNodeReturns(t *testing.T) {
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

// If a Node is created again before the API server has listed its objects, nothing waits for that
// list any more.
func TestDeletedNodeReturnsTooSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := cluster(t, "n1"), newMemory()
		c := startCentral(t, s, m, nil)
		s.refuse("n1", http.StatusForbidden, metav1.StatusReasonForbidden)
		gone := s.deleteIn("", "n1").rv
		of := unbound + "n1"
		eventually(t, "the refusal to show", func() bool {
			return slices.ContainsFunc(c.set.Status(), func(st informer.Status) bool {
				return st.Scope == of && st.Reason == "forbidden"
			})
		})
		_ = m.Flush(t.Context())
		if p, _ := m.saved(nodes); p.ResourceVersion >= gone {
			t.Errorf("the Nodes' checkpoint is at %d, and nothing is remembered of the deletion at %d",
				p.ResourceVersion, gone)
		}
		back := s.putIn("", "n1", "node", nil).rv
		c.nothingLeft(t, m)
		nodesReach(t, m, back)
	})
}

// If a Node was created again while the central agent was down, the central agent stops all the
// same.
func TestDeletedNodeReturnsUnseen(t *testing.T) {
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

// If a whole cluster is observed, Nodes are not requested.
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

// After a Node is deleted, only the deltas of Nodes that the rules take are sent. The scopes of
// its objects does not depend on that.
func TestDeletedNodeOfNoRule(t *testing.T) {
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
