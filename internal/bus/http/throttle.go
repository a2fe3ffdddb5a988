package http

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// deniedPause limits the delay between attempts while the receiver denies all events: someone may
// be correcting its configuration.
const deniedPause = 10 * time.Second

func throttleBackoff() publish.Backoff {
	return publish.Backoff{First: 200 * time.Millisecond, Limit: 30 * time.Second}
}

// throttle holds requests back while the receiver accepts none. After the delay, it permits one
// request, the probe. It opens when a probe gets through, so that a recovering receiver does not
// get all waiting requests at once. The endpoint's mutex guards it.
type throttle struct {
	until   time.Time // zero: open
	rounds  int       // consecutive, without success
	epoch   uint64    // counts all rounds
	probing bool      // a probe is in progress
}

// pass permits one request. It must be given to leave.
type pass struct {
	epoch uint64
	probe bool
}

// allows reports whether a request may be sent.
func (t *throttle) allows(now time.Time) bool {
	return t.until.IsZero() || !t.probing && !now.Before(t.until)
}

// enter returns a pass. It must be called only if allows has returned true.
func (t *throttle) enter() pass {
	t.probing = !t.until.IsZero()
	return pass{epoch: t.epoch, probe: t.probing}
}

// leave ends a pass with the outcome of its request. Only the first of several concurrent failures
// counts, because the others have the same cause. For the same reason, the response to one of those
// requests does not open the throttle.
func (t *throttle) leave(p pass, o *outcome, now time.Time) {
	if p.probe {
		t.probing = false
	}
	switch {
	case o.shut:
		if p.epoch == t.epoch {
			t.rounds++
			t.epoch++
		}
		d := o.wait
		if d == 0 {
			d = throttleBackoff().Delay(max(t.rounds, 1))
		}
		if o.denied {
			d = min(d, deniedPause)
		}
		if until := now.Add(d); p.epoch+1 == t.epoch && until.After(t.until) {
			t.until = until
		}
	case p.probe && o.kind != ended:
		t.until, t.rounds = time.Time{}, 0
	}
}

// maxRetryAfter limits the delay that a receiver may ask for: a mistaken "tomorrow" must not stop
// the agent.
const maxRetryAfter = 5 * time.Minute

// retryAfter parses the header Retry-After (RFC 9110, section 10.2.3): seconds, or a date. The
// result is between 0 and maxRetryAfter; an unreadable value counts as absent.
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
