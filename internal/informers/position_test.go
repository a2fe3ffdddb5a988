package informers_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// openings records from which resourceVersions watches are opened.
type openings struct {
	mu sync.Mutex
	at []uint64
}

func (o *openings) add(r *http.Request) {
	rv, _ := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at = append(o.at, rv)
}

func (o *openings) last() (rv uint64, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = len(o.at)
	if n > 0 {
		rv = o.at[n-1]
	}
	return rv, n
}

// A deletion may have the version of the deleted object, and a bookmark a low one. The next watch
// does not begin there: it would repeat old versions, and a repeated earlier object of a name would
// delete the later one.
func TestWatchPositionDoesNotGoBack(t *testing.T) {
	t.Run("deletion", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, o := newAPIServer(t), &openings{}
			s.ownVersions = true
			s.onWatch(func(_ int, _ http.ResponseWriter, r *http.Request) bool {
				o.add(r)
				return false
			})
			s.put("a", "1", nil)
			l := live(t, s, newMemory(), nil)
			l.awaitCaptured(t)
			l.forgetDeltas()
			s.put("b", "1", nil)
			s.delete("b")
			last := s.put("b", "2", nil).rv
			s.delete("a")
			want := []string{"c b uid-2 -→1", "d b uid-2 1→-", "c b uid-3 -→2", "d a uid-1 1→-"}
			l.waitChanges(t, want...)
			s.CloseClientConnections()
			pass(time.Minute)
			l.waitChanges(t, want...)
			if rv, n := o.last(); n != 2 || rv != last {
				t.Errorf("watch %d begins at %d, want the second at %d", n, rv, last)
			}
		})
	})
	t.Run("bookmark", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, o := newAPIServer(t), &openings{}
			s.onWatch(func(number int, w http.ResponseWriter, r *http.Request) bool {
				o.add(r)
				if number == 1 {
					say(w, bookmark(120), bookmark(105))
				}
				return number == 1
			})
			s.do(func() { s.rv = 120 })
			live(t, s, newMemory(), nil)
			pass(time.Minute)
			if rv, n := o.last(); n != 2 || rv != 120 {
				t.Errorf("watch %d begins at %d, want the second at 120", n, rv)
			}
		})
	})
}

// An unknown version below the position cannot be a change of the followed history. It is not taken
// before history is compared.
func TestUnknownVersionBelowThePositionRaisesDoubt(t *testing.T) {
	for _, restored := range []bool{true, false} {
		t.Run(fmt.Sprint(restored), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t)
				s.put("a", "1", nil)
				s.onWatch(func(number int, w http.ResponseWriter, r *http.Request) bool {
					if number > 1 {
						return false
					}
					pass(time.Minute)
					if restored {
						s.restore(90)
					}
					v := version{rv: 95, namespace: "shop", name: "x", uid: "uid-x", value: "1"}
					say(w, fmt.Sprintf(`{"type":"ADDED","object":%s}`, v.JSON(false, v.rv)))
					<-r.Context().Done()
					return true
				})
				l := live(t, s, newMemory(), nil)
				pass(3 * time.Minute)
				changes := strings.Join(l.changes(), ", ")
				if restored && (!strings.Contains(changes, "gap 0 rewound") || strings.Contains(changes, "c x")) {
					t.Errorf("%s: want a restore without the object before it", changes)
				}
				if !restored && !strings.HasSuffix(changes, "c x uid-x -→1") {
					t.Errorf("%s: want the object", changes)
				}
			})
		})
	}
}

// stalls makes each watch that begins below rv end with an error at once.
func (s *apiServer) stalls(o *openings, rv uint64) {
	s.onWatch(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		o.add(r)
		from, _ := o.last()
		if from < rv {
			say(w,
				`{"type":"ERROR","object":`+status(http.StatusInternalServerError, metav1.StatusReasonInternalError)+
					"}")
		}
		return from < rv
	})
}

// An API server cannot decode a version in etcd's history. The watch does not stay in front of it
// for ever: a list leads past it.
func TestWatchThatAlwaysFailsAtOneVersionIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		o := &openings{}
		reg := prometheus.NewPedanticRegistry()
		s.put("a", "1", nil)
		l := live(t, s, newMemory(), func(of *informers.Options, _ *recorder) { of.Registerer = reg })
		l.awaitCaptured(t)
		l.forgetDeltas()
		bad := s.put("a", "2", nil).rv
		l.waitChanges(t, "u a uid-1 1→2")
		s.stalls(o, bad+1)
		s.CloseClientConnections()
		s.put("a", "3", nil)
		s.delete("a")
		s.put("b", "1", nil)
		pass(30 * time.Second)
		if st := l.set.Status()[0]; st.Error == "" {
			t.Errorf("the failure ends when a watch is opened: %+v", st)
		}
		pass(2 * time.Minute)
		l.waitChanges(t, "u a uid-1 1→2", "gap 0 expired", "u a uid-1 2→3", "d a uid-1 3→-", "c b uid-2 -→1")
		s.put("c", "1", nil)
		l.waitChanges(t, "u a uid-1 1→2", "gap 0 expired", "u a uid-1 2→3", "d a uid-1 3→-", "c b uid-2 -→1",
			"c c uid-3 -→1")
		if st := l.set.Status()[0]; st.Error != "" {
			t.Errorf("%+v", st)
		}
		if n := labelled(t, reg, "kubecdc_informer_lists_total", "stalled"); n != 1 {
			t.Errorf("%v lists because of a stall, want 1", n)
		}
	})
}

// If lists do not lead past the error, there are few of them: the pauses grow to ten minutes. The
// scope is stale meanwhile.
func TestStalledWatchIsListedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		o := &openings{}
		reg := prometheus.NewPedanticRegistry()
		s.put("a", "1", nil)
		l := live(t, s, newMemory(), func(of *informers.Options, _ *recorder) { of.Registerer = reg })
		l.awaitCaptured(t)
		s.stalls(o, 1<<40)
		s.CloseClientConnections()
		pass(2 * time.Hour)
		if n := labelled(t, reg, "kubecdc_informer_lists_total", "stalled"); n < 10 || n > 16 {
			t.Errorf("%v lists within two hours, want about 14", n)
		}
		if err := l.set.Ready(); err == nil {
			t.Error("the set is ready while a watch always fails")
		}
	})
}

// Busy and restarting API servers cause no list, however long that lasts.
func TestBusyAPIServerCausesNoList(t *testing.T) {
	for name, text := range map[string]string{
		"429": status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests),
		"503": status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
		"504": status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, reg := newAPIServer(t), prometheus.NewPedanticRegistry()
				l := live(t, s, newMemory(), func(of *informers.Options, _ *recorder) { of.Registerer = reg })
				l.awaitCaptured(t)
				s.onWatch(func(_ int, w http.ResponseWriter, _ *http.Request) bool {
					say(w, `{"type":"ERROR","object":`+text+"}")
					return true
				})
				s.CloseClientConnections()
				pass(time.Hour)
				if n := labelled(t, reg, "kubecdc_informer_lists_total", "stalled"); n != 0 {
					t.Errorf("%v lists", n)
				}
			})
		})
	}
}

// A snapshot that follows a restart waits until the API server has repeated the changes since the
// checkpoint. On an idle scope whose watches are cut within two minutes, and show no bookmark, a
// compared list ends the wait. It announces no gap, and the watch continues where it was.
func TestSnapshotFollowsWatchesThatAreCut(t *testing.T) {
	for _, changed := range []bool{false, true} {
		t.Run(fmt.Sprint(changed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t)
				m := newMemory()
				o := &openings{}
				at := s.put("a", "1", nil).rv
				first := liveSaved(t, s, m, nil)
				first.end()
				s.do(func() { s.rv += 3 }) // changes of other resources
				s.onWatch(func(_ int, w http.ResponseWriter, r *http.Request) bool {
					o.add(r)
					if changed {
						say(w)
						<-r.Context().Done()
					}
					return changed // then it withholds the change
				})
				if changed {
					s.put("b", "1", nil)
				}
				reg := prometheus.NewPedanticRegistry()
				second := live(t, s, m, func(of *informers.Options, _ *recorder) {
					of.Snapshot, of.Registerer = informer.SnapshotAlways, reg
				})
				for range 8 {
					pass(90 * time.Second)
					s.CloseClientConnections()
				}
				if changed {
					second.waitChanges(t, "gap 0 expired", "c b uid-2 -→1", "snapshot.started 2", "r a uid-1 -→1",
						"r b uid-2 -→1", "snapshot.completed 2")
					return
				}
				second.waitChanges(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
				if rv, _ := o.last(); rv != at {
					t.Errorf("the last watch begins at %d, want %d", rv, at)
				}
				if n := labelled(t, reg, "kubecdc_informer_lists_total", "replay"); n != 1 {
					t.Errorf("%v lists, want 1", n)
				}
			})
		})
	}
}
