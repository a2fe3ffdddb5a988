package informers

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// tellable is what the rules have told of a resource that the set follows for its own use. nil: nothing.
type tellable struct {
	matches  *selection.Scope
	filters  *selection.Filters
	withheld *prometheus.CounterVec
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
	m, err := t.matches.Match(raw)
	if err != nil || m.Clause == selection.Outside {
		return nil
	}
	if reason := t.filters.WithholdsAs(m.Clause, d); reason != "" {
		t.withheld.WithLabelValues(reason).Inc()
		return nil
	}
	forward := *d
	return &forward
}

// selectNodes has the deletions of Nodes told that the rules take, as the agents of those nodes would have. The caller holds mu.
func (s *Manager) selectNodes() error {
	d := s.takeovers
	if d == nil || d.resource == nil {
		return nil
	}
	matches, err := s.sel.MatchOnly(d.resource)
	if err != nil {
		return err
	}
	if matches == nil {
		d.told.Store(nil)
		return nil
	}
	d.told.Store(&tellable{matches: matches, filters: matches.Filters(), withheld: s.deps.Metrics.Withheld(d.resource.String())})
	return nil
}
