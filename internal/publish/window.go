package publish

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Timeouts of all buses.
const (
	DialTimeout    = 5 * time.Second // of a dial, and of the handshake
	RequestTimeout = 5 * time.Second // of a request without events
)

// logWindow is the time after a log line in which others of its kind are suppressed.
const logWindow = time.Minute

// Window permits one log line of each kind per logWindow and counts the others. It keeps one entry
// per kind until Forget: the kinds are few, or one for each resource.
type Window struct {
	mu    sync.Mutex
	kinds map[string]*windowEntry
}

type windowEntry struct {
	until      time.Time
	suppressed int
}

// First reports whether a line of that kind is due, and how many were suppressed since the last
// one.
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

// Forget removes the entry of a kind that does not recur.
func (w *Window) Forget(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kinds, kind)
}

// Backoff grows from first to limit by doubling, half of it random.
type Backoff struct {
	First, Limit time.Duration
}

// Delay returns the wait after the given number of failures, counted from 1.
func (b Backoff) Delay(failures int) time.Duration {
	d := b.Limit
	if failures < 30 {
		d = min(b.Limit, b.First<<(failures-1))
	}
	return d/2 + rand.N(d/2+1)
}

// BusyBackoff is the backoff for a bus that is away, or rejects an event for now.
func BusyBackoff() Backoff { return Backoff{First: 100 * time.Millisecond, Limit: 5 * time.Second} }
