package informers

import (
	"context"
	"maps"
	"slices"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// ignored tells if an object is the agent's own.
func (s *Set) ignored(ref *object.Ref) bool {
	return slices.ContainsFunc(s.o.Ignore, func(n Name) bool {
		return n.Resource == ref.Resource.Name && n.Group == ref.Resource.Group && n.Name == ref.Name() && n.Namespace == ref.Namespace()
	})
}

// specOf returns what is to be observed of a scope, beginning with what is known of it. The caller holds mu.
func (s *Set) specOf(scope selection.Scope, lane store.Lane) *Spec {
	r := scope.Resource
	history, remembered := s.active.remembered[groupResource(r)]
	out := &Spec{Scope: scope, Lane: lane, Snapshots: s.o.Snapshot, Every: s.o.Every, History: history, Remembered: remembered}
	c, ok := s.active.origins[scope.Name]
	switch {
	case !ok:
		s.startFromCreation(out)
		return out
	case c.Retiring != nil && c.Retiring.Told:
		// Consumers may have heard, at a later resourceVersion than the checkpoint's, that objects left. Only reads of a new list
		// are later than that.
		out.History = c.History
		if s.hearing != nil {
			s.hearing.part(r)
		}
	default:
		out.History = c.History
		out.Origin = &Origin{Scope: c, Continued: s.active.continued[scope.Name]}
	}
	delete(s.active.origins, scope.Name)
	delete(s.active.continued, scope.Name)
	return out
}

// inherit gives those that begin and have no checkpoint one of their resource that no informer resumes from: the selection
// was changed. They begin where the scope that is furthest behind was left, so that no change of an object that both select is
// lost, and read all of their objects. If consumers may have heard that the objects of a scope left, nobody begins there: what is read
// has to be later. others are such scopes beside the origins. The caller holds mu.
func (s *Set) inherit(begin []*Spec, others ...checkpoint.Scope) {
	for _, spec := range begin {
		r := spec.Scope.Resource
		for _, c := range append(slices.Collect(maps.Values(s.active.origins)), others...) {
			if spec.Origin != nil && (!spec.Origin.Inherited || spec.Origin.ResourceVersion <= c.ResourceVersion) ||
				c.Group != r.Group || c.Resource != r.Name || c.Retiring != nil && c.Retiring.Told {
				continue
			}
			spec.Origin = &Origin{Scope: c, Inherited: true}
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

// add returns what is chosen and has no informer yet. A resource that is no longer served keeps its informer, which retries. The
// caller holds mu.
func (s *Set) add(all []selection.Choice) (out []*Spec) {
	for n := range all {
		resource := &all[n].Resource
		scopes, err := s.scopesOf(s.sel, &all[n])
		if err != nil {
			s.o.Log.Error("a resource cannot be observed as configured", "resource", resource.String(), "err", err)
		}
		for _, scope := range scopes {
			if s.active.informers[scope.Name] != nil || s.active.drains[objectsOf(resource)] != nil { // the latter begins after the drain
				continue
			}
			spec := s.specOf(scope, s.o.Lane(scope.Name))
			spec.Shared = all[n].Part.FieldSelector != ""
			out = append(out, spec)
		}
	}
	return out
}

// enroll adds the informer of a spec to the set. The caller holds mu.
func (s *Set) enroll(spec *Spec) *running {
	i := s.newInformer(spec)
	if !s.isRetired(i.scope) {
		s.track(i)
	}
	r := &running{informer: i, set: &s.mu.Signal, done: make(chan struct{}), after: s.tombstonesBefore(i.resource)}
	s.active.informers[i.scope] = r
	return r
}

// track has the position of an informer remembered. If the tombstone of the same scope is not on the bus yet, its position is remembered
// until it is: observe tracks the informer after it.
func (s *Set) track(i *informer) {
	if s.o.Memory != nil {
		s.o.Memory.Track(i.scope, i.position)
	}
}

// forget has nothing of a scope remembered, except a tombstone that is not on the bus yet. The caller holds mu.
func (s *Set) forget(scope string) {
	if s.o.Memory != nil && !s.isRetired(scope) {
		s.o.Memory.Forget(scope)
	}
}

// scopesOf returns the scopes in which sel has a resource observed. The caller holds mu.
func (s *Set) scopesOf(sel *selection.Selection, c *selection.Choice) ([]selection.Scope, error) {
	if names, split := s.namespaces.of(&c.Resource); split && c.SpansNamespaces() {
		return sel.InNamespaces(c, names...)
	}
	return sel.Scopes(c)
}
