package store

import (
	"context"
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// gate holds deltas back until the stream events that announce them are acknowledged.
type gate struct {
	notices   []*Notice          // in order
	closed    chan struct{}      // nil while the gate is open, else closed when it opens. Live deltas wait for it.
	interrupt context.CancelFunc // ends the wait of the cursor
}

// Notice precedes the deltas that a list made pending. The cursor calls prepare, sends the result
// of event (nil: nothing), waits for its acknowledgement, and calls done. Any of the three may be
// nil. event and done are called with mu held.
type Notice struct {
	prepare func(ctx context.Context) error
	event   func() *object.StreamEvent
	done    func()
	Sweeps  bool      // a snapshot follows
	gap     bool      // announces lost history: a new list replaces it by a notice that covers both losses
	rebase  bool      // announces a replaced log
	begins  bool      // announces the observation of the scope
	reform  *reform   // the change of forms that it announces, or nil
	opens   *snapshot // the snapshot whose start it announces, or nil
}

type acknowledged chan struct{} // closed by the acknowledgement of a single delta

func (a acknowledged) Acked(*object.Delta) { close(a) }

func (a acknowledged) wait(ctx context.Context) error {
	select {
	case <-a:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// announceLists sends every Notice, each after the acknowledgement of the one before, and opens the
// gate unless another list began.
func (s *Store) announceLists(ctx context.Context) error {
	for {
		if more, err := s.announceNext(ctx); !more || err != nil {
			return err
		}
	}
}

// announceNext sends the first notice, and returns after its acknowledgement, or once it is
// replaced or given up. It returns false if there is no notice to send. An error ends the cursor.
func (s *Store) announceNext(ctx context.Context) (more bool, err error) {
	limit, end := context.WithCancelCause(ctx)
	defer end(nil)
	prepared, interrupt := context.WithCancel(limit)
	defer interrupt()
	s.mu.Lock()
	n := s.nextNoticeLocked()
	s.gate.interrupt = interrupt
	if n != nil && n.opens.mayBeGivenUp() {
		defer time.AfterFunc(gateWithin, func() { end(fmt.Errorf("waited for %v", gateWithin)) }).Stop()
	}
	s.mu.Unlock()
	if n == nil {
		return false, nil
	}
	if n.prepare != nil {
		err = n.prepare(prepared)
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	ev, ok, err := s.prepared(prepared, n, err)
	if ok && ev != nil {
		ok, err = s.sendNotice(ctx, limit, n, ev)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok && len(s.gate.notices) > 0 && s.gate.notices[0] == n { // otherwise a new list has replaced it
		s.gate.notices = s.gate.notices[1:]
		if n.opens != nil {
			s.enterLocked(n.opens, snapshotReading)
			n.opens.begun = true
			n.opens.answer()
		}
		if n.done != nil {
			n.done()
		}
	}
	return true, err
}

// nextNoticeLocked returns the first notice. If there is none, it opens the gate.
func (s *Store) nextNoticeLocked() *Notice {
	if s.list.at.isLoading() {
		return nil // EndList wakes the cursor again
	}
	s.announceReplacementLocked()
	s.announceBeginLocked()
	if len(s.gate.notices) > 0 {
		return s.gate.notices[0]
	}
	if s.gate.closed != nil && s.list.at == listed && !s.stopped {
		close(s.gate.closed)
		s.gate.closed = nil
		s.showGateLocked()
	}
	return nil
}

// prepared returns the event of n, whose prepare returned err; nil sends nothing. It returns false
// if n is replaced or given up, or with an error that ends the cursor. If a list began, it has
// ended ctx.
func (s *Store) prepared(ctx context.Context, n *Notice, err error) (ev *object.StreamEvent, ok bool, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && n.opens.mayBeGivenUp():
		s.giveUpLocked(err)
		return nil, false, nil
	case ctx.Err() != nil:
		return nil, false, nil
	case err != nil: // the position can no longer be saved: the agent ends
		return nil, false, err
	}
	if n.event != nil {
		ev = n.event()
		if ev != nil {
			ev.History = s.pos.history
		}
	}
	switch {
	case n.opens == nil:
	case n.opens.mayBeGivenUp():
		s.enterLocked(n.opens, snapshotTried)
	default:
		s.enterLocked(n.opens, snapshotStarting)
	}
	return ev, true, nil
}

// sendNotice sends the event of n, and reports whether the bus has acknowledged it. If limit ends
// before ctx, the snapshot is given up, unless a list has begun: then the snapshot continues with
// the objects of that list.
func (s *Store) sendNotice(ctx, limit context.Context, n *Notice, ev *object.StreamEvent) (sent bool, err error) {
	acked, err := s.putStream(limit, ev)
	if err == nil {
		err = acked.wait(limit)
	}
	if err == nil || ctx.Err() != nil {
		return err == nil, err
	}
	s.mu.Lock()
	given := n.opens.mayBeGivenUp() // otherwise a list has begun
	switch {
	case given:
		s.giveUpLocked(fmt.Errorf("the bus has not acknowledged its start: %w", err))
		if acked != nil { // it cannot be withdrawn: it arrives late, and no snapshot.completed follows it
			s.snaps.orphan = acked
		}
	case acked == nil && n.opens.phase == snapshotStarting:
		s.enterLocked(n.opens, snapshotBound) // it is announced again
	}
	s.mu.Unlock()
	if given || acked == nil {
		return false, nil
	}
	err = acked.wait(ctx)
	return err == nil, err
}

// SendStream puts a stream event into the lane and waits until the bus has acknowledged it. The
// only error is the cause of ctx.
func (s *Store) SendStream(ctx context.Context, ev *object.StreamEvent) error {
	acked, err := s.putStream(ctx, ev)
	if err != nil {
		return err
	}
	return acked.wait(ctx)
}

func (s *Store) putStream(ctx context.Context, ev *object.StreamEvent) (acknowledged, error) {
	acked := make(acknowledged)
	d := &object.Delta{Stream: ev, Observed: s.o.Now().UnixNano(), Acker: acked}
	s.o.Metrics.count(d)
	if err := put(ctx, s.o.Lane, d); err != nil {
		return nil, err
	}
	return acked, nil
}

// Send puts a stream event of a scope without a store into its lane, and waits until the bus has
// acknowledged it. The only error is the cause of ctx.
func Send(ctx context.Context, lane Lane, ev *object.StreamEvent, now time.Time) error {
	acked := make(acknowledged)
	if err := put(ctx, lane, &object.Delta{Stream: ev, Observed: now.UnixNano(), Acker: acked}); err != nil {
		return err
	}
	return acked.wait(ctx)
}

// put puts a stream event into the lane of its scope.
func put(ctx context.Context, lane Lane, d *object.Delta) error {
	// No object has such a key: resource names have no colon.
	return lane.Put(ctx, "stream:"+d.Stream.Scope, deltaOverhead, d)
}

// SendLeft sends a left delta at rv for every object, and waits for acknowledgements. The last one
// calls end, even if ctx has ended. If ctx ends before all are sent, none does. It needs exclusive
// use of s. The only error is the cause of ctx.
func (s *Store) SendLeft(ctx context.Context, rv uint64, end func()) error {
	all := newCount()
	for key, e := range s.known.objects {
		d := &object.Delta{
			Op:              object.Left,
			Inferred:        true,
			Ref:             e.last.Ref,
			Before:          e.last,
			ResourceVersion: rv,
			Previous:        e.last.ResourceVersion,
			History:         s.pos.history,
			Observed:        s.o.Now().UnixNano(),
			Scope:           s.o.Scope,
			Acker:           all.Add(struct{}{}),
		}
		s.o.Metrics.count(d)
		if err := s.o.Lane.Put(ctx, key, heldBytes(d), d); err != nil {
			return err
		}
	}
	acked := make(acknowledged)
	all.Seal(func() {
		end()
		close(acked)
	})
	return acked.wait(ctx)
}
