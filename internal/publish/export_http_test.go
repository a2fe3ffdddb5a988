package publish

import (
	"net/http"
	"time"
)

// Waiting is how many calls wait for a place in a batch.
func (h *HTTP) Waiting() int {
	h.batcher.mu.Lock()
	defer h.batcher.mu.Unlock()
	return len(h.batcher.waiting)
}

// RetryAfter is retryAfter.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	return retryAfter(http.Header{"Retry-After": {value}}, now)
}

// DeniedFor is deniedFor.
const DeniedFor = deniedFor

// Hurry makes tries of one event follow one another at once, nearly, and minutes pass in milliseconds. Call it before the first
// Publish.
func (h *HTTP) Hurry() {
	h.pause = Backoff{First: time.Millisecond, Limit: 20 * time.Millisecond}
	began := time.Now()
	h.now = func() time.Time { return began.Add(10_000 * time.Since(began)) }
}

// Clock has h go by another clock. Call it before the first Publish.
func (h *HTTP) Clock(now func() time.Time) { h.now = now }
