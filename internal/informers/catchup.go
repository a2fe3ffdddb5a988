package informers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// acknowledged is an object.Acker for a single delta.
type acknowledged chan struct{}

// Acked implements object.Acker.
func (a acknowledged) Acked(*object.Delta) { close(a) }

// run sends what lists make due, and takes snapshots: after every, measured from the start of the last one (0: never), on demand, and those
// that have to follow a gap or a changed condition. It returns when ctx ends.
func (s *store) run(ctx context.Context, every time.Duration) {
	var both sync.WaitGroup
	both.Go(func() { s.catchUp(ctx) })
	both.Go(func() { s.takeSnapshots(ctx, every) })
	both.Wait()
}

// catchUp is the cursor: it announces each list, opens the gate for live deltas, and sends what is due in key order with
// the room that they leave. It also begins the snapshots that are asked for, and sends them. It returns when ctx ends.
func (s *store) catchUp(ctx context.Context) {
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
			s.begin(r)
		}
		if s.announceLists(ctx) != nil || s.sendDue(ctx) != nil {
			return
		}
		s.mu.Lock()
		sent := s.loaded && s.listing == notListing && len(s.announce) == 0 && s.next == len(s.order)
		if sent {
			if s.barrier != nil {
				s.barrier.pass()
				s.barrier = nil
			}
		}
		if s.snapshot != completing {
			completing, completed = nil, nil // history was lost, and another one has taken its place
		}
		if s.snapshot != nil && completing == nil && sent {
			completing, completed = s.snapshot, s.snapshot.done
			completing.seal()
		}
		idle := sent && s.snapshot == nil
		sweep := s.sweep || s.retells()
		s.mu.Unlock()
		s.owe()
		if idle && !sweep {
			s.catchUpEnded()
		}
	}
}

// alarm is a timer that is set again and again; one of 0 never rings.
type alarm struct {
	every time.Duration
	c     <-chan time.Time
	timer *time.Timer
	set   time.Time // for when; zero: it is not set
}

func newAlarm(every time.Duration) *alarm { return &alarm{every: every} }

func (a *alarm) rang() { a.set = time.Time{} }

func (a *alarm) at(t time.Time) {
	if a.every <= 0 || t.Equal(a.set) {
		return
	}
	a.stop()
	// One that is long due, at a start, or could not begin, waits a moment.
	a.timer, a.set = time.NewTimer(max(time.Until(t), min(a.every, time.Minute))), t
	a.c = a.timer.C
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// announceLists has the notices of the lists since sent, each after the one before it was acknowledged, and opens the gate
// if no further list has begun meanwhile.
func (s *store) announceLists(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.listing != notListing {
			s.mu.Unlock()
			return nil // endList wakes the cursor again
		}
		s.announceRebase()
		if len(s.announce) == 0 {
			if !s.open && s.loaded {
				close(s.gate)
				s.open = true
			}
			s.mu.Unlock()
			return nil
		}
		n := s.announce[0]
		s.mu.Unlock()
		if err := s.sendNotice(ctx, n); err != nil {
			return err
		}
	}
}

// sendNotice sends the first notice, unless a list begins meanwhile, or it begins a snapshot that is given up.
func (s *store) sendNotice(ctx context.Context, n *notice) error {
	limit, end := ctx, context.CancelFunc(func() {})
	s.mu.Lock()
	if n.begins != nil {
		limit, end = context.WithTimeoutCause(ctx, gateWithin, fmt.Errorf("waited for %v", gateWithin))
	}
	defer end()
	prepared, cancel := context.WithCancel(limit)
	defer cancel()
	s.interrupt = cancel
	s.mu.Unlock()

	var err error
	if n.prepare != nil {
		err = n.prepare(prepared)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if !s.isFirst(n) {
		s.mu.Unlock()
		return nil // a new list has begun
	}
	switch {
	case err != nil && n.begins != nil:
		s.giveUp(n, err)
		s.mu.Unlock()
		return nil
	case prepared.Err() != nil: // a list has begun, and ended
		s.mu.Unlock()
		return nil
	case err != nil: // nothing can be saved any more: the agent ends
		s.mu.Unlock()
		return err
	}
	var ev *object.StreamEvent
	if n.event != nil {
		if ev = n.event(); ev != nil {
			ev.History = s.history
		}
	}
	n.sending = true
	begins := n.begins != nil
	s.mu.Unlock()

	sent := true
	switch {
	case ev == nil:
	case begins:
		sent, err = s.sendStart(ctx, limit, n, ev)
	default:
		err = s.sendStream(ctx, ev)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent && len(s.announce) > 0 && s.announce[0] == n { // else a new list has begun, and another notice takes its place
		s.announce = s.announce[1:]
		if n.done != nil {
			n.done()
		}
	}
	return nil
}

// isFirst reports whether n is the notice to be sent now. The caller holds mu.
func (s *store) isFirst(n *notice) bool {
	return s.listing == notListing && len(s.announce) > 0 && s.announce[0] == n
}

// sendStream puts a stream event into the queue and waits until the bus has acknowledged it.
func (s *store) sendStream(ctx context.Context, ev *object.StreamEvent) error {
	acked, err := s.putStream(ctx, ev)
	if err != nil {
		return err
	}
	select {
	case <-acked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// putStream puts a stream event into the queue. The channel is closed once the bus has acknowledged it.
func (s *store) putStream(ctx context.Context, ev *object.StreamEvent) (acknowledged, error) {
	acked := make(acknowledged)
	d := &object.Delta{Stream: ev, Observed: time.Now().UnixNano(), Acker: acked}
	s.o.Metrics.count(d)
	// No object has such a key: names of resources hold no colon.
	if err := s.o.Lane.Put(ctx, "stream:"+s.o.Scope, deltaOverhead, d); err != nil {
		return nil, err
	}
	return acked, nil
}

// owe wakes takeSnapshots.
func (s *store) owe() {
	select {
	case s.owed <- struct{}{}:
	default: // it will look
	}
}

// catchUpEnded notes that all that the first list made due is on the bus.
func (s *store) catchUpEnded() {
	s.mu.Lock()
	first := !s.caughtUp
	s.caughtUp = true
	s.mu.Unlock()
	if first {
		s.o.Progressed()
	}
}

// progress is how many objects there are, how many deltas a list made due that are not on their way yet (reads of a
// snapshot: not acknowledged yet), and if the first of these catch-ups has ended.
func (s *store) progress() (objects, pending int, caughtUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending = s.due
	if s.snapshot != nil {
		pending += s.snapshot.reads.Outstanding()
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
			exists, known, ok := s.o.Selector.Exists(ctx, ref, 0)
			if !ok {
				continue
			}
			gone = verdict{ref: ref, op: object.Deleted}
			if exists || !known {
				gone.op = object.Left
			}
		case offerRefused:
			if err := s.o.Lane.Roomy(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			retry.Sleep(ctx, time.Millisecond) // Roomy answers what is likely: do not spin
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

// offerBatch bounds how many deltas are put under one hold of mu, and offerFor for how long, so that live deltas do not wait for a
// whole snapshot.
const (
	offerBatch = 256
	offerFor   = 10 * time.Millisecond
)

// offerDue puts what is due into the queue, in key order, as long as there is room.
func (s *store) offerDue(gone verdict) (offer, *object.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	for n := range offerBatch {
		if n > 0 && s.filters.Load() != nil && time.Since(began) > offerFor { // an expression may take as long for one
			return offeredSome, nil
		}
		if s.listing != notListing || len(s.announce) > 0 || s.log.owes() {
			return offeredAll, nil
		}
		if s.next == len(s.order) {
			s.order, s.next = nil, 0 // it holds on to the keys
			return offeredAll, nil
		}
		key := s.order[s.next]
		op := object.Deleted
		if ref := s.needsVerdict(key); ref != nil && s.o.Selector != nil {
			if gone.ref != ref {
				return offerNeedsVerdict, ref
			}
			op = gone.op
		}
		d, rest := s.nextDue(key, op)
		if d != nil {
			receipt := s.expectAck(key, d)
			skipped, sent := s.passDue(d, s.objects[key].skipped)
			switch {
			case !sent:
			case !s.o.Lane.TryPut(key, heldBytes(d), d):
				receipt.Withdraw()
				return offerRefused, nil
			default:
				s.o.Metrics.count(d)
			}
			s.skip(key, skipped)
		}
		s.settle(key, rest)
		if rest == nil {
			s.next++
		}
	}
	return offeredSome, nil
}
