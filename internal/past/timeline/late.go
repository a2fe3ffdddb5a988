package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A late span is one in which no agent is known to have observed a scope. No version is missing,
// and versions inside have the time at which an agent found them. One agent that observes the scope
// is enough, so a late span is known only when each agent has said what it observed:
//
//	agent v   ──────┤ away ├──────────────┤     the last progress: v may still cover what follows
//	agent w   ──┤  away  ├────────────────────┤
//	late            ├────┤

const (
	// mostLate limits the spans of a writer that wait for other writers. More are joined.
	mostLate = 1000
	// waitsForWriter is how long after its last progress a writer may still say that it observed
	// the scope: progress has what happened in the ten minutes before it.
	waitsForWriter = 10*time.Minute + MaxLag
)

// Late is a late span of a scope. Its cause is Interrupted, with both ends.
type Late struct {
	consume.ClusterKey

	Resource, Scope string
	Cause           certainty.Cause
}

// Late returns the late spans that end after a time, begin before the moment, and were not returned
// yet. Each scope has its own, in their order. isOver: no event follows, so nothing has to be
// waited for. It needs Options.Late.
func (f *Fold) Late(since time.Time, isOver bool) []Late {
	var out []Late
	for _, l := range f.logs {
		keys := l.lateIn
		if isOver {
			keys = map[scopeKey]bool{}
			for key := range l.scopes {
				keys[key] = true
			}
		}
		for key := range keys {
			s := l.scopes[key]
			if !l.isListed(key, s) {
				continue
			}
			found, waits := s.late(f.moment, later(since, f.toldLate[key]), l.now, isOver)
			for _, a := range found {
				f.toldLate[key] = a.until
				out = append(out, Late{key.cluster, s.resource, key.name, *a.cause()})
			}
			if !waits {
				delete(l.lateIn, key)
			}
		}
	}
	slices.SortFunc(out, func(a, b Late) int {
		return cmp.Or(a.Cause.To.Time.Compare(b.Cause.To.Time), strings.Compare(a.Source, b.Source),
			strings.Compare(a.UID, b.UID),
			strings.Compare(a.Scope, b.Scope))
	})
	return out
}

// noteLate notes that a scope may have late spans.
func (l *logFold) noteLate(key scopeKey, s *scope, now time.Time) {
	l.now = later(l.now, now)
	if s.keepsLate && s.mayBeLate() {
		l.lateIn[scopeKey{consume.ClusterKey{
			Source: strings.Clone(key.cluster.Source),
			UID:    strings.Clone(key.cluster.UID),
		}, strings.Clone(key.name)}] = true
	}
}

// mayBeLate reports whether a writer did not observe the scope at some time.
func (s *scope) mayBeLate() bool {
	for _, o := range s.observations {
		if len(o.aways) > 0 || o.since.After(s.lateFrom) {
			return true
		}
	}
	return len(s.aways) > 0
}

// forever is the end of a span that is not over.
func forever() time.Time { return time.Unix(1<<40, 0) }

// late returns the late spans of the scope that end after a time and begin before a moment. Unless
// isOver, it returns those of which all writers have spoken at the time now, and reports whether it
// waits for more.
func (s *scope) late(m Moment, after, now time.Time, isOver bool) (found []away, waits bool) {
	if s.lateFrom.IsZero() || s.isFormer() {
		return nil, !isOver
	}
	known := forever() // up to there, all writers have spoken
	all := []away{{until: forever()}}
	for _, name := range sortedKeys(s.observations) {
		o := s.observations[name]
		isWaited := o.end == nil && now.Sub(o.heard) <= waitsForWriter
		if isWaited && !isOver && o.to.Before(known) {
			known = o.to
		}
		all = intersect(all, o.absences())
	}
	if len(s.observations) == 0 || !isOver && known.Equal(forever()) { // nobody speaks
		return nil, !isOver
	}
	for k := range all {
		a := &all[k]
		if end := s.ended(); a.until.Equal(forever()) && end != nil {
			*a = away{why: certainty.InterruptedEnded, from: a.from, until: end.Time}
		}
		a.from = later(a.from, s.lateFrom)
	}
	for _, a := range slices.Concat(s.aways, all) {
		isAsked := a.until.After(after) && (m.kind != atTime || a.from.Before(m.time))
		switch {
		case a.why == "" || a.until.Equal(forever()) || !isAsked || !a.from.Before(a.until):
		case a.until.After(known):
			waits = true
		default:
			found = append(found, a)
		}
	}
	if len(found) > 0 && !waits { // none of them is returned again
		s.aways = nil
		last := found[len(found)-1].until
		for _, o := range s.observations {
			o.aways = slices.DeleteFunc(o.aways, func(a away) bool { return !a.until.After(last) })
		}
	}
	return found, waits
}

// noteBegin notes from where on late spans count: from the first snapshot. A restore of etcd does
// not change that.
func (s *scope) noteBegin() {
	if s.lateFrom.IsZero() {
		s.lateFrom = s.first.time
	}
}

// keepLate keeps the late spans of a scope that is started again after its end.
func (s *scope) keepLate() []away {
	if !s.keepsLate {
		return nil
	}
	found, _ := s.late(Moment{}, time.Time{}, time.Time{}, true)
	return found
}

// keep keeps a span that is over, in which the writer did not observe the scope, or withheld
// versions.
func (o *observation) keep(a away) {
	if !o.keepsLate || a.until.IsZero() {
		return
	}
	a.from = later(a.from, o.settled)
	if !a.from.Before(a.until) {
		return
	}
	for k := len(o.aways) - 1; k >= 0; k-- {
		is := &o.aways[k]
		overlaps := is.why == a.why && a.from.Before(is.until) && is.from.Before(a.until)
		if overlaps || k >= mostLate-1 {
			is.join(&a)
			return
		}
	}
	o.aways = append(o.aways, a)
}

// settle notes up to where the writer has said all: later progress says nothing new about it.
func (o *observation) settle() {
	to := o.to
	for i := range o.open {
		if o.open[i].from.Before(to) {
			to = o.open[i].from
		}
	}
	o.settled = later(o.settled, to)
}

// join makes the span include another one.
func (a *away) join(other *away) {
	a.why = cmp.Or(a.why, other.why)
	if other.from.Before(a.from) {
		a.from = other.from
	}
	a.until = later(a.until, other.until)
}

// absences returns the spans in which the writer did not observe the scope, in order and apart.
// That after its last claim is the last one.
func (o *observation) absences() []away {
	all := slices.Clone(o.aways)
	if !o.since.IsZero() {
		all = append(all, away{why: certainty.InterruptedUnheard, until: o.since})
	}
	slices.SortStableFunc(all, func(a, b away) int { return a.from.Compare(b.from) })
	var out []away
	for _, a := range all {
		n := len(out) - 1
		if n < 0 || !a.from.Before(out[n].until) {
			out = append(out, a)
			continue
		}
		out[n].join(&a)
	}
	last := away{why: certainty.InterruptedUnheard, from: o.to, until: forever()}
	if n := len(out) - 1; n >= 0 {
		last.from = later(last.from, out[n].until)
	}
	return append(out, last)
}

// intersect returns what two lists of spans have in common. Each is in order and apart.
func intersect(all, others []away) []away {
	var out []away
	for i, k := 0, 0; i < len(all) && k < len(others); {
		a, b := all[i], others[k]
		both := b
		both.why = cmp.Or(b.why, a.why)
		both.from = later(a.from, b.from)
		if a.until.Before(b.until) {
			both.until = a.until
			i++
		} else {
			k++
		}
		if both.from.Before(both.until) {
			out = append(out, both)
		}
	}
	return out
}
