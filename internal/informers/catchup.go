package informers

import (
	"context"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// snapshot counts the reads of one snapshot that the bus has acknowledged. completed must follow the last of them: it
// is what lets a consumer sweep.
type snapshot struct {
	id   string
	rv   uint64
	sent int // under the store's mu

	mu     sync.Mutex
	acked  int
	sealed bool // sent is final
	total  int
	done   chan struct{} // closed when all are acknowledged
}

func newSnapshot(id string, rv uint64) *snapshot {
	return &snapshot{id: id, rv: rv, done: make(chan struct{})}
}

// Acked implements object.Acker for reads.
func (s *snapshot) Acked(*object.Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked++
	s.finish()
}

// seal says how many reads there are in all. Called once.
func (s *snapshot) seal(total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed, s.total = true, total
	s.finish()
}

// unacknowledged is how many of sent reads the bus has not acknowledged.
func (s *snapshot) unacknowledged(sent int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sent - s.acked
}

// finish closes done once everything is acknowledged. A delta is acknowledged once, so it happens once.
func (s *snapshot) finish() {
	if s.sealed && s.acked == s.total {
		close(s.done)
	}
}

// acknowledged is an object.Acker for a single delta.
type acknowledged chan struct{}

// Acked implements object.Acker.
func (a acknowledged) Acked(*object.Delta) { close(a) }

// catchUp is the cursor: it announces each list, opens the gate for live deltas, and sends what is due in key order with
// the room that they leave. It returns when ctx ends.
func (s *store) catchUp(ctx context.Context) {
	var completed <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-completed:
			completed = nil
			if s.complete(ctx) != nil {
				return
			}
			continue
		case <-s.wake:
		}
		if s.announceLists(ctx) != nil || s.sendDue(ctx) != nil {
			return
		}
		s.mu.Lock()
		sent := s.loaded && !s.listing && s.next == len(s.order)
		// Sealed once: a further wake finds it sealed, and completed set.
		if snap := s.snapshot; snap != nil && completed == nil && sent {
			completed = snap.done
			snap.seal(snap.sent)
		}
		s.mu.Unlock()
		if sent && completed == nil {
			s.catchUpEnded() // no snapshot: nothing to wait for
		}
	}
}

// announceLists sends the stream events of the lists since, each after the one before it was acknowledged, and opens
// the gate if no further list has begun meanwhile.
func (s *store) announceLists(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.listing {
			s.mu.Unlock()
			return nil // endList wakes the cursor again
		}
		if len(s.announce) == 0 {
			if !s.open {
				close(s.gate)
				s.open = true
			}
			s.mu.Unlock()
			return nil
		}
		ev := s.announce[0]
		s.mu.Unlock()

		if err := s.sendStream(ctx, ev); err != nil {
			return err
		}
		s.mu.Lock()
		s.announce = s.announce[1:]
		s.mu.Unlock()
	}
}

// sendStream puts a stream event into the queue and waits until the bus has acknowledged it.
func (s *store) sendStream(ctx context.Context, ev *object.StreamEvent) error {
	acked := make(acknowledged)
	d := &object.Delta{Stream: ev, Observed: s.now().UnixNano(), Acker: acked}
	s.metrics.count(d)
	// No object has such a key: names of resources hold no colon.
	if err := s.lane.Put(ctx, "stream:"+s.scope, deltaOverhead, d); err != nil {
		return err
	}
	select {
	case <-acked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// complete says that the snapshot in progress is on the bus.
func (s *store) complete(ctx context.Context) error {
	s.mu.Lock()
	snap := s.snapshot
	s.snapshot = nil
	s.mu.Unlock()
	err := s.sendStream(ctx, &object.StreamEvent{
		Kind: object.SnapshotCompleted, Resource: s.resource, Scope: s.scope,
		Snapshot: snap.id, ResourceVersion: snap.rv, Objects: snap.total,
	})
	if err == nil {
		s.catchUpEnded()
	}
	return err
}

// catchUpEnded notes that all that the first list made due is on the bus.
func (s *store) catchUpEnded() {
	s.mu.Lock()
	first := !s.caughtUp
	s.caughtUp = true
	s.mu.Unlock()
	if first {
		s.progressed()
	}
}

// progress is how many objects there are, how many deltas a list made due that are not on their way yet (reads of a
// snapshot: not acknowledged yet), and if the first of these catch-ups has ended.
func (s *store) progress() (objects, pending int, caughtUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending = s.due
	if s.snapshot != nil {
		pending += s.snapshot.unacknowledged(s.snapshot.sent)
	}
	return len(s.objects), pending, s.caughtUp
}

// sendDue moves the cursor to the end of what is due, or until a new list begins.
//
// A new list must not find it waiting: the gate is shut then, live deltas wait, and only the cursor can announce what
// opens it again. So beginList ends the wait for room and the question to the server.
func (s *store) sendDue(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	s.mu.Lock()
	s.interrupt = cancel
	s.mu.Unlock()
	var gone verdict
	for {
		if ctx.Err() != nil {
			return context.Cause(parent) // nil: a list has begun
		}
		next, ref := s.offerDue(gone)
		switch next {
		case offeredAll:
			return nil
		case offeredSome:
		case offerNeedsVerdict:
			exists, told, ok := s.selected.exists(ctx, ref, 0)
			if !ok {
				continue
			}
			gone = verdict{ref: ref, op: object.Deleted}
			if exists || !told {
				gone.op = object.Left
			}
		case offerRefused:
			if err := s.lane.Roomy(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			sleep(ctx, time.Millisecond) // Roomy answers what is likely: do not spin
		}
	}
}

// verdict is what the server said of an object that a list under a selector missed.
type verdict struct {
	ref *object.Ref
	op  object.Op // Deleted or Left
}

type offer int

const (
	offeredAll        offer = iota // nothing is due any more, or a new list is being loaded
	offeredSome                    // others may have the lock now
	offerRefused                   // no room
	offerNeedsVerdict              // the server has to be asked about ref first
)

// offerBatch bounds how many deltas are put under one hold of mu, so that live deltas do not wait for a whole snapshot.
const offerBatch = 256

// offerDue puts what is due into the queue, in key order, as long as there is room.
func (s *store) offerDue(gone verdict) (offer, *object.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range offerBatch {
		if s.listing || len(s.announce) > 0 {
			return offeredAll, nil
		}
		if s.next == len(s.order) {
			s.order, s.next = nil, 0 // it holds on to the keys
			return offeredAll, nil
		}
		key := s.order[s.next]
		op := object.Deleted
		if prior := s.prior[key]; s.selected != nil && prior != nil && s.objects[key].last == nil {
			if gone.ref != prior.Ref {
				return offerNeedsVerdict, prior.Ref
			}
			op = gone.op
		}
		d := s.nextDue(key, op)
		if d != nil {
			if !s.lane.TryPut(key, heldBytes(d), d) {
				return offerRefused, nil
			}
			s.metrics.count(d)
		}
		s.settle(key, d)
		if s.objects[key].due == dueNothing {
			s.next++
		}
	}
	return offeredSome, nil
}
