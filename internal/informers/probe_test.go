package informers_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
)

// restore resets the server to resourceVersion rv, like a copy of etcd.
func (s *apiServer) restore(rv uint64) {
	s.do(func() {
		s.history = slices.DeleteFunc(s.history, func(v *version) bool { return v.rv > rv })
		s.rv = rv
		clear(s.now)
		for _, v := range s.history {
			if v.bookmark {
				continue
			}
			s.now[v.key()] = v
			if v.deleted {
				delete(s.now, v.key())
			}
		}
		s.uids += 100
		s.restores++
		s.copied = len(s.history)
	})
}

// refusePast refuses questions about the past.
func refusePast(w http.ResponseWriter, r *http.Request) bool {
	exact := r.URL.Query().Get("resourceVersionMatch") == "Exact"
	if exact {
		fail(w, http.StatusGone, metav1.StatusReasonExpired)
	}
	return exact
}

// A restored etcd has another history, which must not be treated as a continuation of the previous
// one.
func TestRestoredHistoryIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(s *apiServer) // after the restore
		clean     bool               // the watch ends cleanly, but early
		silent    bool               // no connection breaks
		fault     func(w http.ResponseWriter, r *http.Request) bool
		code      int // of the failure that breaks one, 0: 503
		rewound   bool
	}{
		"behind":              {meanwhile: func(*apiServer) {}, rewound: true},
		"behind, not a word":  {meanwhile: func(*apiServer) {}, silent: true, rewound: true},
		"ahead, a clean end":  {meanwhile: func(s *apiServer) { putMany(s, "other", 10) }, clean: true, rewound: true},
		"ahead, another name": {meanwhile: func(s *apiServer) { putMany(s, "other", 10) }, rewound: true},
		"ahead, the same uid": {meanwhile: func(s *apiServer) {
			s.do(func() { s.rv++ })
			putMany(s, "cm", 10)
		}, rewound: true},
		"ahead, the same uid and resourceVersion, written at another time": {meanwhile: func(s *apiServer) {
			v := s.put("cm", "x", nil)
			s.do(func() { v.written = "2026-11-21T09:00:00Z" })
			putMany(s, "other", 10)
		}, rewound: true},
		"ahead, and the watch is expired": {code: http.StatusGone, meanwhile: func(s *apiServer) {
			putMany(s, "other", 10)
		}, rewound: true},
		"ahead, nobody can tell": {meanwhile: func(s *apiServer) { putMany(s, "cm", 10) }, fault: refusePast},
		// No history has an object in an older version than before.
		"ahead, the object is older, and the past cannot be asked": {
			meanwhile: func(s *apiServer) { putMany(s, "other", 10) }, fault: refusePast, rewound: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newLinkedServer(t, false)
				s.onWatch(func(_ int, w http.ResponseWriter, r *http.Request) bool {
					if c.silent {
						say(w, bookmark(101))
						<-r.Context().Done()
					}
					return c.silent
				})
				s.put("cm", "1", nil)
				backup := s.rv
				_, rec, reg := start(t, s, nil)
				rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1")
				switch {
				case c.silent:
					pass(time.Second)
					s.do(func() { s.fault = nil })
					s.restore(backup - 1)
					c.meanwhile(s)
				case c.clean:
					s.do(func() { s.frames, s.after = 1, "" })
					s.put("cm", "2", nil)
					pass(time.Second)
					s.restore(backup)
					c.meanwhile(s)
				default:
					s.put("cm", "2", nil)
					rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1", "u cm uid-1 1→2")
					s.do(func() {
						s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
							fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
							return true
						}
					})
					s.CloseClientConnections()
					s.restore(backup)
					c.meanwhile(s)
					s.do(func() { s.fault = c.fault })
					s.failOnce(cmp.Or(c.code, http.StatusServiceUnavailable), metav1.StatusReasonExpired)
				}
				pass(3 * time.Minute)
				lists, _, _ := s.counts()
				found := labelled(t, reg, "kubecdc_informer_watches_total", "rewound")
				gaps := labelled(t, reg, "kubecdc_informer_gaps_total", "rewound")
				if c.rewound != (found == 1) || c.rewound != (lists > 1) || gaps != found {
					t.Errorf("%v watches found it, %d lists, %v gaps; want it to be found: %t", found, lists, gaps,
						c.rewound)
				}
			})
		})
	}
}

// Objects that were only listed, and deleted objects, also reveal another history.
func TestRestoredHistoryIsFoundWithoutAnUpdate(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *apiServer) // after the copy was made, before the agent starts
		after  func(s *apiServer) // while the agent watches
		want   []string
	}{
		"listed": {
			before: func(s *apiServer) { s.put("cm", "2", nil) },
			want:   []string{"snapshot.started 1", "r cm uid-1 -→2", "snapshot.completed 1"},
		},
		"deleted": {
			after: func(s *apiServer) { s.delete("cm") },
			want:  []string{"snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1", "d cm uid-1 1→-"},
		},
		"created and deleted": { // the copy does not have the object either
			after: func(s *apiServer) {
				s.put("cm", "2", nil)
				s.put("job", "1", nil)
				s.delete("job")
			},
			want: []string{
				"snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1", "u cm uid-1 1→2", "c job uid-2 -→1",
				"d job uid-2 1→-",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newLinkedServer(t, false)
				s.put("cm", "1", nil)
				backup := s.rv
				if c.before != nil {
					c.before(s)
				}
				_, rec, reg := start(t, s, nil)
				rec.wait(t, c.want[:3]...)
				if c.after != nil {
					c.after(s)
					rec.wait(t, c.want...)
				}
				pass(time.Second) // the watch is open
				down := true
				s.do(func() {
					s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
						if down {
							fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
						}
						return down
					}
				})
				s.CloseClientConnections()
				s.restore(backup)
				putMany(s, "other", 10)
				s.do(func() { down = false })
				pass(3 * time.Minute)
				if got := labelled(t, reg, "kubecdc_informer_watches_total", "rewound"); got != 1 {
					t.Errorf("found %v times, want once", got)
				}
			})
		})
	}
}

// failOnce makes the next watch fail.
func (s *apiServer) failOnce(code int, reason metav1.StatusReason) {
	s.do(func() {
		others, failed := s.fault, false
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			now := false
			s.do(func() {
				now = !failed && r.URL.Query().Get("watch") != ""
				failed = failed || now
			})
			if now {
				fail(w, code, reason)
			}
			return now || others != nil && others(w, r)
		}
	})
}

func putMany(s *apiServer, name string, n int) {
	for i := range n {
		s.put(name, fmt.Sprint("after ", i), nil)
	}
}

// If the question about history fails, the watch continues, and nothing is listed again.
func TestHistoryCannotBeAsked(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"unavailable": func(w http.ResponseWriter, _ *http.Request) {
			fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		},
		"forbidden": func(w http.ResponseWriter, _ *http.Request) {
			fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		},
		"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newLinkedServer(t, false)
				s.put("cm", "1", nil)
				set, rec, _ := start(t, s, nil)
				want := []string{"snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1"}
				rec.wait(t, want...)
				want = append(want, "u cm uid-1 1→2")
				s.put("cm", "2", nil)
				rec.wait(t, want...)
				s.do(func() {
					s.fault = func(w http.ResponseWriter, r *http.Request) bool {
						probe := r.URL.Query().Get("limit") == "1"
						if probe {
							answer(w, r)
						}
						return probe
					}
				})
				s.failOnce(http.StatusInternalServerError, metav1.StatusReasonInternalError)
				s.CloseClientConnections()
				s.put("cm", "3", nil)
				pass(15 * time.Second)
				rec.wait(t, append(want, "u cm uid-1 2→3")...)
				if lists, _, _ := s.counts(); lists != 1 {
					t.Errorf("%d lists, want 1", lists)
				}
				if st := set.Status()[0]; st.Error != "" {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// closing ends each watch after 10 s. lists returns the number of lists and probes since its last
// call.
func (s *apiServer) closing() (lists func() int) {
	n := 0
	s.do(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if isList(r) {
				s.do(func() { n++ })
			}
			if r.URL.Query().Get("watch") == "" {
				return false
			}
			ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
			defer cancel()
			s.watch(w, r.WithContext(ctx))
			return true
		}
	})
	return func() (total int) {
		s.do(func() { total, n = n, 0 })
		return total
	}
}

// If watches are closed again and again while nothing changes, they are probed once a minute.
func TestClosedWatchesAtRestAreProbedOnceAMinute(t *testing.T) {
	for name, change := range map[string]func(s *apiServer){
		"an object": func(*apiServer) {},
		"a deleted object": func(s *apiServer) {
			s.put("gone", "1", nil)
			s.delete("gone")
		},
		"the only object, deleted": func(s *apiServer) { s.delete("cm") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newLinkedServer(t, false)
				s.put("cm", "1", nil)
				_, rec, _ := start(t, s, nil)
				rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1")
				lists := s.closing()
				change(s)
				pass(2 * time.Minute)
				s.CloseClientConnections()
				pass(2 * time.Minute)
				lists()
				pass(10 * time.Minute)
				if n := lists(); n < 9 || n > 10 {
					t.Errorf("%d lists in 10 min, want one a minute", n)
				}
				if _, watches, _ := s.counts(); watches < 60 {
					t.Errorf("%d watches: they are not closed all the time", watches)
				}
			})
		})
	}
}

// The first object on a watch that was reopened without a probe waits for one: restored history is
// not published as the previous one.
func TestRestoredHistoryOnAWatchWithoutProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.put("cm", "1", nil)
		backup := s.rv
		_, rec, reg := start(t, s, nil)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1")
		s.put("cm", "2", nil)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1", "u cm uid-1 1→2")
		lists := s.closing()
		s.CloseClientConnections()
		pass(time.Second) // opened again, and probed
		if n := lists(); n == 0 {
			t.Fatal("the first watch that is opened again is not probed")
		}
		s.do(func() { // as if a copy replaced etcd at once
			s.history = slices.DeleteFunc(s.history, func(v *version) bool { return v.rv > backup })
			s.rv = backup
			s.now["shop/cm"] = s.history[len(s.history)-1]
		})
		pass(22 * time.Second) // opened again twice
		if n := lists(); n != 0 {
			t.Fatalf("%d lists before there is an object: the watch was probed", n)
		}
		putMany(s, "cm", 3)
		pass(3 * time.Minute)
		if n := labelled(t, reg, "kubecdc_informer_gaps_total", "rewound"); n != 1 {
			t.Errorf("%v gaps (rewound), want one", n)
		}
		rec.mu.Lock()
		defer rec.mu.Unlock()
		for _, d := range rec.deltas[4:] {
			if d.Stream == nil && d.History == 0 {
				t.Errorf("%s is published as a part of the history before", short(d))
			}
		}
	})
}

// The first object waits for the probe even if the scopes have used up the budget of questions.
func TestRestoredHistoryIsFoundWithoutBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		backup := s.put("cm", "1", nil).rv
		l := live(t, s, newMemory(), nil)
		want := []string{"snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1"}
		l.wait(t, want...)
		s.put("cm", "2", nil)
		l.wait(t, append(want, "u cm uid-1 1→2")...)
		informers.SpendLookups(l.set, time.Minute)
		s.CloseClientConnections()
		s.restore(backup)
		putMany(s, "cm", 3)
		pass(2 * time.Minute)
		if !l.has("gap 0 rewound") {
			t.Error("the restore is not found")
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, d := range l.deltas[4:] {
			if d.Stream == nil && d.History == 0 {
				t.Errorf("%s is published as a part of the history before", short(d))
			}
		}
	})
}

// The first object waits for the answer even if the first probe fails.
func TestRestoredHistoryIsFoundAfterAFailedProbe(t *testing.T) {
	for name, c := range map[string]func(w http.ResponseWriter){
		"unavailable": func(w http.ResponseWriter) {
			fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		},
		"a connection breaks": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t)
				backup := s.put("cm", "1", nil).rv
				l := live(t, s, newMemory(), nil)
				want := []string{"snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1"}
				l.wait(t, want...)
				s.put("cm", "2", nil)
				l.wait(t, append(want, "u cm uid-1 1→2")...)
				s.do(func() {
					probes := 0
					s.fault = func(w http.ResponseWriter, r *http.Request) bool {
						first := false
						s.do(func() {
							if isList(r) {
								probes++
							}
							first = isList(r) && probes <= 2 // at the opening of the watch, and before the object
						})
						if first {
							c(w)
						}
						return first
					}
				})
				s.CloseClientConnections()
				s.restore(backup)
				putMany(s, "cm", 3)
				pass(2 * time.Minute)
				l.mu.Lock()
				defer l.mu.Unlock()
				for _, d := range l.deltas[4:] {
					if d.Stream == nil && d.History == 0 {
						t.Errorf("%s is published as a part of the history before", short(d))
					}
				}
			})
		})
	}
}

// While lists are refused for a moment, the history cannot be determined. Afterwards, a restore is
// detected again.
func TestRestoredHistoryIsFoundAfterARefusedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.put("cm", "1", nil)
		_, rec, _ := start(t, s, nil)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1")
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				refused := isList(r)
				if refused {
					fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
				}
				return refused
			}
		})
		s.CloseClientConnections()
		s.put("cm", "2", nil)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1", "u cm uid-1 1→2")
		s.do(func() { s.fault = nil })
		s.restore(101)
		s.CloseClientConnections()
		putMany(s, "cm", 5)
		eventually(t, "the restore to be found", func() bool { return rec.has("gap 0 rewound") })
	})
}
