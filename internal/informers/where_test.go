package informers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// without withholds all objects whose value begins with it.
type without string

func (w without) Withholds(d *object.Delta) string {
	o := d.After
	if o == nil {
		o = d.Before
	}
	if strings.HasPrefix(valueOf(o), string(w)) {
		return "where"
	}
	return ""
}

// keepsBack makes a rule withhold all objects whose value begins with value.
func keepsBack(value string) func(*selection.Rule) {
	return func(r *selection.Rule) {
		r.Where = "value != " + value
		r.Filter = func(*object.Resource) selection.Filter { return without(value) }
	}
}

// atMark waits until the checkpoint is at rv.
func (l *life) atMark(t *testing.T, m *memory, rv uint64) {
	t.Helper()
	eventually(t, "the checkpoint to come so far", func() bool {
		_ = m.Flush(t.Context())
		c, _ := m.saved("configmaps")
		return c.ResourceVersion == rv
	})
}

// A change that was withheld before the read of its object was on the bus does not replace that
// read.
func TestWithheldBehindAnUnacknowledgedRead(t *testing.T) {
	for name, onDemand := range map[string]bool{"at the start": false, "on demand": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "1", nil)
				s.put("b", "1", nil)
				first := live(t, s, m, func(o *informers.Options, rec *recorder) {
					rec.held = !onDemand
					o.Rules[0] = rule(filtered(""))
				})
				want := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1"}
				if onDemand {
					want = append(want, "snapshot.completed 2")
					first.wait(t, want...)
					first.mu.Lock()
					first.held = true
					first.mu.Unlock()
					if _, err := first.set.Snapshot(t.Context(), "", ""); err != nil {
						t.Fatal(err)
					}
					want = append(want, want[:3]...)
				}
				first.wait(t, want...)
				first.atMark(t, m, s.put("b", "noise", nil).rv)
				first.end()
				second := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(filtered("")) })
				second.waitPerName(t, "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→noise",
					"snapshot.completed 2")
			})
		})
	}
}

// If a condition no longer withholds an object, a snapshot sends it. If a new condition withholds
// an object that was sent, the next snapshot leaves it out. The condition may change by a reload or
// by a restart.
func TestOtherObjectsAreKeptBack(t *testing.T) {
	for name, reload := range map[string]bool{"reload": true, "restart": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "1", nil)
				last := s.put("b", "hidden", nil)
				rules := func(r selection.Rule) func(*informers.Options, *recorder) {
					return func(o *informers.Options, _ *recorder) { o.Rules[0] = r }
				}
				l := live(t, s, m, rules(rule(keepsBack("hidden"))))
				told := []string{"snapshot.started 2", "r a uid-1 -→1", "snapshot.completed 1"}
				l.waitPerName(t, told...)
				next := func(r selection.Rule, want ...string) {
					t.Helper()
					if reload {
						l.reload(t, specOf(r))
						told = append(told, want...)
					} else {
						l.atMark(t, m, last.rv)
						l.end()
						l, told = live(t, s, m, rules(r)), want
					}
					l.waitPerName(t, told...)
				}
				next(rule(nil), "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→hidden", "snapshot.completed 2")
				next(rule(keepsBack("1")), "snapshot.started 2", "r b uid-2 -→hidden", "snapshot.completed 1")
			})
		})
	}
}

// A snapshot that has to follow a changed condition is sent after a restart, however far it had
// come.
func TestOtherObjectsAreKeptBackAtARestart(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *apiServer, l *life){
		"before it began": func(_ *testing.T, s *apiServer, l *life) {
			l.mu.Lock()
			l.held = true
			l.mu.Unlock()
			s.put("c", "2", nil)
		},
		"inside another one": func(t *testing.T, _ *apiServer, l *life) {
			l.mu.Lock()
			l.holds = func(d *object.Delta) bool { return d.Stream == nil && d.Ref.Name() == "c" }
			l.mu.Unlock()
			if _, err := l.set.Snapshot(t.Context(), "", ""); err != nil {
				t.Fatal(err)
			}
			l.waitPerName(t, "snapshot.started 3", "r b uid-2 -→1", "r c uid-3 -→1", "snapshot.completed 2",
				"snapshot.started 3", "r b uid-2 -→1", "r c uid-3 -→1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "hidden", nil)
				s.put("b", "1", nil)
				s.put("c", "1", nil)
				first := live(t, s, m, func(o *informers.Options, _ *recorder) {
					o.Rules[0] = rule(keepsBack("hidden"))
				})
				first.waitPerName(t, "snapshot.started 3", "r b uid-2 -→1", "r c uid-3 -→1", "snapshot.completed 2")
				change(t, s, first)
				first.reload(t, specOf(rule(nil)))
				if err := m.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				first.end()
				second := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(nil) })
				eventually(t, "what was kept back to be read", func() bool { return second.has("r a uid-1 -→hidden") })
			})
		})
	}
}

// A condition is set, and reverted before its snapshot has begun. Another snapshot sends the
// objects that it withheld meanwhile.
func TestConditionIsTakenBack(t *testing.T) {
	for name, tc := range map[string]struct {
		snapshot, restart bool
		completed         int // snapshots of the run in which the first condition returns
	}{
		"before its snapshot began": {completed: 2},
		"inside another snapshot":   {snapshot: true, completed: 3},
		"by a restart":              {restart: true, completed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "hidden", nil)
				s.put("c", "1", nil)
				all := func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(nil) }
				l := live(t, s, m, all)
				l.awaitCaptured(t)
				l.mu.Lock()
				l.holds = func(d *object.Delta) bool { return d.Stream == nil && d.Ref.Name() == "c" }
				l.mu.Unlock()
				if tc.snapshot {
					if _, err := l.set.Snapshot(t.Context(), "", ""); err != nil {
						t.Fatal(err)
					}
				} else {
					s.put("c", "2", nil) // the bus does not have it: no snapshot can begin
				}
				pass(time.Second)
				l.reload(t, specOf(rule(keepsBack("hidden"))))
				s.put("new", "hidden", nil) // withheld
				s.delete("a")               // withheld
				pass(time.Second)
				if tc.restart {
					pass(25 * time.Second) // its snapshot is given up, and tried again later
					l.acknowledge()
					pass(time.Second)
					if err := m.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
					l.end()
					l = live(t, s, m, all)
				} else {
					l.reload(t, specOf(rule(nil)))
				}
				pass(time.Minute) // longer than the snapshot of the condition waits for the bus
				l.acknowledge()
				pass(3 * time.Minute)
				if !l.has("c new uid-3 -→hidden") && !l.has("r new uid-3 -→hidden") {
					t.Error("the object that is selected again was never sent")
				}
				completed := 0
				for _, d := range l.ofScope("configmaps") {
					if d.Stream != nil && d.Stream.Kind == object.SnapshotCompleted {
						completed++
					}
				}
				if completed != tc.completed && !l.has("d a uid-1 hidden→-") {
					t.Errorf(
						"%d snapshots, want %d: the deletion was never sent, and no later snapshot sweeps the object",
						completed, tc.completed)
				}
			})
		})
	}
}

// A snapshot that resumes after a restart counts the objects that it withholds once.
func TestResumedSnapshotCountsWhatItWithholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		var last uint64
		for _, name := range []string{"b", "c", "d"} {
			last = s.put(name, "hidden", nil).rv
		}
		first := live(t, s, m, func(o *informers.Options, rec *recorder) {
			rec.held = true
			o.Rules[0] = rule(keepsBack("hidden"))
		})
		first.wait(t, "snapshot.started 4", "r a uid-1 -→1")
		eventually(t, "the rest to be withheld", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.ResourceVersion == last && c.Snapshot != nil && first.set.Status()[0].Pending == 1
		})
		first.end()
		second := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(keepsBack("hidden")) })
		second.wait(t, "snapshot.started 4", "r a uid-1 -→1", "snapshot.completed 1")
	})
}

// A tombstone does not send objects that were withheld.
func TestTombstoneWithholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		s.put("b", "hidden", nil)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(keepsBack("hidden")) })
		l.waitPerName(t, "snapshot.started 2", "r a uid-1 -→1", "snapshot.completed 1")
		l.reload(t, specOf(rule(inNamespaces("other"))))
		s.put("c", "1", nil) // a tombstone waits for a later resourceVersion
		l.waitPerName(t, "snapshot.started 2", "r a uid-1 -→1", "snapshot.completed 1",
			"gap 0 selection-changed", "snapshot.started 0", "snapshot.completed 0", "snapshot.started 0",
			"snapshot.completed 0")
	})
}

// A resource that is selected by its other name is observed under that name at once.
func TestReloadToTheOtherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newEvents(t), newMemory()
		named := func(p selection.Pattern) selection.Rule {
			return rule(func(r *selection.Rule) { r.Resources = []selection.Pattern{p} })
		}
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0] = named(pattern("events")) })
		l.awaitPhases(t, "events live")
		l.reload(t, specOf(named(written{text: "events.events.k8s.io"})))
		got := slices.DeleteFunc(l.set.Status(), func(st informer.Status) bool {
			return st.Phase == informer.PhaseRetiring
		})
		if len(got) != 1 || got[0].Scope != "events.events.k8s.io" {
			t.Errorf("observed are %v", phases(l.set))
		}
	})
}

// newEvents returns an API server that serves events under both of their names.
func newEvents(t *testing.T) *apiServer {
	s := newAPIServer(t)
	list := `{"name":"events","singularName":"event","namespaced":true,"kind":"Event","verbs":["list","watch"]}]}`
	answers := map[string]string{
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[` + list,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"events.k8s.io","versions":[{"groupVersion":"events.k8s.io/v1","version":"v1"}],` +
			`"preferredVersion":{"groupVersion":"events.k8s.io/v1","version":"v1"}}]}`,
		"/apis/events.k8s.io/v1": `{"kind":"APIResourceList","groupVersion":"events.k8s.io/v1","resources":[` + list,
	}
	s.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if text := answers[r.URL.Path]; text != "" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
			return true
		}
		if strings.HasSuffix(r.URL.Path, "/events") {
			r.URL.Path = "/api/v1/configmaps"
		}
		return false
	}
	return s
}
