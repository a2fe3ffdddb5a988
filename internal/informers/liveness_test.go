package informers_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/store"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// lines connect an API server with its clients in memory, so that both can run in a synctest bubble, where minutes pass in
// no time. It is the server's net.Listener.
type lines struct {
	incoming chan net.Conn
	once     sync.Once
	closed   chan struct{}

	mu     sync.Mutex
	broken chan struct{} // closed: the connections made so far are dead without a word
	made   int
	open   int
}

func newLines() *lines {
	return &lines{incoming: make(chan net.Conn), closed: make(chan struct{}), broken: make(chan struct{})}
}

func (l *lines) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	l.mu.Lock()
	l.made++
	l.open++
	line := &line{Conn: client, of: l, broken: l.broken, closed: make(chan struct{})}
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.made}
	l.mu.Unlock()
	select {
	case l.incoming <- &remote{server, from}:
		return line, nil
	case <-l.closed:
	case <-ctx.Done():
	}
	line.Close()
	server.Close()
	return nil, net.ErrClosed
}

// breakAll has nothing pass any more on the connections made so far. Nobody is told.
func (l *lines) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.broken)
	l.broken = make(chan struct{})
}

func (l *lines) counts() (made, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made, l.open
}

func (l *lines) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *lines) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *lines) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }

// line is the client's end of a connection.
type line struct {
	net.Conn
	of     *lines
	broken chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (c *line) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.broken:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *line) Write(p []byte) (int, error) {
	select {
	case <-c.broken:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

func (c *line) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.of.mu.Lock()
		c.of.open--
		c.of.mu.Unlock()
	})
	return c.Conn.Close()
}

// remote is the server's end, with an address that tells connections apart.
type remote struct {
	net.Conn
	from net.Addr
}

func (c *remote) RemoteAddr() net.Addr { return c.from }

// newLinkedServer is an apiServer with HTTP/2 over TLS or plain HTTP/1.1, its lines, and the options of a set that is to run for minutes.
func newLinkedServer(t *testing.T, http2 bool) (*apiServer, *lines, func(*informers.Options)) {
	s := newServer(t, http2)
	return s, s.lines, func(o *informers.Options) {
		lane := o.Lane
		o.Lane = func(name string) store.Lane { return withoutProgress{lane(name)} }
	}
}

// withoutProgress acknowledges progress events, and records none: minutes pass.
type withoutProgress struct{ store.Lane }

func (l withoutProgress) Put(ctx context.Context, key string, bytes int, d *object.Delta) error {
	if d.Stream != nil && d.Stream.Kind == object.Progress {
		d.Acker.Acked(d)
		return nil
	}
	return l.Lane.Put(ctx, key, bytes, d)
}

// pass lets time pass, and what it brings about happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// onWatch has f answer the watches; number counts them from 1. false: the server goes on with it.
func (s *apiServer) onWatch(f func(number int, w http.ResponseWriter, r *http.Request) bool) {
	n := 0
	s.do(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") == "" {
				return false
			}
			number := 0
			s.do(func() {
				n++
				number = n
			})
			if !f(number, w, r) {
				return false
			}
			s.do(func() { s.watches++ })
			return true
		}
	})
}

// say writes frames to a watch at once.
func say(w http.ResponseWriter, frames ...string) {
	w.WriteHeader(http.StatusOK)
	for _, f := range frames {
		fmt.Fprintln(w, f)
	}
	w.(http.Flusher).Flush()
}

func bookmark(rv uint64) string {
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`, rv)
}

// labelled is the value of a metric whose labels include one with this value.
func labelled(t *testing.T, reg *prometheus.Registry, name, label string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// A watch that has bookmarks and says nothing for too long is opened again from where it was.
func TestSilentWatchIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, on := newLinkedServer(t, false)
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
		set, rec, reg := start(t, s, on)
		rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
		s.put("cm", "1", nil)
		pass(149 * time.Second)
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
		if st := set.Status()[0]; st.Phase != scope.PhaseLive || st.Health != scope.HealthOK {
			t.Errorf("%+v", st)
		}
	})
}

// Silence is no sign of death where there were never any bookmarks: the watch's timeout is what ends it.
func TestSilentWatchWithoutBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, on := newLinkedServer(t, false)
		set, rec, _ := start(t, s, on)
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

// A connection that is dead without a word is found by HTTP/2 pings, whether or not there are bookmarks.
func TestDeadConnectionIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, on := newLinkedServer(t, true)
		_, rec, _ := start(t, s, on)
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

// An API server that takes a watch and never answers is not waited for for ever.
func TestWatchThatNeverOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, on := newLinkedServer(t, false)
		s.onWatch(func(number int, _ http.ResponseWriter, r *http.Request) bool {
			if number == 1 {
				<-r.Context().Done()
			}
			return number == 1
		})
		s.put("cm", "1", nil) // Before the list, whose watch never opens.
		set, rec, _ := start(t, s, on)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1")
		s.put("cm", "2", nil)
		pass(152 * time.Second)
		rec.wait(t, "snapshot.started 1", "r cm uid-1 -→1", "snapshot.completed 1", "u cm uid-1 1→2")
		if st := set.Status()[0]; st.Phase != scope.PhaseLive || st.Health != scope.HealthOK {
			t.Errorf("%+v", st)
		}
	})
}

// A watch that rests because the queue is full is neither silent nor stale.
func TestBlockedIsNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, on := newLinkedServer(t, false)
		s.onWatch(func(number int, w http.ResponseWriter, _ *http.Request) bool {
			if number == 1 {
				say(w, bookmark(100))
			}
			return number == 1
		})
		set, rec, reg := start(t, s, on)
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
			if st := set.Status()[0]; st.Health != scope.HealthOK || st.Phase != scope.PhaseBlocked {
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

// Who fails for too long is stale, and the agent not ready; what an administrator has to mend is shown, and no more.
func TestStale(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		reason metav1.StatusReason
		health [2]scope.Health // before 3 min, and after
	}{
		"unavailable": {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, [2]scope.Health{scope.HealthFailing, scope.HealthStale}},
		"forbidden":   {http.StatusForbidden, metav1.StatusReasonForbidden, [2]scope.Health{scope.HealthForbidden, scope.HealthForbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, on := newLinkedServer(t, false)
				set, rec, _ := start(t, s, on)
				rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
				pass(2 * time.Minute) // nothing comes, which is no failure
				s.do(func() {
					s.fault = func(w http.ResponseWriter, _ *http.Request) bool {
						fail(w, c.code, c.reason)
						return true
					}
				})
				s.CloseClientConnections()
				pass(170 * time.Second)
				if st := set.Status()[0]; st.Phase != scope.PhaseLive || st.Health != c.health[0] || set.Ready() != nil {
					t.Errorf("before 3 min: %+v, ready: %v", st, set.Ready())
				}
				pass(20 * time.Second)
				st, err := set.Status()[0], set.Ready()
				if st.Phase != scope.PhaseLive || st.Health != c.health[1] || st.Error == "" {
					t.Errorf("after 3 min: %+v", st)
				}
				if (st.Health == scope.HealthStale) != (err != nil && strings.HasSuffix(err.Error(), "[configmaps]")) {
					t.Errorf("after 3 min: ready: %v", err)
				}
				s.do(func() { s.fault = nil })
				s.put("cm", "1", nil)
				pass(time.Minute)
				rec.wait(t, "snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→1")
				if st := set.Status()[0]; st.Phase != scope.PhaseLive || st.Health != scope.HealthOK || set.Ready() != nil {
					t.Errorf("in the end: %+v, ready: %v", st, set.Ready())
				}
			})
		})
	}
}

// Another API server behind the same address may still have the history that this one has not: no gap.
func TestExpiredWatchFindsAnotherServer(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, inStream := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP/2 %t, in the stream %t", http2, inStream), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, l, on := newLinkedServer(t, http2)
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
					_, rec, reg := start(t, s, on)
					rec.wait(t, "snapshot.started 0", "snapshot.completed 0")
					pass(time.Second)
					s.CloseClientConnections()
					pass(time.Second)
					s.do(func() {
						forgetful = last          // and the watches go on asking it
						s.frames, s.after = 1, "" // after each event
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
						t.Errorf("%d connections are left, want those of lists, of watches, and one for the last watch", open)
					}
					// HTTP/1.1 ends the connection with a watch that was not read to its end: the next one is a fresh one anyway.
					if n := labelled(t, reg, "kubecdc_informer_expired_retries_total", "found"); n < 1 || http2 && n < 10 {
						t.Errorf("%v retries have found history, want more", n)
					}
				})
			})
		}
	}
}

// Where no server has the history, another list follows after a few quick tries.
func TestExpiredEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, on := newLinkedServer(t, true)
		s.put("cm", "1", nil)
		_, rec, reg := start(t, s, on)
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

// Where history is gone and the server goes away between two of the quick tries, what the outage has made of the waiting between requests
// does not hold up the tries behind it.
func TestExpiredBeforeAndAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, on := newLinkedServer(t, true)
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
		_, rec, reg := start(t, s, on)
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

// When the API server answers one scope after an outage, the others do not wait for the end of their own delays.
func TestOutageEndsForAllScopes(t *testing.T) {
	for name, outage := range map[string]func(w http.ResponseWriter){
		"reset": func(w http.ResponseWriter) {
			if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
				c.Close()
			}
		},
		"unauthorized": func(w http.ResponseWriter) { fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, on := newLinkedServer(t, false)
				s.nodes = true
				start(t, s, func(o *informers.Options) {
					on(o)
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

// What fails before a watch is open must not cause another list either.
func TestFaultsOnOpenDoNotRelist(t *testing.T) {
	tooLarge := strings.Replace(status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout), `"code"`,
		`"details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code"`, 1)
	for name, answer := range map[string]func(w http.ResponseWriter){
		"504 too large resource version": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusGatewayTimeout)
			fmt.Fprint(w, tooLarge)
		},
		"500": func(w http.ResponseWriter) { fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError) },
		"503": func(w http.ResponseWriter) {
			fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		},
		"429":                func(w http.ResponseWriter) { fail(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests) },
		"404, a CRD is away": func(w http.ResponseWriter) { fail(w, http.StatusNotFound, metav1.StatusReasonNotFound) },
		"401":                func(w http.ResponseWriter) { fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized) },
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
				s, _, on := newLinkedServer(t, false)
				s.frames, s.after = 1, ""
				s.onWatch(func(number int, w http.ResponseWriter, _ *http.Request) bool {
					if number%3 == 0 {
						return false
					}
					answer(w)
					return true
				})
				set, rec, _ := start(t, s, on)
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
				if st := set.Status()[0]; st.Phase != scope.PhaseLive || st.Health != scope.HealthOK {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// Objects that the selection leaves out move the watch on like others: a quiet selection in a busy cluster must not fall
// behind history.
func TestExcludedEventsAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, on := newLinkedServer(t, false)
		from := make(chan string, 10)
		s.onWatch(func(_ int, _ http.ResponseWriter, r *http.Request) bool {
			from <- r.URL.Query().Get("resourceVersion")
			return false
		})
		_, rec, _ := start(t, s, func(o *informers.Options) {
			on(o)
			o.Rules[0].Namespaces, o.Rules[0].Patterns = func(ns string) bool { return ns != "shop" }, []string{"*", "!shop"}
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
