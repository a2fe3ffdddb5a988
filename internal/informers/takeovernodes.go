package informers

import (
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// tellable is what the rules have told of a resource that the set follows for its own use. nil: nothing.
type tellable struct {
	scope   *selection.Scope
	filters *selection.Filters
	metrics *metrics
}

// forward is a copy of a deletion to be sent, nil where no rule takes what was deleted, or that is withheld.
func (t *tellable) forward(d *object.Delta) *object.Delta {
	if t == nil || d.Before == nil {
		return nil
	}
	raw, err := d.Before.AppendJSON(nil)
	if err != nil {
		return nil // it was read before
	}
	m, err := t.scope.Match(raw)
	if err != nil || m.Clause == selection.Outside {
		return nil
	}
	if reason := t.filters.WithholdsAs(m.Clause, d); reason != "" {
		t.metrics.store.Withheld.WithLabelValues(reason).Inc()
		return nil
	}
	forward := *d
	return &forward
}

// selectNodes has the deletions of Nodes told that the rules take, as the agents of those nodes would have. The caller holds mu.
func (s *Set) selectNodes() error {
	d := s.takeovers
	if d == nil || d.resource == nil {
		return nil
	}
	scope, err := s.sel.MatchOnly(d.resource)
	if err != nil {
		return err
	}
	if scope == nil {
		d.told.Store(nil)
		return nil
	}
	d.told.Store(&tellable{scope: scope, filters: scope.Filters(), metrics: s.vectors.of(d.resource.String())})
	return nil
}
