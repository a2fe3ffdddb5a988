package informer

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
)

// Phase is the current activity of an informer. Its Health says whether that succeeds.
type Phase uint8

// The phases of an informer. From PhaseDraining on, only the manager changes the phase.
const (
	PhaseWaiting    Phase = iota // waits for its turn to list, or to list again after its first list failed
	PhaseListing                 // the first list is being loaded
	PhaseAnnouncing              // changes wait until the bus has acknowledged a gap, or the start of a snapshot
	PhaseLive                    // the informer follows the watch
	PhaseBlocked                 // the queue is full; the watch continues when there is room
	// the watch could not resume: a list is compared with the last-known objects, or replaces them
	PhaseRelisting
	PhaseDraining // a changed selection takes effect once the bus has everything sent so far
	// no longer selected; the bus does not yet have everything sent, or that the objects left
	PhaseRetiring
	PhaseDrained // the bus has everything sent so far
	PhaseRemoved // the manager has dropped the informer
)

// String returns the name of a phase, as in the metrics.
func (p Phase) String() string {
	return [...]string{
		PhaseWaiting:    "waiting",
		PhaseListing:    "listing",
		PhaseAnnouncing: "announcing",
		PhaseLive:       "live",
		PhaseBlocked:    "blocked",
		PhaseRelisting:  "relisting",
		PhaseDraining:   "draining",
		PhaseRetiring:   "retiring",
		PhaseDrained:    "drained",
		PhaseRemoved:    "removed",
	}[p]
}

// leadsTo reports whether next may follow p.
func (p Phase) leadsTo(next Phase) bool {
	table := [...][]Phase{
		// announcing if there is nothing to list
		PhaseWaiting:    {PhaseListing, PhaseAnnouncing, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseListing:    {PhaseWaiting, PhaseAnnouncing, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseAnnouncing: {PhaseLive, PhaseBlocked, PhaseRelisting, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseLive:       {PhaseAnnouncing, PhaseBlocked, PhaseRelisting, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseBlocked:    {PhaseAnnouncing, PhaseLive, PhaseRelisting, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseRelisting:  {PhaseAnnouncing, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseDraining:   {PhaseRetiring, PhaseDrained, PhaseRemoved},
		PhaseRetiring:   {PhaseDraining, PhaseRemoved},
		// another selection came before a successor started
		PhaseDrained: {PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseRemoved: {},
	}
	return slices.Contains(table[p], next)
}

// isListed reports whether a list has been loaded. It is not meaningful for an informer that
// leaves.
func (p Phase) isListed() bool { return p > PhaseListing }

// IsLeaving reports whether the informer is ending because of a new selection, or has ended.
func (p Phase) IsLeaving() bool { return p >= PhaseDraining }

// IllegalChange is logged if a change of the phase is not in the table.
const IllegalChange = "illegal change of phase"

// enterLocked changes the phase. It is the only function that does. It must be called with mu held.
func (s *state) enterLocked(next Phase) {
	if next == s.phase {
		return
	}
	if !s.phase.leadsTo(next) {
		s.log.Error(IllegalChange, "scope", s.scope, "from", s.phase.String(), "to", next.String())
	}
	s.phase = next
	s.changedLocked()
	if next != PhaseListing {
		s.expects = 0
	}
	s.changed()
}

// enter changes the phase for the manager.
func (s *state) enter(next Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enterLocked(next)
}

// enterFrom changes the phase if it is from.
func (s *state) enterFrom(from, next Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enterFromLocked(from, next)
}

func (s *state) enterFromLocked(from, next Phase) {
	if s.phase == from {
		s.enterLocked(next)
	}
}

// followGate updates the phase from the store. loading: a list is being loaded. closed: changes
// wait until the bus has acknowledged an announcement.
func (s *state) followGate(loading, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.phase.IsLeaving(), s.unlisted.Load():
	case loading && s.phase.isListed():
		s.enterLocked(PhaseRelisting)
	case loading: // the first list waits for its turn
	case closed:
		s.enterLocked(PhaseAnnouncing)
	case s.unread:
		s.enterLocked(PhaseBlocked)
	default:
		s.enterLocked(PhaseLive)
	}
}

// Health is the success of an informer in its phase.
type Health uint8

// The healths of an informer.
const (
	HealthOK        Health = iota
	HealthFailing          // the last request failed, and is retried
	HealthStale            // silent, or failing, for so long that the known state may be out of date
	HealthForbidden        // not permitted
	HealthNotServed        // the API server does not serve the resource
)

// String returns the name of a health, as in the metrics.
func (h Health) String() string {
	return [...]string{
		HealthOK:        "ok",
		HealthFailing:   "failing",
		HealthStale:     "stale",
		HealthForbidden: "forbidden",
		HealthNotServed: "notserved",
	}[h]
}

// HealthOf returns the health of an informer whose last request failed for a reason.
func HealthOf(reason string) Health {
	switch reason {
	case apiserver.ReasonForbidden:
		return HealthForbidden
	case apiserver.ReasonNotFound:
		return HealthNotServed
	default:
		return HealthFailing
	}
}
