package store

// View is what others wait for of a store, as it is at one moment.
type View struct {
	Adopted      bool   // there is a position of the store's own to resume from
	Empty        bool   // Adopted, no object exists, and the bus has everything
	Finished     bool   // nothing more will come, no object exists, and the bus has everything
	Resting      bool   // of a store that rests: no position would miss anything that is on its way to the bus
	InFlight     int    // deltas of objects that are not acknowledged, except for those that a relist has still to send
	Reached      uint64 // resourceVersion up to which the store has everything
	Acknowledged uint64 // resourceVersion up to which the bus has everything
}

// View returns the present view. The next change of it is told by the signal of mu.
func (s *Store) View() View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, _ := s.pos.ledger.Mark()
	outstanding := s.pos.ledger.Outstanding()
	v := View{Adopted: s.pos.own, InFlight: outstanding, Reached: s.known.rv, Acknowledged: m.rv}
	if b := s.pos.barrier; b != nil {
		v.InFlight += b.due.Outstanding() - len(b.receipts)
	}
	if s.snaps.current != nil {
		v.InFlight += s.snaps.current.reads.Outstanding()
	}
	nothing := s.caughtUp && len(s.known.objects) == 0 && outstanding == 0 && !s.log.owes() && !s.snaps.due
	v.Empty = nothing && s.pos.own
	v.Finished = nothing && s.gone && s.snaps.current == nil && s.pos.barrier == nil && len(s.gate.notices) == 0
	v.Resting = s.isRestingLocked(v.InFlight)
	return v
}

func (s *Store) isRestingLocked(inFlight int) bool {
	switch {
	case s.applying:
		return false
	case s.list.at != listed:
		return inFlight == 0
	}
	return len(s.gate.notices) == 0 && s.pos.ledger.Outstanding() == 0
}

// Changed returns a channel that is closed by the next change.
func (s *Store) Changed() <-chan struct{} { return s.mu.Next() }

// Notify wakes those who wait for the store, or for what depends on it.
func (s *Store) Notify() { s.mu.Notify() }

// MarkGone notes that the resource was removed: nothing more will come.
func (s *Store) MarkGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

// Stop makes Apply block for good, until its context ends. An event that is being applied is completed.
func (s *Store) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}
