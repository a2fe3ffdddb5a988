package informers_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// only makes an agent observe the one object of a name, as an agent on a node observes its Node.
func only(name string) func(group, resource string) selection.Part {
	return func(string, string) selection.Part { return selection.Part{FieldSelector: "metadata.name=" + name} }
}

// An agent that observes a part of a resource treats events of other agents neither as its own nor
// as a sign of a restored etcd. When it asks the bus, their events may be later than its own list.
func TestPartsHearOfOthers(t *testing.T) {
	for name, remembered := range map[string]bool{"new": false, "resumed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "1", nil)
				s.put("b", "1", nil)
				want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
				if remembered {
					first := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Part = only("a") })
					first.wait(t, want...)
					eventually(t, "the snapshot to be done with", func() bool {
						_ = m.Flush(t.Context())
						c, ok := m.saved("configmaps?fieldSelector=metadata.name=a")
						return ok && c.Snapshot == nil
					})
					first.end()
					want = nil
				}
				second := live(t, s, m, func(o *informers.Options, _ *recorder) {
					o.Part = only("a")
					o.LastEvent = func(context.Context, *object.Resource) (informer.LastEvent, bool, error) {
						return informer.LastEvent{
							Scope:           "configmaps?fieldSelector=metadata.name=b",
							ResourceVersion: s.put("b", "2", nil).rv,
						}, true, nil
					}
				})
				second.wait(t, want...)
				eventually(t, "the watch", func() bool { return second.set.Ready() == nil })
				s.put("a", "2", nil)
				second.wait(t, append(want, "u a uid-1 1→2")...)
				for _, d := range second.deltas {
					if d.History != 0 || d.Stream != nil && d.Stream.History != 0 {
						t.Errorf("history of %s is another one than that of the others", short(d))
					}
				}
			})
		})
	}
}

// An agent recognizes its own last event, and also a restored etcd.
func TestPartsFindTheirLastEvent(t *testing.T) {
	for want, last := range map[string]informer.LastEvent{
		"gap 0 checkpoint-lost": {Scope: "configmaps?fieldSelector=metadata.name=a", ResourceVersion: 90},
		"gap 0 rewound":         {Scope: "configmaps?fieldSelector=metadata.name=b", ResourceVersion: 500},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t)
				s.put("a", "1", nil)
				l := live(t, s, newMemory(), func(o *informers.Options, _ *recorder) {
					o.Part = only("a")
					o.LastEvent = func(context.Context, *object.Resource) (informer.LastEvent, bool, error) {
						return last, true, nil
					}
				})
				l.wait(t, want, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
			})
		})
	}
}

// A checkpoint that was written on another node, or by one agent for the whole cluster, causes no
// tombstone: other agents observe its objects.
func TestPartsSendNoTombstonesForOthers(t *testing.T) {
	for _, scope := range []string{"configmaps", "configmaps?fieldSelector=metadata.name=b"} {
		t.Run(scope, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "1", nil)
				s.put("b", "1", nil)
				first := live(t, s, m, func(o *informers.Options, _ *recorder) {
					if scope != "configmaps" {
						o.Part = only("b")
					}
				})
				eventually(t, "a checkpoint", func() bool {
					_ = m.Flush(t.Context())
					c, ok := m.saved(scope)
					return ok && c.Snapshot == nil
				})
				first.end()
				second := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Part = only("a") })
				second.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
				if _, ok := m.saved(scope); ok {
					t.Errorf("%s is still remembered", scope)
				}
			})
		})
	}
}

// A scope with a field selector of its rule is retired with the rule, also if the agent captures a
// part of other resources: no other agent observes it.
func TestPartOfOthersRetiresOwnScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.Rules[0].FieldSelector = "metadata.name=a"
			o.Part = func(_, resource string) selection.Part { return selection.Part{None: resource == "nodes"} }
		})
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		s.put("b", "1", nil)
		l.reload(t, specOf(rule(selected("", "metadata.name=b"))))
		l.waitPerName(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "gap 0 selection-changed",
			"~l a uid-1 1→-",
			"snapshot.started 0", "snapshot.completed 0", "c b uid-2 -→1")
	})
}

// A rule takes only the namespaces that it and the part have in common.
func TestPartOfNamespaces(t *testing.T) {
	for name, tc := range map[string]struct {
		part selection.Part
		want []string
	}{
		"the namespace": {selection.Part{Namespace: "shop"}, []string{
			"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1",
		}},
		"another": {selection.Part{Namespace: "other"}, nil},
		"none":    {selection.Part{None: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t)
				s.put("a", "1", nil)
				set, rec, _ := start(t, s, func(o *informers.Options) {
					o.Rules[0].Names = []string{"shop"}
					o.Rules[0].Namespaces = func(ns string) bool { return ns == "shop" }
					o.Part = func(string, string) selection.Part { return tc.part }
				})
				eventually(t, "discovery", func() bool { return set.Ready() == nil })
				rec.wait(t, tc.want...)
				for _, st := range set.Status() {
					if tc.want == nil || st.Scope != "configmaps/shop" {
						t.Errorf("scope %s", st.Scope)
					}
				}
			})
		})
	}
}

// A resource without such a selectable field is refused, with advice, and does not hold back
// others.
func TestPartThatCannotBeFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/api/v1/configmaps" {
					return false
				}
				fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
				return true
			}
		})
		set, _, _ := start(t, s, func(o *informers.Options) { o.Part = only("a") })
		eventually(t, "the refusal", func() bool {
			all := set.Status()
			return len(all) == 1 && all[0].Reason == "refused" &&
				strings.Contains(all[0].Error, "cannot select it by metadata.name=a: make that a selectable field")
		})
		if err := set.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
	})
}
