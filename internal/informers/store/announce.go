package store

import (
	"context"
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// gate keeps deltas back until the stream events that announce them are acknowledged.
type gate struct {
	notices []*Notice // in order
	// closed is nil while the gate is open. Otherwise it is closed when the gate opens. Live deltas wait for it.
	closed    chan struct{}
	interrupt context.CancelFunc // ends what the cursor waits for, nil: the cursor has not begun
}

// Notice precedes what a list made pending. The cursor calls prepare, sends what event returns (nil: nothing), waits for its acknowledgement,
// and calls done. Any of the three may be nil. event and done are called with mu held.
type Notice struct {
	prepare func(ctx context.Context) error
	event   func() *object.StreamEvent
	done    func()
	sweeps  bool // a snapshot follows
	gap     bool // of lost history: a new list replaces it by a notice that covers both losses
	// begins is a snapshot that is given up if it cannot begin in time, nil: none. sending: the event was handed to the lane. Both need mu.
	begins  *snapshot
	sending bool
	rebase  bool      // of a replaced log
	opens   *snapshot // the snapshot whose start it announces, nil: none
}

// Announces reports whether n may send an event.
func (n *Notice) Announces() bool { return n.event != nil }

// acknowledged is an object.Acker for a single delta: it is closed by the acknowledgement.
type acknowledged chan struct{}

// Acked implements object.Acker.
func (a acknowledged) Acked(*object.Delta) { close(a) }

// announceLists sends all notices, each after the acknowledgement of the one before, and opens the gate unless another list began meanwhile.
func (s *Store) announceLists(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.list.at.isLoading() {
			s.mu.Unlock()
			return nil // EndList wakes the cursor again
		}
		s.announceReplacementLocked()
		if len(s.gate.notices) == 0 {
			if s.gate.closed != nil && s.list.at == listed {
				close(s.gate.closed)
				s.gate.closed = nil
				s.showGateLocked()
			}
			s.mu.Unlock()
			return nil
		}
		n := s.gate.notices[0]
		s.mu.Unlock()
		if err := s.sendNotice(ctx, n); err != nil {
			return err
		}
	}
}

// sendNotice sends the first notice, unless a list begins meanwhile, or it begins a snapshot that is given up.
func (s *Store) sendNotice(ctx context.Context, n *Notice) error {
	s.mu.Lock()
	begins := n.begins != nil
	s.mu.Unlock()
	limit, end := ctx, context.CancelFunc(func() {})
	if begins {
		limit, end = context.WithTimeoutCause(ctx, gateWithin, fmt.Errorf("waited for %v", gateWithin))
	}
	defer end()
	ev, ok, err := s.prepareNotice(ctx, limit, n)
	if !ok {
		return err
	}
	sent := true
	switch {
	case ev == nil:
	case begins:
		sent, err = s.sendStart(ctx, limit, n, ev)
	default:
		err = s.SendStream(ctx, ev)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent && len(s.gate.notices) > 0 && s.gate.notices[0] == n { // else a new list has replaced it
		s.gate.notices = s.gate.notices[1:]
		if n.done != nil {
			n.done()
		}
	}
	return nil
}

// prepareNotice returns the event of n, which is about to be sent, nil: nothing is sent. It returns false if n is replaced or given up, or with an error
// that ends the cursor. limit bounds what a snapshot that begins waits for.
func (s *Store) prepareNotice(ctx, limit context.Context, n *Notice) (ev *object.StreamEvent, ok bool, err error) {
	prepared, cancel := context.WithCancel(limit)
	defer cancel()
	s.mu.Lock()
	s.gate.interrupt = cancel
	first := s.isFirstLocked(n)
	s.mu.Unlock()
	if !first {
		return nil, false, nil
	}
	if n.prepare != nil {
		err = n.prepare(prepared)
	}
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.isFirstLocked(n): // a new list began
		return nil, false, nil
	case err != nil && n.begins != nil:
		s.giveUpLocked(n, err)
		return nil, false, nil
	case prepared.Err() != nil: // a list began, and ended
		return nil, false, nil
	case err != nil: // the position cannot be saved any more: the agent ends
		return nil, false, err
	}
	if n.event != nil {
		if ev = n.event(); ev != nil {
			ev.History = s.pos.history
		}
	}
	n.sending = true
	return ev, true, nil
}

// isFirstLocked reports whether n is the notice to be sent now.
func (s *Store) isFirstLocked(n *Notice) bool {
	return !s.list.at.isLoading() && len(s.gate.notices) > 0 && s.gate.notices[0] == n
}

// sendStart sends the start of a snapshot, and reports whether the bus has acknowledged it. If limit ends before, it gives the snapshot up, unless
// a list has begun: the objects to be read are then compared with that list, and the snapshot continues.
func (s *Store) sendStart(ctx, limit context.Context, n *Notice, ev *object.StreamEvent) (sent bool, err error) {
	acked, err := s.putStream(limit, ev)
	if err == nil {
		select {
		case <-acked:
			return true, nil
		case <-limit.Done():
			err = context.Cause(limit)
		}
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	s.mu.Lock()
	given := n.begins != nil && !s.list.at.isLoading()
	if given {
		s.giveUpLocked(n, fmt.Errorf("the bus has not acknowledged its start: %w", err))
		if acked != nil {
			// A start in the queue cannot be withdrawn. It arrives late, and no snapshot.completed follows it.
			s.snaps.orphan = acked
		}
	}
	s.mu.Unlock()
	if given || acked == nil {
		return false, nil
	}
	select {
	case <-acked:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// SendStream puts a stream event into the lane and waits until the bus has acknowledged it. The only error is the cause of ctx.
func (s *Store) SendStream(ctx context.Context, ev *object.StreamEvent) error {
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

// putStream puts a stream event into the lane. The channel is closed once the bus has acknowledged it.
func (s *Store) putStream(ctx context.Context, ev *object.StreamEvent) (acknowledged, error) {
	acked := make(acknowledged)
	d := &object.Delta{Stream: ev, Observed: time.Now().UnixNano(), Acker: acked}
	s.o.Metrics.count(d)
	// No object has such a key: names of resources have no colon.
	if err := s.o.Lane.Put(ctx, "stream:"+s.o.Scope, deltaOverhead, d); err != nil {
		return nil, err
	}
	return acked, nil
}

// SendProgress sends the resourceVersion up to which the bus has acknowledged everything, and waits for the acknowledgement of that. It sends
// nothing before the first snapshot is complete, or while the resourceVersion may still be given up. The only error is the cause of ctx.
func (s *Store) SendProgress(ctx context.Context) error {
	s.mu.Lock()
	m, _ := s.pos.ledger.Mark()
	ev := &object.StreamEvent{
		Kind: object.Progress, Resource: s.o.Resource, Scope: s.o.Scope, ResourceVersion: m.rv, History: s.pos.history,
	}
	s.noteReplacementLocked()
	certain := s.pos.own && s.caughtUp && s.list.lost == nil && !s.list.at.isLoading() && !s.log.owes()
	s.mu.Unlock()
	if !certain {
		return nil
	}
	return s.SendStream(ctx, ev)
}

// SendLeft sends a left delta at resourceVersion rv for every object, waits until the bus has acknowledged all, and returns their number. Nobody
// else may use the store meanwhile.
func (s *Store) SendLeft(ctx context.Context, rv uint64) (int, error) {
	all := newCount()
	for key, e := range s.known.objects {
		d := &object.Delta{
			Op: object.Left, Inferred: true, Ref: e.last.Ref, Before: e.last, ResourceVersion: rv, Previous: e.last.ResourceVersion,
			History: s.pos.history, Observed: time.Now().UnixNano(), Scope: s.o.Scope, Acker: all.Add(struct{}{}),
		}
		s.o.Metrics.count(d)
		if err := s.o.Lane.Put(ctx, key, heldBytes(d), d); err != nil {
			return 0, err
		}
	}
	done := make(chan struct{})
	all.Seal(func() { close(done) })
	select {
	case <-done:
		return len(s.known.objects), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
