package timeline

import (
	"slices"
	"time"
)

// edges are the times inside a span at which the certainty of a scope may change. A Survey divides
// the span there. The note… methods of scopes and observations collect them. A nil *edges collects
// nothing: the moment is not a span.
type edges struct {
	since, until time.Time
	times        map[int64]bool // nanoseconds since 1970
	hasScopeEnd  bool           // a scope has ended inside
}

func newEdges(since, until time.Time) *edges {
	return &edges{since: since, until: until, times: map[int64]bool{}}
}

// isInside reports whether a time is inside the span, and not its begin.
func (e *edges) isInside(t time.Time) bool { return t.After(e.since) && !t.After(e.until) }

// noteTimes notes the times that are inside the span. A zero time is none.
func (e *edges) noteTimes(times ...time.Time) {
	if e == nil {
		return
	}
	for _, t := range times {
		if e.isInside(t) {
			e.times[t.UnixNano()] = true
		}
	}
}

// noteScopeEnd notes the end of a scope. After that, other scopes may have the objects.
func (e *edges) noteScopeEnd(t time.Time) {
	e.noteTimes(t)
	if e != nil && e.isInside(t) {
		e.hasScopeEnd = true
	}
}

// sorted returns the times, at most n. If there are more, it returns every kth one.
func (e *edges) sorted(n int) []time.Time {
	all := make([]int64, 0, len(e.times))
	for at := range e.times {
		all = append(all, at)
	}
	slices.Sort(all)
	step := (len(all) + n - 1) / max(n, 1)
	var out []time.Time
	for k := 0; k < len(all); k += step {
		out = append(out, time.Unix(0, all[k]).UTC())
	}
	return out
}

// noteOpenEdges notes the times of gaps and spans that are not over. It is called after the last
// event: no later one moves or notes their end.
func (f *Fold) noteOpenEdges() {
	for _, l := range f.logs {
		for _, s := range l.scopes {
			for _, g := range s.openGaps {
				f.edges.noteTimes(g.from.time, g.end.time)
			}
			for _, o := range s.observations {
				o.noteOpenEdges()
			}
		}
	}
}

func (o *observation) noteOpenEdges() {
	o.edges.noteTimes(o.claimedTime)
	for k := range o.openInterruptions {
		o.edges.noteTimes(o.openInterruptions[k].from)
	}
	for _, h := range slices.Concat(o.openHidden, o.hiddenUntilClaim) {
		o.edges.noteTimes(h.from.time, h.until.time)
	}
}
