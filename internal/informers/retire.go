package informers

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// A resource whose CustomResourceDefinition was deleted has no objects any more. The API server deletes them first, and ends
// their watch a moment later. So the informer continues until a request shows that the resource is not served. Then it sends a gap, and
// infers the deletions that its watch did not show. The informer is ended and removed only when the bus has all of that.
//
// A resource that is not served may still have objects. Its versions may be unserved for a while, another server may be away, or
// the API server may have been restarted without the group. So a deletion is inferred only from the deletion of the resource's definition,
// whose uid the checkpoint stores.
//
// Everything in a namespace is deleted before the namespace is. So a scope of a namespace that was gone at a resourceVersion is
// complete when an event or a bookmark of its watch has reached that. The permission to read it is removed with the namespace: a
// watch that ends before cannot be opened again. Then the scope sends a gap, and infers the deletion of the objects that are still known.

// latestWithin bounds one question for the resourceVersion now.
const latestWithin = 30 * time.Second

// retireDefined retires the informers of a resource whose definition, of that name, was gone at rv. The caller holds mu.
func (s *Manager) retireDefined(ctx context.Context, name string, rv uint64) {
	for _, r := range s.active.informers {
		if r.Resource().String() == name && !r.Spec().Internal {
			s.retire(ctx, r, rv)
		}
	}
}

// retireUndefined retires the informers whose resource is neither served nor defined: they began after its definition was deleted. The caller
// holds mu.
func (s *Manager) retireUndefined(ctx context.Context) {
	for _, r := range s.active.informers {
		_, ok := selection.Current(s.served.all, r.Resource())
		if ok || r.Spec().Internal || r.RemovedAt() != 0 || !selection.GroupKnown(s.served.unknown, r.Resource().Group) || r.IsAggregated() {
			continue
		}
		if at, gone := s.extensions.DeletedAt(r.Resource(), r.Definition()); gone {
			s.retire(ctx, r, at)
		}
	}
}

// retire retires an informer whose definition was gone at rv. The caller holds mu.
func (s *Manager) retire(ctx context.Context, r *running, rv uint64) {
	if !r.Remove(rv, func() bool { return s.extensions.IsEstablished(r.Resource().String()) }) {
		return
	}
	s.o.Log.Info("the definition of a resource is deleted: its informer ends once the bus has everything", "scope", r.Name(), "rv", rv)
	s.goRun(ctx, func(ctx context.Context) {
		if !s.awaitRetired(ctx, r) && r.RemovedAt() != 0 {
			return // the manager ends, or a successor replaces it: the next discovery retires that
		}
		_ = s.decide(ctx, s.startCreated) // a resource that has the name now
	})
}

// awaitRetired waits until the bus has everything of a removed resource, and removes its informer; false: ctx or the informer ended before, or it
// continues because it is defined again.
func (s *Manager) awaitRetired(ctx context.Context, r *running) bool {
	var sent uint64
	for over := false; !over; {
		ended := false
		err := r.Wait(ctx, func(v scope.View) bool {
			over, ended, sent = v.RemovedAt == 0 || v.EmptyAt >= v.RemovedAt && v.Finished, v.Ended, min(v.EmptyAt, v.RemovedAt)
			return over || ended || r.IsRestorable()
		})
		if err != nil || !over && (r.Restore() || ended) {
			return false
		}
	}
	if sent == 0 || !s.end(ctx, r, sent) {
		return false
	}
	s.o.Log.Info("a resource is gone, and the bus has everything of it", "scope", r.Name())
	return true
}

// end ends and removes an informer once the bus has everything up to the deletion at sent; false: the manager ends first, or the informer was
// removed before.
func (s *Manager) end(ctx context.Context, r *running, sent uint64) (ended bool) {
	if r.Store().SendProgress(ctx) != nil {
		return false // the manager ends
	}
	r.cancel()
	<-r.Done()
	for more := true; more; {
		var err error
		if sent, err = r.sendMissed(ctx, sent); err != nil {
			return false // the manager ends
		}
		err = s.decide(ctx, func(context.Context) {
			ours := s.active.informers[r.Name()] == r
			more = ours && r.RemovedAt() > sent // another resource of that name came and went meanwhile
			if ended = ours && !more; ended {
				s.remove(r, gone)
			}
		})
		if err != nil {
			return false
		}
	}
	return ended
}

// sendMissed sends the gap of a resource of the same name that was created and removed after sent, while the informer was ending. It returns
// the resourceVersion up to which everything is sent. Its error is the cause of ctx.
func (r *running) sendMissed(ctx context.Context, sent uint64) (uint64, error) {
	to := r.RemovedAt()
	if to <= sent {
		return sent, nil
	}
	gap := &object.StreamEvent{
		Kind: object.Gap, Resource: r.Resource(), Scope: r.Name(), History: r.Store().History(), From: sent, To: to,
		Since: r.LastSeen(), Reason: object.Expired,
	}
	return to, r.Store().SendStream(ctx, gap)
}

// endInGone ends the informers whose namespace is gone. The caller holds mu.
func (n *namespaces) endInGone(ctx context.Context) {
	for _, r := range n.set.active.informers {
		if _, _, gone := n.namespaceGoneLocked(r); gone && !r.namespaceGone {
			r.namespaceGone = true
			n.set.goRun(ctx, func(ctx context.Context) { n.endWithNamespace(ctx, r) })
		}
	}
}

// namespaceGoneLocked reports whether the namespace of an informer is gone (back: and exists again), for an informer that has not ended. at is
// a resourceVersion at which the namespace did not exist.
func (n *namespaces) namespaceGoneLocked(r *running) (at uint64, back, gone bool) {
	t := n.resources[groupResource(r.Resource())]
	if r.Selection().Namespace == "" || t == nil || !t.split || r.HasEnded() {
		return 0, false, false
	}
	at, absent := n.there.AbsentAt(r.Selection().Namespace)
	return at, !absent, absent || r.LostNamespace()
}

// endWithNamespace ends an informer once the bus has everything of its namespace, which is gone. It returns earlier if the informer
// continues, since its namespace exists again.
func (n *namespaces) endWithNamespace(ctx context.Context, r *running) {
	var end uint64 // the resourceVersion to come to, 0: not known
	for b := retry.New(); ; {
		var at uint64
		var back, gone bool
		err := n.set.decide(ctx, func(context.Context) {
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
			if end = n.endOf(ctx, r, at); end == 0 && !b.Wait(ctx, nil) {
				return
			}
		default:
			over, err = n.awaitEnd(ctx, r, end)
		}
		if over {
			n.endScope(ctx, r)
		}
		if over || err != nil {
			return
		}
	}
}

// awaitEnd waits until a scope has reached end, or its namespace exists again, and reports whether it has reached end. If the watch may not
// continue before, it makes the informer infer the rest. Its error is the cause of ctx.
func (n *namespaces) awaitEnd(ctx context.Context, r *running, end uint64) (over bool, err error) {
	var refused bool
	err = r.Wait(ctx, func(v scope.View) bool {
		back, gone := n.namespaceGone(r)
		over = v.Finished || v.Reached >= end && v.Empty
		refused = v.RemovedAt == 0 && v.Forbidden
		return !gone || back || over || refused
	})
	if err == nil && refused && !over {
		n.giveUp(r, end)
	}
	return over, err
}

// awaitRestored waits until an informer continues, since its namespace exists again, or that is gone again. over: it does not continue, and has
// sent everything. Its error is the cause of ctx.
func (n *namespaces) awaitRestored(ctx context.Context, r *running) (over bool, err error) {
	err = r.Wait(ctx, func(v scope.View) bool {
		back, gone := n.namespaceGone(r)
		over = v.Finished
		return !gone || !back || over || v.RemovedAt == 0 || r.IsRestorable()
	})
	if err != nil || r.RemovedAt() != 0 && !r.Restore() {
		return over && err == nil, err
	}
	r.FoundNamespace()
	return false, nil
}

// namespaceGone is namespaceGoneLocked for callers without mu.
func (n *namespaces) namespaceGone(r *running) (back, gone bool) {
	n.set.mu.RLock()
	defer n.set.mu.RUnlock()
	_, back, gone = n.namespaceGoneLocked(r)
	return back, gone
}

// giveUp makes an informer infer that everything in its namespace is deleted: its watch cannot show that any more.
func (n *namespaces) giveUp(r *running, at uint64) {
	r.RemoveWithNamespace(at, func() bool {
		_, absent := n.there.AbsentAt(r.Selection().Namespace)
		return !absent
	})
}

// endOf returns the resourceVersion by which all of a namespace was deleted that was gone at a resourceVersion. If a resource may have another
// etcd, it lists the resource in a namespace where that is permitted; 0: in none.
func (n *namespaces) endOf(ctx context.Context, o *running, at uint64) uint64 {
	s := n.set
	s.mu.RLock()
	comparable := n.isComparable(o.Resource())
	var siblings []*running
	for _, r := range s.active.informers {
		if groupResource(r.Resource()) == groupResource(o.Resource()) {
			siblings = append(siblings, r)
		}
	}
	s.mu.RUnlock()
	if comparable {
		return at
	}
	for _, r := range siblings {
		ctx, cancel := context.WithTimeout(ctx, latestWithin)
		rv, err := r.Latest(ctx)
		cancel()
		if err == nil {
			return rv
		}
	}
	return 0
}

// endScope ends and removes the informer of a namespace that is gone.
func (n *namespaces) endScope(ctx context.Context, r *running) {
	if n.set.end(ctx, r, r.RemovedAt()) {
		n.set.o.Log.Info("a namespace is gone, and the bus has everything of it", "scope", r.Name())
	}
	broadcast.Wake(n.woken)
}
