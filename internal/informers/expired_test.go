package informers_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// Another API server at the same address may still have the history that this one lacks. Then there
// is no gap.
func TestExpiredWatchFindsAnotherServer(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, inStream := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP/2 %t, in the stream %t", http2, inStream), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, l := newLinkedServer(t, http2)
					forgetful, last := "", "" // by the client's address
					s.onWatch(func(_ int, w http.ResponseWriter, r *http.Request) bool {
						answer := true
						s.do(func() {
							last = r.RemoteAddr
							answer = r.RemoteAddr != forgetful
						})
						switch {
						case answer:
							return false
						case inStream:
							say(w, `{"type":"ERROR","object":`+status(http.StatusGone, metav1.StatusReasonExpired)+"}")
						default:
							fail(w, http.StatusGone, metav1.StatusReasonExpired)
						}
						return true
					})
					_, rec, reg := start(t, s, nil)
					rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
					pass(time.Second)
					s.CloseClientConnections()
					pass(time.Second)
					s.do(func() {
						forgetful = last          // and watches keep using this connection
						s.frames, s.after = 1, "" // a watch ends after each event
					})
					want := []string{"snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→0"}
					s.put("cm", "0", nil)
					for i := 1; i < 20; i++ {
						s.put("cm", fmt.Sprint(i), nil)
						want = append(want, fmt.Sprintf("u cm uid-1 %d→%d", i-1, i))
					}
					rec.wait(t, want...)
					pass(time.Second)
					if lists, _, _ := s.counts(); lists != 1 {
						t.Errorf("%d lists, want 1", lists)
					}
					if _, open := l.counts(); open > 3 {
						t.Errorf("%d connections are left, want those of lists, of watches, and one for the last watch",
							open)
					}
					// HTTP/1.1 closes the connection of a watch that was not read to its end, so
					// the next watch has a new one anyway.
					if n := labelled(t, reg, "kubecdc_informer_expired_retries_total", "found"); n < 1 ||
						http2 && n < 10 {
						t.Errorf("%v retries have found history, want more", n)
					}
				})
			})
		}
	}
}

// If no server has the history, another list follows after a few quick retries.
func TestExpiredEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newLinkedServer(t, true)
		s.put("cm", "1", nil)
		_, rec, reg := start(t, s, nil)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1")
		pass(time.Second)
		s.do(func() {
			s.rv += 10
			s.compacted = s.rv
		})
		begun := time.Now()
		s.CloseClientConnections()
		eventually(t, "a list", func() bool { lists, _, _ := s.counts(); return lists == 2 })
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the list comes after %v", took)
		}
		pass(time.Second)
		if n := labelled(t, reg, "kubecdc_informer_expired_retries_total", "expired"); n != 3 {
			t.Errorf("%v retries, want 3", n)
		}
		if _, open := l.counts(); open > 2 {
			t.Errorf("%d connections are left, want those of lists and of watches", open)
		}
	})
}

// If history is gone and the server becomes unavailable between two quick retries, the backoff of
// the outage does not delay the other retries.
func TestExpiredBeforeAndAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, true)
		s.put("cm", "1", nil)
		expired, away := false, false
		s.onWatch(func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			answered := true
			s.do(func() {
				switch {
				case away:
					fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
				case expired:
					away = true
					fail(w, http.StatusGone, metav1.StatusReasonExpired)
				default:
					answered = false
				}
			})
			return answered
		})
		_, rec, reg := start(t, s, nil)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1")
		pass(time.Second)
		s.do(func() { expired = true })
		s.CloseClientConnections()
		pass(time.Minute)
		failed := labelled(t, reg, "kubecdc_informer_expired_retries_total", "failed")
		if failed < 3 {
			t.Fatalf("%v retries have failed, want those of a minute", failed)
		}
		s.do(func() {
			expired, away = false, false
			s.rv += 10
			s.compacted = s.rv
		})
		for labelled(t, reg, "kubecdc_informer_expired_retries_total", "expired") == 0 {
			pass(100 * time.Millisecond)
		}
		begun := time.Now()
		eventually(t, "a list", func() bool { lists, _, _ := s.counts(); return lists == 2 })
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the list comes %v after that", took)
		}
	})
}

// When the API server answers one scope after an outage, the others do not wait for the end of
// their own delays.
func TestOutageEndsForAllScopes(t *testing.T) {
	for name, outage := range map[string]func(w http.ResponseWriter){
		"reset": func(w http.ResponseWriter) {
			if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
				c.Close()
			}
		},
		"unauthorized": func(w http.ResponseWriter) {
			fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newLinkedServer(t, false)
				s.nodes = true
				start(t, s, func(o *informers.Options) {
					o.Rules[0].Resources = []selection.Pattern{pattern("configmaps"), pattern("nodes")}
				})
				pass(time.Minute)
				for range 8 {
					s.do(func() {
						s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
							outage(w)
							return true
						}
					})
					s.CloseClientConnections()
					pass(5 * time.Minute)
					opened := make(chan time.Time, 100)
					s.onWatch(func(int, http.ResponseWriter, *http.Request) bool {
						opened <- time.Now()
						return false
					})
					first, second := <-opened, <-opened
					if took := second.Sub(first); took > 1100*time.Millisecond {
						t.Errorf("the second scope follows after %v", took)
					}
				}
			})
		})
	}
}

// Failures before a watch is open must not cause another list either.
func TestFaultsOnOpenDoNotRelist(t *testing.T) {
	tooLarge := strings.Replace(status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout), `"code"`,
		`"details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code"`,
		1)
	for name, answer := range map[string]func(w http.ResponseWriter){
		"504 too large resource version": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusGatewayTimeout)
			fmt.Fprint(w, tooLarge)
		},
		"500": func(w http.ResponseWriter) {
			fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		},
		"503": func(w http.ResponseWriter) {
			fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		},
		"429": func(w http.ResponseWriter) {
			fail(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		},
		"404, a CRD is away": func(w http.ResponseWriter) { fail(w, http.StatusNotFound, metav1.StatusReasonNotFound) },
		"401": func(w http.ResponseWriter) {
			fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
		},
		"reset": func(w http.ResponseWriter) {
			if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
				c.Close()
			}
		},
		"empty": func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
		"gzip": func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "\x1f\x8b\x08\x00garbage")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newLinkedServer(t, false)
				s.frames, s.after = 1, ""
				s.onWatch(func(number int, w http.ResponseWriter, _ *http.Request) bool {
					if number%3 == 0 {
						return false
					}
					answer(w)
					return true
				})
				set, rec, _ := start(t, s, nil)
				rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
				want := []string{"snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→0"}
				s.put("cm", "0", nil)
				for i := 1; i < 5; i++ {
					s.put("cm", fmt.Sprint(i), nil)
					want = append(want, fmt.Sprintf("u cm uid-1 %d→%d", i-1, i))
				}
				pass(2 * time.Minute)
				rec.wait(t, want...)
				if lists, _, _ := s.counts(); lists != 1 {
					t.Errorf("%d lists, want 1", lists)
				}
				if st := set.Status()[0]; st.Phase != informer.PhaseLive || st.Health != informer.HealthOK {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// Events of excluded objects advance the watch like others: a quiet selection in a busy cluster
// must not fall behind history.
func TestExcludedEventsAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		from := make(chan string, 10)
		s.onWatch(func(_ int, _ http.ResponseWriter, r *http.Request) bool {
			from <- r.URL.Query().Get("resourceVersion")
			return false
		})
		_, rec, _ := start(t, s, func(o *informers.Options) {
			o.Rules[0].Namespaces = func(ns string) bool { return ns != "shop" }
			o.Rules[0].Patterns = []string{"*", "!shop"}
		})
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		s.put("cm", "1", nil)
		last := s.put("cm", "2", nil)
		pass(time.Second)
		s.CloseClientConnections()
		pass(time.Second)
		if first, second := <-from, <-from; first != "100" || second != fmt.Sprint(last.rv) {
			t.Errorf("watches from %s and %s, want 100 and %d", first, second, last.rv)
		}
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
	})
}

// The watch expires twice while the bus has not acknowledged the first gap, and nothing changes in
// between: both gaps have the same ends. The first one is recovered. History is compacted before
// the second one, which is not recovered. It must not be a copy of the first.
func TestSecondGapWithTheEndsOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := liveSaved(t, s, m, nil)
		l.forgetDeltas()
		l.hold(isGap)
		s.relists(t, func() {
			s.put("a", "2", nil)
			s.put("a", "3", nil)
		})
		l.wait(t, "gap 0 expired")
		now := s.now1()
		s.do(func() { s.compacted = now })
		lists, _, _ := s.counts()
		s.gone(now + 1)
		eventually(t, "another list", func() bool { now, _, _ := s.counts(); return now > lists })
		s.gone(now)
		l.acknowledge()
		eventually(t, "the change", func() bool { return l.has("~u a uid-1 1→3") })
		gaps := l.gaps()
		for n, g := range gaps { // the id of a recovered gap has a suffix
			if g.From != gaps[0].From || g.To != gaps[0].To || g.Recovered != (n == 0) {
				t.Errorf("gap %d is %+v, want the ends of %+v, and the first one recovered", n, *g, *gaps[0])
			}
		}
		if len(gaps) != 2 {
			t.Errorf("%d gaps, want 2", len(gaps))
		}
	})
}
