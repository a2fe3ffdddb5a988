package informers

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Plan is what a Set would observe if it ran now.
type Plan struct {
	Resources []Planned
	Unserved  []string // patterns without a wildcard that match nothing which is served
	Unknown   []string // group versions that discovery could not tell
}

// Planned is a resource and the index of the rule that takes it.
type Planned struct {
	Resource object.Resource
	Rule     int
}

// Plan asks the API server what it serves, once, and lets the rules take it as Run does. It starts nothing.
func (s *Set) Plan(ctx context.Context) (*Plan, error) {
	all, unknown, err := discover(ctx, s.client.discovery)
	if err != nil {
		return nil, err
	}
	out, unserved := choose(s.o.Rules, all, len(unknown) == 0, map[schema.GroupResource]bool{})
	p := &Plan{Unserved: unserved, Unknown: unknown}
	for _, c := range s.observed(out) {
		for i := range s.o.Rules {
			if c.rule == &s.o.Rules[i] {
				p.Resources = append(p.Resources, Planned{Resource: c.resource, Rule: i})
			}
		}
	}
	return p, nil
}
