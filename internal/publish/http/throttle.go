package http

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// deniedPause bounds the pause between two attempts while the receiver denies all events: someone may be correcting its configuration.
const deniedPause = 10 * time.Second

func throttleBackoff() publish.Backoff {
	return publish.Backoff{First: 200 * time.Millisecond, Limit: 30 * time.Second}
}

// throttle holds requests back while the receiver takes none: until the time that it asked for, and then all but one, the probe, until
// that one has got through. So a receiver that comes back does not get all waiting requests at once. The endpoint's mutex guards it.
type throttle struct {
	until   time.Time // zero: open
	rounds  int       // in a row that ended without success
	epoch   uint64    // counts them all
	probing bool      // the probe is under way
}

// pass is the right to send one request, to be given back.
type pass struct {
	epoch uint64
	probe bool
}

// allows reports whether a request may be sent.
func (t *throttle) allows(now time.Time) bool {
	return t.until.IsZero() || !t.probing && !now.Before(t.until)
}

// enter returns the right to send a request. It must be called only if allows has returned true.
func (t *throttle) enter() pass {
	t.probing = !t.until.IsZero()
	return pass{epoch: t.epoch, probe: t.probing}
}

// leave gives the pass back with the outcome of the request. Of many requests that were on their way when the receiver stopped taking any,
// the first counts: the others say the same. For the same reason an answer to one of them does not open.
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
