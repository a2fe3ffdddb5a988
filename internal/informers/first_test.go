package informers_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
)

// firsts is an API server that begins watches with the existing objects, and notes the requests for
// objects.
type firsts struct {
	*apiServer
	// answer may answer the nth watch that begins with the objects, from 1.
	answer func(n int, w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	requests []string
}

func newFirsts(t *testing.T) *firsts {
	s := &firsts{apiServer: newAPIServer(t)}
	s.initial = true
	s.fault = s.note
	return s
}

func (s *firsts) note(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	request := "list"
	switch {
	case !strings.HasSuffix(r.URL.Path, "/configmaps"), isMetadata(r), q.Get("continue") != "":
		return false
	case isInitial(r):
		request = "initial"
	case q.Get("watch") != "":
		request = "watch"
	case q.Get("limit") == "1":
		request = "version"
	}
	s.mu.Lock()
	s.requests = append(s.requests, request)
	n := 0
	for _, one := range s.requests {
		if one == "initial" {
			n++
		}
	}
	s.mu.Unlock()
	return request == "initial" && s.answer != nil && s.answer(n, w, r)
}

func (s *firsts) wantRequests(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.requests, want) {
		t.Errorf("requests %v, want %v", s.requests, want)
	}
}

// One request reads the objects of a scope, and shows the changes after them. Nothing asks for the
// version that the watch must show, nor is anything reported as not observed.
func TestFirstListIsTheBeginningOfTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFirsts(t)
		s.put("b", "1", nil)
		s.put("a", "2", nil)
		l := live(t, s.apiServer, newMemory(), nil)
		want := []string{"snapshot.started 2", "r a uid-2 -→2", "r b uid-1 -→1", "snapshot.completed 2"}
		l.wait(t, want...)
		s.put("a", "3", nil)
		s.delete("b")
		l.wait(t, append(want, "u a uid-2 2→3", "d b uid-1 1→-")...)
		pass(time.Minute)
		s.wantRequests(t, "initial")
		d := l.lastTold(t)
		for _, told := range d.Report.Scopes {
			if told.ResourceVersion != s.rv || len(told.Interruptions) > 0 {
				t.Errorf("progress: %+v", told)
			}
		}
	})
}

// Before the bookmark, changes of every type may come. The snapshot has what they lead to, at the
// version of the bookmark, and nothing else is sent of them.
func TestChangesBeforeTheEndOfTheFirstList(t *testing.T) {
	for name, change := range map[string]func(*informers.Options, *recorder){
		"all": nil,
		// The agent selects the objects itself.
		"selected": takes(rule(selected("in=1", "")), rule(selected("in=2", ""))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFirsts(t)
				in := map[string]string{"in": "1"}
				for _, name := range []string{"again", "changed", "deleted", "left", "same"} {
					s.put(name, "1", in)
				}
				s.meanwhile = func() {
					s.put("changed", "2", in)
					s.put("changed", "3", in)
					s.delete("deleted")
					s.put("born", "4", in)
					s.put("brief", "5", in)
					s.delete("brief")
					s.delete("again")
					s.put("again", "6", in)
					s.put("left", "7", nil)
					s.do(func() { s.meanwhile = nil })
				}
				l := live(t, s.apiServer, newMemory(), change)
				want := []string{"r again uid-8 -→6", "r born uid-6 -→4", "r changed uid-2 -→3"}
				n := 4
				if change == nil {
					want = append(want, "r left uid-4 -→7")
					n++
				}
				want = slices.Concat([]string{fmt.Sprint("snapshot.started ", n)}, want, []string{
					"r same uid-5 -→1", fmt.Sprint("snapshot.completed ", n),
				})
				l.wait(t, want...)
				for _, d := range l.ofScope("configmaps") {
					if d.Stream != nil && d.Stream.Kind == object.SnapshotStarted && d.Stream.ResourceVersion != s.rv {
						t.Errorf("the snapshot is at %d, want %d", d.Stream.ResourceVersion, s.rv)
					}
				}
				s.delete("born")
				l.wait(t, append(want, "d born uid-6 4→-")...)
				s.wantRequests(t, "initial")
			})
		})
	}
}

// If the API server does not begin watches with the objects, does not say when these are complete,
// or ends such watches, the objects are listed. The agent drops the objects that a watch has shown
// before.
func TestFirstListInPages(t *testing.T) {
	frame := func(s *firsts, typ, name string) string {
		return fmt.Sprintf(`{"type":%q,"object":%s}`, typ,
			(&version{rv: 99, namespace: "shop", name: name, uid: "uid-of-" + name}).JSON(false, 99))
	}
	refuses := func(code int, reason metav1.StatusReason) func(*firsts, int, http.ResponseWriter, *http.Request) bool {
		return func(_ *firsts, _ int, w http.ResponseWriter, _ *http.Request) bool {
			fail(w, code, reason)
			return true
		}
	}
	once := []string{"initial", "list", "watch"}
	twice := []string{"initial", "initial", "list", "watch"}
	for name, c := range map[string]struct {
		answer   func(s *firsts, n int, w http.ResponseWriter, r *http.Request) bool
		requests []string
		within   time.Duration
		again    bool // another scope asks again
	}{
		"422": {answer: refuses(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid), requests: once},
		"400": {answer: refuses(http.StatusBadRequest, metav1.StatusReasonBadRequest), requests: once},
		"405": {answer: refuses(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed), requests: once},
		"403": {answer: refuses(http.StatusForbidden, metav1.StatusReasonForbidden), requests: once, again: true},
		"503": {
			answer:   refuses(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
			requests: twice,
			within:   5 * time.Second,
			again:    true,
		},
		"closed once": {answer: func(s *firsts, n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				say(w, frame(s, "ADDED", "x"))
			}
			return n == 1
		}, requests: []string{"initial", "initial"}, again: true},
		"closed": {answer: func(s *firsts, _ int, w http.ResponseWriter, _ *http.Request) bool {
			say(w, frame(s, "ADDED", "x"), frame(s, "DELETED", "a"))
			return true
		}, requests: twice, again: true},
		"silent": {answer: func(s *firsts, _ int, w http.ResponseWriter, r *http.Request) bool {
			say(w, frame(s, "ADDED", "x"))
			<-r.Context().Done()
			return true
		}, requests: once, within: 151 * time.Second},
		"unanswered": {answer: func(_ *firsts, _ int, _ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done()
			return true
		}, requests: once, within: 151 * time.Second},
		"endless": {answer: func(s *firsts, _ int, w http.ResponseWriter, r *http.Request) bool {
			for r.Context().Err() == nil {
				fmt.Fprintln(w, frame(s, "ADDED", "x"))
				w.(http.Flusher).Flush()
				wait(r.Context(), time.Minute)
			}
			return true
		}, requests: once, within: 5*time.Minute + time.Second},
		"an ordinary bookmark": {answer: func(s *firsts, _ int, w http.ResponseWriter, r *http.Request) bool {
			say(w, frame(s, "ADDED", "x"), bookmark(101))
			<-r.Context().Done()
			return true
		}, requests: once},
		"a bookmark below an object": {answer: func(s *firsts, _ int, w http.ResponseWriter, r *http.Request) bool {
			say(w, frame(s, "ADDED", "x"), initialEnd(98))
			<-r.Context().Done()
			return true
		}, requests: once},
		"garbage": {answer: func(_ *firsts, _ int, w http.ResponseWriter, _ *http.Request) bool {
			say(w, "%&{")
			return true
		}, requests: once, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFirsts(t)
				s.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
					w.Header().Set("Content-Type", "application/json")
					return c.answer(s, n, w, r)
				}
				s.put("a", "1", nil)
				l := live(t, s.apiServer, newMemory(), func(o *informers.Options, r *recorder) {
					takes(rule(inNamespaces("shop")))(o, r)
				})
				pass(c.within)
				want := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
				l.wait(t, want...)
				s.put("a", "2", nil)
				l.wait(t, append(want, "u a uid-1 1→2")...)
				requests := slices.DeleteFunc(s.noted(), func(one string) bool { return one == "version" })
				if !slices.Equal(requests, c.requests) {
					t.Errorf("requests %v, want %v", requests, c.requests)
				}
				// The others do not ask what one scope has found out.
				s.do(func() { s.requests = nil })
				s.answer = nil
				l.reload(t, specOf(rule(inNamespaces("shop", "other"))))
				pass(c.within)
				eventually(t, "the other scope", func() bool { return len(l.ofScope("configmaps/other")) > 1 })
				if asks := slices.Contains(s.noted(), "initial"); asks != c.again {
					t.Errorf("the other scope asks for a watch with the objects: %t, want %t", asks, c.again)
				}
			})
		})
	}
}

func (s *firsts) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// While the bus does not answer at the start, the watch that has shown the objects is not left
// unread. The changes of that time are in the snapshot, or follow it.
func TestFirstListWhileTheBusIsSilent(t *testing.T) {
	for name, silent := range map[string]time.Duration{
		"for seconds": 10 * time.Second,
		"for minutes": 5 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFirsts(t)
				s.put("a", "1", nil)
				s.put("b", "1", nil)
				l := live(t, s.apiServer, newMemory(), func(o *informers.Options, _ *recorder) {
					o.LastEvent = func(ctx context.Context, _ *object.Resource) (informer.LastEvent, bool, error) {
						wait(ctx, silent)
						return informer.LastEvent{}, false, ctx.Err()
					}
				})
				pass(time.Second)
				if _, watches, ended := s.counts(); watches != 1 || ended != 1 {
					t.Errorf("%d watches, %d of them ended, want the only one to be ended", watches, ended)
				}
				s.put("a", "2", nil)
				s.delete("b")
				pass(silent)
				if silent > time.Minute { // the list was too old
					l.wait(t, "snapshot.started 1", "r a uid-1 -→2", "snapshot.completed 1")
				} else {
					l.waitPerName(t, "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2",
						"u a uid-1 1→2", "d b uid-2 1→-")
				}
				s.put("a", "3", nil)
				eventually(t, "the watch", func() bool { return l.has("u a uid-1 2→3") })
			})
		})
	}
}

// While the bus takes nothing for minutes, changes wait for the start of the snapshot. The position
// does not pass the list before the bus has its objects.
func TestFirstListWhileTheBusIsBlocked(t *testing.T) {
	for name, initial := range map[string]bool{"lists": false, "initial events": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newFirsts(t), newMemory()
				s.initial = initial
				s.put("a", "1", nil)
				l := live(t, s.apiServer, m, func(_ *informers.Options, r *recorder) {
					r.holds = func(*object.Delta) bool { return true }
				})
				pass(time.Second)
				s.put("a", "2", nil)
				s.put("b", "3", nil)
				pass(5 * time.Minute)
				_ = m.Flush(t.Context())
				if c, ok := m.saved("configmaps"); ok && c.ResourceVersion > 101 {
					t.Errorf("the position is %d, want at most that of the snapshot", c.ResourceVersion)
				}
				if l.has("c b uid-2 -→3") {
					t.Error("a change has passed the start of the snapshot")
				}
				l.end()

				second := live(t, s.apiServer, m, nil)
				eventually(t, "both objects", func() bool {
					return second.has("r b uid-2 -→3") || second.has("c b uid-2 -→3")
				})
			})
		})
	}
}

// If etcd was restored to below what the last run has seen, the next one says so, and reads the
// objects, also if a watch begins with them.
func TestFirstListAfterARestore(t *testing.T) {
	for name, initial := range map[string]bool{"lists": false, "initial events": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := newFirsts(t), newMemory()
				s.initial = initial
				base := s.put("a", "1", nil).rv
				s.put("a", "2", nil)
				s.put("lost", "3", nil)
				first := live(t, s.apiServer, m, nil)
				first.wait(t, "snapshot.started 2", "r a uid-1 -→2", "r lost uid-2 -→3", "snapshot.completed 2")
				_ = m.Flush(t.Context())
				first.end()
				s.restore(base)
				s.meanwhile = func() {
					s.do(func() { s.meanwhile = nil })
					s.put("a", "4", nil)
				}
				second := live(t, s.apiServer, m, nil)
				if initial {
					second.wait(t, "gap 0 rewound", "snapshot.started 1", "r a uid-1 -→4", "snapshot.completed 1")
				} else {
					second.wait(t, "gap 0 rewound", "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
				}
				for _, d := range second.ofScope("configmaps") {
					if d.Op == object.Read && d.History != 1 {
						t.Errorf("%s has the history number %d, want 1", short(d), d.History)
					}
				}
			})
		})
	}
}

// A first list holds its slot until the bookmark: the others wait. That does not make them slow
// lists, for which the agent asks for the version afterwards.
func TestFirstListHoldsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFirsts(t)
		var now, most atomic.Int64
		release := make(chan struct{})
		var names []string
		for n := range 3 * informers.ConcurrentLists {
			names = append(names, strings.Repeat("n", n+1))
			s.putIn(names[n], "a", "1", nil)
		}
		s.meanwhile = func() {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-release
			now.Add(-1)
		}
		l := live(t, s.apiServer, newMemory(), takes(rule(inNamespaces(names...))))
		pass(time.Minute)
		if got := most.Load(); got != informers.ConcurrentLists {
			t.Errorf("%d first lists at a time, want %d", got, informers.ConcurrentLists)
		}
		close(release)
		l.awaitCaptured(t)
		pass(time.Minute)
		versions := slices.DeleteFunc(s.noted(), func(one string) bool { return one != "version" })
		if len(versions) != informers.ConcurrentLists {
			t.Errorf("%d questions for the version, want %d", len(versions), informers.ConcurrentLists)
		}
	})
}

// A list that is streamed because its pages expire may be followed by changes before the bookmark
// too. They are compared with the last-known objects.
func TestChangesBeforeTheEndOfARelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newExpiringServer(t, "served")
		for n := range 7 {
			s.put(fmt.Sprint("cm-", n), "1", nil)
		}
		l := live(t, s.apiServer, newMemory(), nil)
		l.awaitCaptured(t)
		s.put("cm-0", "2", nil)
		l.mu.Lock()
		before := len(l.deltas)
		l.mu.Unlock()
		s.do(func() {
			s.meanwhile = func() {
				s.do(func() { s.meanwhile = nil })
				s.put("cm-1", "2", nil)
				s.delete("cm-2")
				s.put("brief", "1", nil)
				s.delete("brief")
				s.delete("cm-3")
				s.put("cm-3", "2", nil)
			}
		})
		s.compact()
		pass(time.Minute)
		got := map[string]string{}
		l.mu.Lock()
		for _, d := range l.deltas[before-1:] {
			if d.Stream == nil && d.Op != object.Read {
				got[d.Ref.Name()] += short(d) + "; "
			}
		}
		l.mu.Unlock()
		for name, want := range map[string]string{"cm-1": "1→2", "cm-2": "d cm-2", "cm-3": "→2"} {
			if !strings.Contains(got[name], want) {
				t.Errorf("%s: %q, want %q", name, got[name], want)
			}
		}
		if got["brief"] != "" || got["cm-4"] != "" {
			t.Errorf("%v", got)
		}
	})
}
