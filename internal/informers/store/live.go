package store

import (
	"bytes"
	"context"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Event is a watch event.
type Event struct {
	Type      watch.EventType // Added, Modified, Deleted, or Bookmark: there is no other change up to Version
	Version   uint64          // resourceVersion
	Object    *object.Object  // the current or last version; nil for a bookmark
	Outside   bool            // no rule takes this version
	ChangedBy []byte          // as on a delta
	Observed  int64           // time of the read, in Unix nanoseconds
}

// Apply takes watch events in order. It blocks until the lane has all of their deltas. It returns
// false if ctx ended first: a restart, or the next list, then reads the rest again. next is called
// before each event. Only the owner may call Apply.
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

func (s *Store) apply(ctx context.Context, e *Event) bool {
	if !s.lockOpen(ctx) {
		return false
	}
	key := e.Object.Ref.Key
	last := s.known.objects[key].last
	if ignored := s.ignoredLocked(last, e); ignored != nil {
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
	hidden := s.known.objects[key].hidden
	mayHide := s.hidden.any() || s.filters.Load().by != nil
	s.takeLocked(last, e, gone, d)
	noted := s.known.objects[key].skipped
	s.mu.Unlock()

	for _, p := range pending {
		if !s.put(ctx, key, p) {
			return false
		}
	}
	// No other goroutine counts withheld versions of this key while the event is applied.
	for _, p := range [...]*object.Delta{gone, d} {
		if p == nil {
			continue
		}
		var sent bool
		skipped, sent = s.pass(p, skipped)
		if mayHide || !sent {
			s.mu.Lock()
			hidden = s.noteOutcomeLocked(key, p, sent, hidden)
			s.mu.Unlock()
		}
		if !sent {
			acknowledge(p)
			continue
		}
		if !s.put(ctx, key, p) {
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
	// after both: the ledger has the whole event only now
	s.pos.ledger.Advance(mark{rv: e.Version, state: s.known.state.xor(state)})
}

func isVersion(last *object.Object, e *Event) bool {
	return last != nil && last.Ref.UID == e.Object.Ref.UID
}

// ignoredLocked returns the counter of e if nothing is sent for e, else nil.
func (s *Store) ignoredLocked(last *object.Object, e *Event) prometheus.Counter {
	same := isVersion(last, e)
	if e.Type != watch.Deleted {
		s.noteFormLocked(last, e.Object)
	}
	switch {
	case same && (e.Version < last.ResourceVersion || e.Version == last.ResourceVersion && e.Type != watch.Deleted):
		// The API server replays. A deletion may have the version of the deleted object, if the API
		// server assigns no new one.
		return s.o.Metrics.Known
	case !same && e.Type == watch.Deleted && e.Version <= s.known.rv:
		// a repeated deletion that has the version of the deleted object
		return s.o.Metrics.Known
	case e.Outside && !same && (last == nil || e.Type == watch.Deleted): // no rule takes the object, or took it
		return s.o.Metrics.Excluded
	}
	return nil
}

// compare returns the deltas of e. Either may be nil. gone deletes an earlier object of that name,
// whose deletion the watch missed.
func (s *Store) compare(last *object.Object, e *Event) (gone, d *object.Delta) {
	now := e.Object
	same := isVersion(last, e)
	if last != nil && !same && e.Type != watch.Deleted {
		gone = &object.Delta{
			Op:              object.Deleted,
			Inferred:        true,
			Ref:             last.Ref,
			Before:          last,
			Scope:           s.o.Scope,
			ResourceVersion: now.ResourceVersion,
			Previous:        last.ResourceVersion,
			Observed:        e.Observed,
		}
	}
	if e.Outside && !same {
		return gone, nil
	}
	d = &object.Delta{
		Ref:             now.Ref,
		Scope:           s.o.Scope,
		ResourceVersion: now.ResourceVersion,
		Observed:        e.Observed,
	}
	if same {
		d.Before, d.Previous = last, last.ResourceVersion
	}
	switch {
	case e.Type == watch.Deleted:
		d.Op = object.Deleted
		if same {
			d.Ref = last.Ref
		} else {
			d.Before = now
		}
	case e.Outside: // it has changed, and no rule takes its new version
		d.Op, d.Ref = object.Left, last.Ref
	case same:
		d.Op = object.Updated
		d.After = now
		d.ChangedBy = e.ChangedBy
	case s.o.Several && e.Type == watch.Modified: // there was an earlier version, which no rule took
		d.Op, d.After = object.Entered, now // no ChangedBy: it would name all managers
	default:
		d.Op = object.Created
		d.After = now
		d.ChangedBy = e.ChangedBy
	}
	return gone, d
}

func (s *Store) isCertain(last *object.Object, e *Event, d *object.Delta) bool {
	return !s.o.Pushed || d == nil || e.Type != watch.Deleted && (d.Op != object.Created || last != nil)
}

// ask corrects a deletion or a creation that the selectors of the API server may have caused. It
// returns false if ctx ended first.
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
		// history no longer shows whether it was created, or changed to match the selectors.
		// Entered claims less.
		d.Op, d.Inferred = object.Entered, true
	case was != nil:
		// ChangedBy names all managers
		d.Op = object.Entered
		d.Before = was
		d.Previous = was.ResourceVersion
		d.ChangedBy = nil
	}
	return ok
}

func (s *Store) put(ctx context.Context, key string, d *object.Delta) bool {
	s.o.Metrics.count(d)
	return s.o.Lane.Put(ctx, key, heldBytes(d), d) == nil
}

// takePendingLocked takes the pending deltas of key, which precede a live one of that uid. skipped
// counts the versions withheld after them.
func (s *Store) takePendingLocked(key, uid string) (out []*object.Delta, skipped uint32) {
	e := s.known.objects[key]
	skipped = e.skipped
	if e.pending == pendingNothing {
		return nil, skipped
	}
	gone := object.Deleted
	if d := s.known.pending[key]; s.o.Selector != nil && d != nil && d.latestUID() == uid {
		gone = object.Left // the list missed it, and the same object has returned: it had left the selectors
	}
	for {
		d, rest := s.nextPendingLocked(key, gone)
		if d != nil {
			s.expectAckLocked("", d) // not in key order
			var sent bool
			skipped, sent = s.passPendingLocked(d, skipped)
			s.noteOutcomeLocked(key, d, sent, s.known.objects[key].hidden)
			if sent {
				out = append(out, d)
			} else {
				acknowledge(d)
			}
		}
		s.settleLocked(key, rest)
		if rest == nil {
			return out, skipped
		}
	}
}

func (s *Store) skipLocked(key string, n uint32) {
	if e, ok := s.known.objects[key]; ok {
		e.skipped = n
		s.known.objects[key] = e
	}
}

func (s *Store) advance(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.rv = max(s.known.rv, version)
	s.pos.ledger.Advance(mark{rv: version})
}

// lockOpen waits until the gate is open and locks mu. It returns false if ctx ended first. The
// owner rests while it waits.
func (s *Store) lockOpen(ctx context.Context) bool {
	s.mu.Lock()
	for s.gate.closed != nil {
		closed := s.gate.closed
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

func (s *Store) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applying = false
	s.gaugeLocked()
	if s.snaps.due { // it may have waited for the replay
		broadcast.Wake(s.kick)
	}
}

type filtering struct {
	by    Filter // nil: withholds nothing
	where string // name of the condition that withholds whole objects, "" if there is none
	rules []byte // JSON of the rules of the scope, with these filters
}

// hasRulesOf reports whether the rules are those of other.
func (f *filtering) hasRulesOf(other *filtering) bool { return bytes.Equal(f.rules, other.rules) }

// SetFilter replaces the filter; nil withholds nothing. where names the condition that withholds
// whole objects. If it changes after the first list has begun, a snapshot must follow: also if it
// changes back, because consumers lack what was withheld in between. The counts of withheld
// versions remain. rules is the JSON of the scope's rules, for consumers.
func (s *Store) SetFilter(f Filter, where string, rules []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snaps.due = s.snaps.due || s.o.Snapshots && !s.gone && s.list.at != unlisted && where != s.Where()
	was, is := s.filters.Load(), &filtering{by: f, where: where, rules: rules}
	s.filters.Store(is)
	if f != nil {
		s.filtered.Store(true)
	}
	if !is.hasRulesOf(was) {
		s.beginAgainLocked()
	}
	broadcast.Wake(s.wake)
}

// CopyFilter sets the filter of another store.
func (s *Store) CopyFilter(other *Store) {
	f := other.filters.Load()
	s.SetFilter(f.by, f.where, f.rules)
}

// Where returns the name of the condition that withholds whole objects, "" if there is none.
func (s *Store) Where() string { return s.filters.Load().where }

// pass reports whether to send d, and counts the withheld versions of its key: skipped is the count
// before d, next the one after it. The caller must acknowledge a withheld delta. A withheld read
// does not count: its version was counted, or sent, before.
func (s *Store) pass(d *object.Delta, skipped uint32) (next uint32, ok bool) {
	reason := ""
	if f := s.filters.Load().by; f != nil {
		reason = f.Withholds(d)
	}
	if reason == "" {
		d.Skipped = skipped
		return 0, true
	}
	s.o.Metrics.Withheld.WithLabelValues(reason).Inc()
	switch {
	case d.Op == object.Deleted || d.Op == object.Left:
		return 0, false // gone: a later version starts another object, or has entered
	case d.Op == object.Read || skipped == math.MaxUint32:
		return skipped, false
	}
	return skipped + 1, false
}

// acknowledge acknowledges a withheld delta, once the hidden span that it begins is noted: no
// report may claim its version before.
func acknowledge(d *object.Delta) {
	if d.Acker != nil {
		d.Acker.Acked(d)
	}
}

// passPendingLocked is pass for a pending delta. A withheld read does not count as an object of its
// snapshot. In a resumed one, later versions than the snapshot never did.
func (s *Store) passPendingLocked(d *object.Delta, skipped uint32) (next uint32, ok bool) {
	next, ok = s.pass(d, skipped)
	if ok || d.Op != object.Read {
		return next, ok
	}
	if snap := s.snaps.current; !snap.resumed || d.ResourceVersion <= snap.rv {
		snap.objects--
		snap.withheld = append(snap.withheld, d.Ref.Key)
	}
	return next, ok
}
