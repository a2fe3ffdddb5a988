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

// Notice is what comes before what a list made due: prepare is called, then event is sent and acknowledged, then done
// called. Any may be nil. event and done are called under mu; event nil, or what it returns: nothing is sent.
type Notice struct {
	prepare func(ctx context.Context) error
	event   func() *object.StreamEvent
	done    func()
	gap     bool // of lost history: where more is lost before it is acknowledged, the next one tells of both
	// begins is a snapshot that is given up if it cannot begin in time, nil: there is none. sending: its start was handed to the queue.
	// Both are under mu.
	begins  *Snapshot
	sending bool
	rebase  bool      // of a log that was replaced
	opens   *Snapshot // whose start it tells; nil: it tells another thing
}

// acknowledged is an object.Acker for a single delta.
type acknowledged chan struct{}

// announceLists has the notices of the lists since sent, each after the one before it was acknowledged, and opens the gate
// if no further list has begun meanwhile.
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
	limit, end := ctx, context.CancelFunc(func() {})
	s.mu.Lock()
	if n.begins != nil {
		limit, end = context.WithTimeoutCause(ctx, gateWithin, fmt.Errorf("waited for %v", gateWithin))
	}
	defer end()
	prepared, cancel := context.WithCancel(limit)
	defer cancel()
	s.gate.interrupt = cancel
	s.mu.Unlock()

	var err error
	if n.prepare != nil {
		err = n.prepare(prepared)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if !s.isFirstLocked(n) {
		s.mu.Unlock()
		return nil // a new list has begun
	}
	switch {
	case err != nil && n.begins != nil:
		s.giveUpLocked(n, err)
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
			ev.History = s.pos.history
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
		err = s.SendStream(ctx, ev)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent && len(s.gate.notices) > 0 && s.gate.notices[0] == n { // else a new list has begun, and another notice takes its place
		s.gate.notices = s.gate.notices[1:]
		if n.done != nil {
			n.done()
		}
	}
	return nil
}

// isFirstLocked reports whether n is the notice to be sent now. The caller holds mu.
func (s *Store) isFirstLocked(n *Notice) bool {
	return !s.list.at.isLoading() && len(s.gate.notices) > 0 && s.gate.notices[0] == n
}

// sendStart sends the start of a snapshot; sent: the bus has acknowledged it. If limit ends first, the snapshot is given up, unless a
// list has begun meanwhile: that compares with the objects that are to be read, and the snapshot stays.
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
			// A start that is in the queue cannot be taken back: it comes late, and no end follows it.
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

// SendStream puts a stream event into the queue and waits until the bus has acknowledged it.
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

// putStream puts a stream event into the queue. The channel is closed once the bus has acknowledged it.
func (s *Store) putStream(ctx context.Context, ev *object.StreamEvent) (acknowledged, error) {
	acked := make(acknowledged)
	d := &object.Delta{Stream: ev, Observed: time.Now().UnixNano(), Acker: acked}
	s.o.Metrics.count(d)
	// No object has such a key: names of resources hold no colon.
	if err := s.o.Lane.Put(ctx, "stream:"+s.o.Scope, deltaOverhead, d); err != nil {
		return nil, err
	}
	return acked, nil
}

// SendProgress says up to where everything is on the bus, once the first snapshot is.
func (s *Store) SendProgress(ctx context.Context) error {
	s.mu.Lock()
	m, _ := s.pos.ledger.Mark()
	ev := &object.StreamEvent{
		Kind: object.Progress, Resource: s.o.Resource, Scope: s.o.Scope, ResourceVersion: m.rv, History: s.pos.history,
	}
	// While a gap is not announced, or a list is read, the mark speaks of what is given up perhaps.
	s.noteReplacementLocked()
	told := s.pos.own && s.caughtUp && s.list.lost == nil && !s.list.at.isLoading() && !s.log.owes()
	s.mu.Unlock()
	if !told {
		return nil
	}
	return s.SendStream(ctx, ev)
}

// SendLeft sends that every object of the store has left at resourceVersion rv, and waits until that is on the bus. Nobody else
// uses the store.
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

// Acked implements object.Acker.
func (a acknowledged) Acked(*object.Delta) { close(a) }
