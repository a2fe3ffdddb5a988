package informers

import (
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// tombstonesOf returns tombstones of the scopes of the last run that are served, but no longer selected. The informers that replace them wait
// for the tombstones. The caller holds mu.
func (s *Manager) tombstonesOf(begin []*running) (out []*scope.Tombstone) {
	all, unknown := s.served.all, s.served.unknown
	for scope, c := range s.active.origins {
		r := &object.Resource{Group: c.Group, Version: c.Version, Name: c.Resource, Kind: c.Kind, Namespaced: c.Namespaced}
		if s.active.drains[objectsOf(r)] != nil {
			continue // its informers are chosen after the drain
		}
		current, ok := selection.Current(all, r)
		if !ok || !selection.AliasesKnown(unknown) || !selection.GroupKnown(unknown, c.Group) {
			continue // not served, or not known: it may be served again
		}
		if s.foreign(&c) {
			s.o.Log.Info("a scope of the last run is observed by other agents now", "scope", scope)
			delete(s.active.origins, scope)
			if s.o.Memory != nil {
				s.o.Memory.Forget(scope)
			}
			continue
		}
		was, err := s.sel.FromCheckpoint(current, scope, &c, s.o.Match)
		if err != nil {
			s.o.Log.Error("cannot send the end of a scope of the last run", "scope", scope, "err", err)
			continue
		}
		t := s.newTombstone(&c, was)
		for _, i := range begin {
			if i.ObservesResource(t.Resource()) {
				i.after = append(i.after, t.Done())
			}
		}
		out = append(out, t)
	}
	return out
}

// tombstonesOfGone returns tombstones of the scopes of the last run whose resource is not defined any more. The caller holds mu.
func (s *Manager) tombstonesOfGone() (out []*scope.Tombstone) {
	for scope, c := range s.active.origins {
		r := &object.Resource{Group: c.Group, Version: c.Version, Name: c.Resource, Kind: c.Kind, Namespaced: c.Namespaced}
		if _, ok := selection.Current(s.served.all, r); ok || c.Aggregated || !selection.GroupKnown(s.served.unknown, c.Group) || s.active.drains[objectsOf(r)] != nil {
			continue // it may be served again
		}
		at, gone := s.extensions.DeletedAt(r, c.Definition)
		if !gone {
			s.logUnserved(scope)
			continue
		}
		t := s.newTombstone(&c, selection.Unreadable(r, scope, &c, s.o.Match))
		t.Gone = at
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *scope.Tombstone) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

// logUnserved logs, once, that nothing is inferred from a resource of the last run that is not served. The caller holds mu.
func (s *Manager) logUnserved(scope string) {
	if s.active.unserved[scope] {
		return
	}
	s.active.unserved[scope] = true
	s.o.Log.Warn("a resource of the last run is not served now, and not known to come from a deleted CustomResourceDefinition: "+
		"no deletion is inferred, and the scope resumes when the resource is served again", "scope", scope)
}

// newTombstone adds the tombstone of a scope to the manager. c is the position of the scope, was what it observed. The caller holds mu.
func (s *Manager) newTombstone(c *checkpoint.Scope, was selection.Scope) *scope.Tombstone {
	r, uid := was.Resource, c.Definition
	delete(s.active.origins, was.Name)
	delete(s.active.continued, was.Name)
	t := &scope.Tombstone{
		Informer: scope.New(&s.deps, &scope.Spec{Scope: was, Lane: s.o.Lane(was.Name), Snapshots: s.o.Snapshot, History: c.History, BuiltIn: discovery.IsBuiltIn(r.Group)}),
		From:     *c, Patience: s.limits.unreadable, DeletedAt: func() (uint64, bool) { return s.extensions.DeletedAt(r, uid) },
	}
	t.Successors = func() (out []scope.Successor) {
		for _, o := range s.observing() {
			if o.ObservesResource(r) {
				out = append(out, scope.Successor{Informer: o.Informer, Waits: slices.Contains(o.after, t.Done())})
			}
		}
		return out
	}
	if inMainEtcd(r) && !c.Aggregated {
		t.Elsewhere = func() (out []*scope.Informer) {
			for _, o := range s.observing() {
				if inMainEtcd(o.Resource()) && !o.IsAggregated() {
					out = append(out, o.Informer)
				}
			}
			return out
		}
	}
	if s.o.Memory != nil {
		t.Memory = s.o.Memory
		s.o.Memory.Track(was.Name, t.Position)
	}
	t.Retire()
	s.active.tombstones[was.Name] = t
	return t
}

// isRetired reports whether the tombstone of a scope is not on the bus yet. The caller holds mu.
func (s *Manager) isRetired(scope string) bool {
	t := s.active.tombstones[scope]
	return t != nil && !t.HasEnded()
}

// tombstonesBefore returns channels that are closed when the tombstones of a resource are on the bus. The caller holds mu.
func (s *Manager) tombstonesBefore(r *object.Resource) (out []<-chan struct{}) {
	for _, t := range s.active.tombstones {
		if !t.HasEnded() && t.ObservesResource(r) {
			out = append(out, t.Done())
		}
	}
	return out
}

// inMainEtcd reports whether a resource, if no other server serves it, is in the same etcd as most: events may have one of their own.
func inMainEtcd(r *object.Resource) bool { return !discovery.IsBuiltIn(r.Group) || r.Name != "events" }
