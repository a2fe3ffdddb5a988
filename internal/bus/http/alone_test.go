package http_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// others publishes unrelated events until stop is called; stop returns the first error.
func others(t *testing.T, r *running) (stop func() error) {
	over, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 1; ; i++ {
			select {
			case <-over:
				done <- nil
				return
			default:
			}
			if err := r.Publish(t.Context(), event("web-1", i, `{}`)); err != nil {
				done <- err
				return
			}
		}
	}()
	return sync.OnceValue(func() error { close(over); return <-done })
}

// alone checks the error with which a bus hands an event back to be sent alone.
func alone(t *testing.T, err error, reason string) {
	t.Helper()
	again := new(publish.RetryError)
	if !errors.As(err, &again) || !again.Alone || again.Reason != reason {
		t.Errorf("got %v, want it to be handed back to be sent alone because of %s", err, reason)
	}
}

// An event on which the receiver closes the connection is tried twice, the second time on a
// connection of its own, and handed back. When sent alone, it is tried on a connection of its own
// first. No other event is cut a second time or handed back.
func TestCutTwiceIsSentAlone(t *testing.T) {
	for _, batch := range []int{1, 10} {
		t.Run(fmt.Sprintf("batch-%d", batch), func(t *testing.T) {
			var mu sync.Mutex
			var own []bool // of each request with the event
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				if strings.Contains(string(b), "poison") {
					mu.Lock()
					own = append(own, r.Close)
					mu.Unlock()
					cutOff(w)
				}
			})
			r := run(t, publishhttp.Config{URL: url, Batch: batch})
			stop := others(t, r)
			for _, sentAlone := range []bool{false, true, true} {
				alone(t, <-r.once(event("bad", 1, `{"poison":1}`), sentAlone), publish.ReasonCut)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if d := cmp.Diff([]bool{false, true, true, false, true, false}, own); d != "" {
				t.Errorf("requests on connections of their own: %s", d)
			}
			if !strings.Contains(r.log.String(), "move it to the dead letters") {
				t.Error("the log does not say what to do")
			}
		})
	}
}

// door closes connections right after it has accepted them, unless open lets them in. It counts the
// connections that are open, and those that it has closed.
type door struct {
	net.Listener
	open   func(standing int64) bool
	stands atomic.Int64
	closed atomic.Int64
}

type standing struct {
	net.Conn
	gone func()
}

func (s *standing) Close() error {
	s.gone()
	return s.Conn.Close()
}

func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if d.open(d.stands.Load()) {
			d.stands.Add(1)
			return &standing{c, sync.OnceFunc(func() { d.stands.Add(-1) })}, nil
		}
		_ = c.Close()
		d.closed.Add(1)
	}
}

// serveBehind starts a receiver that accepts all requests that pass d.
func serveBehind(t *testing.T, d *door) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	d.Listener, s.Listener = s.Listener, d
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// publishAll publishes events of the given number of objects, in order for each object, and fails
// if one is refused.
func publishAll(t *testing.T, r *running, objects, events int) (waitFor func()) {
	var wg sync.WaitGroup
	var refused atomic.Int64
	for k := range objects {
		wg.Go(func() {
			for i := range events {
				if err := r.Publish(t.Context(), event(fmt.Sprintf("web-%d", k), i+1, `{}`)); err != nil &&
					refused.Add(1) == 1 {
					t.Error(err)
				}
			}
		})
	}
	return func() {
		wg.Wait()
		if n := refused.Load(); n > 0 {
			t.Errorf("%d events are refused", n)
		}
	}
}

// The sidecar of a receiver is up before the receiver: it accepts and closes every connection and
// then, while the receiver recovers, two out of three.
func TestReceiverThatComesBackRefusesNothing(t *testing.T) {
	var back atomic.Bool
	var n atomic.Int64
	d := &door{open: func(int64) bool { return back.Load() && n.Add(1)%3 == 0 }}
	r := run(t, publishhttp.Config{URL: serveBehind(t, d)})
	const objects = 64
	waitFor := publishAll(t, r, objects, 2)
	wait(t, "every event to be cut again and again", func() bool { return d.closed.Load() > 6*objects })
	back.Store(true)
	waitFor()
}

// A receiver closes each connection beyond a limit, and serves the open ones.
func TestConnectionLimitRefusesNothing(t *testing.T) {
	t.Parallel()
	d := &door{open: func(standing int64) bool { return standing < 20 }}
	r := run(t, publishhttp.Config{URL: serveBehind(t, d)})
	publishAll(t, r, 64, 5)()
	if d.closed.Load() == 0 {
		t.Error("no connection was closed")
	}
}

// connection is an accepted connection. The contexts of its requests hold it under the key
// connection{}.
type connection struct {
	net.Conn
	first bool
}

// serveMultiplexed starts a receiver that speaks HTTP/2.
func serveMultiplexed(t *testing.T, handler func(c connection, r *http.Request)) publishhttp.Config {
	t.Helper()
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		handler(r.Context().Value(connection{}).(connection), r)
	}))
	s.EnableHTTP2 = true
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connection{}, connection{Conn: c, first: connections.Add(1) == 1})
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	return publishhttp.Config{URL: s.URL, TLS: &publish.TLS{CAFile: ca}}
}

// With HTTP/2 the open connection is served, and each new one is cut. If a request on the open one
// is cut, its events still get through.
func TestNewConnectionsCutHoldUpNothing(t *testing.T) {
	for _, batch := range []int{1, 10} {
		t.Run(fmt.Sprintf("batch-%d", batch), func(t *testing.T) {
			var answered, cut atomic.Int64
			cfg := serveMultiplexed(t, func(c connection, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if !c.first {
					cut.Add(1)
					panic(http.ErrAbortHandler)
				}
				if answered.Add(1) == 20 {
					panic(http.ErrAbortHandler) // only this request
				}
			})
			cfg.Batch = batch
			r := run(t, cfg)
			if err := r.Publish(t.Context(), event("first", 1, `{}`)); err != nil {
				// otherwise many connections are made at once
				t.Fatal(err)
			}
			waitFor, done := publishAll(t, r, 64, 50), make(chan struct{})
			t.Cleanup(func() { <-done })
			go func() { waitFor(); close(done) }()
			wait(t, "every event to get through", func() bool {
				select {
				case <-done:
					return true
				default:
					return false
				}
			})
			// Each event once, and once more when it is sent alone.
			if n, limit := cut.Load(), int64(2*batch); n == 0 || n > limit {
				t.Errorf("%d requests were sent on connections of their own, want 1 to %d", n, limit)
			}
		})
	}
}

// With HTTP/2 an event may cut the requests of others that share its connection. They get through
// on connections of their own.
func TestCutWithHTTP2CutsOthersOnce(t *testing.T) {
	var poisoned atomic.Int64
	r := run(t, serveMultiplexed(t, func(c connection, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if strings.Contains(string(b), "poison") {
			poisoned.Add(1)
			_ = c.Close()
		}
	}))
	if err := r.Publish(t.Context(), event("first", 1, `{}`)); err != nil {
		// otherwise many connections are made at once
		t.Fatal(err)
	}
	var good []<-chan error
	for i := range 20 {
		good = append(good, r.once(event(fmt.Sprintf("web-%d", i), 1, `{}`), false))
	}
	alone(t, <-r.once(event("bad", 1, `{"poison":1}`), false), publish.ReasonCut)
	alone(t, <-r.once(event("bad", 1, `{"poison":1}`), true), publish.ReasonCut)
	for _, done := range good {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := poisoned.Load(); n != 4 {
		t.Errorf("the event was sent %d times, want 4", n)
	}
}

// A firewall inspects requests and denies one event: that one is handed back, and the others
// continue without a pause.
func TestDeniedIsSentAlone(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		for status, reason := range map[int]string{
			401: publish.ReasonUnauthorized,
			403: publish.ReasonUnauthorized,
			404: publish.ReasonNotFound,
		} {
			t.Run(fmt.Sprintf("%d-batch-%d", status, batch), func(t *testing.T) {
				var denied atomic.Int64
				url := serve(t, func(w http.ResponseWriter, r *http.Request) {
					b, _ := io.ReadAll(r.Body)
					if strings.Contains(string(b), "DROP TABLE") {
						denied.Add(1)
						w.WriteHeader(status)
					}
				})
				r := run(t, publishhttp.Config{URL: url, Batch: batch})
				stop := others(t, r)
				for _, sentAlone := range []bool{false, true} {
					alone(t, <-r.once(event("bad", 1, `{"note":"DROP TABLE"}`), sentAlone), reason)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := denied.Load(); n < 3 || n > 4 { // a batch of one is one
					t.Errorf("it was sent %d times, want twice and then once", n)
				}
			})
		}
	}
}

// Denied events, more of them than may be in flight, do not hold up the others.
func TestManyDeniedHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	const denied, good = 600, 100
	var refusals, taken atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if strings.Contains(string(b), "denied") {
			refusals.Add(1)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		taken.Add(1)
	})
	r := run(t, publishhttp.Config{URL: url})
	var bad []<-chan error
	for i := range denied {
		bad = append(bad, r.once(event(fmt.Sprint("denied-", i), 1, `"denied"`), false))
	}
	wait(t, "enough are denied to hold all back", func() bool { return refusals.Load() > 16 })
	for i := range good {
		if i == good/2 { // more come later
			wait(t, "the others get through", func() bool { return taken.Load() == good/2 })
		}
		r.once(event(fmt.Sprint("web-", i), 1, `{}`), false)
	}
	wait(t, "the others get through", func() bool { return taken.Load() == good })
	r.stop()
	for _, done := range bad {
		if err := <-done; !errors.Is(err, publish.ErrClosed) {
			alone(t, err, publish.ReasonUnauthorized)
		}
	}
}

// If all events are denied, the receiver does not accept the agent, or the agent has the wrong
// receiver. Nearly all events wait in the bus, and one request at a time retries. When the receiver
// accepts events again, all of them get through.
func TestAllDeniedAreHeldBack(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 4} {
		t.Run(fmt.Sprintf("batch-%d", batch), func(t *testing.T) {
			t.Parallel()
			var open atomic.Bool
			var denied, storm, most atomic.Int64
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if open.Load() {
					return
				}
				if n := storm.Add(1); denied.Add(1) > 300 { // by then all that were in flight have come back
					most.Store(max(most.Load(), n))
				}
				defer storm.Add(-1)
				w.WriteHeader(http.StatusUnauthorized)
			})
			r := run(t, publishhttp.Config{URL: url, Batch: batch})
			const events = 300
			var all []<-chan error
			for i := range events {
				all = append(all, r.once(event(fmt.Sprint("web-", i), 1, `{}`), false))
			}
			wait(t, "probes", func() bool {
				return strings.Contains(r.log.String(), "unauthorized") && r.bus.Ready() != nil
			})
			open.Store(true)
			back := 0
			for _, done := range all {
				if err := <-done; err != nil {
					alone(t, err, publish.ReasonUnauthorized)
					back++
				}
			}
			if back > 8 {
				t.Errorf("%d events were handed back to be sent alone", back)
			}
			if most.Load() > 1 {
				t.Errorf("%d probes at once", most.Load())
			}
		})
	}
}

// One of two receivers at the same address denies all events.
func TestDeniedAtRandomGetsThrough(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusUnauthorized} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if n.Add(1)%2 == 0 {
					w.WriteHeader(status)
				}
			})
			r := run(t, publishhttp.Config{URL: url})
			publishAll(t, r, 16, 8)()
		})
	}
}

// A receiver refuses a request by its length, and closes the connection without reading the rest:
// the answer is lost with the connection. The event still counts as too large.
func TestCutForItsSizeIsTooLarge(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int64
	var connections sync.WaitGroup
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer func() { _ = c.Close() }()
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					if r.ContentLength > 64<<10 {
						refused.Add(1)
						_, _ = io.WriteString(c,
							"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
				}
			})
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-serving; connections.Wait() })
	r := run(t, publishhttp.Config{URL: "http://" + l.Addr().String()})
	stop := others(t, r)
	for i := range 20 {
		err := r.Publish(t.Context(), event("big", i+1, strings.Repeat("x", 8<<20)))
		if !errors.Is(err, publish.ErrTooLarge) {
			t.Fatalf("after %d requests: %v", refused.Load(), err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A receiver that rejects the Expect header gets the body at once.
func TestReceiverWithoutExpectations(t *testing.T) {
	t.Parallel()
	var requests, asked atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case requests.Add(1) == 1:
			cutOff(w)
		case r.Header.Get("Expect") != "":
			asked.Add(1)
			w.WriteHeader(http.StatusExpectationFailed)
		}
	})
	r := run(t, publishhttp.Config{URL: url})
	if err := r.Publish(t.Context(), event("big", 1, strings.Repeat("x", 100<<10))); err != nil {
		t.Error(err)
	}
	// A connection that is reset before its answer is read makes it ask once more.
	if n := asked.Load(); n < 1 || n > 2 {
		t.Errorf("%d requests have asked, want 1", n)
	}
}
