package http

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds what a receiver may ask for: one that says "tomorrow" by mistake must not silence the agent.
const maxRetryAfter = 5 * time.Minute

// retryAfter reads the header Retry-After (RFC 9110, section 10.2.3): seconds, or a date. It is never negative, and at
// most maxRetryAfter; what cannot be read counts as absent.
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
