package http

import (
	"net/http"
	"time"
)

// Waiting returns how many events wait for a place in a batch.
func (b *Bus) Waiting() int {
	b.events.mu.Lock()
	defer b.events.mu.Unlock()
	return len(b.events.lanes[batches].waiting)
}

// RetryAfter is retryAfter.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	return retryAfter(http.Header{"Retry-After": {value}}, now)
}
