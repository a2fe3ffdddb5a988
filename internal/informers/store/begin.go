package store

import (
	"context"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Each run says that it observes the scope before it sends an event of an object. Without that, a
// reader cannot distinguish a scope without changes from one that nobody observes.
//
// scope.started follows the gap, if history was lost: a run that ends between the two finds the gap
// again, because the bus has nothing yet that claims a later position. It precedes the snapshot. It
// is sent again to a log that replaces another one, and when the rules of the scope change.

// beginning is the beginning of the observation, and what scope.started says about it.
type beginning struct {
	announced bool      // the bus has scope.started, with the rules in force
	initial   bool      // no earlier observation of the scope is known
	continued bool      // nothing is missing since an earlier observation
	since     time.Time // of the first run without an end in between; zero: not known
}

// beginLocked sets the beginning of the observation at the end of the first list.
func (s *Store) beginLocked() {
	b := &s.begins
	resumes := s.list.at == AtCheckpoint && s.pos.previous != nil
	b.continued = resumes && s.list.lost == nil
	b.initial = s.list.at == Fresh && s.list.lost == nil
	if b.since.IsZero() && !resumes { // otherwise an earlier release has not recorded it
		b.since = s.o.Now()
	}
}

// announceBeginLocked inserts the notice of scope.started after the gaps that precede it.
func (s *Store) announceBeginLocked() {
	isBegin := func(n *Notice) bool { return n.begins }
	if s.begins.announced || s.list.at != listed || slices.ContainsFunc(s.gate.notices, isBegin) {
		return
	}
	at := slices.IndexFunc(s.gate.notices, func(n *Notice) bool { return !n.gap && !n.rebase && n.reform == nil })
	if at < 0 {
		at = len(s.gate.notices)
	}
	var said *filtering
	n := &Notice{begins: true, prepare: s.adoptFirst}
	n.event = func() *object.StreamEvent {
		m, _ := s.pos.ledger.Mark()
		said = s.filters.Load()
		return &object.StreamEvent{
			Kind:            object.ScopeStarted,
			Resource:        s.o.Resource,
			Scope:           s.o.Scope,
			ResourceVersion: m.rv,
			Initial:         s.begins.initial,
			Continued:       s.begins.continued,
			Observation:     s.observationLocked(),
		}
	}
	n.done = func() {
		s.begins.initial, s.begins.continued = false, true
		s.begins.announced = said.hasRulesOf(s.filters.Load())
		if s.snaps.current == nil { // otherwise the next run must know what the former one withheld
			s.filtered.Store(s.filters.Load().by != nil)
		}
	}
	s.gate.notices = slices.Insert(s.gate.notices, at, n)
}

// adoptFirst makes the store use its own position, and saves it, unless it does already. The bus
// must not have scope.started without a position: the next run would take that for a lost one.
func (s *Store) adoptFirst(ctx context.Context) error {
	s.mu.RLock()
	own := s.pos.own
	s.mu.RUnlock()
	if own {
		return nil
	}
	return s.adopt(ctx)
}

// beginAgainLocked makes scope.started be sent again. Changes wait for it.
func (s *Store) beginAgainLocked() {
	if !s.begins.announced {
		return
	}
	s.begins.announced = false
	s.closeGateLocked()
	broadcast.Wake(s.wake)
}

// observationLocked describes the observation for the start of the scope, or of a snapshot.
func (s *Store) observationLocked() *object.Observation {
	return &object.Observation{Rules: s.filters.Load().rules, Since: s.begins.since}
}
