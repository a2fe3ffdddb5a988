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
