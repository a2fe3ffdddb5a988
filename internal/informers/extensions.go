package informers

import (
	"context"
	"slices"

	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// followExtensions applies changes of CustomResourceDefinitions and APIServices to the informers, until ctx ends. A resource that is
// defined is observed from its creation (creation.go). A resource whose definition is deleted is retired (retire.go). A failed request is
// retried at once if its cause may have changed.
func (s *Manager) followExtensions(ctx context.Context) {
	// Not the context of the handler: that ends with the watch on definitions.
	s.extensions.Run(ctx, func(_ context.Context, ev discovery.Event) {
		_ = s.decide(ctx, func(ctx context.Context) { s.applyExtension(ctx, ev) }) // or the manager ends
	})
}

// applyExtension is followExtensions for one change. The caller holds mu.
func (s *Manager) applyExtension(ctx context.Context, ev discovery.Event) {
	switch ev := ev.(type) {
	case discovery.DefinitionDeleted:
		s.retireDefined(ctx, ev.Name, ev.ResourceVersion)
		s.startCreated(ctx)
	case discovery.DefinitionUpdated:
		if ev.SchemaChanged {
			for _, i := range s.active.informers {
				if i.Resource().String() == ev.Name {
					i.NewGeneration(ev.StorageChanged)
				}
			}
		}
		s.kickFailing(func(r *object.Resource) bool { return r.String() == ev.Name })
		s.startCreated(ctx)
	case discovery.APIServiceAvailable:
		s.kickFailing(func(r *object.Resource) bool { return r.Version+"."+r.Group == ev.Name })
	}
}

// kickFailing makes the failing informers of some resources retry at once. The caller holds mu.
func (s *Manager) kickFailing(is func(r *object.Resource) bool) {
	for _, i := range s.active.informers {
		if is(i.Resource()) && i.IsFailing() {
			i.Kick()
		}
	}
}

// kickServed is kickFailing for resources that are served now, and were not. The caller holds mu.
func (s *Manager) kickServed(all []selection.APIResource) {
	for _, i := range s.active.informers {
		now, ok := selection.Current(all, i.Resource())
		if ok && *now == *i.Resource() && !discovery.IsBuiltIn(i.Resource().Group) && i.IsUnserved() {
			i.Kick()
		}
	}
}

// takesExtensions reports whether any rule of a selection can take extensions.
func (s *Manager) takesExtensions(sel *selection.Selection) bool {
	if sel.PartOf(&object.Resource{Group: discovery.SomeExtension, Name: "any"}).None {
		return false
	}
	return slices.ContainsFunc(sel.Rules, func(r selection.Rule) bool { return slices.ContainsFunc(r.Resources, discovery.TakesExtensions) })
}
