package informers_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestSnapshotThenLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		for i := range 7 { // more than two pages
			s.put(fmt.Sprintf("cm-%d", i), "a", nil)
		}
		_, rec, _ := start(t, s, nil)
		want := []string{"snapshot.started 7"}
		for i := range 7 {
			want = append(want, fmt.Sprintf("r cm-%d uid-%d -→a", i, i+1))
		}
		want = append(want, "snapshot.completed 7")
		rec.wait(t, want...)
		s.put("cm-0", "b", nil)
		s.put("new", "x", nil)
		s.delete("new")
		s.put("new", "y", nil)
		rec.wait(t, append(want, "u cm-0 uid-1 a→b", "c new uid-8 -→x", "d new uid-8 x→-", "c new uid-9 -→y")...)
	})
}

func TestSnapshotNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("old", "a", nil)
		_, rec, _ := start(t, s, func(o *informers.Options) { o.Snapshot = informer.SnapshotNever })
		eventually(t, "a watch", func() bool { _, watches, _ := s.counts(); return watches > 0 })
		s.put("old", "b", nil)
		rec.wait(t, "u old uid-1 a→b")
	})
}

// After a 410, the agent sends a gap event, followed by the changes that a comparison of lists
// shows.
func TestHistoryGoneWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		for _, name := range []string{"changed", "gone", "kept", "replaced"} {
			s.put(name, "1", nil)
		}
		_, rec, reg := start(t, s, nil)
		before := []string{
			"snapshot.started 4", "r changed uid-1 -→1", "r gone uid-2 -→1", "r kept uid-3 -→1", "r replaced uid-4 -→1",
			"snapshot.completed 4",
		}
		rec.wait(t, before...)
		s.do(func() { // no watch receives the next changes
			s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
				fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
				return true
			}
		})
		s.CloseClientConnections()
		s.put("changed", "2", nil)
		s.put("changed", "3", nil)
		s.delete("gone")
		s.delete("replaced")
		s.put("replaced", "1", nil)
		s.put("added", "1", nil)
		s.compact()
		s.do(func() { s.fault = nil })
		rec.wait(t, append(before, "gap 0 expired", "~c added uid-6 -→1", "~u changed uid-1 1→3", "~d gone uid-2 1→-",
			"~d replaced uid-4 1→-", "~c replaced uid-5 -→1")...)
		s.put("kept", "2", nil)
		rec.wait(t, append(before, "gap 0 expired", "~c added uid-6 -→1", "~u changed uid-1 1→3", "~d gone uid-2 1→-",
			"~d replaced uid-4 1→-", "~c replaced uid-5 -→1", "u kept uid-3 1→2")...)
		if n := metric(t, reg, "kubecdc_informer_gaps_total"); n != 1 {
			t.Errorf("gaps: %v, want 1", n)
		}
	})
}

// Faults other than a 410 must never cause another list, which would lose history.
func TestFaultsDoNotRelist(t *testing.T) {
	for _, after := range []string{
		"", // a clean end in the middle
		`{"type":"MODIFIED","object":{"kind":"ConfigMap","metad`,
		`{"type":"ERROR","object":` + status(http.StatusInternalServerError, metav1.StatusReasonInternalError) + "}\n",
		`{"type":"ERROR","object":` + status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout) + "}\n",
		"<html>bad gateway</html>\n",
		`{"type":"MODIFIED","object":{"kind":"ConfigMap"}}` + "\n",
		// resuming from there would lose deletions
		`{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{}}}` + "\n",
	} {
		t.Run(after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t)
				s.frames, s.after = 2, after
				_, rec, _ := start(t, s, nil)
				rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
				want := []string{"snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→0"}
				s.put("cm", "0", nil)
				for i := 1; i < 10; i++ {
					s.put("cm", fmt.Sprint(i), nil)
					want = append(want, fmt.Sprintf("u cm uid-1 %d→%d", i-1, i))
				}
				rec.wait(t, want...)
				if lists, watches, _ := s.counts(); lists != 1 || watches < 5 {
					t.Errorf("%d lists and %d watches, want 1 list and at least 5 watches", lists, watches)
				}
			})
		})
	}
}

// An HTTP watch that is not read is ended. Once there is room, it resumes after the last event that
// was taken.
func TestBlockedWatchIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		set, rec, _ := start(t, s, nil)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		rec.setRoom(1)
		want := []string{"snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→0"}
		s.put("cm", "0", nil)
		for i := 1; i < 50; i++ {
			s.put("cm", fmt.Sprint(i), nil)
			want = append(want, fmt.Sprintf("u cm uid-1 %d→%d", i-1, i))
		}
		eventually(t, "the watch to be ended", func() bool {
			_, watches, ended := s.counts()
			return watches == 1 && ended == 1
		})
		// The server may see the end of the watch before the reader that closed it reports that.
		eventually(t, "the status to be blocked", func() bool { return set.Status()[0].Phase == informer.PhaseBlocked })
		rec.setRoom(unbounded)
		rec.wait(t, want...)
		eventually(t, "the status to be live", func() bool { return set.Status()[0].Phase == informer.PhaseLive })
	})
}

func TestLiveDeltaSendsWhatIsDueFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		for _, name := range []string{"a", "b", "c"} {
			s.put(name, "1", nil)
		}
		_, rec, _ := start(t, s, func(o *informers.Options) {
			lane := o.Lane
			o.Lane = func(name string) store.Lane { return liveOnly{lane(name)} }
		})
		rec.wait(t, "snapshot.started 3")
		s.put("c", "2", nil)
		s.delete("b")
		rec.wait(t, "snapshot.started 3", "r c uid-3 -→1", "u c uid-3 1→2", "r b uid-2 -→1", "d b uid-2 1→-")
	})
}

// liveOnly has no room for catch-up.
type liveOnly struct{ store.Lane }

func (l liveOnly) TryPut(string, int, *object.Delta) bool { return false }

func (l liveOnly) Room() <-chan struct{} { return nil }

// A gap is announced, and live deltas follow, even if catch-up finds no room.
func TestHistoryGoneWhileCatchUpWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("a", "1", nil)
		_, rec, _ := start(t, s, func(o *informers.Options) {
			lane := o.Lane
			o.Lane = func(name string) store.Lane { return liveOnly{lane(name)} }
		})
		rec.wait(t, "snapshot.started 1")
		s.put("b", "1", nil)
		rec.wait(t, "snapshot.started 1", "c b uid-2 -→1")
		s.compact()
		rec.wait(t, "snapshot.started 1", "c b uid-2 -→1", "gap 0 expired")
		s.put("b", "2", nil)
		s.put("a", "2", nil)
		rec.wait(t, "snapshot.started 1", "c b uid-2 -→1", "gap 0 expired", "u b uid-2 1→2", "r a uid-1 -→1",
			"u a uid-1 1→2")
	})
}

func TestSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := map[string]string{"team": "payments"}, map[string]string{"team": "other"}
		s := newAPIServer(t)
		s.put("outside", "0", out)
		_, rec, _ := start(t, s, func(o *informers.Options) { o.Rules[0].LabelSelector = "team=payments" })
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		s.put("outside", "1", out)
		s.put("outside", "2", in)  // entered
		s.put("outside", "3", in)  // updated
		s.put("outside", "4", out) // left
		s.put("outside", "5", out)
		s.delete("outside")
		s.put("inside", "1", in)
		s.delete("inside")
		s.put("inside", "2", in) // another uid
		s.put("inside", "3", out)
		s.put("inside", "4", in)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0",
			"e outside uid-1 1→2", "u outside uid-1 2→3", "l outside uid-1 3→-",
			"c inside uid-2 -→1", "d inside uid-2 1→-", "c inside uid-3 -→2", "l inside uid-3 2→-",
			"e inside uid-3 3→4")
	})
}

// An object has left the selection while history was lost. It is deleted after the list that
// misses it, and before the question what has happened to it: it had left at the list.
func TestSelectorQuestionIsAboutTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := map[string]string{"team": "payments"}, map[string]string{"team": "other"}
		s := newAPIServer(t)
		s.put("cm", "1", in)
		_, rec, _ := start(t, s, func(o *informers.Options) { o.Rules[0].LabelSelector = "team=payments" })
		before := []string{"snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1"}
		rec.wait(t, before...)
		s.do(func() { // no watch receives the next change
			s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
				fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
				return true
			}
		})
		s.CloseClientConnections()
		s.put("cm", "2", out)
		s.compact()
		var isListed atomic.Bool
		var asked atomic.Int32
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				q := r.URL.Query()
				isQuestion := strings.HasPrefix(q.Get("fieldSelector"), "metadata.name=")
				if !isQuestion && q.Get("watch") == "" && q.Get("limit") == "500" {
					isListed.Store(true)
				}
				if !isListed.Load() || !isQuestion {
					return false
				}
				switch asked.Add(1) {
				case 1: // the versions in between are not found
					fail(w, http.StatusGone, metav1.StatusReasonExpired)
					return true
				case 2:
					s.delete("cm")
				}
				return false
			}
		})
		rec.wait(t, append(before, "gap 0 expired", "~l cm uid-1 1→-")...)
	})
}

// If the version that would decide is gone, entered and left events claim the least, and are marked
// as inferred.
func TestSelectorHistoryGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := map[string]string{"team": "payments"}, map[string]string{"team": "other"}
		s := newAPIServer(t)
		s.put("cm", "1", out)
		var refused atomic.Int32
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("resourceVersionMatch") != "Exact" {
				return false
			}
			if refused.Add(1) == 1 {
				fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable) // transient: asked again
			} else {
				fail(w, http.StatusGone, metav1.StatusReasonExpired)
			}
			return true
		}
		_, rec, _ := start(t, s, func(o *informers.Options) { o.Rules[0].LabelSelector = "team=payments" })
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		s.put("cm", "2", in)
		s.put("cm", "3", out)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0", "~e cm uid-1 -→2", "~l cm uid-1 2→-")
	})
}

// A server that forbids the question must not stop the resource.
func TestSelectorQuestionForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := map[string]string{"team": "payments"}, map[string]string{"team": "other"}
		s := newAPIServer(t)
		s.put("cm", "1", out)
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("resourceVersionMatch") != "Exact" {
				return false
			}
			fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
			return true
		}
		set, rec, _ := start(t, s, func(o *informers.Options) { o.Rules[0].LabelSelector = "team=payments" })
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		s.put("cm", "2", in)
		s.put("cm", "3", out)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0", "~e cm uid-1 -→2", "~l cm uid-1 2→-")
		if st := set.Status()[0]; st.Reason != "forbidden" {
			t.Errorf("status %+v does not show that the question is forbidden", st)
		}
	})
}

// Names of RBAC objects may contain characters that have a meaning in selectors.
func TestSelectorOddName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := map[string]string{"team": "payments"}, map[string]string{"team": "other"}
		s := newAPIServer(t)
		_, rec, _ := start(t, s, func(o *informers.Options) { o.Rules[0].LabelSelector = "team=payments" })
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		name := `a\b,metadata.name=c`
		s.put(name, "1", in)
		s.put(name, "2", out)
		s.put(name, "3", in)
		s.delete(name)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0", "c "+name+" uid-1 -→1", "l "+name+" uid-1 1→-",
			"e "+name+" uid-1 2→3", "d "+name+" uid-1 3→-")
	})
}

// Not every aggregated API server gives a deletion a resourceVersion of its own.
func TestDeletionWithTheLastVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		v := s.put("cm", "1", nil)
		_, rec, _ := start(t, s, func(*informers.Options) {
			s.frames, s.after = 1, `{"type":"DELETED","object":`+v.JSON(false, v.rv)+"}\n"
		})
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1")
		s.put("other", "1", nil)
		s.put("third", "1", nil)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1", "c other uid-2 -→1",
			"d cm uid-1 1→-")
	})
}

// A server that ends every watch after a bookmark is not flooded with requests.
func TestShortWatchesAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") == "" {
				return false
			}
			s.do(func() { s.watches++ })
			fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"100"}}}`)
			return true
		}
		_, rec, _ := start(t, s, nil)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		<-time.After(time.Second)
		if _, watches, _ := s.counts(); watches < 2 || watches > 8 {
			t.Errorf("%d watches within a second, want a few", watches)
		}
	})
}

// A watch that was ended is reopened even if the queue never has room to spare: other scopes may
// keep it full forever.
func TestBlockedWatchClaimsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		_, rec, _ := start(t, s, func(o *informers.Options) {
			o.Snapshot = informer.SnapshotNever
			lane := o.Lane
			o.Lane = func(name string) store.Lane { return liveOnly{lane(name)} }
		})
		eventually(t, "a watch", func() bool { _, watches, _ := s.counts(); return watches == 1 })
		rec.setRoom(0)
		want := []string{"c cm uid-1 -→0"}
		s.put("cm", "0", nil)
		for i := 1; i < 5; i++ {
			s.put("cm", fmt.Sprint(i), nil)
			want = append(want, fmt.Sprintf("u cm uid-1 %d→%d", i-1, i))
		}
		eventually(t, "the watch to be ended", func() bool { _, _, ended := s.counts(); return ended == 1 })
		rec.setRoom(unbounded)
		rec.wait(t, want...)
	})
}

// Errors of one resource do not stop others.
func TestForbiddenResourceIsIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("cm", "1", nil)
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/secrets") {
				return false
			}
			fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
			return true
		}
		set, rec, reg := start(t, s, func(o *informers.Options) {
			o.Rules[0].Resources = []selection.Pattern{pattern("secrets"), pattern("configmaps"), pattern("widgets")}
		})
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1")
		eventually(t, "secrets to be shown as failing", func() bool {
			st := set.Status()
			return len(st) == 3 && st[1].Scope == "secrets" && st[1].Health == informer.HealthForbidden &&
				strings.Contains(st[1].Error, "Forbidden") && st[2].Scope == "widgets" &&
				st[2].Health == informer.HealthNotServed
		})
		eventually(t, "ready: a forbidden resource must not hold back the others", func() bool {
			return set.Ready() == nil
		})
		if n := metric(t, reg, "kubecdc_informer_errors_total"); n < 1 {
			t.Errorf("errors: %v, want at least 1", n)
		}
	})
}

func TestNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("cm", "1", nil)
		_, rec, _ := start(t, s, func(o *informers.Options) {
			o.Rules[0].Namespaces = func(ns string) bool { return ns != "shop" }
			o.Rules[0].Patterns = []string{"*", "!shop"}
		})
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		s.put("cm", "2", nil)

		_, literal, _ := start(t, s, func(o *informers.Options) {
			o.Rules[0].Names = []string{"shop"}
		})
		literal.wait(t, "snapshot.started 1", "r cm uid-1 -→2", "snapshot.completed 1")
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		if scope := literal.deltas[0].Stream.Scope; scope != "configmaps/shop" {
			t.Errorf("scope %q, want configmaps/shop", scope)
		}
		if scope := rec.deltas[0].Stream.Scope; scope != "configmaps/*,!shop" {
			t.Errorf("scope %q, want configmaps/*,!shop", scope)
		}
	})
}

func TestChangedBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		_, rec, _ := start(t, s, nil)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		created := s.put("cm", "1", nil)
		s.put("cm", "2", nil)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→1", "u cm uid-1 1→2")
		want := fmt.Sprintf(`[{"manager":"m-1","operation":"Update","time":"2026-11-20T15:%02d:%02dZ"}]`,
			created.rv/60%60, created.rv%60)
		if got := string(rec.deltas[2].ChangedBy); got != want {
			t.Errorf("changedBy of the creation: %s, want %s", got, want)
		}
		if got := string(rec.deltas[3].ChangedBy); !strings.Contains(got, `"m-2"`) || strings.Contains(got, `"m-1"`) {
			t.Errorf("changedBy of the update: %s, want m-2 alone", got)
		}
	})
}
