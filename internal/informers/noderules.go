package informers

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// nodeRules are the rules by which deletions of Nodes are sent. nil: none is sent.
type nodeRules struct {
	matches  *selection.Scope
	filters  *selection.Filters
	withheld *prometheus.CounterVec
}

// forward returns a copy of a deletion to send, or nil if no rule takes the Node, or a rule
// withholds the deletion.
func (r *nodeRules) forward(d *object.Delta) *object.Delta {
	if r == nil || d.Before == nil {
		return nil
	}
	raw, err := d.Before.AppendJSON(nil)
	if err != nil {
		return nil // it was read before
	}
	m, err := r.matches.Match(raw)
	if err != nil || m.Clause == selection.Outside {
		return nil
	}
	if reason := r.filters.WithholdsAs(m.Clause, d); reason != "" {
		r.withheld.WithLabelValues(reason).Inc()
		return nil
	}
	forward := *d
	return &forward
}

// selectNodes sets the rules for deletions of Nodes, as the agents of those nodes would apply them.
// It must be called with mu held.
func (m *Manager) selectNodes() error {
	d := m.deletedNodes
	if d == nil || d.resource == nil {
		return nil
	}
	matches, err := m.sel.MatchOnly(d.resource)
	switch {
	case err != nil:
		return err
	case matches == nil:
		d.rules.Store(nil)
	default:
		d.rules.Store(&nodeRules{
			matches:  matches,
			filters:  matches.Filters(),
			withheld: m.deps.Metrics.Withheld(d.resource.String()),
		})
	}
	return nil
}
