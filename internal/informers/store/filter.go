package store

import (
	"math"

	"github.com/kubecdc/kubecdc/internal/object"
)

// filtering is what withholds deltas of a store.
type filtering struct {
	by    Filter
	where string // names what withholds objects as a whole, "": nothing does
}

// SetFilter has the filter of the scope replaced, nil: nothing is withheld. where names what withholds objects as a whole. What was withheld
// so far stays counted. Where others withhold objects as a whole than before, a snapshot follows.
func (s *Store) SetFilter(f Filter, where string) {
	if f == nil {
		s.filters.Store(nil)
	} else {
		s.filters.Store(&filtering{by: f, where: where})
		s.filtered.Store(true)
	}
	s.wakeCursor()
}

// CopyFilter has what is withheld be the same as of another store.
func (s *Store) CopyFilter(other *Store) {
	if f := other.filters.Load(); f != nil {
		s.SetFilter(f.by, f.where)
	} else {
		s.SetFilter(nil, "")
	}
}

// Where names what withholds objects as a whole, "": nothing does.
func (s *Store) Where() string {
	if f := s.filters.Load(); f != nil {
		return f.where
	}
	return ""
}

// conditionChangedLocked tells that a snapshot is to follow: what was told was told by another condition. The caller holds mu.
func (s *Store) conditionChangedLocked() bool {
	return s.o.Snapshots && !s.gone && s.snaps.where != s.Where()
}

// SetWhere notes the condition by which the last run told of objects as a whole.
func (s *Store) SetWhere(where string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snaps.where = where
}

// whereSentLocked names the condition by which a restart takes it that objects were told. The caller holds mu.
func (s *Store) whereSentLocked(shown *Snapshot) string {
	switch {
	case !s.o.Snapshots:
		return s.Where()
	case shown != nil && shown.namespace == "":
		return shown.where
	}
	return s.snaps.where
}

// Recount is the notice behind which the count of withheld versions begins anew, none: nothing was withheld. How many versions are
// withheld since the last one that was sent is not known after a restart, and behind a stream event nobody expects it. filtered tells
// that the last run may have withheld some.
func (s *Store) Recount(filtered bool, rv uint64) []*Notice {
	if !filtered && !s.filtered.Load() {
		return nil
	}
	s.filtered.Store(true) // also where nothing is withheld any more: the next run has to say it, unless this one has
	return []*Notice{{
		event: func() *object.StreamEvent {
			return &object.StreamEvent{Kind: object.Progress, Resource: s.o.Resource, Scope: s.o.Scope, ResourceVersion: rv}
		},
		done: func() { s.filtered.Store(s.filters.Load() != nil) },
	}}
}

// withheld tells why a delta is not sent, "": it is. The caller does not need mu.
func (s *Store) withheld(d *object.Delta) string {
	if f := s.filters.Load(); f != nil {
		return f.by.Withholds(d)
	}
	return ""
}

// pass tells if d is to be sent, and counts the versions of its key that are withheld: skipped is the count so far, next the one
// behind d. What is withheld is acknowledged: nobody waits for it. A read is of a version that was counted, or sent, before.
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
		return 0, false // gone: whatever comes is another object, or is entered
	case d.Op == object.Read || skipped == math.MaxUint32:
		return skipped, false
	}
	return skipped + 1, false
}

// passPendingLocked is pass for what a list made due. A read that is withheld is none of its snapshot's. The caller holds mu.
func (s *Store) passPendingLocked(d *object.Delta, skipped uint32) (next uint32, ok bool) {
	if next, ok = s.pass(d, skipped); !ok && d.Op == object.Read {
		s.snaps.current.objects--
		s.snaps.current.withheld = append(s.snaps.current.withheld, d.Ref.Key)
	}
	return next, ok
}
