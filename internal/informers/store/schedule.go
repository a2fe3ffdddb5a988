package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/retry"
)

// Started is the answer to TakeSnapshot.
type Started struct {
	Scope    string // name of the part that is read
	Snapshot string // id
	Objects  int    // to be read
	Running  bool   // the snapshot was in progress before
}

// request is for a snapshot of a namespace ("": of all), which is the part of that scope name.
type request struct {
	scope, namespace string
	answer           chan begun // buffered
}

type begun struct {
	started Started
	err     error
}

const (
	// beginWithin is how long a snapshot of the last-known objects waits for the bus and the checkpoint while live deltas pass.
	beginWithin = 20 * time.Second
	// gateWithin is how long live deltas wait for a snapshot that begins. It is given up then.
	gateWithin = 5 * time.Second
)

// ErrNotBegun means that a snapshot was given up because it could not begin in time. No change waits for it.
var ErrNotBegun = errors.New("the snapshot cannot begin")

var (
	errEnded     = errors.New("informer has ended")
	errNotLoaded = errors.New("its first list is not loaded yet: try again when it is")
	errCatchUp   = errors.New("it is still catching up after a gap: try again in a moment")
)

// TakeSnapshot starts a snapshot of the last-known objects in a namespace ("": of all). scope is the name of that part. It returns once the bus
// has acknowledged the start, or at once if a snapshot is in progress. A snapshot that cannot begin within 25 s is given up, which is logged and
// returned as ErrNotBegun. Other errors say why none can begin now, or are the cause of ctx.
func (s *Store) TakeSnapshot(ctx context.Context, scope, namespace string) (_ Started, err error) {
	defer func() {
		if errors.Is(err, ErrNotBegun) {
			s.o.Log.Warn("a snapshot cannot begin and is given up, changes go on", "scope", s.o.Scope, "err", err)
		}
	}()
	s.mu.Lock()
	if snap := s.snaps.current; snap != nil { // the cursor may be busy with it for long
		defer s.mu.Unlock()
		return snap.status(true), nil
	}
	s.mu.Unlock()
	within, cancel := context.WithTimeoutCause(ctx, beginWithin, fmt.Errorf("waited for %v", beginWithin))
	defer cancel()
	r := &request{scope: scope, namespace: namespace, answer: make(chan begun, 1)}
	err = s.clearTheWay(within)
	if err == nil {
		select {
		case s.requests <- r:
		case <-s.ended:
			return Started{}, errEnded
		case <-within.Done():
			err = errCatchUp
		}
	}
	switch {
	case ctx.Err() != nil:
		return Started{}, context.Cause(ctx)
	case within.Err() != nil && err != nil:
		return Started{}, fmt.Errorf("%w: %w", ErrNotBegun, err)
	case err != nil:
		return Started{}, err
	}
	select {
	case b := <-r.answer:
		return b.started, b.err
	case <-s.ended:
		return Started{}, errEnded
	case <-ctx.Done():
		return Started{}, context.Cause(ctx)
	}
}

// clearTheWay waits, with the gate open, until the bus has acknowledged everything so far and the position is saved. After the gate is closed, a
// snapshot has to wait for the same, but only for what came since.
func (s *Store) clearTheWay(ctx context.Context) error {
	s.mu.Lock()
	rv, orphan, err := s.known.rv, s.snaps.orphan, s.busyLocked()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if orphan != nil {
		select {
		case <-orphan:
		case <-ctx.Done():
			return fmt.Errorf("the bus has not acknowledged the start of the snapshot before it: %w", context.Cause(ctx))
		}
	}
	if err := s.awaitAcknowledged(ctx, rv); err != nil || s.o.Save == nil {
		return err
	}
	return s.o.Save(ctx)
}

// awaitAcknowledged waits until the bus has acknowledged every delta up to rv.
func (s *Store) awaitAcknowledged(ctx context.Context, rv uint64) error {
	err := s.mu.Wait(ctx, func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		m, _ := s.pos.ledger.Mark()
		return m.rv >= rv
	})
	if err != nil {
		return fmt.Errorf("the bus has not acknowledged the changes before it: %w", err)
	}
	return nil
}

// busyLocked returns why no snapshot of the last-known objects can begin now, nil: one can.
func (s *Store) busyLocked() error {
	switch {
	case s.list.at != listed:
		return errNotLoaded
	case s.known.pendingKeys > 0 || len(s.gate.notices) > 0 || s.pos.barrier != nil:
		return errCatchUp
	}
	return nil
}

// begin begins a snapshot of the last-known objects, and closes the gate. The request is answered when the bus has acknowledged the start, or when the
// snapshot is given up.
func (s *Store) begin(ctx context.Context, r *request) {
	// The reads must not pass a live delta of the last-known objects that is not in the lane yet.
	s.mu.Lock()
	s.closeGateLocked()
	s.mu.Unlock()
	limit, cancel := context.WithTimeoutCause(ctx, gateWithin, fmt.Errorf("waited for %v", gateWithin))
	defer cancel()
	err := s.mu.Wait(limit, func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return !s.applying
	})
	if err != nil {
		r.answer <- begun{err: fmt.Errorf("%w: the queue has no room for the change before it: %w", ErrNotBegun, err)}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if snap := s.snaps.current; snap != nil {
		r.answer <- begun{started: snap.status(true)}
		return
	}
	if err := s.busyLocked(); err != nil {
		r.answer <- begun{err: err}
		return
	}
	// Ids of one scope differ by at least a second, even if nothing changed in between.
	began := time.Now()
	if next := s.snaps.lastAsked.Add(time.Second); began.Before(next) {
		began = next
	}
	snap := newSnapshot(r.scope, r.namespace, s.known.rv, began)
	snap.request, snap.before.began, snap.before.sweep = r, s.snaps.began, s.snaps.due
	s.startReadsLocked(snap)
	s.closeGateLocked()
	n := s.started(snap)
	n.begins = snap
	n.prepare = func(ctx context.Context) error {
		// A restart from below the snapshot's resourceVersion would complete it before it sends again what lies between, and a consumer
		// would delete what was created there.
		if err := s.awaitAcknowledged(ctx, snap.rv); err != nil {
			return err
		}
		return s.adopt(ctx)
	}
	n.done = snap.answer
	s.gate.notices = append(s.gate.notices, n)
}

// giveUpLocked withdraws a snapshot that is about to begin. None of its reads was sent.
func (s *Store) giveUpLocked(n *Notice, err error) {
	s.dropReadsLocked()
	s.gate.notices = slices.DeleteFunc(s.gate.notices, func(other *Notice) bool { return other == n })
	snap := n.begins
	n.begins, s.snaps.began, s.snaps.due = nil, snap.before.began, snap.before.sweep
	snap.request.answer <- begun{err: fmt.Errorf("%w: %w", ErrNotBegun, err)}
}

// beginningLocked returns the notice of a snapshot that can still be given up, nil: none.
func (s *Store) beginningLocked() *Notice {
	for _, n := range s.gate.notices {
		if n.begins != nil {
			return n
		}
	}
	return nil
}

// runSchedule takes the snapshots of Run that nobody requests, until ctx ends. It retries one that cannot begin.
func (s *Store) runSchedule(ctx context.Context, every time.Duration) {
	var last time.Time
	var again <-chan time.Time // a snapshot is due every after last
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
			again = nil
			_, _ = s.TakeSnapshot(ctx, s.o.Scope, "") // if it is refused, a minute later
		case <-s.kick:
			for due, _ := s.due(); due; due, _ = s.due() {
				if _, err := s.TakeSnapshot(ctx, s.o.Scope, ""); err != nil && !retry.Sleep(ctx, beginWithin) {
					return
				}
			}
		}
		_, began := s.due()
		if every > 0 && !began.IsZero() && (again == nil || !began.Equal(last)) {
			// A snapshot that is long due, as at a start, or that could not begin waits up to a minute.
			last, again = began, time.After(max(time.Until(began.Add(every)), min(every, time.Minute)))
		}
	}
}

// due reports whether a snapshot has to begin now, and when the last one of the whole scope began, zero: never.
func (s *Store) due() (now bool, began time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.snaps.current == nil && s.busyLocked() == nil && (s.snaps.due || s.conditionChangedLocked()), s.snaps.began
}
