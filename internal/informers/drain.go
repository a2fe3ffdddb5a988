package informers

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// drain replaces informers of the same objects by others, because the selection or the version in
// which the resource is served has changed. The reads of a new informer must not overtake the
// events of the old one that are still in the queue. So:
//
//  1. The old informers take no more events from their watches. No informer of these objects starts
//     as long as the drain lasts; informers that must leave meanwhile join it (drain).
//  2. Each old informer ends when it rests, and the drain waits until the bus has acknowledged all
//     of its events (endDrained). An informer whose list is being read ends in the middle of it,
//     but first sends the changes of a scope that it replaces.
//  3. The selection that is in force then decides which informers follow (replaceDrained).
//
// Guarded by the manager's mu.
type drain struct {
	informers []*running
	reload    time.Time // when the first changed selection began to wait for it; zero: none does
}

// objectsOf returns one name for the objects of a resource, which may be served under two names.
func objectsOf(r *object.Resource) schema.GroupResource { return selection.Canonical(groupResource(r)) }

// drain drains an informer. again: its scope is still selected. It must be called with mu held.
func (m *Manager) drain(ctx context.Context, r *running, again bool) {
	drains, objects := r.Phase().IsLeaving(), objectsOf(r.Resource())
	r.Drain(again)
	if drains {
		return
	}
	d, ok := m.active.drains[objects]
	if !ok {
		d = new(drain)
		m.active.drains[objects] = d
		m.goRun(ctx, func(ctx context.Context) { m.endDrain(ctx, objects, d) })
	}
	d.informers = append(d.informers, r)
}

// drainForReload does what drain does, for a changed selection. That does not apply to the
// informer's objects until the drain ends. It must be called with mu held.
func (m *Manager) drainForReload(ctx context.Context, r *running, again bool) {
	m.drain(ctx, r, again)
	d := m.active.drains[objectsOf(r.Resource())]
	if d != nil && d.reload.IsZero() { // nil: its resource is removed
		d.reload = time.Now()
	}
}

// Unapplied returns the scopes whose informers drain before a changed selection applies to them,
// and since when the first of them waits.
func (m *Manager) Unapplied() (scopes []string, since time.Time) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, d := range m.active.drains {
		if d.reload.IsZero() {
			continue
		}
		if since.IsZero() || d.reload.Before(since) {
			since = d.reload
		}
		for _, r := range d.informers {
			scopes = append(scopes, r.Name())
		}
	}
	slices.Sort(scopes)
	return scopes, since
}

// endDrain waits until all informers of a drain rest, ends them, and replaces them.
func (m *Manager) endDrain(ctx context.Context, objects schema.GroupResource, d *drain) {
	slow := time.AfterFunc(informer.RetiringSlow, func() { m.logDraining(d) })
	defer slow.Stop()
	for replaced := false; !replaced; {
		var all []*running
		err := m.decide(ctx, func(context.Context) { all = slices.Clone(d.informers) })
		var g errgroup.Group
		for _, r := range all {
			g.Go(func() error { return m.endDrained(ctx, r) })
		}
		if err = cmp.Or(err, g.Wait()); err != nil {
			return // the manager ends
		}
		err = m.decide(ctx, func(ctx context.Context) {
			for _, r := range all {
				r.SetDrained()
			}
			replaced = len(all) == len(d.informers)
			if replaced {
				m.replaceDrained(ctx, objects, d)
			}
		})
		if err != nil {
			return // the manager ends
		}
	}
}

// endDrained waits until an informer rests, and ends it at once: a list that is loaded meanwhile
// would send content that is no longer configured. Then it waits until the bus has everything. Its
// error is the cause of ctx.
func (m *Manager) endDrained(ctx context.Context, r *running) error {
	err := r.Wait(ctx, func(v informer.View) bool {
		return v.Ended || v.Resting && (v.Adopted || !m.isSuccessor(r, v))
	})
	if err != nil {
		return err
	}
	r.cancel()
	<-r.Done()
	// Reads may have been sent meanwhile. It does not wait for an informer that was removed.
	return r.Wait(ctx, func(v informer.View) bool {
		m.mu.RLock()
		defer m.mu.RUnlock()
		return v.InFlight == 0 || m.active.informers[r.Name()] != r
	})
}

// isSuccessor reports whether an informer replaces another scope, and must still send the changes
// of its objects: no other informer does. The drain does not wait for it while its list, or that of
// a tombstone before it, fails.
func (m *Manager) isSuccessor(r *running, v informer.View) bool {
	if origin := r.Spec().Origin; origin == nil || !origin.Inherited || v.Failing {
		return false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, t := range m.active.tombstones {
		if slices.Contains(r.after, t.Released()) && t.Status().Error != "" {
			return false
		}
	}
	return true
}

// logDraining logs the informers that have not drained yet.
func (m *Manager) logDraining(d *drain) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, r := range d.informers {
		m.o.Log.Warn(
			"a changed configuration or version of a resource does not apply to a scope yet: the bus has not acknowledged all of its events",
			"scope", r.Name(), "phase", r.Phase().String(), "advice",
			"check why the bus rejects the records of this resource; other resources are not affected")
	}
}

// replaceDrained replaces drained informers by those of the selection in force. It must be called
// with mu held.
func (m *Manager) replaceDrained(ctx context.Context, objects schema.GroupResource, d *drain) {
	chosen := m.chosenOf(&m.served, func(gr schema.GroupResource) bool { return selection.Canonical(gr) == objects })
	ended := slices.DeleteFunc(slices.Clone(d.informers), func(r *running) bool {
		return m.active.informers[r.Name()] != r // its resource was removed meanwhile
	})
	for _, r := range ended {
		if r.Phase() == informer.PhaseRetiring {
			m.remove(r, deselected)
		} else {
			m.remove(r, succeeded)
		}
	}
	delete(m.active.drains, objects)
	m.namespaces.noteReplaced(objects, m.observeChosen(ctx, chosen, ended))
	for _, r := range ended {
		if _, ok := m.active.origins[r.Name()]; !ok && m.active.informers[r.Name()] == nil { // without a successor
			m.forget(r.Name())
			m.release(r.Name())
			if m.active.tombstones[r.Name()] == nil {
				delete(m.active.lingering, r.Name()) // it has not begun
			}
		}
	}
}

// IsRetiring reports whether a scope is no longer selected, and the bus does not have all of its
// events.
func (m *Manager) IsRetiring(name string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if r := m.active.informers[name]; r != nil {
		return r.Phase() == informer.PhaseRetiring
	}
	return m.isRetired(name)
}

// tombstonesOf returns tombstones of the scopes of the last run whose resource is served, but no
// longer selected, or no longer defined. The informers that replace them wait for the tombstones.
// It must be called with mu held.
func (m *Manager) tombstonesOf(ctx context.Context, begin []*running) (out []*informer.Tombstone) {
	for name, c := range m.active.origins {
		r := &object.Resource{
			Group:      c.Group,
			Version:    c.Version,
			Name:       c.Resource,
			Kind:       c.Kind,
			Namespaced: c.Namespaced,
		}
		if m.active.drains[objectsOf(r)] != nil || !selection.GroupKnown(m.served.unknown, c.Group) {
			continue // its informers are chosen after the drain, or it may be served
		}
		var t *informer.Tombstone
		if current, ok := m.served.index.Current(r); ok {
			t = m.tombstoneOf(ctx, current, name, &c.Scope)
		} else {
			t = m.tombstoneOfGone(r, name, &c.Scope)
		}
		if t == nil {
			continue
		}
		for _, i := range begin {
			if i.ObservesResource(t.Resource()) {
				i.after = append(i.after, t.Released())
			}
		}
		out = append(out, t)
	}
	return out
}

// tombstoneOf returns the tombstone of a scope whose resource is served, or nil if it has none. It
// must be called with mu held.
func (m *Manager) tombstoneOf(
	ctx context.Context, r *object.Resource, name string, c *checkpoint.Scope,
) *informer.Tombstone {
	if !selection.AliasesKnown(m.served.unknown) {
		return nil // it may be selected
	}
	if m.isForeign(c) {
		m.o.Log.Info("a scope of the previous run is now captured by other agents", "scope", name)
		delete(m.active.origins, name)
		c.Ended = &checkpoint.Ended{Reason: string(object.TakenOver)}
		m.announceEnd(ctx, name, c)
		return nil
	}
	was, err := m.sel.FromCheckpoint(r, name, c, m.o.Match)
	if err != nil {
		m.o.Log.Error("cannot send the end of a scope of the previous run", "scope", name, "err", err)
		return nil
	}
	return m.newTombstone(c, was)
}

// tombstoneOfGone returns the tombstone of a scope whose resource is not served, or nil if it may
// return. It must be called with mu held.
func (m *Manager) tombstoneOfGone(r *object.Resource, name string, c *checkpoint.Scope) *informer.Tombstone {
	if c.Aggregated {
		return nil
	}
	at, gone := m.extensions.DeletedAt(r, c.Definition)
	if !gone && c.Definition != "" && !m.isForeign(c) && !m.takesExtensions(m.sel) {
		// No rule can take a custom resource, so nothing observes definitions: it is not selected.
		return m.newTombstone(c, selection.Unreadable(r, name, c, m.o.Match))
	}
	if !gone {
		if !m.active.unserved[name] {
			m.active.unserved[name] = true
			m.o.Log.Warn(
				"a resource of the previous run is no longer served, and no deletion of its CustomResourceDefinition is known: "+
					"no deletion is inferred, and the scope resumes when the resource is served again", "scope", name)
		}
		return nil
	}
	t := m.newTombstone(c, selection.Unreadable(r, name, c, m.o.Match))
	t.Gone = at
	return t
}

// newTombstone adds the tombstone of the scope was, whose position is c, to the manager. It must be
// called with mu held.
func (m *Manager) newTombstone(c *checkpoint.Scope, was selection.Scope) *informer.Tombstone {
	r, uid := was.Resource, c.Definition
	delete(m.active.origins, was.Name)
	t := &informer.Tombstone{
		Informer: informer.New(&m.deps, &informer.Spec{
			Scope:     was,
			Lane:      m.o.Lane(was.Name),
			Snapshots: m.o.Snapshot,
			OwnNames:  m.ownNames(r),
			BuiltIn:   discovery.IsBuiltIn(r.Group),
			Origin:    &informer.Origin{Scope: *c},
		}),
		UnreadableFor: m.limits.unreadable, DeletedAt: func() (uint64, bool) { return m.extensions.DeletedAt(r, uid) },
	}
	t.Successors = func() (out []informer.Successor) {
		for _, o := range m.observing() {
			if o.ObservesResource(r) {
				waits := slices.Contains(o.after, t.Released())
				out = append(out, informer.Successor{Informer: o.Informer, Waits: waits})
			}
		}
		return out
	}
	t.ReplacedBy = func() []string { return successorsOf(t) }
	if etcdOf(r, c.Aggregated) == "" {
		t.OtherResources = func() (out []*informer.Informer) {
			for _, o := range m.observing() {
				if etcdOf(o.Resource(), o.IsAggregated()) == "" {
					out = append(out, o.Informer)
				}
			}
			return out
		}
	}
	if m.o.Memory != nil {
		t.Forget = func() { m.o.Memory.Forget(was.Name) }
		m.o.Memory.Track(was.Name, t.Position, nil)
	}
	t.Retire()
	m.active.tombstones[was.Name] = t
	return t
}

// isRetired reports whether the tombstone of a scope is not on the bus yet. It must be called with
// mu held.
func (m *Manager) isRetired(scope string) bool {
	t := m.active.tombstones[scope]
	return t != nil && !t.HasEnded()
}

// etcdOf identifies the etcd of a resource, "" the main one: events, and resources of another
// server (aggregated), may have one of their own.
func etcdOf(r *object.Resource, aggregated bool) string {
	if aggregated || r.Name == "events" && discovery.IsBuiltIn(r.Group) {
		return objectsOf(r).String()
	}
	return ""
}
