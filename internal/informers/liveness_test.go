package informers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A watch that sends bookmarks and then nothing for too long is reopened where it was.
func TestSilentWatchIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.onWatch(func(number int, w http.ResponseWriter, r *http.Request) bool {
			if number > 1 {
				return false
			}
			if r.URL.Query().Get("allowWatchBookmarks") == "true" {
				say(w, bookmark(100))
			} else {
				say(w)
			}
			<-r.Context().Done()
			return true
		})
		set, rec, reg := start(t, s, nil)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		pass(140 * time.Second)
		s.put("cm", "1", nil)
		pass(9 * time.Second)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		if silence := metric(t, reg, "kubecdc_informer_silence_seconds"); silence < 148 || silence > 150 {
			t.Errorf("silence of %v s, want 149", silence)
		}
		pass(2 * time.Second)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→1")
		if lists, watches, _ := s.counts(); lists != 1 || watches != 2 {
			t.Errorf("%d lists and %d watches, want 1 and 2", lists, watches)
		}
		if n := labelled(t, reg, "kubecdc_informer_watches_total", "silent"); n != 1 {
			t.Errorf("%v silent watches, want 1", n)
		}
		if st := set.Status()[0]; st.Phase != informer.PhaseLive || st.Health != informer.HealthOK {
			t.Errorf("%+v", st)
		}
	})
}

// Without bookmarks, silence does not mean that a watch is dead. Only its timeout ends it.
func TestSilentWatchWithoutBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		set, rec, _ := start(t, s, nil)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		for minute := range 60 {
			pass(time.Minute)
			if _, watches, _ := s.counts(); minute < 5 && watches != 1 {
				t.Fatalf("%d watches after %d min", watches, minute+1)
			}
			if err := set.Ready(); err != nil {
				t.Fatalf("after %d min: %v", minute+1, err)
			}
		}
		if lists, watches, _ := s.counts(); lists != 1 || watches < 5 || watches > 12 {
			t.Errorf("%d lists and %d watches within an hour", lists, watches)
		}
	})
}

// HTTP/2 pings detect a silently dead connection, with or without bookmarks.
func TestDeadConnectionIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newLinkedServer(t, true)
		_, rec, _ := start(t, s, nil)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		s.put("cm", "1", nil)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→1")
		l.breakAll()
		s.put("cm", "2", nil)
		pass(10 * time.Second)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→1")
		pass(36 * time.Second)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→1", "u cm uid-1 1→2")
		if lists, _, _ := s.counts(); lists != 1 {
			t.Errorf("%d lists, want 1", lists)
		}
	})
}

// A watch that the API server accepts and never answers times out.
func TestWatchThatNeverOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.onWatch(func(number int, _ http.ResponseWriter, r *http.Request) bool {
			if number == 1 {
				<-r.Context().Done()
			}
			return number == 1
		})
		s.put("cm", "1", nil) // Before the list, whose watch never opens.
		set, rec, _ := start(t, s, nil)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1")
		s.put("cm", "2", nil)
		pass(152 * time.Second)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1", "u cm uid-1 1→2")
		if st := set.Status()[0]; st.Phase != informer.PhaseLive || st.Health != informer.HealthOK {
			t.Errorf("%+v", st)
		}
	})
}

// A watch that pauses because the queue is full is neither silent nor stale.
func TestBlockedIsNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.onWatch(func(number int, w http.ResponseWriter, _ *http.Request) bool {
			if number == 1 {
				say(w, bookmark(100))
			}
			return number == 1
		})
		set, rec, reg := start(t, s, nil)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		pass(time.Second)
		rec.setRoom(0)
		want := []string{"snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→0"}
		s.put("cm", "0", nil)
		for i := 1; i < 300; i++ {
			s.put("cm", fmt.Sprint(i), nil)
			want = append(want, fmt.Sprintf("u cm uid-1 %d→%d", i-1, i))
		}
		for range 20 {
			pass(time.Minute)
			if st := set.Status()[0]; st.Health != informer.HealthOK || st.Phase != informer.PhaseBlocked {
				t.Fatalf("%+v", st)
			}
			if silence := metric(t, reg, "kubecdc_informer_silence_seconds"); silence != 0 {
				t.Fatalf("silence of %v s, want 0", silence)
			}
			if err := set.Ready(); err != nil {
				t.Fatal(err)
			}
		}
		rec.setRoom(unbounded)
		rec.wait(t, want...)
		if lists, _, _ := s.counts(); lists != 1 {
			t.Errorf("%d lists, want 1", lists)
		}
	})
}

// A scope that fails for too long is stale, and the agent is not ready. An error that an
// administrator has to fix is only shown.
func TestStale(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		reason metav1.StatusReason
		health [2]informer.Health // before 3 min, and after
	}{
		"unavailable": {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, [2]informer.Health{
			informer.HealthFailing, informer.HealthStale,
		}},
		"forbidden": {http.StatusForbidden, metav1.StatusReasonForbidden, [2]informer.Health{
			informer.HealthForbidden, informer.HealthForbidden,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newLinkedServer(t, false)
				set, rec, _ := start(t, s, nil)
				rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
				pass(2 * time.Minute) // no event, which is not a failure
				s.do(func() {
					s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
						fail(w, c.code, c.reason)
						return true
					}
				})
				s.CloseClientConnections()
				pass(170 * time.Second)
				if st := set.Status()[0]; st.Phase != informer.PhaseLive || st.Health != c.health[0] ||
					set.Ready() != nil {
					t.Errorf("before 3 min: %+v, ready: %v", st, set.Ready())
				}
				pass(20 * time.Second)
				st, err := set.Status()[0], set.Ready()
				if st.Phase != informer.PhaseLive || st.Health != c.health[1] || st.Error == "" {
					t.Errorf("after 3 min: %+v", st)
				}
				isNamed := err != nil && strings.HasSuffix(err.Error(), ": configmaps")
				if (st.Health == informer.HealthStale) != isNamed {
					t.Errorf("after 3 min: ready: %v", err)
				}
				s.do(func() { s.fault = nil })
				s.put("cm", "1", nil)
				pass(time.Minute)
				rec.wait(t, "snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→1")
				if st := set.Status()[0]; st.Phase != informer.PhaseLive || st.Health != informer.HealthOK ||
					set.Ready() != nil {
					t.Errorf("in the end: %+v, ready: %v", st, set.Ready())
				}
			})
		})
	}
}
