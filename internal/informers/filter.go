package informers

import (
	"math"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Filter tells what is withheld on purpose. It is safe for concurrent use.
type Filter interface {
	// Withholds tells why a delta is not sent, "": it is.
	Withholds(d *object.Delta) (reason string)
}

// filters are those of a scope's clauses, by the index of the clause. nil: nothing is withheld.
type filters []Filter

// newFilters are those of the clauses, nil where none has one.
func newFilters(r *object.Resource, clauses []clause) filters {
	out, any := make(filters, len(clauses)), false
	for n := range clauses {
		if rule := clauses[n].rule; rule != nil && rule.Filter != nil {
			out[n] = rule.Filter(r)
			any = any || out[n] != nil
		}
	}
	if !any {
		return nil
	}
	return out
}

// filter has the filters of the scope replaced. What was withheld so far stays counted.
func (s *store) filter(f filters) {
	s.filters.Store(&f)
	if f != nil {
		s.filtered.Store(true)
	}
}

// told notes that nobody expects any more to hear of what was withheld so far.
func (s *store) told() {
	s.filtered.Store(false)
	if f := s.filters.Load(); f != nil && *f != nil {
		s.filtered.Store(true)
	}
}

// withheld tells why a delta is not sent, "": it is. The rule that takes the object as it is now decides, or that took it where
// it is no more. The caller does not need mu.
func (s *store) withheld(d *object.Delta) string {
	f := s.filters.Load()
	if f == nil || *f == nil {
		return ""
	}
	o := d.After
	if o == nil {
		o = d.Before
	}
	if n := int(o.Ref.Clause); n < len(*f) && (*f)[n] != nil {
		return (*f)[n].Withholds(d)
	}
	return ""
}

// pass tells if d is to be sent, and counts the versions of its key that are withheld: skipped is the count so far, next the one
// behind d. What is withheld is acknowledged: nobody waits for it. A read is of a version that was counted, or sent, before.
func (s *store) pass(d *object.Delta, skipped uint32) (next uint32, ok bool) {
	reason := s.withheld(d)
	if reason == "" {
		d.Skipped = skipped
		return 0, true
	}
	s.metrics.withheld.WithLabelValues(reason).Inc()
	acknowledge(d)
	switch {
	case d.Op == object.Deleted || d.Op == object.Left:
		return 0, false // gone: whatever comes is another object, or is entered
	case d.Op == object.Read || skipped == math.MaxUint32:
		return skipped, false
	}
	return skipped + 1, false
}

// passDue is pass for what a list made due. A read that is withheld is none of its snapshot's. The caller holds mu.
func (s *store) passDue(d *object.Delta, skipped uint32) (next uint32, ok bool) {
	if next, ok = s.pass(d, skipped); !ok && d.Op == object.Read {
		s.snapshot.objects--
	}
	return next, ok
}
