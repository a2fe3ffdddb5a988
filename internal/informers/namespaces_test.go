package informers_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// tenants is an API server that permits ConfigMaps in some namespaces only. Its Namespaces are the
// objects without a namespace.
type tenants struct {
	*apiServer

	guard   sync.Mutex
	allowed map[string]bool // by namespace, "": in all
	closed  bool            // namespaces may not be read
	reviews int             // so far; every third one fails if failing is set
	failing bool
}

func newTenants(t *testing.T, allowed ...string) *tenants {
	s := &tenants{apiServer: newAPIServer(t), allowed: map[string]bool{}}
	for _, ns := range allowed {
		s.allowed[ns] = true
	}
	s.fault = s.refuse
	return s
}

func (s *tenants) allow(namespace string, is bool) {
	s.guard.Lock()
	defer s.guard.Unlock()
	s.allowed[namespace] = is
}

func (s *tenants) refuse(w http.ResponseWriter, r *http.Request) bool {
	s.guard.Lock()
	defer s.guard.Unlock()
	switch path, ok := strings.CutSuffix(r.URL.Path, "/configmaps"); {
	case ok:
		namespace := strings.TrimPrefix(strings.TrimPrefix(path, "/api/v1"), "/namespaces/")
		if s.allowed[namespace] || s.allowed[""] {
			return false
		}
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case r.URL.Path == "/api/v1/namespaces" && s.closed:
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case r.URL.Path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		var review struct {
			Spec struct {
				ResourceAttributes struct{ Verb, Group, Resource, Namespace string }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil ||
			review.Spec.ResourceAttributes.Resource != "configmaps" {
			fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return true
		}
		s.reviews++
		if s.failing && s.reviews%3 == 0 {
			fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w,
			`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`,
			s.allowed[review.Spec.ResourceAttributes.Namespace] || s.allowed[""])
	default:
		return false
	}
	return true
}

// globs makes the rule take the namespaces with a prefix, as by a pattern.
func globs(prefix string) func(*informers.Options, *recorder) {
	return func(o *informers.Options, _ *recorder) {
		o.Rules[0].Patterns, o.Rules[0].AllNamespaces = []string{prefix + "*"}, prefix == ""
		o.Rules[0].Namespaces = func(ns string) bool { return strings.HasPrefix(ns, prefix) }
		if prefix == "" {
			o.Rules[0].Patterns = nil
		}
	}
}

// phases returns "scope phase health reason" for each status, without the health if it is ok.
func phases(set *informers.Manager) (out []string) {
	for _, st := range set.Status() {
		health := ""
		if st.Health != informer.HealthOK {
			health = st.Health.String() + " "
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s%s", st.Scope, st.Phase, health, st.Reason)))
	}
	return out
}

func (l *life) awaitPhases(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("the status is %q", got)
		}
	}()
	eventually(t, fmt.Sprintf("status %q", want), func() bool {
		got = phases(l.set)
		return slices.Equal(got, want)
	})
}

// If only some namespaces are allowed, each is observed separately. The next run resumes them, and
// sends nothing again.
func TestOnlySomeNamespacesAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newTenants(t, "shop"), newMemory()
		for _, ns := range []string{"shop", "other"} {
			s.putIn("", ns, "", nil)
			s.putIn(ns, "cm", "1", nil)
		}
		first := live(t, s.apiServer, m, globs(""))
		first.wait(t, "snapshot.started 1", "r cm uid-2 -→1", "snapshot.completed 1")
		first.awaitPhases(t, "configmaps/other waiting forbidden forbidden", "configmaps/shop live")
		<-first.set.Captured()
		if err := first.set.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		s.putIn("other", "cm", "2", nil)
		s.put("cm", "2", nil)
		first.wait(t, "snapshot.started 1", "r cm uid-2 -→1", "snapshot.completed 1", "u cm uid-2 1→2")
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		first.end()

		s.put("cm", "3", nil)
		second := live(t, s.apiServer, m, globs(""))
		second.wait(t, "u cm uid-2 2→3")
		second.awaitPhases(t, "configmaps/other waiting forbidden forbidden", "configmaps/shop live")
		s.allow("other", true)
		s.allow("", true) // only a reload detects this
		second.reload(t, specOf(selection.Rule{
			Resources: []selection.Pattern{pattern("configmaps")}, Namespaces: func(string) bool {
				return true
			}, AllNamespaces: true,
		}))
		s.put("cm", "4", nil) // a tombstone waits for a later resourceVersion
		second.awaitPhases(t, "configmaps live")
	})
}

// Reviews that were answered are not repeated because others failed.
func TestAccessReviewsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces = 50
		s, m := newTenants(t, "shop"), newMemory()
		s.failing = true
		s.putIn("", "shop", "", nil)
		s.put("cm", "1", nil)
		for n := range namespaces {
			s.putIn("", fmt.Sprintf("not-ours-%d", n), "", nil)
		}
		l := live(t, s.apiServer, m, globs(""))
		l.wait(t, "snapshot.started 1", "r cm uid-2 -→1", "snapshot.completed 1")
		s.guard.Lock()
		defer s.guard.Unlock()
		if most := 2 * (namespaces + 1); s.reviews > most {
			t.Errorf("%d reviews of %d namespaces, want %d at most: a third of them failed", s.reviews, namespaces+1,
				most)
		}
	})
}

// If the last run was allowed to read all namespaces, the scope of all gets a tombstone. The
// namespaces that are still allowed resume from its position.
func TestNotAllNamespacesAllowedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newTenants(t, ""), newMemory()
		for _, ns := range []string{"shop", "other"} {
			s.putIn("", ns, "", nil)
			s.putIn(ns, ns, "1", nil)
		}
		first := live(t, s.apiServer, m, globs(""))
		first.waitPerName(t, "snapshot.started 2", "snapshot.completed 2", "r other uid-4 -→1", "r shop uid-2 -→1")
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		first.end()

		s.allow("", false)
		s.allow("shop", true)
		s.put("shop", "2", nil)
		s.put("shop", "3", nil)
		second := live(t, s.apiServer, m, globs(""))
		second.awaitPhases(t, "configmaps/other waiting forbidden forbidden", "configmaps/shop live")
		second.waitPerName(t, "gap 0 selection-changed", "snapshot.started 0", "snapshot.completed 0",
			"snapshot.started 1", "snapshot.completed 1", "r shop uid-2 -→1", "u shop uid-2 1→2", "u shop uid-2 2→3")
		streams := second.streams()
		if want := "configmaps gap 0 selection-changed"; streams[0] != want {
			t.Errorf("%q comes first, want %q", streams[0], want)
		}
		eventually(t, "the old scope is forgotten", func() bool {
			if err := m.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, old := m.saved("configmaps")
			_, known := m.saved("configmaps/shop")
			return known && !old
		})
	})
}

// A new selection takes other namespaces among those that are allowed, and releases the rest.
func TestReloadWhereOnlySomeNamespacesAreAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newTenants(t, "shop", "other"), newMemory()
		for _, ns := range []string{"shop", "other"} {
			s.putIn("", ns, "", nil)
			s.putIn(ns, ns, "1", nil)
		}
		l := live(t, s.apiServer, m, globs("s"))
		l.wait(t, "snapshot.started 1", "r shop uid-2 -→1", "snapshot.completed 1")
		rule := func(prefix string) selection.Rule {
			return selection.Rule{
				Resources: []selection.Pattern{pattern("configmaps")}, Patterns: []string{prefix + "*"},
				Namespaces: func(ns string) bool { return strings.HasPrefix(ns, prefix) },
			}
		}
		plain := func(r selection.Rule) selection.Spec {
			sel := specOf(r)
			return sel
		}
		l.reload(t, plain(rule("s"))) // no change
		s.put("shop", "2", nil)
		l.wait(t, "snapshot.started 1", "r shop uid-2 -→1", "snapshot.completed 1", "u shop uid-2 1→2")
		l.awaitPhases(t, "configmaps/shop live")

		l.reload(t, plain(rule("o")))
		s.put("shop", "3", nil) // a tombstone waits for a later resourceVersion
		l.awaitPhases(t, "configmaps/other live")
		l.waitPerName(t, "snapshot.started 1", "snapshot.completed 1", "snapshot.started 1", "snapshot.completed 1",
			"gap 0 selection-changed",
			"r shop uid-2 -→1", "u shop uid-2 1→2", "~l shop uid-2 2→-", "r other uid-4 -→1")
	})
}

// A new namespace is captured from its creation. A deleted one is captured until its end, and then
// dropped. Its watch may send a bookmark after the deletion, or may not be reopened.
func TestNamespaceComesAndGoes(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprintf("told=%t", told), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newTenants(t, "other"), newMemory()
				s.putIn("", "other", "", nil)
				s.putIn("", "unseen", "", nil) // no rule takes it
				l := live(t, s.apiServer, m, func(o *informers.Options, r *recorder) {
					globs("")(o, r)
					o.Rules[0].Patterns = []string{"*", "!unseen"}
					o.Rules[0].Namespaces = func(ns string) bool { return ns != "unseen" }
				})
				l.awaitPhases(t, "configmaps/other live")
				l.wait(t, "snapshot.started 0", "snapshot.completed 0")

				s.putIn("", "shop", "", nil)
				s.put("cm", "1", nil)
				s.put("short", "1", nil)
				s.delete("short")
				s.allow("shop", true)
				want := []string{
					"snapshot.started 0", "snapshot.completed 0", "snapshot.started 0", "snapshot.completed 0",
					"c cm uid-4 -→1", "c short uid-5 -→1", "d short uid-5 1→-",
				}
				l.waitPerName(t, want...)
				l.awaitPhases(t, "configmaps/other live", "configmaps/shop live")

				s.delete("cm")
				want = append(want, "d cm uid-4 1→-")
				l.waitPerName(t, slices.Clone(want)...)
				s.allow("shop", false)
				s.deleteIn("", "shop")
				if told {
					s.bookmark()
				} else {
					s.CloseClientConnections()
				}
				l.awaitPhases(t, "configmaps/other live")
				eventually(t, "the scope is forgotten", func() bool {
					if err := m.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
					_, known := m.saved("configmaps/shop")
					return !known
				})
				gaps := 0
				for _, e := range l.streams() {
					if strings.Contains(e, "gap") {
						gaps++
					}
				}
				if told && gaps > 0 || !told && gaps != 1 {
					t.Errorf("%d gaps: %q", gaps, l.streams())
				}

				// And again, under the same name.
				s.putIn("", "shop", "", nil)
				s.put("cm", "2", nil)
				s.allow("shop", true)
				l.awaitPhases(t, "configmaps/other live", "configmaps/shop live")
				eventually(t, "the new object", func() bool {
					l.mu.Lock()
					defer l.mu.Unlock()
					return slices.ContainsFunc(l.deltas, func(d *object.Delta) bool {
						return short(d) == "c cm uid-7 -→2"
					})
				})
			})
		})
	}
}

// If namespaces may not be read either, the resource is forbidden, and nothing waits for it.
func TestNamespacesForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTenants(t, "shop")
		s.closed = true
		s.putIn("", "shop", "", nil)
		l := live(t, s.apiServer, newMemory(), globs("s"))
		l.awaitPhases(t, "configmaps/s* waiting forbidden forbidden")
		<-l.set.Captured()
		eventually(t, "ready", func() bool { return l.set.Ready() == nil })
	})
}

// If the definition of a resource that is observed in some namespaces is deleted, no scope of the
// resource remains. If it is created again, permissions are reviewed again.
func TestDefinitionOfSomeNamespacesIsDeleted(t *testing.T) {
	for name, emptied := range map[string]bool{"at once": false, "after the last namespace that was allowed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCustoms(t)
				s.fault = func(w http.ResponseWriter, r *http.Request) bool {
					s.mu.Lock()
					defined := s.defined
					s.mu.Unlock()
					switch {
					case r.URL.Path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
						body, err := io.ReadAll(r.Body)
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(http.StatusCreated)
						fmt.Fprintf(w, `{"status":{"allowed":%t}}`,
							err == nil && strings.Contains(string(body), `"namespace":"shop"`))
					case defined && r.URL.Path == "/apis/shop.test/v1/widgets":
						fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
					case defined && r.URL.Path == "/apis/shop.test/v1/namespaces/shop/widgets":
						r.URL.Path = "/api/v1/namespaces/shop/configmaps"
						return false
					default:
						return s.answer(w, r)
					}
					return true
				}
				s.putIn("", "shop", "", nil)
				s.putIn("", "other", "", nil)
				s.define(true)
				l := live(t, s.apiServer, newMemory(), takes(widgets(nil)))
				l.awaitPhases(t, "widgets.shop.test/other waiting forbidden forbidden", "widgets.shop.test/shop live")
				if emptied {
					s.deleteIn("", "shop")
					s.bookmark()
					l.awaitPhases(t, "widgets.shop.test/other waiting forbidden forbidden")
				}
				s.define(false)
				s.CloseClientConnections()
				l.awaitPhases(t, "widgets.shop.test waiting notserved")
				if emptied {
					s.putIn("", "shop", "", nil)
				}
				s.define(true)
				made := s.put("made", "1", nil)
				l.awaitPhases(t, "widgets.shop.test/other waiting forbidden forbidden", "widgets.shop.test/shop live")
				eventually(t, "the new object", func() bool {
					l.mu.Lock()
					defer l.mu.Unlock()
					return slices.ContainsFunc(l.deltas, func(d *object.Delta) bool {
						return d.Stream == nil && d.Ref.UID == made.uid
					})
				})
			})
		})
	}
}
