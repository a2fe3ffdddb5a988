package publish_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/claim"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
)

var (
	errOther = errors.New("another agent leads")
	errEnded = errors.New("the caller has ended")
)

// fence is a Fence that a test opens and shuts.
type fence struct {
	mu      sync.Mutex
	open    bool
	over    bool
	asked   int
	waiting int // calls that wait at it
	changed chan struct{}
}

func newFence(open bool) *fence { return &fence{open: open, changed: make(chan struct{})} }

func (f *fence) set(open, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open, f.over = open, over
	close(f.changed)
	f.changed = make(chan struct{})
}

// Pass implements publish.Fence.
func (f *fence) Pass(ctx context.Context) error {
	for {
		f.mu.Lock()
		open := f.open
		over := f.over
		changed := f.changed
		f.asked++
		if !over && !open {
			f.waiting++
		}
		f.mu.Unlock()
		switch {
		case over:
			return errOther
		case open:
			return nil
		}
		err := f.stand(ctx, changed)
		if err != nil {
			return err
		}
	}
}

func (f *fence) stand(ctx context.Context, changed <-chan struct{}) error {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.waiting--
	}()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stands reports whether a call waits at the fence.
func (f *fence) stands() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting > 0
}

func (f *fence) looks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// fencedBus is a publisher with a fence, and the bus that it writes to.
type fencedBus struct {
	bustest.Publisher
	stored func() int // events that the bus has
	away   func(bool) // makes each attempt fail and be retried; nil: not possible
	mute   bool       // no attempt is made while it is away
}

// buses returns a constructor for each kind of bus.
func buses() map[string]func(*testing.T, publish.Fence) fencedBus {
	return map[string]func(*testing.T, publish.Fence) fencedBus{
		"nats": func(t *testing.T, f publish.Fence) fencedBus {
			s := startServer(t, t.TempDir(), -1)
			p := startProxy(t, strings.TrimPrefix(s.ClientURL(), "nats://"))
			cfg := testConfig(p.URL())
			cfg.Fence = f
			r := run(t, cfg)
			wait(t, "connected", func() bool { return r.Ready() == nil })
			js := admin(t, s.ClientURL())
			return fencedBus{r, func() int { return len(records(t, js, "KUBECDC")) }, func(away bool) {
				p.Hold(toServer, away)
				if away {
					p.Cut()
				}
			}, true}
		},
		"nats dead letters": func(t *testing.T, f publish.Fence) fencedBus {
			s := startServer(t, t.TempDir(), -1)
			cfg := testConfig(s.ClientURL())
			cfg.Fence, cfg.DeadLetter = f, "kubecdc.{cluster}.dead"
			r := run(t, cfg)
			wait(t, "connected", func() bool { return r.Ready() == nil })
			js := admin(t, s.ClientURL())
			return fencedBus{r.DeadLetters, func() int { return len(records(t, js, "KUBECDC")) }, nil, false}
		},
		"http":         func(t *testing.T, f publish.Fence) fencedBus { return httpBus(t, f, 1) },
		"http batches": func(t *testing.T, f publish.Fence) fencedBus { return httpBus(t, f, 10) },
		"stdout": func(t *testing.T, f publish.Fence) fencedBus {
			out := new(logBuffer)
			return fencedBus{runBus(t, stdout.New(out, f)), func() int {
				return strings.Count(out.String(), "\n")
			}, nil, false}
		},
		"claims in a directory": func(t *testing.T, f publish.Fence) fencedBus {
			dir := t.TempDir()
			c, err := claim.NewDirectory(dir, f, discard, nil)
			if err != nil {
				t.Fatal(err)
			}
			return fencedBus{claims{c}, func() int {
				all, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				return len(all)
			}, nil, false}
		},
		"claims by http": func(t *testing.T, f publish.Fence) fencedBus {
			var got atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
			t.Cleanup(srv.Close)
			c, err := publishhttp.NewClaimStore(publishhttp.ClientConfig{URL: srv.URL, Fence: f}, discard, nil)
			if err != nil {
				t.Fatal(err)
			}
			return fencedBus{claims{c}, func() int { return int(got.Load()) }, nil, false}
		},
		"claims in the object store": func(t *testing.T, f publish.Fence) fencedBus {
			s := startServer(t, t.TempDir(), -1)
			cfg := testConfig(s.ClientURL())
			cfg.Fence = f
			store := newObjectStore(t, run(t, cfg))
			js := admin(t, s.ClientURL())
			return fencedBus{claims{store}, func() int {
				b, err := js.ObjectStore(t.Context(), bucketName)
				if err != nil {
					return 0
				}
				all, err := b.List(t.Context())
				if err != nil {
					return 0
				}
				return len(all)
			}, nil, false}
		},
	}
}

func httpBus(t *testing.T, f publish.Fence, batch int) fencedBus {
	t.Helper()
	var away atomic.Bool
	var got atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || away.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		got.Add(int64(max(1, bytes.Count(body, []byte(`"n":`)))))
	}))
	t.Cleanup(srv.Close)
	bus, err := publishhttp.New(publishhttp.Config{URL: srv.URL, Batch: batch, Fence: f}, discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	return fencedBus{runBus(t, bus), func() int { return int(got.Load()) }, away.Store, false}
}

// runBus runs a bus until the test ends.
func runBus(t *testing.T, b publish.Bus) bustest.Publisher {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return bustest.Await(b, false)
}

// claims publishes to a claim store.
type claims struct{ publish.ClaimStore }

func (c claims) Publish(ctx context.Context, ev *encode.Event) error {
	_, err := c.Put(ctx, fmt.Sprintf("%x", ev.ID), ev.ContentType, ev.Body, nil)
	return err
}

func numbered(n int) *encode.Event {
	ev := event(fmt.Sprintf("web-%d", n), n+1, fmt.Sprintf(`{"n":%d}`, n))
	ev.PartitionKey = fmt.Appendf(nil, "web-%d", n)
	return ev
}

// Events handed to a publisher with a shut fence wait. They are written when the fence opens, and
// never if it stays shut.
func TestFence(t *testing.T) {
	t.Parallel()
	for name, open := range buses() {
		t.Run(name, func(t *testing.T) {
			f := newFence(false)
			b := open(t, f)
			const n = 20
			all, ctx := errgroup.WithContext(t.Context())
			for i := range n {
				all.Go(func() error { return b.Publish(ctx, numbered(i)) })
			}
			wait(t, "somebody waits at the fence", func() bool { return f.looks() > 0 })
			if got := b.stored(); got != 0 {
				t.Fatalf("%d are there, and the fence is shut", got)
			}
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(errEnded)
			if err := b.Publish(ended, numbered(n+1)); !errors.Is(err, errEnded) || errors.Is(err, publish.ErrFenced) {
				t.Errorf("a call whose ctx has ended: %v", err)
			}
			f.set(true, false)
			if err := all.Wait(); err != nil {
				t.Fatal(err)
			}
			if got := b.stored(); got != n {
				t.Errorf("%d of %d are there", got, n)
			}
			if b.away != nil {
				f.set(retriesStop(t, f, b, n))
			}
			before := b.stored()
			f.set(false, false)
			lost := channel[error](n)
			for i := range n {
				go func() { lost <- b.Publish(t.Context(), numbered(100+i)) }()
			}
			f.set(false, true)
			for range n {
				if err := <-lost; !errors.Is(err, publish.ErrFenced) || !errors.Is(err, errOther) ||
					errors.Is(err, publish.ErrRefused) {
					t.Errorf("when it never may again: %v", err)
				}
			}
			if got := b.stored(); got != before {
				t.Errorf("%d were written by one who never may again", got-before)
			}
		})
	}
}

func channel[T any](n int) chan T { return make(chan T, n) }

// retriesStop shuts the fence during retries.
func retriesStop(t *testing.T, f *fence, b fencedBus, n int) (open, over bool) {
	t.Helper()
	b.away(true)
	done := channel[error](1)
	looks := f.looks()
	go func() { done <- b.Publish(t.Context(), numbered(n)) }()
	if b.mute {
		f.set(false, false)
	} else {
		wait(t, "it is tried", func() bool { return f.looks() > looks })
		f.set(false, false)
		// The attempt that has passed the fence fails before the bus is back.
		wait(t, "it waits at the fence", f.stands)
	}
	b.away(false)
	wait(t, "it waits at the fence", f.stands)
	if got := b.stored(); got != n {
		t.Errorf("%d are there, and the fence is shut", got-n)
	}
	select {
	case err := <-done:
		t.Errorf("Publish has returned: %v", err)
	default:
	}
	f.set(true, false)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := b.stored(); got != n+1 {
		t.Errorf("%d of %d are there", got, n+1)
	}
	return true, false
}

// The dispatcher ends if another process writes to the bus: nothing goes to the dead letters, and
// nothing is acknowledged.
func TestDispatcherEndsAtTheFence(t *testing.T) {
	f := newFence(false)
	f.set(false, true)
	out := new(logBuffer)
	dead := busFunc(func(context.Context, *encode.Event) error {
		t.Error("something goes to the dead letters")
		return nil
	})
	j := newJournal()
	b := stdout.New(out, f)
	runBus(t, b)
	err := dispatchAll(t, b, publish.Options{DeadLetters: dead, Oversize: []string{publish.GiveUpPatch}},
		encode.Structured, nil, new(logBuffer), change(j, "web-1", 6, 10), change(j, "web-2", 7, 10))
	if !errors.Is(err, publish.ErrFenced) || out.String() != "" {
		t.Errorf("%v, written: %q", err, out)
	}
}

// A process that is stopped between the check of the fence and the write has bytes in its buffers.
// They must not go out.
func TestGuardedConnection(t *testing.T) {
	for _, c := range []struct {
		name          string
		open, carries bool
		written       bool
	}{
		{"open", true, true, true},
		{"shut", false, true, false},
		{"shut, and only greetings", false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			here, there := net.Pipe()
			defer there.Close()
			got := channel[string](1)
			go func() {
				b, _ := io.ReadAll(there)
				got <- string(b)
			}()
			g := publish.GuardConn(newFence(c.open), here, c.carries)
			n, err := g.Write([]byte("event"))
			if (err == nil) != c.written || c.written != (n == 5) {
				t.Errorf("%d written, %v", n, err)
			}
			if !c.written {
				if _, err := here.Write([]byte("more")); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("the connection stands: %v", err)
				}
			}
			_ = g.Close()
			if text := <-got; (text == "event") != c.written || !c.written && text != "" {
				t.Errorf("written: %q", text)
			}
		})
	}
}

// The fence shuts while a large write waits for its reader.
func TestGuardedConnectionShutsBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		f := newFence(true)
		g := publish.GuardConn(f, here, true)
		end := channel[error](1)
		go func() {
			_, err := g.Write(bytes.Repeat([]byte("x"), 1<<20))
			end <- err
		}()
		synctest.Wait() // it waits in the first part
		f.set(false, false)
		read, err := io.Copy(io.Discard, there)
		if err != nil || read > 128<<10 || read == 0 {
			t.Errorf("%d bytes, %v", read, err)
		}
		if err := <-end; err == nil {
			t.Error("the write has gone well")
		}
	})
}

// If the fence shuts after events were handed over, the connection breaks, and no event is
// suspected of breaking it.
func TestNATSBreaksTheConnectionWhenShut(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), -1)
	cfg := testConfig(s.ClientURL())
	f := &flicker{fence: newFence(true)}
	cfg.Fence = f
	r := run(t, cfg)
	wait(t, "connected", func() bool { return r.Ready() == nil })
	const n = 50
	f.shutAfter.Store(3) // the first passes let events into the buffer, the next check is that of the socket
	all, ctx := errgroup.WithContext(t.Context())
	for i := range n {
		all.Go(func() error { return r.Publish(ctx, numbered(i)) })
	}
	wait(t, "the fence has shut", func() bool { return f.shut.Load() })
	js := admin(t, s.ClientURL())
	wait(t, "the connection was broken", func() bool { return lines(r.Log.String(), "connection to bus lost") > 0 })
	stored := len(records(t, js, "KUBECDC"))
	f.reopen()
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := len(records(t, js, "KUBECDC")); got != n || stored > 3 {
		t.Errorf("%d of %d are there, %d while the fence was shut", got, n, stored)
	}
	if lines(r.Log.String(), "each of these is sent alone") > 0 {
		t.Error("events are suspected of a cut of our own")
	}
}

// flicker shuts after the given number of passes, until it is opened again.
type flicker struct {
	*fence
	shutAfter atomic.Int64
	shut      atomic.Bool
}

func (f *flicker) Pass(ctx context.Context) error {
	if f.shutAfter.Load() > 0 && f.shutAfter.Add(-1) == 0 {
		f.fence.set(false, false)
		f.shut.Store(true)
	}
	return f.fence.Pass(ctx)
}

func (f *flicker) reopen() { f.fence.set(true, false) }
