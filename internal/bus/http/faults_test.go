package http_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// cutOff closes the connection without an answer.
func cutOff(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

// A receiver that is down never counts as one that refuses events; they get through when it is
// back.
func TestReceiverThatIsDown(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var cuts atomic.Int64
	down.Store(true)
	box := new(inbox)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			cuts.Add(1)
			cutOff(w)
			return
		}
		box.keep(nil)
	})
	r := run(t, publishhttp.Config{URL: url})
	var wg sync.WaitGroup
	for k := range 20 {
		wg.Go(func() {
			if err := r.Publish(t.Context(), event(fmt.Sprintf("web-%d", k), 1, `{}`)); err != nil {
				t.Error(err)
			}
		})
	}
	wait(t, "many cuts", func() bool { return cuts.Load() > 100 })
	if err := r.bus.Ready(); err == nil {
		t.Error("ready, though no request gets through")
	}
	down.Store(false)
	wg.Wait()
	if err := r.bus.Ready(); err != nil {
		t.Error(err)
	}
}

func TestReceiverThatCannotBeConnectedTo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	r := run(t, publishhttp.Config{URL: "http://" + addr})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Publish(ctx, event("web-1", 1, `{}`)) }()
	wait(t, "not ready", func() bool { return r.bus.Ready() != nil })
	wait(t, "metrics that show it", func() bool {
		return r.metric(t, "kubecdc_publish_connected", "") == 0 &&
			r.metric(t, "kubecdc_publish_retries_total", "connection") >= 5
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := lines(r.log.String(), "publishing an event failed, retrying"); got != 1 {
		t.Errorf("%d lines in the log, want one in its window", got)
	}
}

// 429 and 503 hold up all events, and one request at a time checks whether it is over.
func TestThrottledReceiverIsNotHammered(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var storm, over atomic.Bool
			var refused, inStorm, most atomic.Int64
			arrived := make(chan struct{}, 1000)
			all := make(chan struct{})
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if over.Load() {
					return
				}
				if storm.Load() {
					most.Store(max(most.Load(), inStorm.Add(1)))
					defer inStorm.Add(-1)
				} else {
					arrived <- struct{}{}
					<-all
				}
				refused.Add(1)
				w.WriteHeader(status)
			})
			r := run(t, publishhttp.Config{URL: url})
			var wg sync.WaitGroup
			for k := range 50 {
				wg.Go(func() {
					if err := r.Publish(t.Context(), event(fmt.Sprintf("web-%d", k), 1, `{}`)); err != nil {
						t.Error(err)
					}
				})
			}
			for range 50 {
				<-arrived // all are in flight
			}
			storm.Store(true)
			close(all)
			wait(t, "probes", func() bool { return refused.Load() >= 53 })
			over.Store(true)
			wg.Wait()
			if most.Load() != 1 {
				t.Errorf("%d probes at once", most.Load())
			}
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	var at [2]time.Time
	var n atomic.Int64
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		i := n.Add(1)
		at[i-1] = time.Now()
		if i == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	r := run(t, publishhttp.Config{URL: url})
	if err := r.Publish(t.Context(), event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	if at[1].Before(at[0].Add(900 * time.Millisecond)) { // the delay that the receiver asked for, with no upper bound
		t.Error("it was asked again too early")
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	type result struct {
		D  time.Duration
		OK bool
	}
	for value, want := range map[string]result{
		"":                               {},
		"0":                              {0, true},
		" 17 ":                           {17 * time.Second, true},
		"-1":                             {},
		"1.5":                            {},
		"soon":                           {},
		"86400":                          {5 * time.Minute, true},
		"99999999999999999999":           {},
		"Fri, 20 Nov 2026 15:00:30 GMT":  {30 * time.Second, true},
		"Fri, 20 Nov 2026 14:00:00 GMT":  {0, true},
		"Fri, 20 Nov 2027 15:00:00 GMT":  {5 * time.Minute, true},
		"Friday, 20-Nov-26 15:00:05 GMT": {5 * time.Second, true},
	} {
		d, ok := publishhttp.RetryAfter(value, now)
		if diff := cmp.Diff(want, result{d, ok}); diff != "" {
			t.Errorf("%q: %s", value, diff)
		}
	}
}

// A receiver takes the request and does not answer, or its answer's body never ends.
func TestReceiverThatHangs(t *testing.T) {
	var n atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n.Add(1) == 1 {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(http.StatusOK)
		for r.Context().Err() == nil { // until the publisher gives up
			_, _ = w.Write([]byte("ok "))
			_ = http.NewResponseController(w).Flush()
		}
	})
	r := run(t, publishhttp.Config{URL: url, Timeout: yamldoc.Duration{Duration: 100 * time.Millisecond}})
	if err := r.Publish(t.Context(), event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	if r.metric(t, "kubecdc_publish_retries_total", "timeout") != 1 {
		t.Error("no timeout was counted")
	}
}

// When Run ends, all events end, both those in flight and those that wait, whatever the receiver
// does.
func TestEnds(t *testing.T) {
	for _, batch := range []int{1, 10} {
		arrived := make(chan struct{}, 10)
		url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			arrived <- struct{}{}
			<-r.Context().Done()
		})
		r := run(t, publishhttp.Config{URL: url, Batch: batch, InFlight: 1})
		first := r.once(event("web-1", 1, `{}`), false)
		<-arrived
		all := []<-chan error{first, r.once(event("web-2", 1, `{}`), false)}
		r.stop()
		all = append(all, r.once(event("web-3", 1, `{}`), false))
		for i, done := range all {
			if err := <-done; !errors.Is(err, publish.ErrClosed) || len(done) > 0 {
				t.Errorf("event %d: got %v, and %d more", i, err, len(done))
			}
		}
		if r.bus.Ready() == nil {
			t.Error("ready after Run")
		}
	}
}

// An event is not read after it has ended: the receiver never gets an overwritten one.
func TestEventIsNotReadAfterItsEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	proceed, got := make(chan struct{}), make(chan string, 1)
	accepted := make(chan struct{})
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		first := make([]byte, 1) // the request is being sent
		if _, err := io.ReadFull(c, first); err != nil {
			t.Error(err)
		}
		close(accepted)
		<-proceed // no more has been read so far: the sockets' buffers are full
		b, _ := io.ReadAll(c)
		got <- string(first) + string(b)
	})
	r := run(t, publishhttp.Config{URL: "http://" + l.Addr().String()})
	ev := event("web-1", 1, strings.Repeat("a", 32<<20))
	done := r.once(ev, false)
	<-accepted
	go r.stop()
	if err := <-done; !errors.Is(err, publish.ErrClosed) {
		t.Fatal(err)
	}
	for i := range ev.Body {
		ev.Body[i] = 'b'
	}
	close(proceed)
	head, body, _ := strings.Cut(<-got, "\r\n\r\n")
	if strings.Contains(body, "b") || len(body) == len(ev.Body) {
		t.Errorf("the receiver has %d bytes, some of the next event, after %q", len(body), head)
	}
}

// Both files are reread when they change. If a file cannot be read, its earlier content is not used
// instead.
func TestCredentialsChange(t *testing.T) {
	dir := t.TempDir()
	token, headers := filepath.Join(dir, "token"), filepath.Join(dir, "headers")
	write := func(path, content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(token, "one")
	write(headers, "X-Key: a")
	var seen atomic.Value
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("Authorization") + " " + r.Header.Get("X-Key"))
	})
	r := run(t, publishhttp.Config{URL: url, TokenFile: token, HeadersFile: headers})
	expect := func(want string) {
		t.Helper()
		if err := r.Publish(t.Context(), event("web-1", 1, `{}`)); err != nil || seen.Load() != want {
			t.Errorf("got %v, error %v, want %s", seen.Load(), err, want)
		}
	}
	expect("Bearer one a")
	expect("Bearer one a")
	write(token, "two") // same size, possibly the same time
	expect("Bearer two a")
	write(headers, "X-Key: b")
	expect("Bearer two b")
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	seen.Store("")
	go func() { done <- r.Publish(t.Context(), event("web-1", 1, `{}`)) }()
	wait(t, "it is missed", func() bool { return strings.Contains(r.log.String(), "tokenFile: stat "+token) })
	if seen.Load() != "" {
		t.Error("sent with a token that is gone")
	}
	write(token, "three")
	if err := <-done; err != nil || seen.Load() != "Bearer three b" {
		t.Errorf("got %v, %v", seen.Load(), err)
	}
}

// All of each object's events arrive in order, although the receiver fails at random.
func TestOrderSurvivesFaults(t *testing.T) {
	t.Parallel()
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		for _, batch := range []int{1, 16} {
			t.Run(fmt.Sprintf("seed-%d-batch-%d", seed, batch), func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				rnd := rand.New(rand.NewPCG(seed, 1))
				got := map[string][]int{}
				take := func(b string) {
					mu.Lock()
					defer mu.Unlock()
					for _, one := range strings.FieldsFunc(b,
						func(r rune) bool { return strings.ContainsRune(`[]",`, r) }) {
						var name string
						var rv int
						if _, err := fmt.Sscanf(one, "%s %d", &name, &rv); err != nil {
							t.Errorf("%q: %v", one, err)
						}
						got[name] = append(got[name], rv)
					}
				}
				url := serve(t, func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					dice := rnd.IntN(40)
					mu.Unlock()
					if dice == 0 {
						cutOff(w) // before the body
						return
					}
					b, err := io.ReadAll(r.Body)
					if err != nil {
						return
					}
					if dice > 4 || dice == 1 {
						take(string(b))
					}
					switch dice {
					case 1: // it has the events, and the answer is lost
						cutOff(w)
					case 2:
						w.Header().Set("Retry-After", "0")
						w.WriteHeader(http.StatusServiceUnavailable)
					case 3:
						w.WriteHeader(http.StatusInternalServerError)
					case 4:
						<-r.Context().Done()
					}
				})
				// A receiver that takes a request after the client gave up breaks the order. The
				// timeout is long, so that a slow machine is not mistaken for one.
				r := run(t, publishhttp.Config{URL: url, Batch: batch, Timeout: yamldoc.Duration{
					Duration: 2 * time.Second,
				}})
				const keys, versions = 20, 10
				var wg sync.WaitGroup
				for k := range keys {
					wg.Go(func() {
						name := fmt.Sprintf("web-%d", k)
						for rv := range versions {
							if err := r.Publish(t.Context(),
								event(name, rv+1, fmt.Sprintf("%q", fmt.Sprintf("%s %d", name, rv+1)))); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				mu.Lock()
				defer mu.Unlock()
				want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
				for k := range keys {
					name := fmt.Sprintf("web-%d", k)
					if d := cmp.Diff(want, slices.Compact(got[name])); d != "" {
						t.Errorf("%s: %v", name, got[name])
					}
				}
			})
		}
	}
}
