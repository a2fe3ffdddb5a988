package informers

import (
	"context"
	"maps"
	"slices"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// ignored tells if an object is the agent's own.
func (s *Set) ignored(ref *object.Ref) bool {
	return slices.ContainsFunc(s.o.Ignore, func(n Name) bool {
		return n.Resource == ref.Resource.Name && n.Group == ref.Resource.Group && n.Name == ref.Name() && n.Namespace == ref.Namespace()
	})
}

// begins gives an informer what is known of its scope. The caller holds mu.
func (s *Set) begins(i *informer) {
	history, known := s.active.remembered[groupResource(i.resource)]
	i.store.SetHistory(history)
	i.forgotten = !known
	c, ok := s.active.origins[i.scope]
	if !ok {
		s.startFromCreation(i)
		return
	}
	delete(s.active.origins, i.scope)
	if c.Retiring != nil && c.Retiring.Told {
		// Consumers may have heard, at a later resourceVersion than the checkpoint's, that objects left. Only reads of a new list
		// are later than that.
		i.store.SetHistory(c.History)
		if s.hearing != nil {
			s.hearing.part(i.resource)
		}
		return
	}
	i.resume = &origin{Scope: c, continued: s.active.continued[i.scope]}
	delete(s.active.continued, i.scope)
	i.store.Continue(&c)
	i.state.last = c.LastSeen
	i.aggregated.Store(c.Aggregated)
	if c.Definition != "" {
		i.definition.Store(&c.Definition)
	}
}

// inherit gives those that begin and have no checkpoint one of their resource that no informer goes on from: the selection
// was changed. They begin where the scope that is furthest behind was left, so that no change of an object that both select is
// lost, and read all of their objects. If consumers may have heard that the objects of a scope left, nobody begins there: what is read
// has to be later. others are such scopes beside the origins. The caller holds mu.
func (s *Set) inherit(begin []*running, others ...checkpoint.Scope) {
	for _, i := range begin {
		for _, c := range append(slices.Collect(maps.Values(s.active.origins)), others...) {
			if i.resume != nil && (!i.resume.inherited || i.resume.ResourceVersion <= c.ResourceVersion) ||
				c.Group != i.resource.Group || c.Resource != i.resource.Name || c.Retiring != nil && c.Retiring.Told {
				continue
			}
			i.resume, i.successor = &origin{Scope: c, inherited: true}, true
		}
	}
}

// mayBegin waits until the tombstones of scopes that the informer takes the place of are on the bus; false: ctx ended first.
func (r *running) mayBegin(ctx context.Context) bool {
	for _, c := range r.after {
		select {
		case <-c:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// of returns the informers of a resource.
func (s *Set) of(r *object.Resource) []*running {
	return slices.DeleteFunc(s.observing(), func(i *running) bool { return !i.observesOf(r) })
}

// observesOf tells that an informer is of a resource, in whatever version.
func (i *informer) observesOf(r *object.Resource) bool {
	return i.resource.Group == r.Group && i.resource.Name == r.Name
}

// add makes informers for what has none yet. A resource that is no longer served keeps its informer, which retries. The
// caller holds mu.
func (s *Set) add(all []selection.Choice) []*running {
	var out []*running
	for n := range all {
		resource := &all[n].Resource
		scopes, err := s.scopesOf(s.sel, &all[n])
		if err != nil {
			s.o.Log.Error("a resource cannot be observed as configured", "resource", resource.String(), "err", err)
		}
		for _, scope := range scopes {
			if s.active.informers[scope.Name] != nil || s.active.drains[objectsOf(resource)] != nil { // the latter begins when those have come to rest
				continue
			}
			i := s.newInformer(scope, s.o.Lane(scope.Name))
			i.shared = all[n].Part.FieldSelector != ""
			out = append(out, s.enroll(i))
		}
	}
	return out
}

// scopesOf returns the scopes in which sel has a resource observed. The caller holds mu.
func (s *Set) scopesOf(sel *selection.Selection, c *selection.Choice) ([]selection.Scope, error) {
	if names, split := s.namespaces.of(&c.Resource); split && c.SpansNamespaces() {
		return sel.InNamespaces(c, names...)
	}
	return sel.Scopes(c)
}
