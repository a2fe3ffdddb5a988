package informers

import (
	"context"
	"slices"
	"sync"

	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// followExtensions applies changes of CustomResourceDefinitions and APIServices to the informers, until ctx ends. A resource that is
// defined is observed from its creation (births.go), one that is defined no longer is ended (burials.go), and a failed request is
// retried at once if what it failed for may have changed. begin begins informers.
func (s *Set) followExtensions(ctx context.Context, begin func([]*running)) {
	s.extensions.Need(s.takesExtensions())
	b := &burials{set: s, begin: begin}
	defer b.wait()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for {
			select {
			case v := <-s.undefined:
				b.add(ctx, v.name, v.at)
			case <-ctx.Done():
				return
			}
		}
	})
	// Not the context of the handler: that ends with the watch on definitions, and an informer that ends must not be left to itself then.
	s.extensions.Run(ctx, func(_ context.Context, ev discovery.Event) {
		s.mu.Notify() // conditions depend on what exists
		switch ev := ev.(type) {
		case discovery.DefinitionDeleted:
			b.add(ctx, ev.Name, ev.ResourceVersion)
			begin(s.bear())
		case discovery.DefinitionUpdated:
			if ev.SchemaChanged {
				s.newEdition(ev.Name, ev.StorageChanged)
			}
			s.nudge(ev.Name)
			begin(s.bear())
		case discovery.APIServiceAvailable:
			s.nudgeGroup(ev.Name)
		}
	})
}

// takesExtensions reports whether any rule can take extensions.
func (s *Set) takesExtensions() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sel.PartOf(&object.Resource{Group: discovery.SomeExtension, Name: "any"}).None {
		return false
	}
	return slices.ContainsFunc(s.sel.Rules, func(r selection.Rule) bool { return slices.ContainsFunc(r.Resources, discovery.TakesExtensions) })
}
