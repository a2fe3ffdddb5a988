package informers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/store"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// walk is a walk back against the fake API server.
type walk struct {
	*apiServer
	asked    atomic.Int64 // questions
	requests int64
	within   time.Duration
	slots    chan struct{}
	rule     selection.Rule
	from, to uint64
	names    []string
	// may answer the nth question of the walk, from 1, instead of the server
	ask func(n int64, w http.ResponseWriter) bool
}

func newWalk(t *testing.T, names ...string) *walk {
	w := &walk{
		apiServer: newAPIServer(t),
		requests:  1000,
		within:    20 * time.Second,
		slots:     make(chan struct{}, 8),
		names:     names,
	}
	w.rule = selection.Rule{Namespaces: func(string) bool { return true }, AllNamespaces: true}
	w.fault = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("resourceVersionMatch") != "Exact" {
			return false
		}
		n := w.asked.Add(1) - 2*int64(len(names))
		return n > 0 && w.ask != nil && w.ask(n, rw)
	}
	return w
}

func (w *walk) run(ctx context.Context, t *testing.T) (map[string]string, bool, error) {
	t.Helper()
	set, err := informers.New(informers.Options{
		Config: w.config(), Spec: selection.Spec{Rules: []selection.Rule{w.rule}, Strip: []string{
			"metadata.managedFields",
		}},
		Lane: func(string) store.Lane { return newRecorder() }, Log: slog.New(slog.NewTextHandler(testLog{t}, nil)),
		Registerer: prometheus.NewPedanticRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.asked.Store(0)
	return informers.WalkBack(ctx, set, w.slots, w.requests, w.within, w.from, w.to, w.names...)
}

// want runs the walk, and checks what it finds and the number of its questions.
func (w *walk) want(t *testing.T, wholes bool, questions int64, want map[string]string) {
	t.Helper()
	got, whole, err := w.run(t.Context(), t)
	if diff := cmp.Diff(want, got); diff != "" || whole != wholes || err != nil {
		t.Errorf("whole %t, error %v; want whole %t and (-want +got)\n%s", whole, err, wholes, diff)
	}
	if n := w.asked.Load() - 2*int64(len(w.names)); n != questions {
		t.Errorf("%d questions, want %d", n, questions)
	}
}

// busy creates a gap in which four names change.
func (w *walk) busy() map[string]string {
	for _, name := range []string{"again", "gone", "updated"} {
		w.put(name, "0", nil)
	}
	w.from = w.rv // 103
	for k := range 4 {
		w.put("updated", fmt.Sprint(k), nil)
		w.put("born", fmt.Sprint(k), nil)
	}
	w.delete("gone")  // 112
	w.delete("again") // 113
	w.put("x", "", nil)
	w.put("again", "1", nil) // 115
	w.put("again", "2", nil)
	w.to = w.rv
	w.names = []string{"again", "born", "gone", "updated"}
	return map[string]string{
		"again":   "113 gone, 115 uid-6 m-1; m-2",
		"born":    "105 uid-4 m-0, 107 uid-4 m-1, 109 uid-4 m-2; m-3",
		"gone":    "112 gone",
		"updated": "104 uid-3 m-0, 106 uid-3 m-1, 108 uid-3 m-2; m-3",
	}
}

func TestWalkBackAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(t, "again", "born", "gone", "updated")
		w.want(t, true, 17, w.busy())
	})
}

// The label and field selectors of the scope decide which versions are inside.
func TestWalkBackUnderSelectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := map[string]string{"team": "payments"}, map[string]string{"team": "other"}
		w := newWalk(t, "entered", "left", "moved")
		w.rule.LabelSelector, w.rule.FieldSelector = "team=payments", "metadata.name!=unwanted"
		w.put("entered", "0", out) // 101
		w.put("left", "0", in)
		w.put("moved", "0", in)
		w.from = w.rv
		w.put("entered", "1", out) // 104
		w.put("entered", "2", in)
		w.put("entered", "3", in)
		w.put("left", "1", in) // 107
		w.put("left", "2", out)
		w.put("left", "3", out)
		w.put("moved", "1", out) // 110
		w.delete("moved")
		w.put("moved", "2", in)
		w.put("moved", "3", in)
		w.to = w.rv
		w.want(t, true, 17, map[string]string{
			"entered": "101 uid-1 outside, 104 uid-1 outside m-1, 105 uid-1 m-2; m-3",
			"left":    "107 uid-2 m-1, 108 uid-2 outside m-2, 109 uid-2 outside m-3",
			"moved":   "110 uid-3 outside m-1, 111 gone, 112 uid-4 m-2; m-3",
		})

		w.rule.FieldSelector = "metadata.name!=left"
		w.names = []string{"left"}
		w.want(t, true, 0, map[string]string{"left": ""}) // never in the scope
	})
}

func TestWalkBackWithinItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(t, "updated")
		w.busy()
		w.names, w.requests = []string{"updated"}, 2
		w.want(t, false, 2, map[string]string{"updated": "106 uid-3, 108 uid-3 m-2; m-3"})
	})
}

func TestWalkBackWithinItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(t, "updated")
		w.busy()
		w.names, w.within = []string{"updated"}, time.Second
		w.ask = func(n int64, rw http.ResponseWriter) bool {
			if n > 1 {
				fail(rw, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
			}
			return n > 1
		}
		got, whole, err := w.run(t.Context(), t)
		if diff := cmp.Diff(map[string]string{"updated": "108 uid-3; m-3"}, got); diff != "" || whole || err != nil {
			t.Errorf("whole %t, error %v; want what was found in time (-want +got)\n%s", whole, err, diff)
		}
	})
}

// Transient errors cost requests, and nothing else.
func TestWalkBackRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(t, "updated")
		w.busy()
		w.names = []string{"updated"}
		w.ask = func(n int64, rw http.ResponseWriter) bool {
			if n == 2 {
				fail(rw, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
			}
			return n == 2
		}
		w.want(t, true, 4, map[string]string{"updated": "104 uid-3 m-0, 106 uid-3 m-1, 108 uid-3 m-2; m-3"})
	})
}

// An unanswerable question makes the result incomplete. It is not an error.
func TestWalkBackNotTold(t *testing.T) {
	for name, answer := range map[string]func(rw http.ResponseWriter){
		"compacted": func(rw http.ResponseWriter) { fail(rw, http.StatusGone, metav1.StatusReasonExpired) },
		"forbidden": func(rw http.ResponseWriter) { fail(rw, http.StatusForbidden, metav1.StatusReasonForbidden) },
		"not exact": func(rw http.ResponseWriter) {
			fmt.Fprint(rw, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"116"},"items":[]}`)
		},
		"another name": func(rw http.ResponseWriter) {
			v := version{rv: 103, namespace: "shop", name: "again", uid: "uid-9"}
			fmt.Fprintf(rw,
				`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"105"},"items":[%s]}`,
				v.JSON(true, 103))
		},
		"a later version": func(rw http.ResponseWriter) {
			v := version{rv: 108, namespace: "shop", name: "updated", uid: "uid-3"}
			fmt.Fprintf(rw,
				`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"105"},"items":[%s]}`,
				v.JSON(true, 108))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWalk(t, "updated")
				w.busy()
				w.names = []string{"updated"}
				w.ask = func(n int64, rw http.ResponseWriter) bool {
					if n == 3 {
						answer(rw)
					}
					return n == 3
				}
				w.want(t, false, 3, map[string]string{"updated": "106 uid-3, 108 uid-3 m-2; m-3"})
			})
		})
	}
}

// A server that ignores the field selector answers with the whole scope. The agent reads it up to
// the first other name.
func TestWalkBackReadsNoWholeScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(t, "updated")
		w.busy()
		w.names = []string{"updated"}
		w.ask = func(_ int64, rw http.ResponseWriter) bool {
			v := version{rv: 103, namespace: "shop", name: "again", uid: "uid-9"}
			object := v.JSON(true, 103)
			_, err := fmt.Fprint(rw,
				`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"109"},"items":[`+object)
			for n := 0; err == nil; n++ {
				if n == 100_000 {
					t.Error("the whole scope was read")
					fmt.Fprint(rw, "]}")
					break
				}
				_, err = fmt.Fprint(rw, ","+object)
			}
			return true
		}
		w.want(t, false, 1, map[string]string{"updated": ""})
	})
}

func TestWalkBackStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(t, "updated")
		w.busy()
		w.names = []string{"updated"}
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		w.ask = func(_ int64, rw http.ResponseWriter) bool {
			cancel(stopped)
			fail(rw, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
			return true
		}
		if got, whole, err := w.run(ctx, t); !errors.Is(err, stopped) {
			t.Errorf("%v, whole %t, error %v; want the cause of the end", got, whole, err)
		}
	})
}

// Names are walked concurrently, limited by the slots.
func TestWalkBackSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for k := range 20 {
			names = append(names, fmt.Sprint("cm-", k))
		}
		w := newWalk(t, names...)
		w.slots = make(chan struct{}, 3)
		w.from = w.rv
		for range 5 {
			for _, name := range names {
				w.put(name, "", nil)
			}
		}
		w.to = w.rv
		var mu sync.Mutex
		var once sync.Once
		now, most := 0, 0
		full := make(chan struct{})
		w.ask = func(int64, http.ResponseWriter) bool {
			mu.Lock()
			now++
			if len(w.slots) < now {
				t.Errorf("%d requests, and %d slots held", now, len(w.slots))
			}
			most = max(most, now)
			if now == 3 {
				once.Do(func() { close(full) })
			}
			mu.Unlock()
			<-full // block the first requests until the limit is reached
			mu.Lock()
			now--
			mu.Unlock()
			return false
		}
		if _, whole, err := w.run(t.Context(), t); !whole || err != nil || most != 3 {
			t.Errorf("whole %t, error %v, %d requests at a time, want 3", whole, err, most)
		}
	})
}
