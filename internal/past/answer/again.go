package answer

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// undecidedEvery is how often a server reads an old moment again, if the record may say more about
// it. Progress comes each minute.
const undecidedEvery = time.Minute

// A quiet scope without bookmarks is settled at the end of each watch. See decision 0040.
const (
	// settledEvery is the longest interval, if lists of its metadata take less than a minute.
	settledEvery = 10 * time.Minute
	// settledAfter is the oldest moment up to which such a scope is complete.
	settledAfter = 13 * time.Minute
	// settledFor is how long progress may say the same about a scope that will be settled. If lists
	// are slow, it misses some turns.
	settledFor = time.Hour
)

// askAgain returns the time at which the record can say more of a scope at a moment, in whole
// seconds. c says up to where the record of the scope is complete, and began is when it was read.
// Zero: nothing shows when that will be.
func askAgain(m timeline.Moment, c *certainty.Cause, began time.Time) time.Time {
	complete := c.From
	if began.IsZero() || m.IsNow() || complete == (certainty.Bound{}) {
		return time.Time{}
	}
	if isSettled(c) && began.Sub(c.Heard) <= timeline.MaxLag {
		return settledAt(m, complete.Time, began)
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

// isSettled reports whether progress comes that does not claim more of a scope, or did not until a
// moment ago: it has neither changes nor bookmarks.
func isSettled(c *certainty.Cause) bool {
	hasLagged := !c.Lagged.IsZero() && c.Heard.Sub(c.Lagged) < settledAfter-settledEvery
	return hasLagged && !c.From.Time.IsZero()
}

// settledAt returns when a scope, which is complete up to a time, will be settled up to a moment.
func settledAt(m timeline.Moment, complete, began time.Time) time.Time {
	if began.Sub(complete) > settledFor {
		return time.Time{}
	}
	final := complete.Add(settledAfter)
	if next := complete.Add(settledEvery - 30*time.Second); m.Time().After(next) {
		// the next turn may be before the moment
		final = m.Time().Add(settledAfter)
	}
	for !final.After(began) { // it has missed a turn
		final = final.Add(settledEvery)
	}
	return wholeSecond(final)
}

// ReadAgain returns the time after which a server has to read a moment again. The last read began
// at began. Zero: the moment is final.
func ReadAgain(m timeline.Moment, scopes []certainty.Scope, began time.Time) time.Time {
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
