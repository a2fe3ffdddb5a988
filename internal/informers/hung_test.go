package informers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// drip writes and flushes a part of a body.
func drip(w http.ResponseWriter, text string) {
	fmt.Fprint(w, text)
	w.(http.Flusher).Flush()
}

// A list that is not answered on a live connection is shown as stale within three minutes, and is
// retried. This holds for the first list, for the list at resume, and for a relist.
func TestListThatIsNotAnsweredIsStale(t *testing.T) {
	hangs := map[string]func(w http.ResponseWriter, r *http.Request){
		"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"half a body": func(w http.ResponseWriter, r *http.Request) {
			drip(w,
				`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"105"},"items":[{"metadata":{"name":"a`)
			<-r.Context().Done()
		},
		"a body that drips": func(w http.ResponseWriter, r *http.Request) {
			drip(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"105"},"items":[`)
			for r.Context().Err() == nil {
				select {
				case <-r.Context().Done():
				case <-time.After(30 * time.Second):
					drip(w, " ")
				}
			}
		},
	}
	for name, hang := range hangs {
		for _, list := range []string{"first", "resume", "relist"} {
			t.Run(name+", "+list, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, _ := newLinkedServer(t, name == "no answer")
					m := newMemory()
					s.put("a", "1", nil)
					var want []string
					hung, n := false, 0
					s.do(func() {
						s.fault = func(w http.ResponseWriter, r *http.Request) bool {
							now := false
							s.do(func() {
								now = hung && isList(r)
								if now {
									n++
								}
							})
							if now {
								hang(w, r)
							}
							return now
						}
					})
					var l *life
					switch list {
					case "first":
						s.do(func() { hung = true })
						l = live(t, s, m, nil)
						want = []string{"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1"}
					case "resume":
						first := live(t, s, m, nil)
						first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
						pass(time.Second)
						_ = m.Flush(t.Context())
						first.end()
						s.put("a", "2", nil)
						s.do(func() { hung = true })
						l = live(t, s, m, nil)
						want = []string{"u a uid-1 1→2"}
					case "relist":
						l = live(t, s, m, nil)
						l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
						pass(10 * time.Minute)
						s.do(func() { hung = true })
						s.compact()
						s.put("a", "2", nil)
						want = []string{
							"snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "gap 0 expired",
							"u a uid-1 1→2",
						}
					}
					pass(2 * time.Minute)
					if st := l.set.Status()[0]; st.Health == informer.HealthStale {
						t.Errorf("after 2 min: %+v", st)
					}
					pass(time.Minute)
					st, err := l.set.Status()[0], l.set.Ready()
					isNamed := err != nil && strings.HasSuffix(err.Error(), ": configmaps")
					if st.Health != informer.HealthStale || !isNamed {
						t.Errorf("after 3 min: %+v, ready: %v", st, err)
					}
					pass(3 * time.Minute)
					if st := l.set.Status()[0]; st.Health != informer.HealthStale || st.Reason != "timeout" {
						t.Errorf("after 6 min: %+v", st)
					}
					s.do(func() {
						hung = false
						if n < 2 {
							t.Errorf("%d lists were asked for, want another after the first was cut", n)
						}
					})
					pass(6 * time.Minute)
					l.wait(t, want...)
					if st, err := l.set.Status()[0], l.set.Ready(); st.Phase != informer.PhaseLive ||
						st.Health != informer.HealthOK || err != nil {
						t.Errorf("in the end: %+v, ready: %v", st, err)
					}
				})
			})
		}
	}
}

// A list that makes progress, however slowly, is neither cut off nor stale: each page and each
// object has its own time limit.
func TestSlowListIsNotStale(t *testing.T) {
	wait := func(r *http.Request) {
		select {
		case <-time.After(2 * time.Minute):
		case <-r.Context().Done():
		}
	}
	for name, slow := range map[string]func(w http.ResponseWriter, r *http.Request, page int){
		"pages": func(_ http.ResponseWriter, r *http.Request, _ int) { wait(r) },
		"objects": func(w http.ResponseWriter, r *http.Request, page int) {
			drip(w,
				`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"200","continue":"`+
					strings.Repeat("x", max(0, min(1, 5-page)))+`"},"items":[`)
			for n := range 2 {
				wait(r)
				if n > 0 {
					drip(w, ",")
				}
				v := version{
					namespace: "shop",
					name:      fmt.Sprintf("cm-%d-%d", page, n),
					uid:       fmt.Sprintf("uid-%d-%d", page, n),
					rv:        150,
				}
				drip(w, v.JSON(true, 150))
			}
			drip(w, "]}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newLinkedServer(t, false)
				for n := range 15 {
					s.put(fmt.Sprintf("cm-%02d", n), "1", nil)
				}
				asked := 0
				s.do(func() {
					s.fault = func(w http.ResponseWriter, r *http.Request) bool {
						if !isList(r) {
							return false
						}
						page := 0
						s.do(func() {
							page = asked
							asked++
						})
						slow(w, r, page)
						return name == "objects"
					}
				})
				set, _, reg := start(t, s, nil)
				for range 25 {
					pass(time.Minute)
					if st := set.Status()[0]; st.Health != informer.HealthOK || st.Error != "" {
						t.Fatalf("%+v", st)
					}
				}
				if st := set.Status()[0]; !st.Synced {
					t.Errorf("%+v", st)
				}
				if n := labelled(t, reg, "kubecdc_informer_lists_total", "retry"); n != 0 {
					t.Errorf("%v lists were made again", n)
				}
			})
		})
	}
}

// A failed list is not an unanswered one: any response of the API server is a sign of life.
func TestFailingFirstListIsNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if isList(r) {
					fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
				}
				return isList(r)
			}
		})
		set, _, _ := start(t, s, nil)
		pass(10 * time.Minute)
		if st := set.Status()[0]; st.Phase != informer.PhaseWaiting || st.Health != informer.HealthFailing {
			t.Errorf("%+v", st)
		}
	})
}
