package informers

import (
	"maps"
	"slices"

	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/scope"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// ignored tells if an object is the agent's own.
func (s *Manager) ignored(ref *object.Ref) bool {
	return slices.ContainsFunc(s.o.Ignore, func(n Name) bool {
		return n.Resource == ref.Resource.Name && n.Group == ref.Resource.Group && n.Name == ref.Name() && n.Namespace == ref.Namespace()
	})
}

// specOf returns what is to be observed of a scope, beginning with what is known of it. The caller holds mu.
func (s *Manager) specOf(of selection.Scope, lane store.Lane) *scope.Spec {
	r := of.Resource
	history, remembered := s.active.remembered[groupResource(r)]
	out := &scope.Spec{
		Scope: of, Lane: lane, OwnNames: s.ownNames(r), BuiltIn: discovery.IsBuiltIn(r.Group),
		Snapshots: s.o.Snapshot, Every: s.o.Every, History: history, Remembered: remembered,
	}
	c, ok := s.active.origins[of.Name]
	switch {
	case !ok:
		s.startFromCreation(out)
		return out
	case c.Retiring != nil && c.Retiring.Told:
		// Consumers may have heard, at a later resourceVersion than the checkpoint's, that objects left. Only reads of a new list
		// are later than that.
		out.History = c.History
		if s.deps.LastEvents != nil {
			s.deps.LastEvents.AddTombstone(r)
		}
	default:
		out.History = c.History
		out.Origin = &scope.Origin{Scope: c, Continued: s.active.continued[of.Name]}
	}
	delete(s.active.origins, of.Name)
	delete(s.active.continued, of.Name)
	return out
}

// inherit gives those that begin and have no checkpoint one of their resource that no informer resumes from: the selection
// was changed. They begin where the scope that is furthest behind was left, so that no change of an object that both select is
// lost, and read all of their objects. If consumers may have heard that the objects of a scope left, nobody begins there: what is read
// has to be later. others are such scopes beside the origins. The caller holds mu.
func (s *Manager) inherit(begin []*scope.Spec, others ...checkpoint.Scope) {
	for _, spec := range begin {
		r := spec.Scope.Resource
		for _, c := range append(slices.Collect(maps.Values(s.active.origins)), others...) {
			if spec.Origin != nil && (!spec.Origin.Inherited || spec.Origin.ResourceVersion <= c.ResourceVersion) ||
				c.Group != r.Group || c.Resource != r.Name || c.Retiring != nil && c.Retiring.Told {
				continue
			}
			spec.Origin = &scope.Origin{Scope: c, Inherited: true}
		}
	}
}

// add returns what is chosen and has no informer yet. A resource that is no longer served keeps its informer, which retries. The
// caller holds mu.
func (s *Manager) add(all []selection.Choice) (out []*scope.Spec) {
	for n := range all {
		resource := &all[n].Resource
		scopes, err := s.scopesOf(s.sel, &all[n])
		if err != nil {
			s.o.Log.Error("a resource cannot be observed as configured", "resource", resource.String(), "err", err)
		}
		for _, of := range scopes {
			if s.active.informers[of.Name] != nil || s.active.drains[objectsOf(resource)] != nil { // the latter begins after the drain
				continue
			}
			spec := s.specOf(of, s.o.Lane(of.Name))
			spec.Shared = all[n].Part.FieldSelector != ""
			out = append(out, spec)
		}
	}
	return out
}

// enroll adds the informer of a spec to the set. The caller holds mu.
func (s *Manager) enroll(spec *scope.Spec) *running {
	i := scope.New(&s.deps, spec)
	if !s.isRetired(i.Name()) {
		s.track(i)
	}
	r := &running{Informer: i, set: &s.mu.Signal, after: s.tombstonesBefore(i.Resource())}
	s.active.informers[i.Name()] = r
	return r
}

// track has the position of an informer remembered. If the tombstone of the same scope is not on the bus yet, its position is remembered
// until it is: observe tracks the informer after it.
func (s *Manager) track(i *scope.Informer) {
	if s.o.Memory != nil {
		s.o.Memory.Track(i.Name(), i.Position)
	}
}

// forget has nothing of a scope remembered, except a tombstone that is not on the bus yet. The caller holds mu.
func (s *Manager) forget(scope string) {
	if s.o.Memory != nil && !s.isRetired(scope) {
		s.o.Memory.Forget(scope)
	}
}

// scopesOf returns the scopes in which sel has a resource observed. The caller holds mu.
func (s *Manager) scopesOf(sel *selection.Selection, c *selection.Choice) ([]selection.Scope, error) {
	if names, split := s.namespaces.of(&c.Resource); split && c.SpansNamespaces() {
		return sel.InNamespaces(c, names...)
	}
	return sel.Scopes(c)
}
