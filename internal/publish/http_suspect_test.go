package publish_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kubecdc/kubecdc/internal/publish"
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
	d := &door{open: func(standing int64) bool { return standing < 20 }}
	r := runHTTP(t, publish.HTTPConfig{URL: serveBehind(t, d)})
	r.Hurry()
	publishAll(t, r, 256, 5)()
	if d.closed.Load() == 0 {
		t.Error("no connection was closed")
	}
}

// A firewall that looks into requests and says 403, or 404, to one: that one is refused, but only once others were taken
// in between.
func TestHTTPDeniedAloneIsRefused(t *testing.T) {
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

// What comes to any event is no refusal: of two replicas one does not know the token, or the path, yet.
func TestHTTPDeniedAtRandomIsNotRefused(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusUnauthorized} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var n atomic.Int64
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if n.Add(1)%2 == 0 {
					w.WriteHeader(status)
				}
			})
			r := runHTTP(t, publish.HTTPConfig{URL: url})
			r.Hurry()
			publishAll(t, r, 16, 20)()
		})
	}
}

// 401 is never about one event.
func TestHTTPUnauthorizedAloneIsNotRefused(t *testing.T) {
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
