package informers

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

func (m *Manager) ignored(ref *object.Ref) bool {
	return slices.ContainsFunc(m.o.Ignore, func(n Name) bool {
		return n.Resource == ref.Resource.Name && n.Group == ref.Resource.Group && n.Name == ref.Name() &&
			n.Namespace == ref.Namespace()
	})
}

// specOf returns the spec of a scope that begins from its own position or a creation, and removes
// its position from active. It must be called with mu held.
func (m *Manager) specOf(of selection.Scope, lane store.Lane) *informer.Spec {
	spec, from := m.newSpec(of, lane)
	begin(spec, from.choose())
	return spec
}

// newSpec returns the spec of a scope without a beginning, and what it may begin from, except for
// other scopes. It removes the position of the scope from active. It must be called with mu held.
func (m *Manager) newSpec(of selection.Scope, lane store.Lane) (*informer.Spec, *heritage) {
	r := of.Resource
	spec := &informer.Spec{
		Scope:      of,
		Lane:       lane,
		OwnNames:   m.ownNames(r),
		BuiltIn:    discovery.IsBuiltIn(r.Group),
		Snapshots:  m.o.Snapshot,
		Every:      m.o.Every,
		History:    m.lastHistory(r),
		Remembered: m.active.remembered[groupResource(r)],
	}
	from := new(heritage)
	from.created.rv, from.created.at = m.extensions.CreatedAt(r)
	if rv, at := m.namespaces.createdAt(r, of.Namespace); rv > from.created.rv {
		from.created = creation{rv, at}
	}
	if own, ok := m.active.origins[of.Name]; ok {
		delete(m.active.origins, of.Name)
		if own.Recalled {
			return spec, from // it asks the bus itself
		}
		from.own = &own
		if isAnnounced(&own) && m.deps.LastEvents != nil {
			m.deps.LastEvents.AddTombstone(r)
		}
	}
	return spec, from
}

// begin sets the beginning of a spec.
func begin(spec *informer.Spec, b beginning) {
	spec.Origin = b.origin
	spec.Created = b.created.rv
	spec.CreatedAt = b.created.at
}

// lastHistory returns the highest history number in the etcd of a resource. A scope without a
// position starts with it: consumers ignore events with a lower one, and only other scopes found
// later restores. It must be called with mu held.
func (m *Manager) lastHistory(r *object.Resource) uint32 {
	aggregated, _ := m.extensions.IsAggregated(r)
	in := etcdOf(r, aggregated)
	last := m.active.history[in]
	for _, o := range m.active.informers {
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

// addLeftOrigins adds to the heritage of a scope the positions that other scopes of its resource
// have left. ended are informers that may have ended before their first list. If one of them is of
// the resource, addLeftOrigins adds the origin or creation that it has not used. It must be called
// with mu held.
func (m *Manager) addLeftOrigins(to *heritage, of *selection.Scope, ended []*running) {
	for _, c := range m.active.origins {
		if c.Group == of.Resource.Group && c.Resource == of.Resource.Name && !c.Recalled {
			to.left = append(to.left, c)
		}
	}
	for _, r := range ended {
		if !r.ObservesResource(of.Resource) {
			continue
		}
		origin, rv, at := r.UnusedStart()
		if _, ok := r.Position(); !ok && origin != nil {
			to.left = append(to.left, *origin)
		}
		if in := r.Selection().Namespace; in == "" || in == of.Namespace {
			to.unbegun = append(to.unbegun, creation{rv, at})
		}
	}
}

// newSpecs returns specs of the chosen resources that have no informer yet. ended are the informers
// that they replace. It must be called with mu held.
func (m *Manager) newSpecs(all []selection.Choice, ended []*running) (out []*informer.Spec) {
	var from []*heritage
	for n := range all {
		resource := &all[n].Resource
		scopes, err := m.scopesOf(m.sel, &all[n])
		if err != nil {
			m.o.Log.Error("cannot capture a resource as configured", "resource", resource.String(), "err", err)
		}
		for _, of := range scopes {
			if m.active.informers[of.Name] != nil || m.active.drains[objectsOf(resource)] != nil {
				// in the latter case it starts after the drain
				continue
			}
			spec, own := m.newSpec(of, m.o.Lane(of.Name))
			spec.Shared = all[n].Part.FieldSelector != ""
			out, from = append(out, spec), append(from, own)
		}
	}
	for k, spec := range out { // by now, active has only positions from which none of them begins
		m.addLeftOrigins(from[k], &spec.Scope, ended)
		begin(spec, from[k].choose())
	}
	return out
}

// enroll adds an informer. It must be called with mu held.
func (m *Manager) enroll(spec *informer.Spec) *running {
	i := informer.New(&m.deps, spec)
	ends := m.active.endings[i.Name()]
	if !m.isRetired(i.Name()) && ends == nil {
		m.track(i)
	}
	r := &running{Informer: i, signal: &m.mu.Signal}
	if ends != nil {
		r.after = append(r.after, ends.done)
	}
	for _, t := range m.active.tombstones {
		if t.HasEnded() || !t.ObservesResource(i.Resource()) {
			continue
		}
		r.after = append(r.after, t.Released())
		if t.Name() == i.Name() {
			r.after = append(r.after, t.Done())
			t.SelectAgain()
		}
	}
	m.active.informers[i.Name()] = r
	delete(m.active.lingering, i.Name())
	return r
}

// track stores the position of an informer at each save. Until the tombstone of its scope has
// ended, the tombstone's position is stored.
func (m *Manager) track(i *informer.Informer) {
	if m.o.Memory != nil {
		m.o.Memory.Track(i.Name(), i.Position, i.Store().ChangeCount)
	}
}

// forget deletes a scope from the checkpoint, unless it has a tombstone or an end that is not on
// the bus yet. It must be called with mu held.
func (m *Manager) forget(scope string) {
	if m.o.Memory != nil && !m.isRetired(scope) && m.active.endings[scope] == nil {
		m.o.Memory.Forget(scope)
	}
}

// scopesOf returns the scopes of a resource under sel. It must be called with mu held.
func (m *Manager) scopesOf(sel *selection.Selection, c *selection.Choice) ([]selection.Scope, error) {
	if names, split := m.namespaces.of(&c.Resource); split && c.SpansNamespaces() {
		return sel.InNamespaces(c, names...)
	}
	return m.scopes.of(sel, c)
}

// scopes has the scopes of choices under one selection. Discovery asks for those of all resources
// twice a minute, and they hardly ever change.
type scopes struct {
	sel *selection.Selection
	all map[object.Resource]chosen
}

type chosen struct {
	rules  []*selection.Rule
	part   selection.Part
	scopes []selection.Scope
}

// of returns the scopes of a choice, which must not be changed.
func (s *scopes) of(sel *selection.Selection, c *selection.Choice) ([]selection.Scope, error) {
	if s.sel != sel {
		s.sel, s.all = sel, map[object.Resource]chosen{}
	}
	known, ok := s.all[c.Resource]
	if ok && known.part == c.Part && slices.Equal(known.rules, c.Rules) {
		return known.scopes, nil
	}
	found, err := sel.Scopes(c)
	if err == nil {
		s.all[c.Resource] = chosen{c.Rules, c.Part, found}
	}
	return found, err
}

// retain deletes the resources that are not among all.
func (s *scopes) retain(all []selection.Choice) {
	if len(s.all) <= len(all) {
		return
	}
	names := map[object.Resource]bool{}
	for n := range all {
		names[all[n].Resource] = true
	}
	maps.DeleteFunc(s.all, func(r object.Resource, _ chosen) bool { return !names[r] })
}

// ownNames returns the names of the agent's own objects of a resource: the ConfigMap of its
// checkpoint, the Lease of its election. They are never captured, and not part of a scope's
// fingerprint (store.Matches). nil: no agent has any of the resource.
func (m *Manager) ownNames(r *object.Resource) []string {
	var out []string
	if r.Group == "" && r.Name == "configmaps" || r.Group == "coordination.k8s.io" && r.Name == "leases" {
		out = []string{}
	}
	for _, n := range m.o.Ignore {
		if n.Group == r.Group && n.Resource == r.Name {
			out = append(out, informer.OwnName(n.Namespace, n.Name))
		}
	}
	slices.Sort(out)
	return out
}

// isForeign reports whether other agents now observe the objects of a scope of the last run, which
// belongs to another part of the cluster. This agent must not send that they left.
func (m *Manager) isForeign(c *checkpoint.Scope) bool {
	p := m.sel.PartOf(&object.Resource{Group: c.Group, Name: c.Resource})
	return p.None || p.FieldSelector != "" && !strings.HasSuffix(","+c.FieldSelector, ","+p.FieldSelector)
}

// If a resource is defined while the manager watches definitions, the manager observes it from its
// creation E: the resourceVersion at which its CustomResourceDefinition was created. The resource
// accepts objects a moment before it is established. No object existed at E, so objects found later
// are created, not read. First the informer sends an empty snapshot at E: consumers delete all
// objects of an earlier resource of that name.
//
// The API server usually refuses a watch from E: it keeps history of a resource only since the
// first request for it. So the informer lists the objects at once, and then each of the few
// revisions in between (package backfill). If there are too many, it walks back the names in the
// list, and announces a gap.

// startCreated starts informers of resources that were defined while the manager watched, unless
// one of that name is still being retired. It must be called with mu held.
func (m *Manager) startCreated(ctx context.Context) {
	if m.served.discovery == 0 {
		return // the first discovery starts them
	}
	retiring := map[schema.GroupResource]bool{}
	for _, i := range m.active.informers {
		if i.RemovedAt() != 0 {
			retiring[groupResource(i.Resource())] = true
		}
	}
	created := m.extensions.Created(retiring)
	if len(created) == 0 {
		return
	}
	out, _ := m.sel.Choose(created, nil, m.resourcesTakenBy(nil))
	specs := m.newSpecs(out, nil)
	m.extensions.NoteStarted(created)
	var added []*running
	for _, spec := range specs {
		m.o.Log.Info("a resource was defined: capturing it from its creation", "scope", spec.Scope.Name, "rv",
			spec.Created)
		added = append(added, m.enroll(spec))
	}
	m.start(ctx, added, nil)
}
