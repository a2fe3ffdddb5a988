package informers_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A scope that replaces another one in the run that detected a restore of etcd has its history
// number: consumers treat events with a lower one as late.
func TestReloadAfterRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		copied := s.put("a", "1", map[string]string{"in": "1"}).rv
		s.put("a", "2", map[string]string{"in": "1"})
		s.put("a", "2", map[string]string{"in": "1"}) // the history after the restore does not reach this
		l := live(t, s, newMemory(), func(_ *informers.Options, _ *recorder) {})
		l.awaitCaptured(t)
		s.restore(copied)
		s.CloseClientConnections()
		s.put("a", "3", map[string]string{"in": "1"})
		pass(12 * time.Minute) // if the first question breaks with the connection, the next watch asks
		eventually(t, "the restore to be found", func() bool { return l.has("gap 0 rewound") })
		l.awaitCaptured(t)
		l.reload(t, specOf(rule(selected("in=1", ""))))
		s.put("b", "1", map[string]string{"in": "1"})
		eventually(t, "the new scope", func() bool { return l.has("c b uid-102 -→1") })
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, d := range l.deltas {
			if d.Op == object.Created && d.History != 1 {
				t.Errorf("%s has the history number %d, want 1", short(d), d.History)
			}
		}
	})
}

// A resource that was not observed when etcd was restored has the history number of the scopes that
// detected the restore: its resourceVersions are assigned a second time too.
func TestObservedAgainAfterRestore(t *testing.T) {
	for name, c := range map[string]struct {
		ends, begins func(t *testing.T, s *customs, l *life)
	}{
		"selected": {
			ends:   func(t *testing.T, _ *customs, l *life) { l.reload(t, specOf(rule(nil))) },
			begins: func(t *testing.T, _ *customs, l *life) { l.reload(t, specOf(rule(nil), widgets(nil))) },
		},
		"defined": {
			ends: func(_ *testing.T, s *customs, _ *life) {
				s.delete("a")
				s.define(false)
				s.CloseClientConnections()
			},
			begins: func(_ *testing.T, s *customs, _ *life) { s.define(true) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCustoms(t)
				s.define(true)
				s.put("a", "1", nil)
				l := live(t, s.apiServer, newMemory(), takes(rule(nil), widgets(nil)))
				l.awaitCaptured(t)
				c.ends(t, s, l)
				s.put("b", "1", nil) // a tombstone waits for a later resourceVersion
				pass(time.Minute)
				copied := s.put("b", "2", nil).rv
				s.put("b", "3", nil)
				pass(time.Minute)
				s.restore(copied)
				s.CloseClientConnections()
				putMany(s.apiServer, "b", 5)
				pass(12 * time.Minute)
				if !l.has("gap 0 rewound") {
					t.Fatal("the restore is not found")
				}
				l.mu.Lock()
				before := len(l.deltas)
				l.mu.Unlock()
				c.begins(t, s, l)
				pass(time.Minute)
				s.put("c", "1", nil)
				pass(time.Minute)
				l.mu.Lock()
				defer l.mu.Unlock()
				again := 0
				for _, d := range l.deltas[before:] {
					if d.Stream == nil && d.Ref.Resource.Name == "widgets" {
						again++
						if d.History != 1 {
							t.Errorf("%s has the history number %d, want 1", short(d), d.History)
						}
					}
				}
				if again == 0 {
					t.Error("nothing is sent of the resource")
				}
			})
		})
	}
}

// Events, and the resources of an aggregated API server, may have an etcd of their own. Its restore
// says nothing about the history of other resources. A new scope of another resource has the
// history number of those, and the next start detects no restore.
func TestAnotherEtcdWasRestored(t *testing.T) {
	for name, aggregated := range map[string]bool{"events": false, "nodes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.nodes = true
				s.fault = func(w http.ResponseWriter, r *http.Request) bool {
					switch {
					case name == "nodes":
					case r.URL.Path == "/api/v1": // events, without a namespace, in place of Nodes
						fmt.Fprint(w,
							`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"events","kind":"Event","verbs":["list","watch"]},`+
								`{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["list","watch"]}]}`)
						return true
					case r.URL.Path == "/api/v1/events":
						r.URL.Path = "/api/v1/nodes"
					}
					return false
				}
				s.putIn("", "n1", "1", nil)
				s.putIn("shop", "x", "1", nil)
				s.putIn("other", "y", "1", nil)
				of := rule(func(r *selection.Rule) { r.Resources = []selection.Pattern{pattern(name)} })
				first := live(t, s, m, takes(rule(inNamespaces("shop")), of))
				first.awaitCaptured(t)
				pass(time.Minute)
				_ = m.Flush(t.Context())
				first.end()
				m.mu.Lock()
				c := m.scopes[name]
				c.Aggregated, c.History = aggregated, 1 // found in an earlier run
				m.scopes[name] = c
				m.mu.Unlock()
				two := takes(rule(inNamespaces("shop", "other")), of)
				second := live(t, s, m, two)
				second.awaitCaptured(t)
				pass(2 * time.Minute)
				if !second.has("r y uid-3 -→1") {
					t.Error("the new scope is not read")
				}
				for _, d := range append(second.ofScope("configmaps/shop"), second.ofScope("configmaps/other")...) {
					if d.History != 0 || d.Stream != nil && d.Stream.History != 0 {
						t.Errorf("%s has the history number of another etcd", short(d))
					}
				}
				if !slices.ContainsFunc(second.lastTold(t).Report.Scopes, func(r object.ScopeReport) bool {
					return r.Resource.Name == name && r.History == 1
				}) {
					t.Errorf("%s do not keep their history number", name)
				}
				_ = m.Flush(t.Context())
				second.end()
				third := live(t, s, m, func(o *informers.Options, r *recorder) {
					two(o, r)
					o.LastEvent = func(_ context.Context, res *object.Resource) (informer.LastEvent, bool, error) {
						return second.lastEvent(res)
					}
				})
				third.awaitCaptured(t)
				pass(2 * time.Minute)
				if third.has("gap 0 rewound") {
					t.Error("a restore is announced that did not happen")
				}
			})
		})
	}
}

// The first object on a doubtful watch waits for the probe even if the run ends meanwhile. A
// version that was not compared is neither sent nor passed by the checkpoint. Otherwise, the next
// run would have a checkpoint of the new history, and no doubt.
func TestRunEndsDuringTheProbe(t *testing.T) {
	for name, value := range map[string]string{
		"sent":     "new",
		"withheld": "noise", // the lane of an agent takes nothing after the end, but is not asked to take this
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				withNoise := func(o *informers.Options, _ *recorder) { o.Rules[0] = rule(filtered("")) }
				copied := s.put("cm", "1", nil).rv
				l := live(t, s, m, withNoise)
				want := []string{
					"snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1", "u cm uid-1 1→2", "u cm uid-1 2→3",
				}
				l.wait(t, want[:3]...)
				s.put("cm", "2", nil)
				last := s.put("cm", "3", nil)
				l.wait(t, want...)
				s.do(func() {
					s.fault = func(_ http.ResponseWriter, r *http.Request) bool {
						probe := r.URL.Query().Get("limit") == "1"
						if probe {
							<-r.Context().Done()
						}
						return probe
					}
				})
				s.CloseClientConnections()
				s.restore(copied)
				s.put("cm", "lost", nil) // the watch begins after this
				s.do(func() { s.rv++ })
				s.put("cm", value, nil)
				// the probe of the watch has had no answer, that of its first object is under way
				pass(12 * time.Second)
				l.end()
				l.wait(t, want...)
				if err := m.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if c, _ := m.saved("configmaps"); c.ResourceVersion != last.rv {
					t.Errorf("the checkpoint is at %d, want %d: nothing after it was compared", c.ResourceVersion,
						last.rv)
				}
				s.do(func() { s.fault = nil })
				l = live(t, s, m, withNoise)
				eventually(t, "the restore to be found", func() bool { return l.has("gap 0 rewound") })
			})
		})
	}
}

// etcd is restored while the agent is down, and the next run no longer selects a scope. The objects
// at the scope's checkpoint belong to another history: an empty snapshot with the next history
// number replaces left events.
func TestTombstoneAfterRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s, l, log := twoNodes(t, m)
		copied := s.now1()
		s.putIn("", "n1", "2", map[string]string{"colour": "red"})
		eventually(t, "the change", func() bool { return l.has("u n1 uid-1 1→2") })
		l.end()
		_ = m.Flush(t.Context())
		s.restore(copied)
		putMany(s, "b", 10)
		l = live(t, s, m, takesOn(log, rule(nil)))
		l.awaitForgotten(t, m)
		l.wantOfNodes(t, "gap 0 selection-changed", "snapshot.started 0", "snapshot.completed 0")
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, d := range l.deltas {
			if d.Stream != nil && d.Stream.Resource.Name == "nodes" && d.Stream.History != 1 {
				t.Errorf("%s has the history number %d, want 1", short(d), d.Stream.History)
			}
		}
	})
}

// A run detects that etcd was restored, and ends before the bus has taken the gap. The copy is
// later than the checkpoint, so it has the same objects. The next run announces the restore all the
// same, and uses no id again.
func TestRestoredHistoryIsFoundAgainByTheNextRun(t *testing.T) {
	for name, again := range map[string]selection.Spec{
		"same":              specOf(rule(nil)),
		"another selection": specOf(rule(selected("in=1", ""))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				in := map[string]string{"in": "1"}
				s.put("cm", "1", in)
				l := live(t, s, m, nil)
				want := []string{"snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1"}
				l.wait(t, want...)
				pass(time.Second)
				l.mu.Lock()
				l.held = true
				l.mu.Unlock()
				copied := s.put("cm", "2", in).rv
				s.put("cm", "3", in)
				l.wait(t, append(want, "u cm uid-1 1→2", "u cm uid-1 2→3")...)
				l.setRoom(0)
				s.restore(copied)
				s.CloseClientConnections()
				for _, value := range []string{"4", "5", "6"} {
					s.put("cm", value, in)
				}
				pass(time.Minute)
				l.end()
				l.acknowledge()
				_ = m.Flush(t.Context())
				next := live(t, s, m, func(o *informers.Options, _ *recorder) {
					o.Spec = again
					o.LastEvent = func(_ context.Context, of *object.Resource) (informer.LastEvent, bool, error) {
						return l.lastEvent(of)
					}
				})
				pass(2 * time.Minute)
				s.put("cm", "7", in)
				eventually(t, "the next change", func() bool { return next.has("u cm uid-1 6→7") })
				if name == "same" && !next.has("gap 0 rewound") {
					t.Error("the restore is not announced")
				}
				next.mu.Lock()
				defer next.mu.Unlock()
				for _, d := range next.deltas {
					if d.Stream == nil && d.Op != object.Left && d.History == 0 {
						t.Errorf("%s has the history number of the history before", short(d))
					}
				}
			})
		})
	}
}

// A run finds that etcd was restored to a point after its checkpoint, and is killed before the bus
// has the gap. The next run sends the gap: the objects at the checkpoint are the same, and the new
// history has passed all versions by then.
func TestFoundRestoreIsSavedBeforeItIsAnnounced(t *testing.T) {
	for _, mode := range []informer.SnapshotMode{informer.SnapshotInitial, informer.SnapshotNever} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "1", nil)
				change := func(o *informers.Options, _ *recorder) { o.Snapshot = mode }
				l := liveSaved(t, s, m, change)
				copied := s.now1()
				s.put("a", "2", nil)
				s.put("b", "1", nil)
				pass(time.Minute)
				l.hold(isGap)
				s.restore(copied)
				s.CloseClientConnections()
				s.put("a", "other", nil)
				putMany(s, "c", 5)
				eventually(t, "the restore to be found", func() bool { return l.has("gap 0 rewound") })
				l.end()

				second := live(t, s, m, change)
				eventually(t, "the gap", func() bool { return second.has("gap 0 rewound") })
				s.put("a", "last", nil)
				eventually(t, "the last change", func() bool { return second.has("u a uid-1 other→last") })
				second.mu.Lock()
				defer second.mu.Unlock()
				for _, d := range second.deltas {
					if d.Stream == nil && d.History == 0 {
						t.Errorf("%s has the history number of the history that is gone", short(d))
					}
				}
			})
		})
	}
}

// A run is killed before it finds that etcd was restored, and the restored history passes the
// checkpoint and all that the run has sent. The newest event of an object on the bus shows the
// restore to the next run.
func TestRestoreIsFoundByTheNewestEventOnTheBus(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(s *apiServer) // the save, and the restore
		restored      bool
	}{
		"another version": {
			before:   func(s *apiServer) { s.put("a", "2", nil) },
			after:    func(s *apiServer) { putMany(s, "b", 5) },
			restored: true,
		},
		"the same object and resourceVersion": {
			before:   func(s *apiServer) { s.put("a", "2", nil) },
			after:    func(s *apiServer) { s.put("a", "other", nil) },
			restored: true,
		},
		"a deletion": {
			before:   func(s *apiServer) { s.delete("a") },
			after:    func(s *apiServer) { putMany(s, "b", 5) },
			restored: true,
		},
		"nothing was restored": {
			before: func(s *apiServer) { s.put("a", "2", nil) },
		},
		"nothing was restored, and a deletion was sent": {
			before: func(s *apiServer) { s.delete("a") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newAPIServer(t), newMemory()
				s.put("a", "1", nil)
				first := liveSaved(t, s, m, nil)
				copied := s.now1()
				n := len(first.changes())
				c.before(s)
				eventually(t, "the change", func() bool { return len(first.changes()) > n })
				first.end() // killed: nothing was saved since
				if c.restored {
					s.restore(copied)
					c.after(s)
				}
				second := live(t, s, m, func(o *informers.Options, _ *recorder) {
					o.LastEvent = func(_ context.Context, r *object.Resource) (informer.LastEvent, bool, error) {
						return first.lastEvent(r)
					}
				})
				second.awaitCaptured(t)
				pass(3 * time.Minute)
				if found := second.has("gap 0 rewound"); found != c.restored {
					t.Errorf("a restore is found: %t; %v", found, second.changes())
				}
			})
		})
	}
}

// An agent of another node sends a change after this one has asked for the current
// resourceVersion, and before the bus reports its newest event: that is no restore.
func TestChangeOfAnotherNodeIsNoRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		first := liveSaved(t, s, m, nil)
		first.end()
		second := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.LastEvent = func(_ context.Context, r *object.Resource) (informer.LastEvent, bool, error) {
				s.put("other", "1", nil)
				e, ok, err := first.lastEvent(r)
				e.Object = &informer.LastObject{
					Namespace:       "shop",
					Name:            "other",
					UID:             s.uidOf("other"),
					ResourceVersion: s.now1(),
				}
				return e, ok, err
			}
		})
		second.awaitCaptured(t)
		pass(3 * time.Minute)
		if second.has("gap 0 rewound") {
			t.Errorf("a restore is found: %v", second.changes())
		}
	})
}
