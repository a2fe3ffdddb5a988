package publish_test

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
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
)

// others publishes innocent events until stop is called, and returns the first error.
func others(t *testing.T, r *runningHTTP) (stop func() error) {
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

// Requests that make the receiver close the connection are refused, but only once others were answered in between. The
// others go on connections that stand: none of them needs a new one.
func TestHTTPCutAgainAndAgainIsRefused(t *testing.T) {
	for _, batch := range []int{1, 10} {
		t.Run(fmt.Sprintf("batch-%d", batch), func(t *testing.T) {
			var poisoned atomic.Int64
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				if strings.Contains(string(b), "poison") {
					poisoned.Add(1)
					cutOff(w)
				}
			})
			r := runHTTP(t, publish.HTTPConfig{URL: url, Batch: batch})
			r.Hurry()
			done := make(chan error, 2)
			for i := range cap(done) {
				go func() { done <- r.Publish(t.Context(), event(fmt.Sprintf("bad-%d", i), 1, `{"poison":1}`)) }()
			}
			// Nobody else is answered: none is refused, however often.
			wait(t, "many cuts", func() bool { return poisoned.Load() >= 40 })
			select {
			case err := <-done:
				t.Fatalf("refused while nobody else was answered: %v", err)
			default:
			}
			stop := others(t, r)
			for range cap(done) {
				if err := <-done; !errors.Is(err, publish.ErrRefused) || errors.Is(err, publish.ErrTooLarge) || !strings.Contains(err.Error(), "cuts the connection") {
					t.Errorf("got %v", err)
				}
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// door closes connections right after it has accepted them, where open says so. It counts those that it let in and that
// stand.
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

// serveBehind starts a receiver that takes everything that comes in by d.
func serveBehind(t *testing.T, d *door) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	d.Listener, s.Listener = s.Listener, d
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// publishAll publishes events of that many objects, one after the other of each, and fails where one is refused.
func publishAll(t *testing.T, r *runningHTTP, objects, events int) (waitFor func()) {
	var wg sync.WaitGroup
	var refused atomic.Int64
	for k := range objects {
		wg.Go(func() {
			for i := range events {
				if err := r.Publish(t.Context(), event(fmt.Sprintf("web-%d", k), i+1, `{}`)); err != nil && refused.Add(1) == 1 {
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

// A receiver whose sidecar is up before it is: it accepts and closes everything, and then, coming back, two connections of
// three.
func TestHTTPReceiverThatComesBackRefusesNothing(t *testing.T) {
	var back atomic.Bool
	var n atomic.Int64
	d := &door{open: func(int64) bool { return back.Load() && n.Add(1)%3 == 0 }}
	r := runHTTP(t, publish.HTTPConfig{URL: serveBehind(t, d)})
	r.Hurry()
	const objects = 256
	waitFor := publishAll(t, r, objects, 3)
	wait(t, "every event to be cut again and again", func() bool { return d.closed.Load() > 15*objects })
	back.Store(true)
	waitFor()
}

// A receiver that closes each connection beyond a number, and serves those that stand.
func TestHTTPConnectionLimitRefusesNothing(t *testing.T) {
	t.Parallel()
	d := &door{open: func(standing int64) bool { return standing < 20 }}
	r := runHTTP(t, publish.HTTPConfig{URL: serveBehind(t, d)})
	r.Hurry()
	publishAll(t, r, 256, 5)()
	if d.closed.Load() == 0 {
		t.Error("no connection was closed")
	}
}

// connection is one that a receiver has accepted, the key of itself in the context of its requests.
type connection struct {
	net.Conn
	first bool
}

// serveMultiplexed starts a receiver that speaks HTTP/2.
func serveMultiplexed(t *testing.T, handler func(c connection, r *http.Request)) publish.HTTPConfig {
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
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return publish.HTTPConfig{URL: s.URL, TLS: &publish.TLS{CAFile: ca}}
}

// With HTTP/2 the connection that stands is served, and each new one is cut. When one request is cut on the former, its events get
// through all the same, and so do those that are sent on new ones because of them: each of these goes back at once.
func TestHTTPNewConnectionsCutHoldUpNothing(t *testing.T) {
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
					panic(http.ErrAbortHandler) // this request alone
				}
			})
			cfg.Batch = batch
			r := runHTTP(t, cfg)
			r.Hurry()
			if err := r.Publish(t.Context(), event("first", 1, `{}`)); err != nil { // else many connections are made at once
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
			// Of each event five times, and because of each but the first of these three others once.
			if n, limit := cut.Load(), int64(batch*(5+4*3)); n == 0 || n > limit {
				t.Errorf("%d requests were sent on connections of their own, want 1 to %d", n, limit)
			}
		})
	}
}

// An event that kills with HTTP/2 is refused, and its few turns on the connection that the others share make none of them suspect.
func TestHTTPCutAgainAndAgainIsRefusedWithHTTP2(t *testing.T) {
	var poisoned atomic.Int64
	r := runHTTP(t, serveMultiplexed(t, func(c connection, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if strings.Contains(string(b), "poison") {
			poisoned.Add(1)
			_ = c.Close()
		}
	}))
	r.Hurry()
	if err := r.Publish(t.Context(), event("first", 1, `{}`)); err != nil { // else it is not known yet that requests share one
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Publish(t.Context(), event("bad", 1, `{"poison":1}`)) }()
	wait(t, "many cuts", func() bool { return poisoned.Load() >= 20 })
	stop := others(t, r)
	if err := <-done; !errors.Is(err, publish.ErrRefused) || !strings.Contains(err.Error(), "cuts the connection") {
		t.Errorf("got %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A firewall that looks into requests and says 403, or 404, to one: that one is refused, but only once others were taken
// in between.
func TestHTTPDeniedAloneIsRefused(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		for _, status := range []int{http.StatusForbidden, http.StatusNotFound} {
			t.Run(fmt.Sprintf("%d-batch-%d", status, batch), func(t *testing.T) {
				var denied atomic.Int64
				url := serve(t, func(w http.ResponseWriter, r *http.Request) {
					b, _ := io.ReadAll(r.Body)
					if strings.Contains(string(b), "DROP TABLE") {
						denied.Add(1)
						w.WriteHeader(status)
					}
				})
				r := runHTTP(t, publish.HTTPConfig{URL: url, Batch: batch})
				r.Hurry()
				done := make(chan error, 2)
				for i := range cap(done) {
					go func() { done <- r.Publish(t.Context(), event(fmt.Sprintf("bad-%d", i), 1, `{"note":"DROP TABLE"}`)) }()
				}
				wait(t, "many denials", func() bool { return denied.Load() >= 40 })
				select {
				case err := <-done:
					t.Fatalf("refused while no other was taken: %v", err)
				default:
				}
				stop := others(t, r)
				for range cap(done) {
					if err := <-done; !errors.Is(err, publish.ErrRefused) || !strings.Contains(err.Error(), fmt.Sprintf("takes others: status %d", status)) {
						t.Errorf("got %v", err)
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Events that are not let in do not hold up the others of their resource, as long as they are fewer than its share of the events in flight.
func TestHTTPManyDeniedHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	const denied, others = 300, 100
	var refusals, taken atomic.Int64
	var open atomic.Bool
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch {
		case !strings.Contains(string(b), "denied"):
			taken.Add(1)
		case !open.Load():
			refusals.Add(1)
			w.WriteHeader(http.StatusForbidden)
		}
	})
	r := runHTTP(t, publish.HTTPConfig{URL: url})
	q, bus := queue.New[*object.Delta](queue.Options{Events: 2000, Bytes: 1 << 20, InFlight: publish.InFlight}, nil), namedBus{new(fakeBus)}
	done := make(chan error, 1)
	go func() {
		done <- publish.NewDispatcher(q, value, bus, publish.Blocking(r, nil, nil), publish.Options{}, discard, nil).Run(t.Context())
	}()
	for i := range denied {
		bus.put(t, q, fmt.Sprint("denied-", i), 1)
	}
	wait(t, "all workers to be denied", func() bool { return refusals.Load() >= denied })
	for i := range others {
		bus.put(t, q, fmt.Sprint("web-", i), 1)
	}
	wait(t, "the others to get through", func() bool { return taken.Load() == others })
	open.Store(true)
	q.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(bus.acked); n != denied+others {
		t.Errorf("%d events are acknowledged, want %d", n, denied+others)
	}
}

// A gateway that lets in a namespace later than others has minutes for it.
func TestHTTPDeniedForMinutesIsNotRefused(t *testing.T) {
	t.Parallel()
	var denied, later atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if strings.Contains(string(b), "namespace") {
			denied.Add(1)
			w.WriteHeader(http.StatusForbidden)
		}
	})
	r := runHTTP(t, publish.HTTPConfig{URL: url})
	r.Hurry()
	began := time.Now()
	r.Clock(func() time.Time { return began.Add(time.Duration(later.Load())) })
	stop := others(t, r)
	done := make(chan error, 1)
	go func() { done <- r.Publish(t.Context(), event("new", 1, `{"namespace":"new"}`)) }()
	for _, at := range []time.Duration{0, publish.DeniedFor - 1} {
		later.Store(int64(at))
		enough := denied.Load() + 40
		wait(t, "many denials", func() bool { return denied.Load() >= enough || len(done) > 0 })
		if len(done) > 0 {
			t.Fatalf("refused %s after the first denial: %v", at, <-done)
		}
	}
	later.Store(int64(publish.DeniedFor))
	if err := <-done; !errors.Is(err, publish.ErrRefused) {
		t.Errorf("got %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// What comes to any event is no refusal: of two replicas one does not know the token, or the path, yet.
func TestHTTPDeniedAtRandomIsNotRefused(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusUnauthorized} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var n atomic.Int64
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if n.Add(1)%4 != 0 { // one event in twenty is denied ten times in a row
					w.WriteHeader(status)
				}
			})
			r := runHTTP(t, publish.HTTPConfig{URL: url})
			r.Hurry()
			publishAll(t, r, 16, 12)()
		})
	}
}

// 401 is never about one event.
func TestHTTPUnauthorizedAloneIsNotRefused(t *testing.T) {
	t.Parallel()
	var denied atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if strings.Contains(string(b), "bad") && denied.Add(1) < 60 {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	r := runHTTP(t, publish.HTTPConfig{URL: url})
	r.Hurry()
	stop := others(t, r)
	if err := r.Publish(t.Context(), event("bad", 1, `{"bad":1}`)); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A receiver that refuses a request by its length, and closes the connection without reading the rest: the answer is lost with the
// connection. The event is too large nevertheless.
func TestHTTPCutForItsSizeIsTooLarge(t *testing.T) {
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
						_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
				}
			})
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-serving; connections.Wait() })
	r := runHTTP(t, publish.HTTPConfig{URL: "http://" + l.Addr().String()})
	r.Hurry()
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

// A receiver that does not know requests that ask first gets the body at once.
func TestHTTPReceiverWithoutExpectations(t *testing.T) {
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
	r := runHTTP(t, publish.HTTPConfig{URL: url})
	if err := r.Publish(t.Context(), event("big", 1, strings.Repeat("x", 100<<10))); err != nil {
		t.Error(err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("%d requests have asked, want 1", n)
	}
}
