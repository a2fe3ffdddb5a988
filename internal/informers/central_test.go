package informers_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// ConfigMaps stand for Pods here. The ConfigMap of a node has the name of the node. There are no
// unbound ones.
const (
	unbound = "configmaps?fieldSelector=metadata.name="
	nodes   = "nodes"
)

// nodeObject is the scope in which the agent of a node observes its Node.
func nodeObject(name string) string { return "nodes?fieldSelector=metadata.name=" + name }

// central is a run of the central agent's set, which takes over the objects of deleted nodes.
type central struct {
	*life
	reg *prometheus.Registry
}

func startCentral(t *testing.T, s *apiServer, m *memory, change func(*informers.Options, *recorder)) *central {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	l := live(t, s, m, func(o *informers.Options, rec *recorder) {
		o.DeletedNodes, o.Registerer = true, reg
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
	eventually(t, "to be ready", func() bool {
		return captured(l.set) && l.set.Ready() == nil && len(l.set.Status()) >= 2
	})
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

// waitFor waits until a scope has n deltas or more, and returns them.
func (c *central) waitFor(t *testing.T, scope string, n int) (got []string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s to have %d deltas", scope, n), func() bool {
		got = nil
		for _, d := range c.ofScope(scope) {
			got = append(got, short(d))
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

// nothingLeft checks that nothing is kept of scopes that were taken over: no informer, no position
// in the checkpoint, no metric series.
func (c *central) nothingLeft(t *testing.T, m *memory) {
	t.Helper()
	want := []string{unbound, nodes}
	eventually(t, "only the central agent's own scopes to be observed", func() bool {
		return len(c.set.Status()) == len(want)
	})
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

// refuse makes the lists of one node's objects fail.
func (s *apiServer) refuse(node string, code int, reason metav1.StatusReason) {
	s.do(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			q := r.URL.Query()
			if r.URL.Path != "/api/v1/configmaps" || q.Get("watch") != "" ||
				q.Get("fieldSelector") != "metadata.name="+node {
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

func isEndOf(scope string) func(*object.Delta) bool {
	return func(d *object.Delta) bool {
		return d.Stream != nil && d.Stream.Kind == object.ScopeEnded && d.Stream.Scope == scope
	}
}

// awaitHeld waits until the bus has a delta that it does not acknowledge.
func (c *central) awaitHeld(t *testing.T) {
	t.Helper()
	eventually(t, "a delta to be held", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.unacked) > 0
	})
}

func (c *central) awaitScope(t *testing.T, scope string) {
	t.Helper()
	eventually(t, scope+" to be observed", func() bool { return c.observes(scope) })
}

func (c *central) observes(name string) bool {
	return slices.ContainsFunc(c.set.Status(), func(st informer.Status) bool { return st.Scope == name })
}
