package informers

// bury notes that nothing more will come.
func (s *store) bury() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buried = true
}

// isDeserted tells if there is no object, nor anything due of one.
func (s *store) isDeserted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects) == 0
}

// isSettled tells if nothing more will come, and all that came is on the bus.
func (s *store) isSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, outstanding := s.ledger.Oldest()
	owes := s.log.owes() || s.sweep
	return s.buried && s.caughtUp && len(s.objects) == 0 && s.snapshot == nil && s.barrier == nil && len(s.announce) == 0 && !outstanding && !owes
}

// isEmpty reports whether nothing is there, on its way to the bus, or owed because a log was replaced.
func (s *store) isEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, outstanding := s.ledger.Oldest()
	owes := s.log.owes() || s.sweep
	return s.adopted && s.caughtUp && len(s.objects) == 0 && !outstanding && !owes
}

// rest has the store take no live event any more, for good. One that is being applied is brought to its end.
func (s *store) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting = true
}

// settled tells, of a store that rests, that nothing is on its way to the bus that a position would not know of.
func (s *store) settled() bool {
	if !s.turn.TryLock() {
		return false // an event is being applied
	}
	defer s.turn.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded || s.listing != notListing {
		return s.inFlight() == 0
	}
	return len(s.announce) == 0 && s.ledger.Outstanding() == 0
}

// underway is how many deltas of objects were handed to the queue and are not acknowledged.
func (s *store) underway() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight()
}

// inFlight is underway for those who hold mu. What waits for a relist to be sent as a whole is none.
func (s *store) inFlight() int {
	n := s.ledger.Outstanding()
	if b := s.barrier; b != nil {
		n += b.due.Outstanding() - len(b.receipts)
	}
	if s.snapshot != nil {
		n += s.snapshot.reads.Outstanding()
	}
	return n
}

// isAdopted reports whether there is a position of the store's own to go on from.
func (s *store) isAdopted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.adopted
}
