package store

import (
	"math"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// filtering is what SetFilter sets.
type filtering struct {
	by    Filter
	where string // names the condition that withholds objects as a whole, "": none
}

// SetFilter replaces the filter, nil: nothing is withheld. where names the condition that withholds objects as a whole; if it changes, a
// snapshot follows. The counts of withheld versions remain.
func (s *Store) SetFilter(f Filter, where string) {
	if f == nil {
		s.filters.Store(nil)
	} else {
		s.filters.Store(&filtering{by: f, where: where})
		s.filtered.Store(true)
	}
	broadcast.Wake(s.wake)
}

// CopyFilter sets the filter of another store.
func (s *Store) CopyFilter(other *Store) {
	var f filtering
	if of := other.filters.Load(); of != nil {
		f = *of
	}
	s.SetFilter(f.by, f.where)
}

// Where returns the name of the condition that withholds objects as a whole, "": none.
func (s *Store) Where() string {
	if f := s.filters.Load(); f != nil {
		return f.where
	}
	return ""
}

// conditionChangedLocked reports whether the last snapshot was sent under another condition, so that another one has to follow.
func (s *Store) conditionChangedLocked() bool {
	return s.o.Snapshots && !s.gone && s.snaps.where != s.Where()
}

// SetWhere sets the condition under which the previous run sent its last snapshot.
func (s *Store) SetWhere(where string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snaps.where = where
}

// whereSentLocked returns the condition under which a restart takes objects to have been sent.
func (s *Store) whereSentLocked(shown *snapshot) string {
	switch {
	case !s.o.Snapshots:
		return s.Where()
	case shown != nil && shown.namespace == "":
		return shown.where
	}
	return s.snaps.where
}

// Recount returns the notice of a progress event at resourceVersion rv, none if nothing was withheld: after a restart the number of versions withheld
// since the last event of an object is unknown, and consumers do not expect it after a stream event. filtered: the previous run may have withheld some.
func (s *Store) Recount(filtered bool, rv uint64) []*Notice {
	if !filtered && !s.filtered.Load() {
		return nil
	}
	s.filtered.Store(true) // even if nothing is withheld any more: the next run has to send it, unless this one has
	return []*Notice{{
		event: func() *object.StreamEvent {
			return &object.StreamEvent{Kind: object.Progress, Resource: s.o.Resource, Scope: s.o.Scope, ResourceVersion: rv}
		},
		done: func() { s.filtered.Store(s.filters.Load() != nil) },
	}}
}

// withheld returns why a delta is not sent, "": it is sent. It does not need mu.
func (s *Store) withheld(d *object.Delta) string {
	if f := s.filters.Load(); f != nil {
		return f.by.Withholds(d)
	}
	return ""
}

// pass reports whether d is to be sent, and counts the withheld versions of its key: skipped is the count before d, next the one after it. It
// acknowledges what is withheld. A read does not count: its version was counted, or sent, before.
func (s *Store) pass(d *object.Delta, skipped uint32) (next uint32, ok bool) {
	reason := s.withheld(d)
	if reason == "" {
		d.Skipped = skipped
		return 0, true
	}
	s.o.Metrics.Withheld.WithLabelValues(reason).Inc()
	if d.Acker != nil {
		d.Acker.Acked(d)
	}
	switch {
	case d.Op == object.Deleted || d.Op == object.Left:
		return 0, false // gone: what follows is another object, or entered
	case d.Op == object.Read || skipped == math.MaxUint32:
		return skipped, false
	}
	return skipped + 1, false
}

// passPendingLocked is pass for a pending delta. A withheld read is not counted as an object of its snapshot.
func (s *Store) passPendingLocked(d *object.Delta, skipped uint32) (next uint32, ok bool) {
	if next, ok = s.pass(d, skipped); !ok && d.Op == object.Read {
		s.snaps.current.objects--
		s.snaps.current.withheld = append(s.snaps.current.withheld, d.Ref.Key)
	}
	return next, ok
}
