package store

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/object"
	"k8s.io/apimachinery/pkg/watch"
)

// Event is a watch event of an object.
type Event struct {
	Type      watch.EventType // Added, Modified or Deleted
	Object    *object.Object  // as it is now, or was last
	Outside   bool            // no rule takes this version
	ChangedBy []byte          // as on a delta
	Observed  int64           // when it was read, in Unix nanoseconds
}

// turn is a mutex that may be held for long: while the queue is full, or an API server is asked. It is a channel because testing/synctest
// treats a goroutine that waits for a channel as durably blocked, and lets time pass.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// Apply takes one watch event. It blocks until the lane has all of its deltas, or ctx ends. In the latter case a restart, or the next list,
// reads again what the lane did not take. Only the owner may call it.
func (s *Store) Apply(ctx context.Context, e *Event) {
	if !s.takeTurn(ctx) {
		return
	}
	defer s.endTurn()
	key, version := e.Object.Ref.Key, e.Object.ResourceVersion
	s.mu.Lock()
	last := s.known.objects[key].last
	s.mu.Unlock()
	same := last != nil && last.Ref.UID == e.Object.Ref.UID
	if same && (version < last.ResourceVersion || version == last.ResourceVersion && e.Type != watch.Deleted) {
		// The API server replays: this version, or a later one, was applied before. A deletion may have the version of what it deletes, if
		// the API server does not give it one of its own.
		s.o.Metrics.Known.Inc()
		s.Advance(version)
		return
	}
	live, ok := s.live(ctx, last, e)
	if !ok {
		return
	}
	if len(live) == 0 { // none of the rules takes the object, nor took it
		s.o.Metrics.Excluded.Inc()
		s.Advance(version)
		return
	}

	s.mu.Lock()
	deltas, next := s.takePendingLocked(key, e.Object.Ref.UID)
	state := s.known.state
	switch {
	case e.Type != watch.Deleted && !e.Outside:
		s.setLocked(key, entry{last: e.Object})
	case same || last == nil || e.Outside:
		s.setLocked(key, entry{})
	}
	s.known.rv = max(s.known.rv, version)
	for n, d := range live {
		m := mark{since: d.Observed}
		if n == len(live)-1 { // only then is all of the event in the ledger
			m.rv, m.state = version, s.known.state^state
		}
		d.History, d.Acker = s.pos.history, s.pos.ledger.Add(m)
	}
	noted := s.known.objects[key].skipped
	s.mu.Unlock()

	// Nobody else counts withheld versions of this key before the turn is given back.
	for n, d := range append(deltas, live...) {
		if n >= len(deltas) {
			var sent bool
			if next, sent = s.pass(d, next); !sent {
				continue
			}
		}
		s.o.Metrics.count(d)
		if s.o.Lane.Put(ctx, key, heldBytes(d), d) != nil {
			return // the agent stops
		}
	}
	if next != noted {
		s.mu.Lock()
		s.skipLocked(key, next)
		s.mu.Unlock()
	}
}

// live forms the deltas of one watch event, compared with the last-known object. There are none if no rule takes the object, or took it.
// It returns false if ctx ended before.
func (s *Store) live(ctx context.Context, last *object.Object, e *Event) ([]*object.Delta, bool) {
	now := e.Object
	same := last != nil && last.Ref.UID == now.Ref.UID
	d := &object.Delta{Ref: now.Ref, Scope: s.o.Scope, ResourceVersion: now.ResourceVersion, Observed: e.Observed, ChangedBy: e.ChangedBy}
	// The name was taken again, and the watch did not show the deletion in between: that makes two deltas.
	gone := func() *object.Delta {
		return &object.Delta{
			Op: object.Deleted, Inferred: true, Ref: last.Ref, Before: last, Scope: s.o.Scope,
			ResourceVersion: now.ResourceVersion, Previous: last.ResourceVersion, Observed: e.Observed,
		}
	}
	switch {
	case e.Type == watch.Deleted && e.Outside && !same:
		return nil, true
	case e.Type == watch.Deleted:
		d.Op, d.Before, d.ChangedBy = object.Deleted, now, nil
		if same {
			d.Ref, d.Before, d.Previous = last.Ref, last, last.ResourceVersion
		}
		if s.o.Pushed {
			exists, known, ok := s.o.Selector.Exists(ctx, now.Ref, now.ResourceVersion)
			if !ok {
				return nil, false
			}
			if exists || !known {
				d.Op, d.Inferred = object.Left, !known
			}
		}
		return []*object.Delta{d}, true
	case e.Outside && last == nil:
		return nil, true
	case e.Outside && same: // it has changed, and no rule takes it as it is now
		d.Op, d.Ref, d.Before, d.Previous, d.ChangedBy = object.Left, last.Ref, last, last.ResourceVersion, nil
		return []*object.Delta{d}, true
	case e.Outside:
		return []*object.Delta{gone()}, true
	}

	d.After = now
	// MODIFIED of an unknown object: there was a version before, which no rule took.
	entered := s.o.Several && e.Type == watch.Modified
	switch {
	case same:
		d.Op, d.Before, d.Previous = object.Updated, last, last.ResourceVersion
	case last != nil:
		d.Op = object.Created
		if entered {
			d.Op, d.ChangedBy = object.Entered, nil
		}
		return []*object.Delta{gone(), d}, true
	case entered:
		d.Op, d.ChangedBy = object.Entered, nil // without a version before, it would name all managers
	case !s.o.Pushed:
		d.Op = object.Created
	default:
		was, known, ok := s.o.Selector.Before(ctx, now)
		if !ok {
			return nil, false
		}
		switch {
		case !known:
			// History no longer shows whether it was created, or changed to match the selectors. Entered claims less.
			d.Op, d.Inferred = object.Entered, true
		case was == nil:
			d.Op = object.Created
		default:
			d.Op, d.Before, d.Previous = object.Entered, was, was.ResourceVersion
			d.ChangedBy = nil // it is compared with no version before, and names all managers
		}
	}
	return []*object.Delta{d}, true
}

// takePendingLocked takes the pending deltas of key, which are put into the lane before a live delta of an object with that uid. skipped is
// the number of versions of key withheld after them.
func (s *Store) takePendingLocked(key, uid string) (out []*object.Delta, skipped uint32) {
	e := s.known.objects[key]
	skipped = e.skipped
	if e.pending == pendingNothing {
		return nil, skipped
	}
	gone := object.Deleted
	if d := s.known.pending[key]; s.o.Selector != nil && d != nil && d.latestUID() == uid {
		gone = object.Left // the list missed it, and the same object is here again: it had left the selectors
	}
	for {
		d, rest := s.nextPendingLocked(key, gone)
		if d != nil {
			s.expectAckLocked("", d) // not in key order
			var sent bool
			if skipped, sent = s.passPendingLocked(d, skipped); sent {
				out = append(out, d)
			}
		}
		s.settleLocked(key, rest)
		if rest == nil {
			return out, skipped
		}
	}
}

// skipLocked sets how many versions of key are withheld.
func (s *Store) skipLocked(key string, n uint32) {
	if e, ok := s.known.objects[key]; ok {
		e.skipped = n
		s.known.objects[key] = e
	}
}

// Advance notes that the scope has no changes up to version other than those that were applied. Only the owner may call it.
func (s *Store) Advance(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.rv = max(s.known.rv, version)
	s.pos.ledger.Advance(mark{rv: version})
}

// takeTurn waits until the gate is open and takes the turn, or returns false if ctx ended before. It does not hold the turn while it waits: a
// snapshot that begins needs it to close the gate.
func (s *Store) takeTurn(ctx context.Context) bool {
	for {
		s.turn.Lock()
		s.mu.Lock()
		closed, stopped := s.gate.closed, s.stopped
		s.applying.Store(closed == nil && !stopped)
		s.mu.Unlock()
		if closed == nil && !stopped {
			return true
		}
		s.turn.Unlock()
		if stopped { // for good
			<-ctx.Done()
			return false
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return false
		}
	}
}

// endTurn gives back the turn that takeTurn took.
func (s *Store) endTurn() {
	s.applying.Store(false)
	s.turn.Unlock()
	s.mu.Notify()
}
