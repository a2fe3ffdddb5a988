package http

import (
	"net/http"
	"time"
)

// Waiting returns how many events wait for a place in a batch.
func (b *Bus) Waiting() (n int) {
	b.events.mu.Lock()
	defer b.events.mu.Unlock()
	for t := b.events.lanes[batches].head; t != nil; t = t.next {
		n++
	}
	return n
}

// RetryAfter is retryAfter.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	return retryAfter(http.Header{"Retry-After": {value}}, now)
}
