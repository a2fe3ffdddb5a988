package answer

import (
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/internal/timeline"
)

// undecidedEvery is how often a server reads a moment that is old, and of which the record may say
// more. Progress comes each minute.
const undecidedEvery = time.Minute

// askAgain returns the time at which the record can say more of a scope at a moment, in whole
// seconds. began is when it was read. Zero: the scope is known, or nothing shows when it will be.
func askAgain(m timeline.Moment, s *timeline.Scope, began time.Time) time.Time {
	endsEarlier := s.Certainty == timeline.Unknown && s.From != timeline.Bound{} && isUndecided(s)
	if began.IsZero() || m.IsNow() || !endsEarlier {
		return time.Time{}
	}
	final := m.Time().Add(timeline.MaxLag)
	if _, _, isVersion := m.ResourceVersion(); isVersion {
		if began.Sub(s.From.Time) > timeline.MaxLag {
			return time.Time{} // no agent sends progress
		}
		final = began.Add(timeline.MaxLag)
	}
	if !final.After(began) {
		return time.Time{}
	}
	return wholeSecond(final)
}

// isUndecided reports whether later events of the record can change what it says of a scope.
func isUndecided(s *timeline.Scope) bool {
	isFixed := s.Confined || s.OtherHistory || s.Former || s.Ended != nil
	return s.Certainty != timeline.Exact && s.To == timeline.Bound{} && !isFixed
}

// readAgain returns the time from which on a server reads a moment again, which it has begun to read
// at began; zero: the moment is final.
func readAgain(m timeline.Moment, scopes []timeline.Scope, began time.Time) time.Time {
	if m.IsNow() {
		return time.Time{}
	}
	if final := m.Time().Add(timeline.MaxLag); final.After(began) {
		return wholeSecond(final)
	}
	for i := range scopes {
		if isUndecided(&scopes[i]) {
			return began.Add(undecidedEvery)
		}
	}
	return time.Time{}
}

// wholeSecond returns the first whole second that is not before t.
func wholeSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); whole.Before(t) {
		return whole.Add(time.Second)
	}
	return t
}

// notFinal describes a scope that is not known yet.
func notFinal(s *timeline.Scope) string {
	return fmt.Sprintf("unknown: not final yet, the record is complete up to %s: ask again at %s",
		bound(s.From), s.Again.Local().Format(time.RFC3339))
}
