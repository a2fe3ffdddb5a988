package publish

import (
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// cutsAlone is how often an event must have had a connection of its own cut to count as refused.
	cutsAlone = 5
	// denialsAlone is how often it must have been answered 403 or 404, and deniedFor is how much later than for the first time
	// at the earliest. There is no hurry: a gateway may need minutes to let in what it is to take.
	denialsAlone = 10
	deniedFor    = 5 * time.Minute
	// othersBetween is how many others must have got through between two of those, or the second does not count.
	othersBetween = 3
	// othersPerInnocent is how many others must have got through for each event that was turned down itself, and got through
	// later: with more of these the receiver, or the way to it, turns down whatever comes.
	othersPerInnocent = 20
)

// httpCall is one call of Publish.
type httpCall struct {
	alone  bool  // never in a batch again: one that held it failed
	own    int   // a connection was cut without an answer, and that many requests go on connections that they share with none
	cut    trial // on connections of its own
	denied trial // 403 and 404

	unasked bool // the receiver does not know requests that ask before they send their body
}

// trial is what speaks against one event.
type trial struct {
	count int       // times that it was turned down, others having got through before each but the first
	since time.Time // the first of them

	fine, innocent int64 // of the tally at the last of them
}

// tally is what a receiver does to all.
type tally struct {
	fine     atomic.Int64 // requests that got through
	innocent atomic.Int64 // events that did so after they had been turned down
}

// against notes that an event was turned down once more, now, and returns how often that speaks against it.
func (t *tally) against(c *trial, now time.Time) int {
	fine, innocent := t.fine.Load(), t.innocent.Load()
	switch f, i := fine-c.fine, innocent-c.innocent; {
	case c.count > 0 && i == 0 && f < othersBetween:
		return c.count // it says nothing: nobody else has tried
	case c.count > 0 && f >= othersPerInnocent*i:
		c.count++
	default:
		c.count, c.since = 1, now
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
		if !r.own {
			c.own = h.turns()
			return
		}
		c.own = max(c.own-1, 0) // a control that was cut goes where it would have gone
		if r.alone {
			return // it held others too: nothing speaks against any one of them
		}
		if c.cut.count > 0 { // not for a control, which would call for further ones
			h.controls.Store(othersBetween)
		}
		if h.cuts.against(&c.cut, h.now()) >= cutsAlone {
			*r = httpResult{kind: httpRefused, detail: "the receiver cuts the connection right after this request, on a connection of its own too, and answers others: " + r.detail}
		}
	case r.status == 0:
	case r.status == http.StatusForbidden, r.status == http.StatusNotFound:
		h.answered(c)
		now := h.now()
		if h.denials.against(&c.denied, now) >= denialsAlone && now.Sub(c.denied.since) >= deniedFor {
			*r = httpResult{kind: httpRefused, detail: "the receiver answers this event so again and again, and takes others: " + r.detail}
		}
	default:
		h.answered(c)
		if r.kind == httpAcked {
			h.denials.acquit(&c.denied)
		}
	}
}

// turns is how often an event that was cut on a shared connection goes on its own before it goes on a shared one again. It
// has to: new connections may be what is cut, for hours, where those that stand are served. With HTTP/2 it does so seldom: if it
// is what kills, the requests of all others are cut with it, to be sent again at once. By then it is mostly refused.
func (h *HTTP) turns() int {
	if h.multiplexed.Load() {
		return cutsAlone
	}
	return 1
}

func (h *HTTP) answered(c *httpCall) {
	c.own = 0
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
