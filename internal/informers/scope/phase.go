package scope

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
)

// Phase is what an informer is doing. Its Health says whether that succeeds.
type Phase uint8

// The phases of an informer. From PhaseDraining on, only the manager changes the phase.
const (
	PhaseWaiting    Phase = iota // for its turn to list, or to list again after its first list failed
	PhaseListing                 // the first list is being loaded
	PhaseAnnouncing              // the bus has not acknowledged a gap, or the start of a snapshot: changes wait for that
	PhaseLive                    // the watch is followed
	PhaseBlocked                 // the queue is full; the watch continues when there is room
	PhaseRelisting               // the watch could not resume: a list is compared with the last-known objects, or replaces them
	PhaseDraining                // a changed selection takes effect once the bus has all that was sent
	PhaseRetiring                // no longer selected; not all that was sent, or that the objects left, is on the bus
	PhaseDrained                 // the bus has all that was sent
	PhaseRemoved                 // the manager has forgotten the informer
)

// String returns the name of a phase, as in the metrics.
func (p Phase) String() string {
	return [...]string{
		PhaseWaiting: "waiting", PhaseListing: "listing", PhaseAnnouncing: "announcing", PhaseLive: "live", PhaseBlocked: "blocked",
		PhaseRelisting: "relisting", PhaseDraining: "draining", PhaseRetiring: "retiring", PhaseDrained: "drained", PhaseRemoved: "removed",
	}[p]
}

// leadsTo reports whether next may follow p.
func (p Phase) leadsTo(next Phase) bool {
	table := [...][]Phase{
		PhaseWaiting:    {PhaseListing, PhaseAnnouncing, PhaseDraining, PhaseRetiring, PhaseRemoved}, // announcing: there is nothing to list
		PhaseListing:    {PhaseWaiting, PhaseAnnouncing, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseAnnouncing: {PhaseLive, PhaseBlocked, PhaseRelisting, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseLive:       {PhaseAnnouncing, PhaseBlocked, PhaseRelisting, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseBlocked:    {PhaseAnnouncing, PhaseLive, PhaseRelisting, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseRelisting:  {PhaseAnnouncing, PhaseDraining, PhaseRetiring, PhaseRemoved},
		PhaseDraining:   {PhaseRetiring, PhaseDrained, PhaseRemoved},
		PhaseRetiring:   {PhaseDraining, PhaseRemoved},
		PhaseDrained:    {PhaseDraining, PhaseRetiring, PhaseRemoved}, // another selection came before anything took its place
		PhaseRemoved:    {},
	}
	return slices.Contains(table[p], next)
}

// isListed reports whether a list has been loaded. It is not meaningful for an informer that leaves.
func (p Phase) isListed() bool { return p > PhaseListing }

// IsLeaving reports whether the informer is to end because of a new selection, or has ended.
func (p Phase) IsLeaving() bool { return p >= PhaseDraining }

// IllegalChange is logged if a change of the phase is not in the table.
const IllegalChange = "illegal change of phase"

// toLocked changes the phase. No other function does.
func (s *state) toLocked(next Phase) {
	if next == s.phase {
		return
	}
	if !s.phase.leadsTo(next) {
		s.log.Error(IllegalChange, "scope", s.scope, "from", s.phase.String(), "to", next.String())
	}
	s.phase = next
	if next != PhaseListing {
		s.expects = 0
	}
	s.changed()
}

// to is for the manager.
func (s *state) to(next Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.toLocked(next)
}

// now returns the phase.
func (s *state) now() Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

// move changes the phase if it is from.
func (s *state) move(from, next Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == from {
		s.toLocked(next)
	}
}

// gate follows the store. loading: a list is being loaded. closed: changes wait until the bus has acknowledged what announces them.
func (s *state) gate(loading, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.phase.IsLeaving(), s.unlisted:
	case loading && s.phase.isListed():
		s.toLocked(PhaseRelisting)
	case loading: // the first list waits for its turn
	case closed:
		s.toLocked(PhaseAnnouncing)
	case s.unread:
		s.toLocked(PhaseBlocked)
	default:
		s.toLocked(PhaseLive)
	}
}

// Health is whether an informer succeeds at what its phase says.
type Health uint8

// The healths of an informer.
const (
	HealthOK        Health = iota
	HealthFailing          // the last request failed, and is made again
	HealthStale            // silent, or failing, for so long that what is known may be out of date
	HealthForbidden        // not permitted
	HealthNotServed        // the API server does not serve the resource
)

// String returns the name of a health, as in the metrics.
func (h Health) String() string {
	return [...]string{
		HealthOK: "ok", HealthFailing: "failing", HealthStale: "stale", HealthForbidden: "forbidden", HealthNotServed: "notserved",
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
