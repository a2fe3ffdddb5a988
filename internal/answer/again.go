package answer

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/certainty"
	"github.com/kubecdc/kubecdc/internal/timeline"
)

// undecidedEvery is how often a server reads a moment that is old, and of which the record may say
// more. Progress comes each minute.
const undecidedEvery = time.Minute

// askAgain returns the time at which the record can say more of a scope at a moment, in whole
// seconds. complete is up to where the record of the scope is complete, and began is when it was
// read. Zero: nothing shows when that will be.
func askAgain(m timeline.Moment, complete certainty.Bound, began time.Time) time.Time {
	if began.IsZero() || m.IsNow() || complete == (certainty.Bound{}) {
		return time.Time{}
	}
	final := m.Time().Add(timeline.MaxLag)
	if _, _, isVersion := m.ResourceVersion(); isVersion {
		if began.Sub(complete.Time) > timeline.MaxLag {
			return time.Time{} // no agent sends progress
		}
		final = began.Add(timeline.MaxLag)
	}
	if !final.After(began) {
		return time.Time{}
	}
	return wholeSecond(final)
}

// readAgain returns the time from which on a server reads a moment again, which it has begun to read
// at began; zero: the moment is final.
func readAgain(m timeline.Moment, scopes []certainty.Scope, began time.Time) time.Time {
	if m.IsNow() {
		return time.Time{}
	}
	if final := m.Time().Add(timeline.MaxLag); final.After(began) {
		return wholeSecond(final)
	}
	for i := range scopes {
		if scopes[i].IsUndecided() {
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
