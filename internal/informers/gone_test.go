package informers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// serve makes the API server itself serve widgets (true), or no longer (false).
func (s *customs) serve(is bool) {
	s.do(func() { s.builtIn, s.defined = true, is })
}

// defineAnother creates another definition, which triggers discovery.
func (s *customs) defineAnother() {
	s.do(func() {
		s.rv++
		s.frames = append(s.frames, frame{
			s.rv, fmt.Sprintf(`{"type":"ADDED","object":{"metadata":{"name":"gadgets.shop.test","uid":"another",`+
				`"resourceVersion":"%d","generation":1}}}`+"\n", s.rv),
		})
		s.changed.Broadcast()
	})
}

// An API server that is restarted without a group of its own says nothing about the objects of that
// group.
func TestGroupIsNotServedForAWhile(t *testing.T) {
	for _, when := range []string{"over a restart", "while the set runs"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newCustoms(t), newMemory()
				s.serve(true)
				s.put("a", "1", nil)
				l := live(t, s.apiServer, m, takes(widgets(nil)))
				want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
				l.wait(t, want...)
				_ = m.Flush(t.Context())
				if when == "over a restart" {
					l.end()
					s.serve(false)
					l, want = live(t, s.apiServer, m, takes(widgets(nil))), nil
				} else {
					s.serve(false)
					s.defineAnother()
					s.CloseClientConnections()
				}
				eventually(t, "it not to be served", func() bool {
					for _, st := range l.set.Status() {
						if st.Health == informer.HealthNotServed && st.Failures == 0 { // discovery says so
							return true
						}
					}
					return false
				})
				s.put("a", "2", nil)
				s.serve(true)
				l.wait(t, append(want, "u a uid-1 1→2")...)
			})
		})
	}
}

// Nothing is inferred about a resource if the checkpoint does not say that it came from a
// definition: an older release wrote the checkpoint.
func TestDefinitionDeletedWhileDown(t *testing.T) {
	for _, release := range []string{"new", "old"} {
		t.Run("checkpoint of the "+release+" release", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newCustoms(t), newMemory()
				s.define(true)
				s.put("a", "1", nil)
				l := live(t, s.apiServer, m, takes(widgets(nil)))
				l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
				_ = m.Flush(t.Context())
				l.end()
				c, _ := m.saved("widgets.shop.test")
				if c.Definition != "crd" {
					t.Errorf("the checkpoint has the definition %q, want crd", c.Definition)
				}
				if release == "old" {
					c.Definition = ""
					m.scopes["widgets.shop.test"] = c
				}
				s.define(false)
				l = live(t, s.apiServer, m, takes(widgets(nil)))
				l.awaitPhases(t, "widgets.shop.test waiting notserved")
				if release == "new" {
					l.wait(t, "gap 0 expired", "snapshot.started 0", "snapshot.completed 0")
					return
				}
				l.end() // a tombstone would have begun by now
				if _, kept := m.saved("widgets.shop.test"); !kept || len(l.deltas) > 0 {
					t.Errorf("kept: %t, sent: %d deltas; want the scope kept, and nothing sent", kept, len(l.deltas))
				}
			})
		})
	}
}

// The definition is listed after the last save, and deleted at once. The next run must know which
// definition the resource came from.
func TestDefinitionDeletedBeforeItIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newCustoms(t), newMemory()
		s.define(true)
		s.put("a", "1", nil)
		listed := make(chan struct{})
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/customresourcedefinitions") {
					<-listed
				}
				return s.answer(w, r)
			}
		})
		l := live(t, s.apiServer, m, takes(widgets(nil)))
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		_ = m.Flush(t.Context())
		if c, ok := m.saved("widgets.shop.test"); !ok || c.Definition != "" {
			t.Fatalf("saved: %t, definition %q; want none before it is listed", ok, c.Definition)
		}
		close(listed)
		synctest.Wait()
		s.define(false)
		synctest.Wait()
		_ = m.Flush(t.Context())
		l.end()
		l = live(t, s.apiServer, m, takes(widgets(nil)))
		l.wait(t, "gap 0 expired", "snapshot.started 0", "snapshot.completed 0")
	})
}

// A definition is deleted while no agent runs, and the next run has no rule that can take custom
// resources. So it watches no definitions. It sends the end of the scope, because the scope is no
// longer selected.
func TestDefinitionDeletedWhenNoRuleTakesCustomResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newCustoms(t), newMemory()
		s.define(true)
		s.put("a", "1", nil)
		l := live(t, s.apiServer, m, takes(widgets(nil)))
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		synctest.Wait()
		_ = m.Flush(t.Context())
		l.end()
		s.define(false)
		l = live(t, s.apiServer, m, takes(rule(nil)))
		eventually(t, "the end of the scope", func() bool { return l.has("gap 0 selection-changed") })
		eventually(t, "it to be forgotten", func() bool {
			_ = m.Flush(t.Context())
			_, ok := m.saved("widgets.shop.test")
			return !ok
		})
	})
}
