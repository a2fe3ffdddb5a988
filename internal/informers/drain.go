package informers

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// drain is the informers of the same objects that drain: they take nothing more from their watches, and wait until the bus has acknowledged
// everything that was sent. No informer of these objects begins meanwhile: its reads must not overtake events that are still in the queue. An
// informer whose list is still being read ends in the middle of it. If it replaces another scope, it first sends the changes of that scope's objects.
// Guarded by the manager's mu.
type drain struct {
	informers []*running
	done      chan struct{} // closed when others have taken their place
}

// objectsOf names the objects of a resource, which may be served under two names.
func objectsOf(r *object.Resource) schema.GroupResource {
	return selection.Canonical(groupResource(r))
}

// drain drains an informer. again: the selection has its scope. The caller holds mu.
func (s *Manager) drain(ctx context.Context, r *running, again bool) {
	first := !r.Phase().IsLeaving()
	r.Drain(again)
	if !first {
		return
	}
	objects := objectsOf(r.Resource())
	if d := s.active.drains[objects]; d != nil {
		d.informers = append(d.informers, r)
		return
	}
	d := &drain{informers: []*running{r}, done: make(chan struct{})}
	s.active.drains[objects] = d
	s.goRun(ctx, func(ctx context.Context) { s.endDrain(ctx, objects, d) })
}

// endDrain waits until all informers of a drain rest, ends them, and replaces them.
func (s *Manager) endDrain(ctx context.Context, objects schema.GroupResource, d *drain) {
	slow := time.AfterFunc(scope.RetiringSlow, func() { s.logDraining(d) })
	defer slow.Stop()
	for replaced := false; !replaced; {
		var all []*running
		err := s.decide(ctx, func(context.Context) { all = slices.Clone(d.informers) })
		var g errgroup.Group
		for _, r := range all {
			g.Go(func() error { return s.endDrained(ctx, r) })
		}
		if err = cmp.Or(err, g.Wait()); err != nil {
			return // the manager ends
		}
		err = s.decide(ctx, func(ctx context.Context) {
			for _, r := range all {
				r.SetDrained()
			}
			if replaced = len(all) == len(d.informers); replaced {
				s.replace(ctx, objects, d)
			}
		})
		if err != nil {
			return // the manager ends
		}
	}
}

// endDrained waits until an informer rests, and ends it at once: a list that is loaded meanwhile would send events with the content that is no
// longer configured. Then it waits until the bus has everything. Its error is the cause of ctx.
func (s *Manager) endDrained(ctx context.Context, r *running) error {
	err := r.Wait(ctx, func(v scope.View) bool { return v.Ended || v.Resting && (v.Adopted || !s.isSuccessor(r, v)) })
	if err != nil {
		return err
	}
	r.cancel()
	<-r.Done()
	// Reads may have been sent meanwhile. An informer that was removed is not waited for.
	return r.Wait(ctx, func(v scope.View) bool { return v.InFlight == 0 || !s.has(r) })
}

// isSuccessor reports whether an informer replaces another scope, and has still to send the changes of its objects: no other informer
// does. An informer that cannot send them, because its list or that of a tombstone before it fails, is not waited for.
func (s *Manager) isSuccessor(r *running, v scope.View) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r.Spec().Origin == nil || !r.Spec().Origin.Inherited || v.Failing {
		return false
	}
	for _, t := range s.active.tombstones {
		if slices.Contains(r.after, t.Done()) && t.IsInError() {
			return false
		}
	}
	return true
}

// has reports whether the manager has an informer.
func (s *Manager) has(r *running) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.active.informers[r.Name()] == r
}

// logDraining logs the informers that have not drained yet.
func (s *Manager) logDraining(d *drain) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range d.informers {
		s.o.Log.Warn("a changed configuration, or a changed version of a resource, is not in force for a scope yet: the bus has not acknowledged all of its events",
			"scope", r.Name(), "phase", r.Phase().String(), "advice", "see why the bus does not take the records of this resource; other resources are not affected")
	}
}

// replace replaces informers that have drained by those of the selection in force. The caller holds mu.
func (s *Manager) replace(ctx context.Context, objects schema.GroupResource, d *drain) {
	chosen, _ := s.sel.Choose(s.withObserved(s.served.all), s.served.unknown, s.taken(s.sel))
	chosen = slices.DeleteFunc(chosen, func(c selection.Choice) bool { return objectsOf(&c.Resource) != objects })
	var left []checkpoint.Scope // positions from which informers were to resume that have not begun
	for _, r := range d.informers {
		if s.active.informers[r.Name()] != r {
			continue // its resource was removed meanwhile
		}
		f := succeeded
		if r.Phase() == scope.PhaseRetiring {
			f = deselected
		}
		if c := s.remove(r, f); c != nil {
			left = append(left, *c)
		}
	}
	delete(s.active.drains, objects)
	s.namespaces.replaced(objects, s.observeChosen(ctx, chosen, d.informers, left))
	for _, r := range d.informers {
		if _, ok := s.active.origins[r.Name()]; !ok && s.active.informers[r.Name()] == nil { // nothing has taken its place
			s.forget(r.Name())
			s.release(r.Name())
		}
	}
	close(d.done)
}

// retiring returns the scopes whose tombstones are not on the bus. The caller holds mu.
func (s *Manager) retiring() (out []scope.Status) {
	for name, t := range s.active.tombstones {
		if !t.HasEnded() && s.active.informers[name] == nil { // else the one that waits for it shows
			out = append(out, t.Status())
		}
	}
	return out
}

// IsRetiring reports whether a scope is no longer selected, and the bus does not have all of it.
func (s *Manager) IsRetiring(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.active.informers[name]; r != nil {
		return r.Phase() == scope.PhaseRetiring
	}
	return s.isRetired(name)
}

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
