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

func (s *Manager) ignored(ref *object.Ref) bool {
	return slices.ContainsFunc(s.o.Ignore, func(n Name) bool {
		return n.Resource == ref.Resource.Name && n.Group == ref.Resource.Group && n.Name == ref.Name() && n.Namespace == ref.Namespace()
	})
}

// specOf returns the spec of a scope, and removes its position from active. It must be called with mu held.
func (s *Manager) specOf(of selection.Scope, lane store.Lane) *scope.Spec {
	r := of.Resource
	out := &scope.Spec{
		Scope: of, Lane: lane, OwnNames: s.ownNames(r), BuiltIn: discovery.IsBuiltIn(r.Group),
		Snapshots: s.o.Snapshot, Every: s.o.Every, History: s.lastHistory(r), Remembered: s.active.remembered[groupResource(r)],
	}
	c, ok := s.active.origins[of.Name]
	switch {
	case !ok: // it starts at the creation of its resource or namespace, if that is known
		out.Created, out.CreatedAt = s.extensions.CreatedAt(r)
		if rv, at := s.namespaces.createdAt(r, of.Namespace); rv > out.Created {
			out.Created, out.CreatedAt = rv, at
		}
		return out
	case c.Retiring != nil && c.Retiring.Announced:
		// Consumers may have received left events at later resourceVersions than the checkpoint's. Only reads of a new list are later.
		if s.deps.LastEvents != nil {
			s.deps.LastEvents.AddTombstone(r)
		}
	default:
		out.Origin = &c
	}
	delete(s.active.origins, of.Name)
	return out
}

// lastHistory returns the highest history number in the etcd of a resource. A scope without a position starts with it: consumers ignore
// events with a lower one, and only other scopes found later restores. It must be called with mu held.
func (s *Manager) lastHistory(r *object.Resource) uint32 {
	aggregated, _ := s.extensions.IsAggregated(r)
	in := etcdOf(r, aggregated)
	last := s.active.history[in]
	for _, o := range s.active.informers {
		if etcdOf(o.Resource(), o.IsAggregated()) == in {
			last = max(last, o.Store().View().History)
		}
	}
	return last
}

// raiseHistory records that the etcd of a resource has at least the history number n.
func (a *active) raiseHistory(r *object.Resource, aggregated bool, n uint32) {
	in := etcdOf(r, aggregated)
	a.history[in] = max(a.history[in], n)
}

// inherit gives specs without a checkpoint one of their resource that no informer resumes from: the selection was changed. They start at
// the lowest position of such scopes, so that no change of an object that both select is lost, and read all of their objects. A scope is
// not inherited if consumers may have received its left events: a read must be later than those. If informers ended before their first
// list, specs inherit the position or the creation from which those were to start. It must be called with mu held.
func (s *Manager) inherit(begin []*scope.Spec, ended []*running) {
	left := slices.Collect(maps.Values(s.active.origins))
	for _, of := range ended {
		origin, _, _ := of.NotBegun()
		if _, ok := of.Position(); !ok && origin != nil {
			left = append(left, *origin)
		}
	}
	for _, spec := range begin {
		r := spec.Scope.Resource
		for _, c := range left {
			if c.Group != r.Group || c.Resource != r.Name || c.Lost != nil {
				continue
			}
			if spec.Origin != nil && (!spec.Origin.Inherited || spec.Origin.ResourceVersion <= c.ResourceVersion) || c.Retiring != nil && c.Retiring.Announced {
				continue
			}
			spec.Origin = &scope.Origin{Scope: c.Scope, Inherited: true}
		}
		if spec.Origin == nil {
			inheritCreation(spec, ended)
		}
	}
}

// inheritCreation makes a spec start at the creation from which an informer of its resource was to start.
func inheritCreation(spec *scope.Spec, ended []*running) {
	for _, of := range ended {
		_, created, at := of.NotBegun()
		in := of.Selection().Namespace
		if of.ObservesResource(spec.Scope.Resource) && (in == "" || in == spec.Scope.Namespace) && created > spec.Created {
			spec.Created, spec.CreatedAt = created, at
		}
	}
}

// add returns specs of the chosen resources that have no informer yet. It must be called with mu held.
func (s *Manager) add(all []selection.Choice) (out []*scope.Spec) {
	for n := range all {
		resource := &all[n].Resource
		scopes, err := s.scopesOf(s.sel, &all[n])
		if err != nil {
			s.o.Log.Error("cannot capture a resource as configured", "resource", resource.String(), "err", err)
		}
		for _, of := range scopes {
			if s.active.informers[of.Name] != nil || s.active.drains[objectsOf(resource)] != nil { // in the latter case it starts after the drain
				continue
			}
			spec := s.specOf(of, s.o.Lane(of.Name))
			spec.Shared = all[n].Part.FieldSelector != ""
			out = append(out, spec)
		}
	}
	return out
}

// enroll adds an informer. It must be called with mu held.
func (s *Manager) enroll(spec *scope.Spec) *running {
	i := scope.New(&s.deps, spec)
	if !s.isRetired(i.Name()) {
		s.track(i)
	}
	r := &running{Informer: i, set: &s.mu.Signal}
	for _, t := range s.active.tombstones {
		if !t.HasEnded() && t.ObservesResource(i.Resource()) {
			r.after = append(r.after, t.Done())
		}
	}
	s.active.informers[i.Name()] = r
	return r
}

// track stores the position of an informer at each save. Until the tombstone of its scope has ended, the tombstone's position is stored.
func (s *Manager) track(i *scope.Informer) {
	if s.o.Memory != nil {
		s.o.Memory.Track(i.Name(), i.Position)
	}
}

// forget deletes a scope from the checkpoint, unless it has a tombstone that is not on the bus yet. It must be called with mu held.
func (s *Manager) forget(scope string) {
	if s.o.Memory != nil && !s.isRetired(scope) {
		s.o.Memory.Forget(scope)
	}
}

// scopesOf returns the scopes of a resource under sel. It must be called with mu held.
func (s *Manager) scopesOf(sel *selection.Selection, c *selection.Choice) ([]selection.Scope, error) {
	if names, split := s.namespaces.of(&c.Resource); split && c.SpansNamespaces() {
		return sel.InNamespaces(c, names...)
	}
	return sel.Scopes(c)
}

// ownNames returns the names of the agent's own objects of a resource: the ConfigMap of its checkpoint, the Lease of its election. They are
// never captured, and not part of a scope's fingerprint (store.Matches). nil: no agent has any of the resource.
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

// foreign reports whether other agents now observe the objects of a scope of the last run, which belongs to another part of the cluster.
// This agent must not send that they left.
func (s *Manager) foreign(c *checkpoint.Scope) bool {
	p := s.sel.PartOf(&object.Resource{Group: c.Group, Name: c.Resource})
	return p.None || p.FieldSelector != "" && !strings.HasSuffix(","+c.FieldSelector, ","+p.FieldSelector)
}

// A resource that is defined while the manager watches definitions is observed from its creation E: the resourceVersion at which its
// CustomResourceDefinition was created. It accepts objects a moment before it is established. No object existed at E, so objects found
// later are created, not read. First an empty snapshot at E is sent: consumers delete all objects of an earlier resource of that name.
//
// The API server usually refuses a watch from E: it keeps history of a resource only since the first request for it. So the objects are
// listed at once, and the few revisions in between are listed one by one (package backfill). If there are too many, the names in the list
// are walked back, and a gap is announced.

// startCreated starts informers of resources that were defined while the manager watched, unless one of that name is still being retired.
// It must be called with mu held.
func (s *Manager) startCreated(ctx context.Context) {
	if s.served.discovery == 0 {
		return // the first discovery starts them
	}
	retiring := map[schema.GroupResource]bool{}
	for _, i := range s.active.informers {
		if i.RemovedAt() != 0 {
			retiring[groupResource(i.Resource())] = true
		}
	}
	created := s.extensions.Created(retiring)
	if len(created) == 0 {
		return
	}
	out, _ := s.sel.Choose(created, nil, s.taken(nil))
	specs := s.add(out)
	s.inherit(specs, nil)
	s.extensions.Started(created)
	var begin []*running
	for _, spec := range specs {
		s.o.Log.Info("a resource was defined: capturing it from its creation", "scope", spec.Scope.Name, "rv", spec.Created)
		begin = append(begin, s.enroll(spec))
	}
	s.start(ctx, begin, nil)
}
