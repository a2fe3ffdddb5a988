package publish

import (
	"net/http"
	"sync/atomic"
)

const (
	// cutsAlone is how often an event must have had a connection of its own cut to count as refused.
	cutsAlone = 5
	// denialsAlone is how often it must have been answered 403 or 404. There is no hurry: a receiver may need a minute to let
	// in what it is to take.
	denialsAlone = 10
	// othersBetween is how many others must have got through between two of those, or the second does not count.
	othersBetween = 3
	// othersPerInnocent is how many others must have got through for each event that was turned down itself, and got through
	// later: with more of these the receiver, or the way to it, turns down whatever comes.
	othersPerInnocent = 20
)

// httpCall is one call of Publish.
type httpCall struct {
	alone bool // never in a batch again: one that held it failed
	// own: a connection was cut without an answer, and the next request goes on one that it shares with none.
	own    bool
	cut    trial // on connections of its own
	denied trial // 403 and 404
}

// trial is what speaks against one event.
type trial struct {
	count int // times that it was turned down, others having got through before each but the first

	fine, innocent int64 // of the tally at the last of them
}

// tally is what a receiver does to all.
type tally struct {
	fine     atomic.Int64 // requests that got through
	innocent atomic.Int64 // events that did so after they had been turned down
}

// against notes that an event was turned down once more, and returns how often that speaks against it.
func (t *tally) against(c *trial) int {
	fine, innocent := t.fine.Load(), t.innocent.Load()
	switch f, i := fine-c.fine, innocent-c.innocent; {
	case c.count > 0 && i == 0 && f < othersBetween:
		return c.count // it says nothing: nobody else has tried
	case c.count > 0 && f >= othersPerInnocent*i:
		c.count++
	default:
		c.count = 1
	}
	c.fine, c.innocent = fine, innocent
	return c.count
}

// acquit notes that an event got through.
func (t *tally) acquit(c *trial) {
	if c.count > 0 {
		t.innocent.Add(1)
	}
	*c = trial{}
}

// judge counts what speaks against an event, and makes a refusal of it. See HTTP.
func (h *HTTP) judge(c *httpCall, r *httpResult) {
	switch {
	case r.cut:
		c.alone = true
		// In turns: new connections may be what is cut, where those that stand are served. With HTTP/2 they stay out of it:
		// with one of them the requests of all others would be cut.
		c.own = !r.own || h.multiplexed.Load()
		if !r.own {
			return
		}
		if c.cut.count > 0 { // not for a control, which would call for further ones
			h.controls.Store(othersBetween)
		}
		if h.cuts.against(&c.cut) >= cutsAlone {
			*r = httpResult{kind: httpRefused, detail: "the receiver cuts the connection right after this request, on a connection of its own too, and answers others: " + r.detail}
		}
	case r.status == 0:
	case r.status == http.StatusForbidden, r.status == http.StatusNotFound:
		h.answered(c)
		if h.denials.against(&c.denied) >= denialsAlone {
			*r = httpResult{kind: httpRefused, detail: "the receiver answers this event so again and again, and takes others: " + r.detail}
		}
	default:
		h.answered(c)
		if r.kind == httpAcked {
			h.denials.acquit(&c.denied)
		}
	}
}

func (h *HTTP) answered(c *httpCall) {
	c.own = false
	h.cuts.acquit(&c.cut)
}

// control reports whether a request that nothing speaks against is to go on a connection of its own, to show that these
// work. Others may not need a new one for hours.
func (h *HTTP) control() bool {
	for n := h.controls.Load(); n > 0; n = h.controls.Load() {
		if h.controls.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}
