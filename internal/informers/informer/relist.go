package informer

import "time"

// relistReason says why the owner lists again.
type relistReason uint8

const (
	relistExpired   relistReason = iota // the watch could not resume: a 410
	relistRewound                       // the API server has another history
	relistUndecided                     // nothing decides whether it has
	// the watches end before they show that the API server has repeated the changes since the
	// checkpoint
	relistReplay
	relistStalled // the watches end with an error at one version
)

// String returns the cause of a list, as in the metrics.
func (r relistReason) String() string {
	return [...]string{
		relistExpired:   "expired",
		relistRewound:   "rewound",
		relistUndecided: "undecided",
		relistReplay:    "replay",
		relistStalled:   "stalled",
	}[r]
}

// keepsHistory reports whether the watch can continue from the position, so that the list only
// compares.
func (r relistReason) keepsHistory() bool { return r == relistUndecided || r == relistReplay }

// stalls counts the lists because of a stall since the last sound HTTP watch: one that has sent
// something, or lasted for apiserver.SoundAfter.
type stalls struct {
	lists int
	last  time.Time
}

const (
	stallPause = time.Minute // the first pause between two lists because of a stall
	stallLists = 10 * time.Minute
)

// takeTurn reports whether a list because of a stall may be made now, and counts it. The pause
// between two doubles up to stallLists.
func (s *stalls) takeTurn(now time.Time) bool {
	pause := min(stallPause<<min(s.lists, 4), stallLists)
	if s.lists > 0 && now.Sub(s.last) < pause {
		return false
	}
	s.lists++
	s.last = now
	return true
}
