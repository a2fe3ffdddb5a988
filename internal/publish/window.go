package publish

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Timeouts that all buses share.
const (
	DialTimeout    = 5 * time.Second // of dialing, and of the handshake
	RequestTimeout = 5 * time.Second // of a request that carries no events
)

// logWindow is how long further log lines of one kind are held back after the first.
const logWindow = time.Minute

// Window lets the first of each kind through per logWindow and counts the others. It keeps one entry per kind until forget:
// kinds are a fixed few, or as many as there are resources.
type Window struct {
	mu    sync.Mutex
	kinds map[string]*windowEntry
}

type windowEntry struct {
	until      time.Time
	suppressed int
}

// First reports whether a line of that kind is due, and how many were held back since the last one.
func (w *Window) First(kind string) (suppressed int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	e := w.kinds[kind]
	if e == nil {
		if w.kinds == nil {
			w.kinds = map[string]*windowEntry{}
		}
		e = new(windowEntry)
		w.kinds[kind] = e
	}
	if now.Before(e.until) {
		e.suppressed++
		return 0, false
	}
	suppressed = e.suppressed
	e.suppressed, e.until = 0, now.Add(logWindow)
	return suppressed, true
}

// Forget drops the entry of a kind that does not come again.
func (w *Window) Forget(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kinds, kind)
}

// Backoff grows from first to limit by doubling, half of it random.
type Backoff struct {
	First, Limit time.Duration
}

// Delay is how long to wait after that many failures, which count from 1.
func (b Backoff) Delay(failures int) time.Duration {
	d := b.Limit
	if failures < 30 {
		d = min(b.Limit, b.First<<(failures-1))
	}
	return d/2 + rand.N(d/2+1)
}

// Sleep waits, and returns the cause of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// BusyBackoff is for a bus that does not take an event now.
func BusyBackoff() Backoff { return Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second} }
