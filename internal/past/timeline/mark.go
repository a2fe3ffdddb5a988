package timeline

import (
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// An event has two positions: a time and a resourceVersion. Neither follows from the other. A mark
// has both, so that a moment of either kind can be compared with it.

// point is a resourceVersion in a history. If seq is 0, the resourceVersion is not a number.
type point struct {
	history uint32
	seq     uint64
}

// isBefore reports whether p is before q.
func (p point) isBefore(q point) bool {
	return p.history < q.history || p.history == q.history && p.seq < q.seq
}

// pointOf returns the point of an event. A gap is at the resourceVersion up to which it reaches.
func pointOf(e *consume.Event) point {
	p := point{history: e.History(), seq: number(e.Sequence)}
	if s := e.Stream; s != nil {
		p.seq = max(p.seq, number(s.ResourceVersion), number(s.ToResourceVersion))
	} else if p.seq == 0 {
		p.seq = number(e.ResourceVersion)
	}
	return p
}

// number returns a resourceVersion as a number, 0 if it is not one.
func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// mark is the position of a stream event: when it was sent, and the resourceVersion that it has.
// The zero value is no position.
type mark struct {
	time time.Time
	at   point
}

func (m mark) isZero() bool { return m == mark{} }

// or returns m. It takes the time or the resourceVersion from n if m does not have it.
func (m mark) or(n mark) mark {
	if m.time.IsZero() {
		m.time = n.time
	}
	if m.at == (point{}) {
		m.at = n.at
	}
	return m
}

// max returns the later time and the later resourceVersion of both marks.
func (m mark) max(n mark) mark {
	if m.time.Before(n.time) {
		m.time = n.time
	}
	if m.at.isBefore(n.at) {
		m.at = n.at
	}
	return m
}

// isAfter reports whether the mark is after a moment. If the moment is a span, it reports whether
// the mark is after the begin of the span.
func (m mark) isAfter(n Moment) bool {
	switch n.kind {
	case atTime:
		return n.begin().Before(m.time)
	case atVersion:
		return n.rv.isBefore(m.at)
	}
	return false
}

func (m mark) bound() certainty.Bound {
	b := certainty.Bound{Time: m.time, History: m.at.history}
	if m.at.seq > 0 {
		b.ResourceVersion = strconv.FormatUint(m.at.seq, 10)
	}
	return b
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
