package informers

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/object"
)

// tellable is what the rules have told of a resource that the set follows for its own use. nil: nothing.
type tellable struct {
	selection
	filters *filters
	metrics *metrics
}

// forward is a copy of a deletion to be sent, nil where no rule takes what was deleted, or that is withheld.
func (t *tellable) forward(d *object.Delta) *object.Delta {
	if t == nil || d.Before == nil {
		return nil
	}
	raw, err := d.Before.AppendJSON(nil)
	var p peeked
	if err == nil {
		err = p.look(raw)
	}
	if err != nil {
		return nil // it was read before
	}
	of, _ := t.route(&p)
	if of == outside {
		return nil
	}
	if f := t.filters; f != nil && f.of[of] != nil {
		if reason := f.of[of].Withholds(d); reason != "" {
			t.metrics.store.Withheld.WithLabelValues(reason).Inc()
			return nil
		}
	}
	forward := *d
	return &forward
}

// tellNodes has the deletions of Nodes told that the rules take, as the agents of those nodes would have. The caller holds mu.
func (s *Set) tellNodes() error {
	d := s.departures
	if d == nil || d.resource == nil {
		return nil
	}
	var rules []*Rule
	for n := range s.sel.Rules {
		if r := &s.sel.Rules[n]; r.AllNamespaces && r.match(d.resource.Group, d.resource.Version, d.resource.Name) {
			rules = append(rules, r)
		}
	}
	clauses, err := s.sel.clausesOf(d.resource, rules)
	if err != nil {
		return err
	}
	if len(clauses) == 0 {
		d.told.Store(nil)
		return nil
	}
	for n := range clauses {
		c := &clauses[n]
		if err := c.compile("", ""); err != nil {
			return err
		}
		// Of other fields only the API server knows for sure what they are where they are not there: in doubt it is told.
		c.terms = slices.DeleteFunc(c.terms, func(t term) bool { return t.path.String() != "metadata.name" })
	}
	d.told.Store(&tellable{
		selection: selection{clauses: clauses, namespaces: allNamespaces}, filters: newFilters(d.resource, clauses), metrics: s.vectors.of(d.resource.String()),
	})
	return nil
}
