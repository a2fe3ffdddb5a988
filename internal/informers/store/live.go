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
	Outside   bool            // no rule takes it as it is now
	ChangedBy []byte          // as on a delta
	Observed  int64           // when it was read, in Unix nanoseconds
}

// turn is a mutex that may be held for long: while the queue is full, or the API server is asked. It is a channel, so that a bubble of
// testing/synctest takes a goroutine that waits for it for blocked, and lets time pass.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// Apply takes one live event. It blocks until everything it makes due is in the queue, or ctx ends.
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
		// A server that replays: this version, or a later one, is on its way already. A deletion may carry the version of
		// what it deletes, where a server does not give it one of its own.
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
		if n == len(live)-1 { // before that, the event is not done with
			m.rv, m.state = version, s.known.state^state
		}
		d.History, d.Acker = s.pos.history, s.pos.ledger.Add(m)
	}
	noted := s.known.objects[key].skipped
	s.mu.Unlock()

	// Until the turn is given back, nobody else counts what is withheld of this key.
	for n, d := range append(deltas, live...) {
		if n >= len(deltas) {
			var sent bool
			if next, sent = s.pass(d, next); !sent {
				continue
			}
		}
		s.o.Metrics.count(d)
		if s.o.Lane.Put(ctx, key, heldBytes(d), d) != nil {
			return // the agent stops: what was not taken is read again from the checkpoint or a list
		}
	}
	if next != noted {
		s.mu.Lock()
		s.skipLocked(key, next)
		s.mu.Unlock()
	}
}

// live forms the deltas of one live event against the last-known object, none where no rule takes the object, or took it;
// false: ctx ended before they could be told.
func (s *Store) live(ctx context.Context, last *object.Object, e *Event) ([]*object.Delta, bool) {
	now := e.Object
	same := last != nil && last.Ref.UID == now.Ref.UID
	d := &object.Delta{Ref: now.Ref, Scope: s.o.Scope, ResourceVersion: now.ResourceVersion, Observed: e.Observed, ChangedBy: e.ChangedBy}
	// Two facts, two deltas: the name was taken again, and the deletion in between not shown.
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
	// A MODIFIED of what is not known: the version before was there, and no rule took it.
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
		d.Op, d.ChangedBy = object.Entered, nil // compared with no version before, it would name all managers there ever were
	case !s.o.Pushed:
		d.Op = object.Created
	default:
		was, known, ok := s.o.Selector.Before(ctx, now)
		if !ok {
			return nil, false
		}
		switch {
		case !known:
			// Whether it was created or changed into the selector is gone from history. Entered claims less.
			d.Op, d.Inferred = object.Entered, true
		case was == nil:
			d.Op = object.Created
		default:
			d.Op, d.Before, d.Previous = object.Entered, was, was.ResourceVersion
			d.ChangedBy = nil // what it holds is compared with no version before: all managers there ever were
		}
	}
	return []*object.Delta{d}, true
}

// takePendingLocked takes what catch-up still owes for key and is sent, to be put in front of a live delta, and owes it no longer. skipped
// is how many versions of key are withheld behind it. uid is that of the live object. The caller holds mu.
func (s *Store) takePendingLocked(key, uid string) (out []*object.Delta, skipped uint32) {
	e := s.known.objects[key]
	skipped = e.skipped
	if e.pending == pendingNothing {
		return nil, skipped
	}
	gone := object.Deleted
	if d := s.known.pending[key]; s.o.Selector != nil && d != nil && d.latestUID() == uid {
		gone = object.Left // the list missed it, and it is here again: it had left the selector
	}
	for {
		d, rest := s.nextPendingLocked(key, gone)
		if d != nil {
			s.expectAckLocked("", d) // the cursor is elsewhere
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

// skipLocked notes how many versions of key are withheld. The caller holds mu.
func (s *Store) skipLocked(key string, n uint32) {
	if e, ok := s.known.objects[key]; ok {
		e.skipped = n
		s.known.objects[key] = e
	}
}

// Advance notes that there is nothing of the scope up to version but what was applied.
func (s *Store) Advance(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.rv = max(s.known.rv, version)
	s.pos.ledger.Advance(mark{rv: version})
}

// takeTurn waits until the stream event that announces the last list is acknowledged, and takes the turn; false: ctx
// ended first. The turn is not held meanwhile: a snapshot that begins needs it to shut the gate.
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
		if stopped { // for good: the informer is about to be ended
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

// endTurn gives the turn back that takeTurn has taken.
func (s *Store) endTurn() {
	s.applying.Store(false)
	s.turn.Unlock()
	s.mu.Notify()
}

func (t turn) Lock() { t <- struct{}{} }

func (t turn) Unlock() { <-t }
