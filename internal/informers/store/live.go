package store

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Event is a watch event.
type Event struct {
	Type      watch.EventType // Added, Modified, Deleted, or Bookmark: there is no other change up to Version
	Version   uint64          // resourceVersion
	Object    *object.Object  // as it is now, or was last; nil: of a bookmark
	Outside   bool            // no rule takes this version
	ChangedBy []byte          // as on a delta
	Observed  int64           // when it was read, in Unix nanoseconds
}

// Apply takes watch events in order. It blocks until the lane has all of their deltas, or ctx ends: it returns false then, and a restart, or the
// next list, reads again what the lane did not take. next is called before each event. Only the owner may call Apply.
func (s *Store) Apply(ctx context.Context, events []Event, next func()) bool {
	defer s.rest()
	for k := range events {
		next()
		if e := &events[k]; e.Type == watch.Bookmark {
			s.advance(e.Version)
		} else if !s.apply(ctx, e) {
			return false
		}
	}
	return ctx.Err() == nil
}

// apply takes one event of an object.
func (s *Store) apply(ctx context.Context, e *Event) bool {
	if !s.lockOpen(ctx) {
		return false
	}
	key := e.Object.Ref.Key
	last := s.known.objects[key].last
	if ignored := s.ignored(last, e); ignored != nil {
		ignored.Inc()
		s.mu.Unlock()
		s.advance(e.Version)
		return true
	}
	gone, d := s.compare(last, e)
	if !s.isCertain(last, e, d) {
		s.mu.Unlock()
		if !s.ask(ctx, d, e.Object) {
			return false
		}
		s.mu.Lock()
	}
	pending, skipped := s.takePendingLocked(key, e.Object.Ref.UID)
	s.takeLocked(last, e, gone, d)
	noted := s.known.objects[key].skipped
	s.mu.Unlock()

	for _, p := range pending {
		if !s.put(ctx, key, p) {
			return false
		}
	}
	// Nobody else counts withheld versions of this key while the event is applied.
	for _, p := range [...]*object.Delta{gone, d} {
		if p == nil {
			continue
		}
		var sent bool
		if skipped, sent = s.pass(p, skipped); sent && !s.put(ctx, key, p) {
			return false
		}
	}
	if skipped != noted {
		s.mu.Lock()
		s.skipLocked(key, skipped)
		s.mu.Unlock()
	}
	return true
}

// takeLocked notes an event as the last-known version of its object, and that its deltas are to be acknowledged.
func (s *Store) takeLocked(last *object.Object, e *Event, gone, d *object.Delta) {
	key, state := e.Object.Ref.Key, s.known.state
	switch {
	case e.Type != watch.Deleted && !e.Outside:
		s.setLocked(key, entry{last: e.Object})
	case isVersion(last, e) || last == nil || e.Outside:
		s.setLocked(key, entry{})
	}
	s.known.rv = max(s.known.rv, e.Version)
	for _, p := range [...]*object.Delta{gone, d} {
		if p != nil {
			p.History, p.Acker = s.pos.history, s.pos.ledger.Add(mark{since: p.Observed})
		}
	}
	s.pos.ledger.Advance(mark{rv: e.Version, state: s.known.state ^ state}) // behind both: only then is all of the event in the ledger
}

// isVersion reports whether an event is of the same object as last.
func isVersion(last *object.Object, e *Event) bool {
	return last != nil && last.Ref.UID == e.Object.Ref.UID
}

// ignored returns the counter of events of which nothing is sent, nil: e is none.
func (s *Store) ignored(last *object.Object, e *Event) prometheus.Counter {
	same := isVersion(last, e)
	switch {
	case same && (e.Version < last.ResourceVersion || e.Version == last.ResourceVersion && e.Type != watch.Deleted):
		// The API server replays: this version, or a later one, was applied before. A deletion may have the version of what it deletes, if
		// the API server does not give it one of its own.
		return s.o.Metrics.Known
	case e.Outside && !same && (last == nil || e.Type == watch.Deleted): // none of the rules takes the object, nor took it
		return s.o.Metrics.Excluded
	}
	return nil
}

// compare forms the deltas of a watch event, compared with the last-known object. Either may be nil. gone is the deletion of another object that
// had the name: it was taken again, and the watch did not show the deletion.
func (s *Store) compare(last *object.Object, e *Event) (gone, d *object.Delta) {
	now := e.Object
	same := isVersion(last, e)
	if last != nil && !same && e.Type != watch.Deleted {
		gone = &object.Delta{
			Op: object.Deleted, Inferred: true, Ref: last.Ref, Before: last, Scope: s.o.Scope,
			ResourceVersion: now.ResourceVersion, Previous: last.ResourceVersion, Observed: e.Observed,
		}
	}
	if e.Outside && !same {
		return gone, nil
	}
	d = &object.Delta{Ref: now.Ref, Scope: s.o.Scope, ResourceVersion: now.ResourceVersion, Observed: e.Observed}
	if same {
		d.Before, d.Previous = last, last.ResourceVersion
	}
	switch {
	case e.Type == watch.Deleted:
		if d.Op = object.Deleted; same {
			d.Ref = last.Ref
		} else {
			d.Before = now
		}
	case e.Outside: // it has changed, and no rule takes it as it is now
		d.Op, d.Ref = object.Left, last.Ref
	case same:
		d.Op, d.After, d.ChangedBy = object.Updated, now, e.ChangedBy
	case s.o.Several && e.Type == watch.Modified: // there was a version before, which no rule took
		d.Op, d.After = object.Entered, now // without that, ChangedBy would name all managers
	default:
		d.Op, d.After, d.ChangedBy = object.Created, now, e.ChangedBy
	}
	return gone, d
}

// isCertain reports whether the selectors of the API server have not caused d.
func (s *Store) isCertain(last *object.Object, e *Event, d *object.Delta) bool {
	return !s.o.Pushed || d == nil || e.Type != watch.Deleted && (d.Op != object.Created || last != nil)
}

// ask corrects a deletion or a creation that the selectors of the API server may have caused. It returns false if ctx ended before.
func (s *Store) ask(ctx context.Context, d *object.Delta, now *object.Object) bool {
	if d.Op == object.Deleted {
		exists, known, ok := s.o.Selector.Exists(ctx, now.Ref, now.ResourceVersion)
		if ok && (exists || !known) {
			d.Op, d.Inferred = object.Left, !known
		}
		return ok
	}
	was, known, ok := s.o.Selector.Before(ctx, now)
	switch {
	case !ok:
	case !known:
		// History no longer shows whether it was created, or changed to match the selectors. Entered claims less.
		d.Op, d.Inferred = object.Entered, true
	case was != nil:
		d.Op, d.Before, d.Previous = object.Entered, was, was.ResourceVersion
		d.ChangedBy = nil // it is compared with no version before, and names all managers
	}
	return ok
}

// put puts a delta into the lane. It returns false if ctx ended before.
func (s *Store) put(ctx context.Context, key string, d *object.Delta) bool {
	s.o.Metrics.count(d)
	return s.o.Lane.Put(ctx, key, heldBytes(d), d) == nil
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

// advance notes that the scope has no changes up to version other than those that were applied.
func (s *Store) advance(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.rv = max(s.known.rv, version)
	s.pos.ledger.Advance(mark{rv: version})
}

// lockOpen locks mu once the gate is open, for an event to be applied, or returns false if ctx ended before. The owner rests while it waits.
func (s *Store) lockOpen(ctx context.Context) bool {
	s.mu.Lock()
	for s.gate.closed != nil || s.stopped {
		closed := s.gate.closed
		if s.stopped { // for good
			closed = nil
		}
		s.applying = false
		s.mu.Unlock()
		select {
		case <-closed:
		case <-ctx.Done():
			return false
		}
		s.mu.Lock()
	}
	s.applying = true
	return true
}

// rest notes that every event that was begun is in the lane, or given up.
func (s *Store) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applying = false
	s.gaugeLocked()
}
