package publish

import (
	"math/rand/v2"
	"sync"
	"time"
)

// logWindow is how long further log lines of one kind are held back after the first.
const logWindow = time.Minute

// window lets the first of each kind through per logWindow and counts the others. It keeps one entry per kind until forget:
// kinds are a fixed few, or as many as there are resources.
type window struct {
	mu    sync.Mutex
	kinds map[string]*windowEntry
}

type windowEntry struct {
	until      time.Time
	suppressed int
}

// first reports whether a line of that kind is due, and how many were held back since the last one.
func (w *window) first(kind string) (suppressed int, ok bool) {
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

// forget drops the entry of a kind that does not come again.
func (w *window) forget(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kinds, kind)
}

// backoff grows from first to limit by doubling, half of it random.
type backoff struct {
	first, limit time.Duration
}

// delay is how long to wait after that many failures, which count from 1.
func (b backoff) delay(failures int) time.Duration {
	d := b.limit
	if failures < 30 {
		d = min(b.limit, b.first<<(failures-1))
	}
	return d/2 + rand.N(d/2+1)
}
