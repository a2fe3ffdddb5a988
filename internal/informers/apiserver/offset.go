package apiserver

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// mostOffset is the offset between the clocks of the agent and the API server that is said.
	mostOffset = 2 * time.Second
	// warnOffsetEvery limits warnings: API servers behind one address may have different clocks.
	warnOffsetEvery = 10 * time.Minute
	// dateStep is the resolution of the header Date.
	dateStep = time.Second
)

// Offset compares the agent's wall clock with that of the API server, by the header Date of its
// responses. The header has whole seconds, and the API server wrote it between the request and the
// arrival of the response. So each response gives a span, at least a second wide, in which the
// offset is. An Offset is safe for concurrent use.
type Offset struct {
	wall func() time.Time
	log  *slog.Logger

	mu     sync.Mutex
	known  bool
	last   time.Duration // the middle of the last span; positive: the agent's clock is ahead
	beyond bool          // the last certain answer is an offset above mostOffset
	warned time.Time
}

// NewOffset returns an Offset of a wall clock.
func NewOffset(wall func() time.Time, log *slog.Logger) *Offset { return &Offset{wall: wall, log: log} }

// Look returns the offset that the last response shows, positive if the agent's clock is ahead, and
// whether it is certainly above 2 s. ok is false before the first response.
func (o *Offset) Look() (offset time.Duration, beyond, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last, o.beyond, o.known
}

// Wrap returns rt with the comparison.
func (o *Offset) Wrap(rt http.RoundTripper) http.RoundTripper { return &dated{rt, o} }

// dated compares the Date of each response.
type dated struct {
	next   http.RoundTripper
	offset *Offset
}

// RoundTrip implements http.RoundTripper.
func (d *dated) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := d.offset.wall()
	res, err := d.next.RoundTrip(r)
	if err == nil {
		d.offset.take(res.Header.Get("Date"), sent, d.offset.wall())
	}
	return res, err
}

// WrappedRoundTripper implements RoundTripperWrapper of apimachinery.
func (d *dated) WrappedRoundTripper() http.RoundTripper { return d.next }

// take takes the Date of a response to a request that was sent and answered at two times of the
// wall clock.
func (o *Offset) take(date string, sent, got time.Time) {
	at, err := http.ParseTime(date)
	if err != nil {
		return // a proxy may omit it
	}
	low := sent.Sub(at.Add(dateStep))
	high := got.Sub(at)
	if low > high {
		return // the wall clock was set back meanwhile
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.beyond
	switch {
	case low > mostOffset, high < -mostOffset:
		o.beyond = true
	case low >= -mostOffset && high <= mostOffset:
		o.beyond = false
	default: // either is possible
	}
	o.known = true
	o.last = (low + high) / 2
	switch {
	case o.beyond == was:
	case !o.beyond:
		o.log.Info("the clocks of the agent and the API server agree again", "offset", o.last)
	case o.warned.IsZero() || time.Since(o.warned) >= warnOffsetEvery:
		o.warned = time.Now()
		o.log.Warn("the clocks of the agent and the API server differ: the times of events are those of the agent",
			"offset", o.last,
			"advice", "synchronize the clocks of both machines")
	}
}
