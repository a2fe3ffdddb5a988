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

// The changes since the checkpoint are held back at a restart. The snapshot follows them.
func TestSnapshotWaitsForWhatIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		m := newMemory()
		p := &bufferingProxy{}
		p.behind(s)
		s.put("a", "1", nil)
		liveSaved(t, s, m, nil).end()
		s.put("a", "2", nil)
		s.put("b", "1", nil)
		p.hold(true)
		l := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Snapshot = informer.SnapshotAlways })
		pass(4 * time.Minute)
		l.wait(t, "u a uid-1 1→2", "c b uid-2 -→1", "snapshot.started 2", "r a uid-1 -→2", "r b uid-2 -→1",
			"snapshot.completed 2")
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
