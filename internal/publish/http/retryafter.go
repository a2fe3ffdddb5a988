package http

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter limits the delay that a receiver may ask for: a mistaken "tomorrow" must not stop the agent.
const maxRetryAfter = 5 * time.Minute

// retryAfter parses the header Retry-After (RFC 9110, section 10.2.3): seconds, or a date. The result is between 0 and maxRetryAfter; an
// unreadable value counts as absent.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseUint(v, 10, 64); err == nil {
		if seconds > uint64(maxRetryAfter/time.Second) {
			return maxRetryAfter, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), maxRetryAfter), true
}
