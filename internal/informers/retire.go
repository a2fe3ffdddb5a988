package informers

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// If a CustomResourceDefinition is deleted, the API server deletes the objects first, and ends
// their watch a moment later. So the informer continues until a request shows that the resource is
// not served. Then it sends a gap, and infers the deletions that its watch missed.
//
// A resource that is not served may still have objects: another server may be unavailable, or the
// API server may run without the group. So a deletion is inferred only from the deletion of the
// resource's definition, whose uid the checkpoint stores.
//
// Everything in a namespace is deleted before the namespace itself. So if a namespace did not exist
// at a resourceVersion, its scope is complete once its watch has reached that version. But the
// permission to read it is removed with the namespace: a watch that ends earlier cannot be
// reopened. Then the scope sends a gap, and infers the deletion of the remaining objects.

// retireUndefined retires informers that started after the definition of their resource was
// deleted. It must be called with mu held.
func (m *Manager) retireUndefined(ctx context.Context) {
	for _, r := range m.active.informers {
		_, ok := m.served.index.Current(r.Resource())
		if ok || r.Spec().Internal || r.RemovedAt() != 0 ||
			!selection.GroupKnown(m.served.unknown, r.Resource().Group) || r.IsAggregated() {
			continue
		}
		if at, gone := m.extensions.DeletedAt(r.Resource(), r.Definition()); gone {
			m.retire(ctx, r, at)
		}
	}
}

// retire retires an informer whose definition did not exist at rv. It must be called with mu held.
func (m *Manager) retire(ctx context.Context, r *running, rv uint64) {
	if !r.Remove(rv, func() bool { return m.extensions.IsEstablished(r.Resource().String()) }) {
		return
	}
	m.o.Log.Info(
		"the definition of a resource was deleted: its informer stops after the bus has acknowledged everything",
		"scope", r.Name(), "rv", rv)
	m.goRun(ctx, func(ctx context.Context) {
		if !m.awaitRetired(ctx, r) && r.RemovedAt() != 0 {
			return // the manager ends, or a successor replaces it: the next discovery retires that
		}
		_ = m.decide(ctx, m.startCreated) // a resource that has the name now
	})
}

// awaitRetired waits until the bus has everything of a removed resource, and removes its informer.
// It returns false if ctx or the informer ended first, or if the resource is defined again.
func (m *Manager) awaitRetired(ctx context.Context, r *running) bool {
	var sent uint64
	for over := false; !over; {
		ended := false
		err := r.Wait(ctx, func(v informer.View) bool {
			over = v.RemovedAt == 0 || v.EmptyAt >= v.RemovedAt && v.Finished
			ended = v.Ended
			sent = min(v.EmptyAt, v.RemovedAt)
			return over || ended || r.IsRestorable()
		})
		if err != nil || !over && (r.Restore() || ended) {
			return false
		}
	}
	if sent == 0 || !m.endScope(ctx, r, sent, object.Removed) {
		return false
	}
	m.o.Log.Info("a resource was removed, and the bus has acknowledged all of its events", "scope", r.Name())
	return true
}

// endScope ends and removes r once the bus has everything up to sent, and announces why. It returns
// false if the manager ends first, or r was removed before.
func (m *Manager) endScope(ctx context.Context, r *running, sent uint64, reason object.EndReason) (ended bool) {
	r.cancel()
	<-r.Done()
	for {
		to := r.RemovedAt()
		if to > sent { // another resource of that name was created and removed meanwhile
			missed := &object.StreamEvent{
				Kind:     object.Gap,
				Resource: r.Resource(),
				Scope:    r.Name(),
				History:  r.Store().View().History,
				From:     sent,
				To:       to,
				Since:    r.LastSeen(),
				Reason:   object.Expired,
			}
			if r.Store().SendStream(ctx, missed) != nil {
				return false // the manager ends
			}
			sent = to
		}
		again := false
		_ = m.decide(ctx, func(ctx context.Context) { // or the manager ends
			ours := m.active.informers[r.Name()] == r
			again = ours && r.RemovedAt() > sent
			ended = ours && !again
			if ended {
				m.removeGone(ctx, r, reason)
			}
		})
		if !again {
			return ended
		}
	}
}

// endInGone starts to end the informers whose namespace was deleted. It must be called with mu
// held.
func (n *namespaces) endInGone(ctx context.Context) {
	for _, r := range n.manager.active.informers {
		if _, _, gone := n.namespaceGoneLocked(r); gone && !r.namespaceGone {
			r.namespaceGone = true
			n.manager.goRun(ctx, func(ctx context.Context) { n.endWithNamespace(ctx, r) })
		}
	}
}

// namespaceGoneLocked reports whether the namespace of a running informer was deleted (gone), and
// whether it exists again (back). at is a resourceVersion at which the namespace did not exist.
func (n *namespaces) namespaceGoneLocked(r *running) (at uint64, back, gone bool) {
	t := n.resources[groupResource(r.Resource())]
	if r.Selection().Namespace == "" || t == nil || !t.split || r.HasEnded() {
		return 0, false, false
	}
	at, absent := n.there.AbsentAt(r.Selection().Namespace)
	v, _ := r.View()
	return at, !absent, absent || v.LostNamespace
}

// endWithNamespace ends an informer once the bus has everything of its deleted namespace. It
// returns earlier if the informer continues, since its namespace exists again.
func (n *namespaces) endWithNamespace(ctx context.Context, r *running) {
	var end uint64 // the resourceVersion to reach, 0 if unknown
	for b := retry.New(); ; {
		var at uint64
		var back, gone bool
		err := n.manager.decide(ctx, func(context.Context) {
			at, back, gone = n.namespaceGoneLocked(r)
			r.namespaceGone = gone
		})
		if err != nil || !gone {
			return
		}
		var over bool
		switch {
		case back:
			end = 0
			over, err = n.awaitRestored(ctx, r)
		case end == 0:
			end = n.endOf(ctx, r, at)
			if end == 0 && !b.Wait(ctx, nil) {
				return
			}
		default:
			over, err = n.awaitEnd(ctx, r, end)
		}
		if over && n.manager.endScope(ctx, r, r.RemovedAt(), object.Removed) {
			n.manager.o.Log.Info("a namespace was deleted, and the bus has acknowledged all of its events", "scope",
				r.Name())
			broadcast.Wake(n.woken)
		}
		if over || err != nil {
			return
		}
	}
}

// awaitEnd waits until a scope has reached end, or its namespace exists again, and reports whether
// it has reached end. If the watch is forbidden before that, it makes the informer infer the rest.
// Its error is the cause of ctx.
func (n *namespaces) awaitEnd(ctx context.Context, r *running, end uint64) (over bool, err error) {
	var refused bool
	err = r.Wait(ctx, func(v informer.View) bool {
		back, gone := n.namespaceGone(r)
		over = v.Finished || v.Reached >= end && v.Empty
		refused = v.RemovedAt == 0 && v.Forbidden
		return !gone || back || over || refused
	})
	if err == nil && refused && !over {
		// the informer infers that everything is deleted: its watch can no longer show that
		r.RemoveWithNamespace(end, func() bool {
			_, absent := n.there.AbsentAt(r.Selection().Namespace)
			return !absent
		})
	}
	return over, err
}

// awaitRestored waits until an informer continues because its namespace exists again, or until that
// is deleted again. over: it does not continue, and has sent everything. Its error is the cause of
// ctx.
func (n *namespaces) awaitRestored(ctx context.Context, r *running) (over bool, err error) {
	err = r.Wait(ctx, func(v informer.View) bool {
		back, gone := n.namespaceGone(r)
		over = v.Finished
		return !gone || !back || over || v.RemovedAt == 0 || r.IsRestorable()
	})
	if err != nil || r.RemovedAt() != 0 && !r.Restore() {
		return over && err == nil, err
	}
	return false, nil
}

// namespaceGone is namespaceGoneLocked for callers without mu.
func (n *namespaces) namespaceGone(r *running) (back, gone bool) {
	n.manager.mu.RLock()
	defer n.manager.mu.RUnlock()
	_, back, gone = n.namespaceGoneLocked(r)
	return back, gone
}

// endOf returns a resourceVersion by which all objects of a namespace were deleted. The namespace
// did not exist at resourceVersion at. If the resource may have its own etcd, endOf lists it in a
// namespace where that is permitted. It returns 0 if there is none.
func (n *namespaces) endOf(ctx context.Context, o *running, at uint64) uint64 {
	if n.isComparable(o.Resource()) {
		return at
	}
	for _, r := range n.manager.observing() {
		if r.ObservesResource(o.Resource()) {
			if rv, err := r.Latest(ctx); err == nil {
				return rv
			}
		}
	}
	return 0
}
