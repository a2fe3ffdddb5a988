package store

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Report returns what the bus has of the scope, with the hidden spans that were noted at since or
// later, or reach above the version that the bus has. To is the time of the oldest change that the
// bus has not acknowledged, zero if there is none. ResourceVersion is 0 while the bus lacks the
// first snapshot, or the gap of lost history.
func (s *Store) Report(since time.Time) object.ScopeReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteReplacementLocked()
	m, _ := s.pos.ledger.Mark()
	var r object.ScopeReport
	r.Hidden, r.FormerHidden = s.hidden.report(since, m.rv)
	isCertain := s.pos.own && s.caughtUp && s.list.lost == nil && !s.list.at.isLoading() && !s.log.owes()
	if !isCertain {
		return r
	}
	if at := s.pos.oldest(); !at.IsZero() { // before Mark: an acknowledgement in between may advance that
		r.To = at.Add(-1)
	}
	m, _ = s.pos.ledger.Mark()
	r.ResourceVersion = m.rv
	r.History = s.pos.history
	r.SnapshotBegan = s.snaps.completed
	return r
}

// HasBegun reports whether the bus has scope.started.
func (s *Store) HasBegun() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.begins.announced
}

// Settled reports whether all that lists have shown is sent, and so has its time. at is the latest
// of these times, zero if lists have shown nothing.
func (s *Store) Settled() (at time.Time, isSettled bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.known.found != 0 {
		at = time.Unix(0, s.known.found)
	}
	return at, s.list.at == listed && len(s.gate.notices) == 0 && len(s.known.pending) == 0
}
