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

// ignored reports whether an object is the agent's own.
func (s *Manager) ignored(ref *object.Ref) bool {
	return slices.ContainsFunc(s.o.Ignore, func(n Name) bool {
		return n.Resource == ref.Resource.Name && n.Group == ref.Resource.Group && n.Name == ref.Name() && n.Namespace == ref.Namespace()
	})
}

// specOf returns the spec of a scope, with the position and history number that are known of it. The caller holds mu.
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
		// Consumers may have received, at a later resourceVersion than the checkpoint's, the events of objects that left. Only reads of a
		// new list are later than those.
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

// inherit gives specs without a checkpoint one of their resource that no informer resumes from: the selection was changed. They begin at
// the lowest position of such scopes, so that no change of an object that both select is lost, and read all of their objects. A scope
// is not inherited if consumers may have received its left events: a read must be later than those. others are more such scopes. The caller
// holds mu.
func (s *Manager) inherit(begin []*scope.Spec, others ...checkpoint.Scope) {
	for _, spec := range begin {
		r := spec.Scope.Resource
		for _, c := range append(slices.Collect(maps.Values(s.active.origins)), others...) {
			if c.Group != r.Group || c.Resource != r.Name {
				continue
			}
			spec.History = max(spec.History, c.History) // consumers take what has a lower one for late
			if spec.Origin != nil && (!spec.Origin.Inherited || spec.Origin.ResourceVersion <= c.ResourceVersion) || c.Retiring != nil && c.Retiring.Told {
				continue
			}
			spec.Origin = &scope.Origin{Scope: c, Inherited: true}
		}
	}
}

// add returns specs of the chosen resources that have no informer yet. A resource that is no longer served keeps its informer, which
// retries. The caller holds mu.
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

// enroll adds the informer of a spec to the manager. The caller holds mu.
func (s *Manager) enroll(spec *scope.Spec) *running {
	i := scope.New(&s.deps, spec)
	if !s.isRetired(i.Name()) {
		s.track(i)
	}
	r := &running{Informer: i, set: &s.mu.Signal, after: s.tombstonesBefore(i.Resource())}
	s.active.informers[i.Name()] = r
	return r
}

// track stores the position of an informer at each save. While the tombstone of the same scope is not on the bus, the position of the
// tombstone is stored instead: the informer is tracked when it begins, which is after that.
func (s *Manager) track(i *scope.Informer) {
	if s.o.Memory != nil {
		s.o.Memory.Track(i.Name(), i.Position)
	}
}

// forget deletes a scope from the checkpoint, unless it has a tombstone that is not on the bus yet. The caller holds mu.
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
