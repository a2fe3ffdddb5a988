package timeline

import (
	"slices"
	"time"
)

// edges are the times inside a span at which the certainty of a scope may change, as the judge
// meets them. A nil *edges notes nothing.
type edges struct {
	since, until time.Time
	times        map[int64]bool // nanoseconds since 1970
	turns        bool           // a scope has ended inside
}

func newEdges(since, until time.Time) *edges {
	return &edges{since: since, until: until, times: map[int64]bool{}}
}

// note notes the times that are inside the span. A zero time is none.
func (e *edges) note(times ...time.Time) {
	if e == nil {
		return
	}
	for _, t := range times {
		if t.After(e.since) && !t.After(e.until) {
			e.times[t.UnixNano()] = true
		}
	}
}

// turn notes the end of a scope. After that, other scopes may have the objects.
func (e *edges) turn(t time.Time) {
	e.note(t)
	if e != nil && t.After(e.since) && !t.After(e.until) {
		e.turns = true
	}
}

// sorted returns the times, at most n: then they are those of every kth edge.
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

// noteEdges notes the times of spans that are not over: no later event has said their end.
func (f *Fold) noteEdges() {
	for _, l := range f.logs {
		for _, s := range l.scopes {
			for _, g := range s.open {
				f.edges.note(g.from.time)
			}
			for _, o := range s.observations {
				o.noteEdges()
			}
		}
	}
}

func (o *observation) noteEdges() {
	o.edges.note(o.to)
	for i := range o.open {
		o.edges.note(o.open[i].from)
	}
	for _, h := range slices.Concat(o.hides, o.lost) {
		o.edges.note(h.from.time, h.until.time)
	}
}
