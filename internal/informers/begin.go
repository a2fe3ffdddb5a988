package informers

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
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

// specOf returns the spec of a scope, with its known position and history number. The caller holds mu.
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

// track stores the position of an informer at each save. An informer that waits for the tombstone of its own scope is tracked when it
// begins: until then, the position of the tombstone is stored.
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

// The agent never captures its own objects: the ConfigMap of its checkpoint and the Lease of its election. They are not part
// of a scope's fingerprint either. The configuration decides which these are, so a checkpoint stores which objects its fingerprint leaves
// out (store.Matches).

// ownNames returns the names of the agent's own objects of a resource. nil: no agent has any among those of the resource.
func (s *Manager) ownNames(r *object.Resource) []string {
	var out []string
	if r.Group == "" && r.Name == "configmaps" || r.Group == "coordination.k8s.io" && r.Name == "leases" {
		out = []string{}
	}
	for _, n := range s.o.Ignore {
		if n.Group == r.Group && n.Resource == r.Name {
			out = append(out, scope.OwnName(n.Namespace, n.Name))
		}
	}
	slices.Sort(out)
	return out
}

// foreign reports whether a scope of the last run belongs to another part of the cluster: to another node, or to all nodes. Other agents
// observe its objects now, so this one must not send that they left. If the resource has no part, no other agent observes it.
func (s *Manager) foreign(c *checkpoint.Scope) bool {
	p := s.sel.PartOf(&object.Resource{Group: c.Group, Name: c.Resource})
	return p.None || p.FieldSelector != "" && !strings.HasSuffix(","+c.FieldSelector, ","+p.FieldSelector)
}

// A resource that is defined while the manager watches definitions is observed from its creation: the resourceVersion at which its
// CustomResourceDefinition was created. No object existed before, so the objects that are found are created, not read:
//
//	E (definition) ────────────── R (list) ──▶ watch
//	 nothing      E+1  E+2  …  R
//
// The API server usually refuses a watch from E: it begins to keep history of a resource when it is first asked for it. So the objects
// are listed at once, and the few revisions in between are listed one by one (package backfill). If there are too many, the names in
// the list are walked back, and a gap is announced.
//
// E is not when the definition was established: the API server accepts objects a moment before it reports that. A snapshot of no objects,
// at E, comes first. The stream is complete from there, and consumers delete what they have of an earlier resource of that name.

// startCreated starts informers of resources that were defined while the manager watched, and have none yet. A resource whose name is
// still being retired waits for that. The caller holds mu.
func (s *Manager) startCreated(ctx context.Context) {
	if s.served.discovery == 0 {
		return // the first discovery starts them
	}
	retiring := map[schema.GroupResource]bool{}
	for _, i := range s.active.informers {
		gr := groupResource(i.Resource())
		retiring[gr] = retiring[gr] || i.RemovedAt() != 0
	}
	created := s.extensions.Created(retiring)
	if len(created) == 0 {
		return
	}
	out, _ := s.sel.Choose(created, nil, s.taken(nil))
	specs := s.add(out)
	s.inherit(specs)
	s.extensions.Started(created)
	var begin []*running
	for _, spec := range specs {
		s.o.Log.Info("a resource was defined: it is observed from its creation", "scope", spec.Scope.Name, "rv", spec.Created)
		begin = append(begin, s.enroll(spec))
	}
	s.start(ctx, begin, nil)
}

// startFromCreation lets an informer without a checkpoint begin at the creation of its resource or namespace, if that is known. The
// caller holds mu.
func (s *Manager) startFromCreation(spec *scope.Spec) {
	spec.Created, spec.CreatedAt = s.extensions.CreatedAt(spec.Scope.Resource)
	if rv, at := s.namespaces.createdAt(spec.Scope.Resource, spec.Scope.Namespace); rv > spec.Created {
		spec.Created, spec.CreatedAt = rv, at
	}
}

// bequeath passes on the creation at which informers were to begin that ended before their first list. Specs of the same resource that
// have no origin begin there. The caller holds mu.
func bequeath(ended []*running, begin []*scope.Spec) {
	for _, spec := range begin {
		for _, of := range ended {
			if spec.Origin == nil && of.ObservesResource(spec.Scope.Resource) && (of.Selection().Namespace == "" || of.Selection().Namespace == spec.Scope.Namespace) {
				if _, created, at := of.NotBegun(); created > spec.Created {
					spec.Created, spec.CreatedAt = created, at
				}
			}
		}
	}
}
