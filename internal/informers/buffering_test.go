package informers_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// bufferingProxy holds back what an API server sends on watches, as a proxy that buffers responses
// does. It passes the head of a response on at once.
type bufferingProxy struct {
	server *apiServer
	bytes  int           // that it holds at most; 0: any number
	lasts  time.Duration // that it holds a byte at most; 0: until the response ends
	dead   bool          // it does not pass on what it holds at the end of a response
	drops  bool          // it drops that, and ends its own response
	ends   time.Duration // after which it ends each response; 0: only with the API server's

	mu      sync.Mutex
	holding bool
}

// behind puts a proxy in front of the watches of an API server. The API server ends them at their
// timeout.
func (p *bufferingProxy) behind(s *apiServer) {
	p.server = s
	s.do(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") == "" {
				return false
			}
			seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
			if err != nil {
				fail(w, http.StatusBadRequest, "")
				return true
			}
			lasts := time.Duration(seconds) * time.Second
			if p.ends > 0 {
				lasts = min(lasts, p.ends)
			}
			ctx, cancel := context.WithTimeout(r.Context(), lasts)
			defer cancel()
			body := &heldBody{ResponseWriter: w, of: p}
			s.watch(body, r.WithContext(ctx))
			body.end(r.Context())
			return true
		}
	})
}

// hold begins or ends the buffering. The next frame passes on those that are held.
func (p *bufferingProxy) hold(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = on
}

func (p *bufferingProxy) holds(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holding && n > 0 && (p.bytes == 0 || n < p.bytes)
}

// heldBody is the body of a watch that passes a bufferingProxy.
type heldBody struct {
	http.ResponseWriter
	of *bufferingProxy

	mu    sync.Mutex
	bytes bytes.Buffer
	timer *time.Timer // runs while something is held; nil: no limit of time
	ended bool
}

// Write implements io.Writer.
func (b *heldBody) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

// Flush implements http.Flusher.
func (b *heldBody) Flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.of.holds(b.bytes.Len()) {
		b.passLocked()
	} else if b.of.lasts > 0 && b.timer == nil {
		b.timer = time.AfterFunc(b.of.lasts, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if !b.ended {
				b.passLocked()
			}
		})
	}
}

func (b *heldBody) passLocked() {
	_, _ = b.bytes.WriteTo(b.ResponseWriter)
	b.ResponseWriter.(http.Flusher).Flush()
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// end passes on what is held at the end of the response.
func (b *heldBody) end(client context.Context) {
	if b.of.dead && b.of.holds(1) {
		<-client.Done()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of.drops && b.of.holds(b.bytes.Len()) {
		b.bytes.Reset()
	}
	if client.Err() == nil {
		b.passLocked()
	}
	b.ended = true
	if b.timer != nil {
		b.timer.Stop()
	}
}

// foundWithin is the time after the last frame within which a watch is found that holds back a
// change.
const foundWithin = 125 * time.Second

// heldBackChanges are changes that a watch holds back, and the delta of each.
var heldBackChanges = map[string]struct {
	change func(s *apiServer)
	delta  string
}{
	"an update":  {func(s *apiServer) { s.put("a", "2", nil) }, "u a uid-1 1→2"},
	"a creation": {func(s *apiServer) { s.put("c", "1", nil) }, "c c uid-3 -→1"},
	"a deletion": {func(s *apiServer) { s.delete("a") }, "d a uid-1 1→-"},
}

// A proxy passes a change on when the API server ends the watch, after minutes. The agent finds
// that out, says so, and has the change soon.
func TestBufferingProxyIsFound(t *testing.T) {
	for what, c := range heldBackChanges {
		for _, marks := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, bookmarks: %t", what, marks), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newAPIServer(t)
					m := newMemory()
					p := &bufferingProxy{}
					p.behind(s)
					s.put("a", "1", nil)
					s.put("b", "1", nil)
					if marks {
						s.marks(t)
					}
					l := live(t, s, m, nil)
					snapshot := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2"}
					l.wait(t, snapshot...)
					if marks {
						pass(2 * time.Minute) // the last frame is a bookmark
					}
					p.hold(true)
					pass(time.Second)
					c.change(s)
					pass(foundWithin - 20*time.Second)
					wantHealthy(t, l.set, "before the proof")
					pass(20 * time.Second)
					wantHeldBack(t, l.set, "after the proof")
					pass(35 * time.Second)
					l.wait(t, append(snapshot, c.delta)...)
					p.hold(false)
					s.put("b", "2", nil)
					pass(foundWithin)
					l.wait(t, append(snapshot, c.delta, "u b uid-2 1→2")...)
					wantHealthy(t, l.set, "in the end")
					if n := s.asked(false); n != 1 {
						t.Errorf("%d lists of whole objects", n)
					}
				})
			})
		}
	}
}

func wantHealthy(t *testing.T, set *informers.Manager, when string) {
	t.Helper()
	for _, st := range set.Status() {
		if st.Health != informer.HealthOK || st.Error != "" {
			t.Errorf("%s: %+v", when, st)
		}
	}
	if err := set.Ready(); err != nil {
		t.Errorf("%s: not ready: %v", when, err)
	}
}

// wantHeldBack requires that all scopes are known to be held back, for minutes.
func wantHeldBack(t *testing.T, set *informers.Manager, when string) {
	t.Helper()
	for _, st := range set.Status() {
		long := time.Since(st.Since) > time.Minute
		if st.Health != informer.HealthStale || st.Reason != "held_back" ||
			!strings.Contains(st.Error, "resourceVersion") || !long {
			t.Errorf("%s: %+v", when, st)
		}
	}
	if err := set.Ready(); err == nil || !strings.Contains(err.Error(), "configmaps") {
		t.Errorf("%s: ready: %v", when, err)
	}
}

// asked returns how many lists of all objects were made, of their metadata or of the whole objects.
func (s *apiServer) asked(metadata bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if metadata {
		return s.metadata
	}
	return s.lists
}

// While a watch is held back, the progress has an interruption that is not over.
func TestProgressOfAWatchThatIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		p := &bufferingProxy{dead: true}
		p.behind(s)
		s.put("a", "1", nil)
		l := live(t, s, m, nil)
		pass(time.Second)
		s.put("a", "2", nil) // it shows what the start must
		pass(time.Second)
		began := time.Now()
		p.hold(true)
		last := s.put("a", "3", nil).rv
		pass(foundWithin)
		d := l.wantTold(t, last, fmt.Sprintf("configmaps up to %d, silent…", last-1))
		if from := d.Report.Scopes[0].Interruptions[0].From; from.After(began) || began.Sub(from) > 5*time.Second {
			t.Errorf("interrupted since %v, the last frame was before %v", from, began)
		}
		p.hold(false)
		pass(2 * time.Minute)
		last = s.put("a", "4", nil).rv
		d = l.wantTold(t, last, "configmaps, silent")
		if i := d.Report.Scopes[0].Interruptions[0]; i.From.After(began) || i.Until.Sub(began) < foundWithin {
			t.Errorf("interrupted from %v to %v", i.From, i.Until)
		}
		wantHealthy(t, l.set, "in the end")
	})
}

// Each watch is held back. After the third one in a row, the agent says once what that is.
func TestBufferingProxyIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newAPIServer(t), &bufferingProxy{}
		p.behind(s)
		p.hold(true)
		var log logbook
		set, _, reg := start(t, s, func(o *informers.Options) {
			o.Rules[0].Names = []string{"shop", "other"}
			o.Log = log.logger(slog.LevelWarn)
		})
		go func() {
			for n := 0; wait(t.Context(), 7*time.Second); n++ {
				s.putIn("shop", "a", strconv.Itoa(n), nil)
				s.putIn("other", "a", strconv.Itoa(n), nil)
			}
		}()
		found := func() int { return int(labelled(t, reg, "kubecdc_informer_watches_total", "held_back")) }
		said := func() (n int) {
			for _, l := range log.lines(t) {
				if strings.HasPrefix(l, "WARN a proxy seems to buffer watches") {
					n++
				}
			}
			return n
		}
		pass(foundWithin + 35*time.Second)
		if found() != 2 || said() != 0 {
			t.Errorf("after two watches of each: %d found, said %d times", found(), said())
		}
		pass(30 * time.Second)
		if found() != 2 || said() != 1 {
			t.Errorf("after three watches of each: %d found, said %d times", found(), said())
		}
		for _, st := range set.Status() {
			if st.Health != informer.HealthStale || !strings.Contains(st.Error, "a proxy") {
				t.Errorf("%+v", st)
			}
		}
		pass(time.Hour)
		if n := said(); n != 1 {
			t.Errorf("said %d times", n)
		}
		lines := log.lines(t)
		if len(lines) > 70 {
			t.Errorf("%d warnings within an hour: %q", len(lines), slices.Compact(lines))
		}
		p.hold(false)
		pass(5 * time.Minute)
		wantHealthy(t, set, "without the proxy")
		p.hold(true)
		pass(8 * time.Minute)
		if n := said(); n != 2 {
			t.Errorf("said %d times, and the second proxy was another one", n)
		}
	})
}

// Some watches hold back changes, and others in between do not: there is no proxy that buffers.
func TestSingleWatchesThatAreHeldBackAreNoProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newAPIServer(t), &bufferingProxy{}
		p.behind(s)
		var log logbook
		_, _, reg := start(t, s, func(o *informers.Options) { o.Log = log.logger(slog.LevelWarn) })
		go func() {
			for n := 0; wait(t.Context(), 7*time.Second); n++ {
				s.put("a", strconv.Itoa(n), nil)
			}
		}()
		for n := range 5 {
			p.hold(true)
			found := func() int { return int(labelled(t, reg, "kubecdc_informer_watches_total", "held_back")) }
			began := time.Now()
			for found() == n && time.Since(began) < 2*foundWithin { // the first watch may end before it is found
				pass(time.Second)
			}
			p.hold(false)
			pass(3 * time.Minute)
			if found() != n+1 {
				t.Errorf("%d watches were found, want %d", found(), n+1)
			}
		}
		for _, l := range log.lines(t) {
			if strings.Contains(l, "proxy seems") {
				t.Error(l)
			}
		}
	})
}

// A path that holds back a change for less than what is a proof is none.
func TestShortDelayIsNoProof(t *testing.T) {
	for name, c := range map[string]struct {
		proxy *bufferingProxy
		every time.Duration // between changes
	}{
		"a list finds it, and the watch shows it soon": {&bufferingProxy{lasts: 25 * time.Second}, 110 * time.Second},
		"a buffer that is filled soon":                 {&bufferingProxy{bytes: 1000}, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := newAPIServer(t), c.proxy
				p.behind(s)
				p.hold(true)
				set, _, reg := start(t, s, nil)
				pass(max(0, c.every-25*time.Second))
				for n := range 60 {
					s.put("a", strconv.Itoa(n), nil)
					pass(c.every)
					wantHealthy(t, set, "with a delay")
				}
				if s.asked(true) == 0 && p.lasts > 0 {
					t.Error("no list was made")
				}
				if n := labelled(t, reg, "kubecdc_informer_watches_total", "held_back"); n != 0 {
					t.Errorf("%v watches are said to be held back", n)
				}
			})
		})
	}
}

// Nothing changes, or only objects of other scopes do. With bookmarks, that costs nothing. Without
// them, it costs a list now and then.
func TestQuietWatchIsNotHeldBack(t *testing.T) {
	for _, marks := range []bool{false, true} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("bookmarks: %t, others change: %t", marks, busy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, p := newAPIServer(t), &bufferingProxy{}
					p.behind(s)
					for n := range 10 {
						s.put(fmt.Sprint("cm-", n), "1", nil)
					}
					if marks {
						s.marks(t)
					}
					set, rec, reg := start(t, s, func(o *informers.Options) { o.Rules[0].Names = []string{"shop"} })
					for n := range 120 {
						pass(time.Minute)
						wantHealthy(t, set, fmt.Sprintf("after %d min", n+1))
						if busy {
							s.putIn("other", "a", strconv.Itoa(n), nil)
							s.deleteIn("other", fmt.Sprint("gone-", n))
							s.putIn("other", fmt.Sprint("gone-", n+1), "1", nil)
						}
					}
					rec.mu.Lock()
					n := len(rec.deltas)
					rec.mu.Unlock()
					held := labelled(t, reg, "kubecdc_informer_watches_total", "held_back")
					if n != 12 || held != 0 || s.asked(false) != 4 {
						t.Errorf("%d deltas, %v watches are held back, %d pages of lists", n, held, s.asked(false))
					}
					lists := s.asked(true)
					if st := set.Status()[0]; st.NoBookmarks == marks {
						t.Errorf("bookmarks: %t, %+v", marks, st)
					}
					if marks && lists != 0 || !marks && (lists < 5 || lists > 15) {
						t.Errorf("%d lists of metadata in two hours", lists)
					}
				})
			})
		}
	}
}

// Lists of metadata are bounded for a scope, and for all scopes together.
func TestQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scopes = 200
		s := newAPIServer(t)
		start(t, s, func(o *informers.Options) {
			for n := range scopes {
				o.Rules[0].Names = append(o.Rules[0].Names, fmt.Sprint("ns-", n))
			}
		})
		pass(89 * time.Second)
		if n := s.asked(true); n != 0 {
			t.Errorf("%d lists within 89 s", n)
		}
		pass(3 * time.Second)
		if n, most := s.asked(true), informer.AskBurst+3*informer.AskPages; n > most {
			t.Errorf("%d lists within 3 s, want at most %d", n, most)
		}
		pass(10*time.Minute - 92*time.Second)
		first := s.asked(true)
		if most := 3 * scopes; first < 2*scopes || first > most {
			t.Errorf("%d lists of %d scopes within ten minutes, want at most %d", first, scopes, most)
		}
		pass(time.Hour)
		if n, most := s.asked(true)-first, 7*scopes; n < 5*scopes || n > most {
			t.Errorf("%d lists of %d scopes within an hour, want at most %d", n, scopes, most)
		}
	})
}

// A list ends with the page that has a change, and needs the slots of lists.
func TestQuestionIsAskedInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newAPIServer(t), &bufferingProxy{}
		p.behind(s)
		for n := range 9 {
			s.put(fmt.Sprint("cm-", n), "1", nil)
		}
		pages := 0
		slow := s.fault
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if isMetadata(r) {
					s.do(func() { pages++ })
				}
				return slow(w, r)
			}
		})
		set, rec, _ := start(t, s, nil)
		eventually(t, "to be captured", func() bool { return captured(set) })
		p.hold(true)
		pass(time.Second)
		s.put("cm-4", "2", nil) // on the second page of three
		pass(foundWithin)
		wantHeldBack(t, set, "after the proof")
		if pages != 2 {
			t.Errorf("%d pages were read", pages)
		}
		pass(35 * time.Second)
		rec.mu.Lock()
		defer rec.mu.Unlock()
		if last := short(rec.deltas[len(rec.deltas)-1]); last != "u cm-4 uid-5 1→2" {
			t.Errorf("the last delta is %q", last)
		}
	})
}

// A change waits in the agent, because the queue is full. That is not because of the path.
func TestChangeThatWaitsForTheQueueIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		set, rec, reg := start(t, s, nil)
		eventually(t, "to be captured", func() bool { return captured(set) })
		rec.setRoom(0)
		s.delete("a") // the only frame: the watch is not blocked
		for n := range 20 {
			pass(time.Minute)
			wantHealthy(t, set, fmt.Sprintf("after %d min", n+1))
		}
		if n := labelled(t, reg, "kubecdc_informer_watches_total", "held_back"); n != 0 || s.asked(true) != 0 {
			t.Errorf("%v watches are held back, %d lists", n, s.asked(true))
		}
		rec.setRoom(unbounded)
		rec.wait(t, "snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2", "d a uid-1 1→-")
	})
}

// An API server refuses lists of metadata, or does not answer them.
func TestQuestionWithoutAnswer(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"forbidden": func(w http.ResponseWriter, _ *http.Request) {
			fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		},
		"expired": func(w http.ResponseWriter, _ *http.Request) {
			fail(w, http.StatusGone, metav1.StatusReasonExpired)
		},
		"hangs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"nonsense": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w,
				`{"kind":"List","metadata":{"resourceVersion":"900"},"items":[{"metadata":{"name":"a","resourceVersion":"x"}}]}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t)
				s.put("a", "1", nil)
				n := 0
				s.fault = func(w http.ResponseWriter, r *http.Request) bool {
					if isMetadata(r) {
						s.do(func() { n++ })
						answer(w, r)
					}
					return isMetadata(r)
				}
				set, _, _ := start(t, s, nil)
				for minute := range 60 {
					pass(time.Minute)
					wantHealthy(t, set, fmt.Sprintf("after %d min", minute+1))
				}
				if n < 3 || n > 15 {
					t.Errorf("%d lists within an hour", n)
				}
			})
		})
	}
}

// Under a label selector, an object that no longer matches is deleted from the watch.
func TestObjectThatLeavesIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newAPIServer(t), &bufferingProxy{}
		p.behind(s)
		red := map[string]string{"colour": "red"}
		s.put("a", "1", red)
		s.put("b", "1", red)
		set, rec, _ := start(t, s, func(o *informers.Options) { o.Rules[0].LabelSelector = "colour=red" })
		snapshot := []string{"snapshot.started 2", "r a uid-1 -→1", "r b uid-2 -→1", "snapshot.completed 2"}
		rec.wait(t, snapshot...)
		p.hold(true)
		s.put("c", "1", nil) // never shown
		pass(foundWithin)
		wantHealthy(t, set, "while other objects change")
		p.hold(false)
		s.put("b", "2", red)
		pass(time.Second)
		p.hold(true)
		s.put("a", "2", nil)
		pass(foundWithin)
		wantHeldBack(t, set, "after the proof")
		pass(35 * time.Second)
		rec.wait(t, append(snapshot, "u b uid-2 1→2", "l a uid-1 1→-")...)
	})
}

// A watch with bookmarks is silent, and is opened again after 150 s. A change after the question
// arrives soon.
func TestChangeAfterTheQuestionArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newAPIServer(t), &bufferingProxy{}
		p.behind(s)
		s.put("a", "1", nil)
		s.marks(t)
		_, rec, reg := start(t, s, nil)
		snapshot := []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
		rec.wait(t, snapshot...)
		pass(2 * time.Minute)
		p.hold(true)
		pass(100 * time.Second)
		s.put("a", "2", nil)
		pass(85 * time.Second)
		rec.wait(t, append(snapshot, "u a uid-1 1→2")...)
		if n := labelled(t, reg, "kubecdc_informer_watches_total", "silent"); n != 1 {
			t.Errorf("%v silent watches, want 1", n)
		}
	})
}

// The changes since the checkpoint are held back at a restart. The snapshot follows them.
func TestSnapshotWaitsForWhatIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		p := &bufferingProxy{}
		p.behind(s)
		s.put("a", "1", nil)
		settled(t, s, m, nil).end()
		s.put("a", "2", nil)
		s.put("b", "1", nil)
		p.hold(true)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Snapshot = informer.SnapshotAlways })
		pass(4 * time.Minute)
		l.wait(t, "u a uid-1 1→2", "c b uid-2 -→1", "snapshot.started 2", "r a uid-1 -→2", "r b uid-2 -→1",
			"snapshot.completed 2")
	})
}

// The list of an extension API server goes back after a deletion, whose frame has the version of
// the deleted object. Nothing is held back.
func TestLowerListIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newExtension(t)
		for n := range 3 {
			s.put(fmt.Sprint("w-", n), "1", nil)
		}
		l := s.observe(t, newMemory())
		eventually(t, "to be captured", func() bool { return captured(l.set) })
		pass(5 * time.Minute)
		s.delete("w-2")
		pass(10 * time.Minute)
		wantHealthy(t, l.set, "after the newest object is deleted")
		s.delete("w-0")
		pass(20 * time.Minute)
		wantHealthy(t, l.set, "after another one is deleted")
		s.put("w-3", "1", nil)
		pass(20 * time.Minute)
		wantHealthy(t, l.set, "after one is created")
		want := []string{"d w-2 uid-3 1→-", "d w-0 uid-1 1→-", "c w-3 uid-4 -→1"}
		if got := l.changes(); !slices.Equal(got[len(got)-3:], want) {
			t.Errorf("the last deltas are %q", got)
		}
		if n := s.asked(true); n < 4 {
			t.Errorf("%d lists of metadata", n)
		}
	})
}

// The API server keeps the changes of 75 s for watches, and the scope has many. Behind a proxy that
// buffers, the agent makes one list, and then has each change within a minute.
func TestBusyScopeBehindAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		p := &bufferingProxy{}
		p.behind(s)
		proxied := s.fault
		var floor uint64 // the lowest version from which a watch can begin
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				from, _ := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
				expired := false
				s.do(func() { expired = from < floor })
				if r.URL.Query().Get("watch") == "" || !expired {
					return proxied(w, r)
				}
				fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", status(http.StatusGone, metav1.StatusReasonExpired))
				return true
			}
		})
		s.put("a", "0", nil)
		l := live(t, s, m, nil)
		eventually(t, "to be captured", func() bool { return captured(l.set) })
		p.hold(true)
		want := []string{"snapshot.started 1", "r a uid-1 -→0", "snapshot.completed 1"}
		var versions []uint64
		for n := range 300 {
			versions = append(versions, s.put("a", strconv.Itoa(n+1), nil).rv)
			want = append(want, fmt.Sprintf("u a uid-1 %d→%d", n, n+1))
			if n >= 15 {
				s.do(func() { floor = versions[n-15] })
			}
			pass(5 * time.Second)
			if late := len(want) - len(l.changes()); n > 30 && late > 12 {
				t.Fatalf("%d changes are late", late)
			}
		}
		if text := says(l.lastTold(t), 0); !slices.Equal(text, []string{"configmaps, start…"}) {
			t.Errorf("the progress says %q", text)
		}
		p.hold(false)
		pass(4 * time.Minute)
		got := l.changes()
		gaps := slices.DeleteFunc(slices.Clone(got), func(text string) bool { return !strings.HasPrefix(text, "gap") })
		got = slices.DeleteFunc(got, func(text string) bool { return strings.HasPrefix(text, "gap") })
		for n := range got {
			got[n] = strings.TrimPrefix(got[n], "~")
		}
		if !slices.Equal(got, want) || len(gaps) > 1 || s.asked(false) > 2 {
			t.Errorf("%d gaps, %d lists, deltas:\n  %s", len(gaps), s.asked(false), strings.Join(got, "\n  "))
		}
		wantHealthy(t, l.set, "in the end")
	})
}
