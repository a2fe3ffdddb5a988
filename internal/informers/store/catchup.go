package store

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// catchUp is the cursor. It announces each list and opens the gate for live deltas. It sends
// pending deltas in key order, in the room that live ones leave. It also begins requested snapshots
// and completes them. It returns when ctx ends.
func (s *Store) catchUp(ctx context.Context) {
	defer close(s.ended)
	var completed <-chan struct{} // the bus has all reads of the snapshot
	for {
		select {
		case <-ctx.Done():
			return
		case <-completed:
			if s.complete(ctx) != nil {
				return
			}
		case <-s.wake:
		case r := <-s.requests:
			s.begin(ctx, r)
		}
		if s.announceLists(ctx) != nil || s.sendPending(ctx) != nil {
			return
		}
		var first bool
		completed, first = s.review()
		broadcast.Wake(s.kick)
		if first {
			s.o.NoteCaptured()
		}
	}
}

// review returns a channel that is closed once the bus has all reads of the snapshot; nil while not
// all are sent. first reports whether the bus has, for the first time, everything that the first
// list made pending.
func (s *Store) review() (completed <-chan struct{}, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.list.at == listed && len(s.gate.notices) == 0 && s.known.pendingKeys == 0
	if b := s.pos.barrier; sent && b != nil {
		b.due.Seal(func() { // the position passes the gap once everything sent so far is acknowledged
			for _, r := range b.receipts {
				r.Acked(nil)
			}
		})
		s.pos.barrier = nil
	}
	switch snap := s.snaps.current; {
	case snap == nil:
		first = sent && !s.snaps.due && !s.caughtUp
		s.caughtUp = s.caughtUp || first
		return nil, first
	case s.log.owes(): // it will be given up
		return nil, false
	case sent && snap.phase == snapshotReading:
		s.enterLocked(snap, snapshotSent)
		done := make(chan struct{})
		snap.done = done
		snap.reads.Seal(func() { close(done) })
	}
	return s.snaps.current.done, false
}

// Settle makes the position pass gaps once the bus has everything sent, if nothing is pending. It
// follows the end of Run and of the owner: live deltas may have taken the last pending ones while
// the cursor waited for room.
func (s *Store) Settle() { _, _ = s.review() }

// sendPending sends everything pending, or returns when a new list begins. BeginList cancels its
// waits for room and for the API server, because live deltas then wait for an announcement that
// only the cursor can send.
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
			verdict, ok := s.judgeGone(ctx, ref)
			if ok {
				gone = verdict
			}
		case offerRefused:
			select {
			case <-s.o.Lane.Room():
			case <-ctx.Done():
			}
		}
	}
}

// judgeGone finds out why an object is missing from the list. It may have been deleted since: so
// the question is about the version of the list. If history no longer has that, it is about now. ok
// is false if ctx ended first.
func (s *Store) judgeGone(ctx context.Context, ref *object.Ref) (v verdict, ok bool) {
	s.mu.RLock()
	listed := s.list.rv
	s.mu.RUnlock()
	exists, known, ok := s.o.Selector.Exists(ctx, ref, listed)
	if ok && !known {
		exists, known, ok = s.o.Selector.Exists(ctx, ref, 0)
	}
	v = verdict{ref: ref, op: object.Deleted}
	if exists || !known {
		v.op = object.Left
	}
	return v, ok
}

type verdict struct { // why an object is missing from a list under selectors
	ref *object.Ref
	op  object.Op // Deleted or Left
}

type offer int // why offerPending returned

const (
	offeredAll        offer = iota // nothing is pending, or a new list is being loaded
	offeredSome                    // other goroutines may take the lock now
	offerRefused                   // no room
	offerNeedsVerdict              // the Selector must be asked about ref first
)

// offerBatch and offerFor bound the number of deltas and the time with mu held, so that live deltas
// do not wait for a whole snapshot.
const (
	offerBatch = 256
	offerFor   = 10 * time.Millisecond
)

// offerPending puts pending deltas into the lane, in key order, while there is room. gone is the
// answer to the last offerNeedsVerdict.
func (s *Store) offerPending(gone verdict) (offer, *object.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.gaugeLocked()
	began := time.Now()
	for n := range offerBatch {
		if n > 0 && s.filters.Load().by != nil && time.Since(began) > offerFor {
			// a single expression may take that long
			return offeredSome, nil
		}
		if s.list.at.isLoading() || len(s.gate.notices) > 0 || s.log.owes() {
			return offeredAll, nil
		}
		if s.known.next == len(s.known.order) {
			s.known.order, s.known.next = nil, 0 // releases the keys
			return offeredAll, nil
		}
		if next, ref := s.offerNextLocked(gone); next != offeredSome {
			return next, ref
		}
	}
	return offeredSome, nil
}

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
			defer acknowledge(d)
		case !s.o.Lane.TryPut(key, heldBytes(d), d):
			receipt.Withdraw()
			return offerRefused, nil
		default:
			s.o.Metrics.count(d)
		}
		s.skipLocked(key, skipped)
		s.noteOutcomeLocked(key, d, sent, s.known.objects[key].hidden)
	}
	s.settleLocked(key, rest)
	if rest == nil {
		s.known.next++
	}
	return offeredSome, nil
}
