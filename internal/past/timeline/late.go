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
// but versions inside have the time at which an agent found them.
//
// One agent that observes the scope is enough. So a late span is known only when each agent has
// reported what it observed. An absence is a span in which one agent did not observe the scope, or
// withheld versions:
//
//	agent v   ──────┤absence├─────────────┤     the last progress: v may still cover what follows
//	agent w   ──┤ absence ├─────────────────────┤
//	late            ├─────┤
//
// Each observation keeps its absences (keepAbsence). The late spans are those that the absences of
// all writers have in common (intersect). An absence in which filters withheld versions has no why.

const (
	// mostAbsences limits the absences of a writer that wait for other writers. More are merged.
	mostAbsences = 1000
	// waitsForWriter is how long after its last progress a writer may still report that it observed
	// the scope: progress repeats what happened in the ten minutes before it.
	waitsForWriter = 10*time.Minute + MaxLag
)

// Late is a late span of a scope. Its cause is Interrupted, with both ends.
type Late struct {
	consume.ClusterKey

	Resource, Scope string
	Cause           certainty.Cause
}

// Late returns the late spans that end after a time, begin before the moment, and were not returned
// yet. Each scope has its own, in their order. isOver: no event follows, so it waits for no writer.
// It needs Options.Late.
func (f *Fold) Late(since time.Time, isOver bool) []Late {
	var out []Late
	for _, l := range f.logs {
		keys := l.mayBeLate
		if isOver {
			keys = map[scopeKey]bool{}
			for key := range l.scopes {
				keys[key] = true
			}
		}
		for key := range keys {
			s := l.scopes[key]
			if !l.isJudged(key, s) {
				continue
			}
			found, waits := s.takeLate(f.moment, latest(since, f.returnedLate[key]), l.now, isOver)
			for _, i := range found {
				f.returnedLate[key] = i.until
				out = append(out, Late{key.cluster, s.resource, key.name, *i.cause()})
			}
			if !waits {
				delete(l.mayBeLate, key)
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

// noteMayBeLate notes, at a progress, whether a scope may have late spans.
func (l *logFold) noteMayBeLate(key scopeKey, s *scope, now time.Time) {
	l.now = latest(l.now, now)
	if s.keepsLate && s.hasAbsence() {
		l.mayBeLate[key.clone()] = true
	}
}

// hasAbsence reports whether a writer did not observe the scope at some time.
func (s *scope) hasAbsence() bool {
	for _, o := range s.observations {
		if len(o.absences) > 0 || o.since.After(s.lateFrom) {
			return true
		}
	}
	return len(s.earlierLate) > 0
}

// forever is the end of a span that is not over.
func forever() time.Time { return time.Unix(1<<40, 0) }

// takeLate returns the late spans of the scope that end after a time and begin before a moment.
// Unless isOver, it returns those about which all writers have reported at the time now. It reports
// whether it waits for more. If it does not, it removes what it returns.
func (s *scope) takeLate(m Moment, after, now time.Time, isOver bool) (found []interruption, waits bool) {
	if s.lateFrom.IsZero() || s.isOfFormerRelease() {
		return nil, !isOver
	}
	known := s.reportedUpTo(now)
	if isOver {
		known = forever()
	}
	isEachSilent := !isOver && known.Equal(forever()) // no writer may still report
	if len(s.observations) == 0 || isEachSilent {
		return nil, !isOver
	}
	for _, i := range slices.Concat(s.earlierLate, s.commonAbsences()) {
		isAsked := i.until.After(after) && (m.kind != atTime || i.from.Before(m.time))
		switch {
		case i.why == "" || i.until.Equal(forever()) || !isAsked || !i.from.Before(i.until):
		case i.until.After(known):
			waits = true
		default:
			found = append(found, i)
		}
	}
	if len(found) > 0 && !waits { // none of them is returned again
		s.earlierLate = nil
		last := found[len(found)-1].until
		for _, o := range s.observations {
			o.absences = slices.DeleteFunc(o.absences, func(i interruption) bool { return !i.until.After(last) })
		}
	}
	return found, waits
}

// reportedUpTo returns the time up to which all writers have reported that may still do so;
// forever: there is no such writer.
func (s *scope) reportedUpTo(now time.Time) time.Time {
	known := forever()
	for _, o := range s.observations {
		mayReport := o.end == nil && now.Sub(o.lastTime) <= waitsForWriter
		if mayReport && o.claimedTime.Before(known) {
			known = o.claimedTime
		}
	}
	return known
}

// commonAbsences returns the spans in which no writer observed the scope, or each withheld
// versions.
func (s *scope) commonAbsences() []interruption {
	all := []interruption{{until: forever()}}
	for _, name := range sortedKeys(s.observations) {
		all = intersect(all, s.observations[name].allAbsences())
	}
	for k := range all {
		i := &all[k]
		if end := s.end(); i.until.Equal(forever()) && end != nil {
			*i = interruption{why: certainty.InterruptedEnded, from: i.from, until: end.Time}
		}
		i.from = latest(i.from, s.lateFrom)
	}
	return all
}

// noteLateFrom notes that late spans count from the first snapshot on. A restore of etcd does not
// change that.
func (s *scope) noteLateFrom() {
	if s.lateFrom.IsZero() {
		s.lateFrom = s.knownFrom.time
	}
}

// lateUpToEnd returns the late spans of a scope that has ended.
func (s *scope) lateUpToEnd() []interruption {
	if !s.keepsLate {
		return nil
	}
	found, _ := s.takeLate(Moment{}, time.Time{}, time.Time{}, true)
	return found
}

// keepAbsence keeps an absence that is over.
func (o *observation) keepAbsence(i interruption) {
	if !o.keepsLate || i.until.IsZero() {
		return
	}
	i.from = latest(i.from, o.settled)
	if !i.from.Before(i.until) {
		return
	}
	for k := len(o.absences) - 1; k >= 0; k-- {
		kept := &o.absences[k]
		overlaps := kept.why == i.why && i.from.Before(kept.until) && kept.from.Before(i.until)
		if overlaps || k >= mostAbsences-1 {
			kept.merge(&i)
			return
		}
	}
	o.absences = append(o.absences, i)
}

// noteSettled notes up to where the writer has reported everything: later progress only repeats it.
func (o *observation) noteSettled() {
	to := o.claimedTime
	for k := range o.openInterruptions {
		if o.openInterruptions[k].from.Before(to) {
			to = o.openInterruptions[k].from
		}
	}
	o.settled = latest(o.settled, to)
}

// merge makes the span include another one.
func (i *interruption) merge(other *interruption) {
	i.why = cmp.Or(i.why, other.why)
	if other.from.Before(i.from) {
		i.from = other.from
	}
	i.until = latest(i.until, other.until)
}

// allAbsences returns the absences of the writer, in order and without overlaps. The time after its
// last claim is the last one, without an end.
func (o *observation) allAbsences() []interruption {
	all := slices.Clone(o.absences)
	if !o.since.IsZero() {
		all = append(all, interruption{why: certainty.InterruptedUnheard, until: o.since})
	}
	slices.SortStableFunc(all, func(a, b interruption) int { return a.from.Compare(b.from) })
	var out []interruption
	for _, i := range all {
		n := len(out) - 1
		if n < 0 || !i.from.Before(out[n].until) {
			out = append(out, i)
			continue
		}
		out[n].merge(&i)
	}
	last := interruption{why: certainty.InterruptedUnheard, from: o.claimedTime, until: forever()}
	if n := len(out) - 1; n >= 0 {
		last.from = latest(last.from, out[n].until)
	}
	return append(out, last)
}

// intersect returns the spans that two lists have in common. Each list is in order and without
// overlaps.
func intersect(all, others []interruption) []interruption {
	var out []interruption
	for i, k := 0, 0; i < len(all) && k < len(others); {
		a, b := all[i], others[k]
		both := b
		both.why = cmp.Or(b.why, a.why)
		both.from = latest(a.from, b.from)
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
