package informers_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// asked returns how many lists of all objects were made, of their metadata or of the whole objects.
func (s *apiServer) asked(metadata bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if metadata {
		return s.metadata
	}
	return s.lists
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
