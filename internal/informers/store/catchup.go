package store

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// catchUp is the cursor. It announces each list, opens the gate for live deltas, and sends what is pending in key order, in the room that they
// leave. It also begins requested snapshots and completes them. It returns when ctx ends.
func (s *Store) catchUp(ctx context.Context) {
	defer close(s.ended)
	var completing *snapshot      // all of its reads are sent
	var completed <-chan struct{} // all are acknowledged
	for {
		select {
		case <-ctx.Done():
			return
		case <-completed:
			completed = nil
			if s.complete(ctx, completing) != nil {
				return
			}
		case <-s.wake:
		case r := <-s.requests:
			s.begin(ctx, r)
		}
		if s.announceLists(ctx) != nil || s.sendPending(ctx) != nil {
			return
		}
		sealed, first := s.review(completing)
		if sealed != completing {
			completing, completed = sealed, nil
			if sealed != nil {
				completed = sealed.done
			}
		}
		broadcast.Wake(s.kick)
		if first {
			s.o.Progressed()
		}
	}
}

// review looks what follows of what was sent. It returns the snapshot of which all reads are sent, nil: none, and whether the bus has, for the first
// time, everything that the first list made pending. completing is the snapshot that it has returned before.
func (s *Store) review(completing *snapshot) (sealed *snapshot, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.list.at == listed && len(s.gate.notices) == 0 && s.known.next == len(s.known.order)
	if sent && s.pos.barrier != nil {
		s.pos.barrier.pass()
		s.pos.barrier = nil
	}
	switch snap := s.snaps.current; {
	case snap == nil:
		first = sent && !s.snaps.due && !s.conditionChangedLocked() && !s.caughtUp
		s.caughtUp = s.caughtUp || first
		return nil, first
	case snap == completing:
		return snap, false
	case sent:
		snap.reads.Seal(func() { close(snap.done) })
		return snap, false
	}
	return nil, false // another one has replaced it, because history was lost
}

// sendPending sends everything pending, or returns when a new list begins.
//
// A new list must not find the cursor waiting: the gate is closed then, live deltas wait, and only the cursor can announce what opens it
// again. Therefore BeginList cancels the wait for room and the question to the API server.
func (s *Store) sendPending(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	s.mu.Lock()
	s.gate.interrupt = cancel
	s.mu.Unlock()
	var gone verdict
	for {
		if ctx.Err() != nil {
			return context.Cause(parent) // nil: a list has begun
		}
		next, ref := s.offerPending(gone)
		switch next {
		case offeredAll:
			return nil
		case offeredSome:
		case offerNeedsVerdict:
			exists, known, ok := s.o.Selector.Exists(ctx, ref, 0)
			if !ok {
				continue
			}
			gone = verdict{ref: ref, op: object.Deleted}
			if exists || !known {
				gone.op = object.Left
			}
		case offerRefused:
			select {
			case <-s.o.Lane.Room():
			case <-ctx.Done():
			}
		}
	}
}

// verdict is what happened to an object that a list under selectors missed.
type verdict struct {
	ref *object.Ref
	op  object.Op // Deleted or Left
}

// offer is why offerPending returned.
type offer int

const (
	offeredAll        offer = iota // nothing is pending any more, or a new list is being loaded
	offeredSome                    // others may have the lock now
	offerRefused                   // no room
	offerNeedsVerdict              // Selector has to be asked about ref first
)

// offerBatch bounds how many deltas are put while mu is held, and offerFor for how long, so that live deltas do not wait for a whole snapshot.
const (
	offerBatch = 256
	offerFor   = 10 * time.Millisecond
)

// offerPending puts pending deltas into the lane, in key order, as long as there is room. gone is the answer to the last offerNeedsVerdict.
func (s *Store) offerPending(gone verdict) (offer, *object.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.gaugeLocked()
	began := time.Now()
	for n := range offerBatch {
		if n > 0 && s.filters.Load() != nil && time.Since(began) > offerFor { // one expression may take that long
			return offeredSome, nil
		}
		if s.list.at.isLoading() || len(s.gate.notices) > 0 || s.log.owes() {
			return offeredAll, nil
		}
		if s.known.next == len(s.known.order) {
			s.known.order, s.known.next = nil, 0 // it references the keys
			return offeredAll, nil
		}
		if next, ref := s.offerNextLocked(gone); next != offeredSome {
			return next, ref
		}
	}
	return offeredSome, nil
}

// offerNextLocked puts the next pending delta into the lane.
func (s *Store) offerNextLocked(gone verdict) (offer, *object.Ref) {
	key, op := s.known.order[s.known.next], object.Deleted
	if ref := s.needsVerdictLocked(key); ref != nil && s.o.Selector != nil {
		if gone.ref != ref {
			return offerNeedsVerdict, ref
		}
		op = gone.op
	}
	d, rest := s.nextPendingLocked(key, op)
	if d != nil {
		receipt := s.expectAckLocked(key, d)
		skipped, sent := s.passPendingLocked(d, s.known.objects[key].skipped)
		switch {
		case !sent:
		case !s.o.Lane.TryPut(key, heldBytes(d), d):
			receipt.Withdraw()
			return offerRefused, nil
		default:
			s.o.Metrics.count(d)
		}
		s.skipLocked(key, skipped)
	}
	s.settleLocked(key, rest)
	if rest == nil {
		s.known.next++
	}
	return offeredSome, nil
}
