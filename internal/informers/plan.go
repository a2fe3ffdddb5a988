package informers

import (
	"context"
	"slices"

	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Plan is what a Manager would observe if it ran now.
type Plan struct {
	Resources []Planned
	Unserved  []string // patterns without a wildcard that match nothing which is served
	Unknown   []string // group versions that could not be discovered
}

// Planned is a resource and the indices of the rules that can take its objects, in order.
type Planned struct {
	Resource object.Resource
	Rules    []int
}

// Plan asks the API server once what it serves, and applies the rules as Run does. It starts nothing.
func (s *Manager) Plan(ctx context.Context) (*Plan, error) {
	all, unknown, err := discovery.Discover(ctx, s.client)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	sel := s.sel
	s.mu.Unlock()
	out, unserved := sel.Choose(all, unknown, nil)
	p := &Plan{Unserved: unserved, Unknown: unknown}
	for _, c := range out {
		planned := Planned{Resource: c.Resource}
		for i := range sel.Rules {
			if slices.Contains(c.Rules, &sel.Rules[i]) {
				planned.Rules = append(planned.Rules, i)
			}
		}
		p.Resources = append(p.Resources, planned)
	}
	return p, nil
}
