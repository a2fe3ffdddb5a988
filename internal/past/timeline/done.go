package timeline

import (
	"slices"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A record is much longer than the part that an answer needs. Reading stops when the record of each
// scope has passed the moment, so that no later event adds a version. Events of other scopes say
// nothing about that: they may come much earlier in the log.

// passing says whether the record of a scope has passed the moment.
type passing int

const (
	notPassed passing = iota
	passed
	// passedUnlessRestarted: the scope has ended. It may have been started again before the moment.
	// Whether the log has passed the moment follows from other scopes.
	passedUnlessRestarted
)

// passing returns whether the record of the scope has passed the moment. By resourceVersion, a
// first snapshot is not enough: it can be complete before the record has events of other scopes.
func (s *scope) passing(m Moment) passing {
	end := s.end()
	switch {
	case s.isRestarted || end != nil && !end.isBy(m.end()):
		return passed
	case end != nil:
		return passedUnlessRestarted
	case slices.ContainsFunc(s.openGaps, func(g *gap) bool { return g.hasBegunBy(m) }):
		return notPassed
	}
	for _, o := range s.observations {
		isWithoutCause := o.interruptionAround == nil && o.hiddenAround == nil
		if o.isDecided && (m.kind == atVersion || isWithoutCause) {
			return passed
		}
	}
	for _, o := range s.observations {
		if !o.isDecided {
			return notPassed
		}
	}
	if len(s.observations) == 0 {
		return notPassed
	}
	return passed
}

// Done reports whether the record has passed the moment, so that reading on adds no version. (A
// later snapshot may still show one that was withheld or is among the dead letters.) It returns
// false if the moment is now.
func (f *Fold) Done() bool {
	if f.done == nil { // events of objects do not change the answer
		done := f.hasPassed()
		f.done = &done
	}
	return *f.done
}

// hasPassed reports whether the record of all scopes has passed the moment.
func (f *Fold) hasPassed() bool {
	hasAny := false
	for _, l := range f.logs {
		for key, s := range l.scopes {
			p := s.passing(f.moment)
			switch {
			case p == passedUnlessRestarted, !l.isJudged(key, s):
			case p == notPassed:
				return false
			default:
				hasAny = true
			}
		}
	}
	return hasAny
}

// DoneIn is Done for one log of several. It returns false as long as the log lacks a scope that
// another log of its topic has.
func (f *Fold) DoneIn(log consume.Log) bool {
	l := f.logs[log]
	if l == nil {
		return false
	}
	hasAny := false
	for _, key := range l.judgedScopes() {
		switch l.scopes[key].passing(f.moment) {
		case notPassed:
			return false
		case passed:
			hasAny = true
		case passedUnlessRestarted:
		}
	}
	return hasAny && !f.isMissingScope(log, l)
}

// isMissingScope reports whether a log lacks a scope that another log of its topic has, and that
// has not ended.
func (f *Fold) isMissingScope(log consume.Log, l *logFold) bool {
	for other, o := range f.logs {
		if other.Name != log.Name || o == l {
			continue
		}
		for key, s := range o.scopes {
			if !s.hasInformer || s.hasEndedBy(f.moment) {
				continue
			}
			own := l.scopes[key]
			if own == nil || !own.hasInformer && own.passing(f.moment) == notPassed {
				return true
			}
		}
	}
	return false
}

// Complete returns the moment up to which Add has returned all versions of a resource of a cluster;
// false: that is not known yet. It ignores scopes that have ended, and those that were silent for
// longer than MaxLag: their later versions come late.
func (f *Fold) Complete(cluster consume.ClusterKey, resource string) (Moment, bool) {
	var scopes []*scope
	for _, l := range f.logs {
		for _, key := range l.judgedScopes() {
			if s := l.scopes[key]; key.cluster == cluster && s.resource == resource && s.end() == nil {
				scopes = append(scopes, s)
			}
		}
	}
	if len(scopes) == 0 {
		return Moment{}, false
	}
	byLastEvent := func(a, b *scope) int { return a.lastEvent.time.Compare(b.lastEvent.time) }
	newest := slices.MaxFunc(scopes, byLastEvent).lastEvent.time
	var least *scope
	for _, s := range scopes {
		isSilent := newest.Sub(s.lastEvent.time) > MaxLag
		if !isSilent && (least == nil || s.reached.at.isBefore(least.reached.at)) {
			least = s
		}
	}
	return Moment{kind: atVersion, rv: least.reached.at}, least.reached.at.seq > 0
}
