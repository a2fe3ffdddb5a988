package informers

import (
	"context"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// A resource whose CustomResourceDefinition was deleted has no objects any more. The API server deletes them first, and ends
// their watch a moment later. So the informer goes on until it is told that the resource is not served, and infers then, behind a gap, what its
// watch has not told. Only when all of it is on the bus, the informer is ended and forgotten.
//
// That a resource is not served says nothing by itself: its versions may be unserved for a while, another server may be away, or
// the API server may have been restarted without the group. So a deletion is inferred only if the resource is known to come from a
// definition, whose uid the checkpoint keeps, and that definition is known not to exist any more.
//
// Everything in a namespace is deleted before the namespace is. So a scope of a namespace that was gone at a resourceVersion is
// complete when its watch has come so far: an event or a bookmark has told it. The permission to read it went with the namespace, too: a
// watch that ends before cannot be opened again. Then the objects that are still known are inferred to be deleted, behind a gap.

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
	s.o.Log.Info("the definition of a resource is deleted: its informer ends once all is told", "scope", r.Name(), "rv", rv)
	s.goRun(ctx, func(ctx context.Context) {
		if !s.awaitRetired(ctx, r) && r.RemovedAt() != 0 {
			return // the set ends, or a successor was given to it: the next discovery retires that
		}
		_ = s.decide(ctx, s.startCreated) // what has the name now
	})
}

// awaitRetired waits until all of a removed resource is on the bus, and removes its informer; false: ctx or the informer ended before, or it
// goes on because it is defined again.
func (s *Manager) awaitRetired(ctx context.Context, r *running) bool {
	var told uint64
	for over := false; !over; {
		ended := false
		err := r.Wait(ctx, func(v scope.View) bool {
			over, ended, told = v.RemovedAt == 0 || v.EmptyAt >= v.RemovedAt && v.Finished, v.Ended, min(v.EmptyAt, v.RemovedAt)
			return over || ended || r.IsRestorable()
		})
		if err != nil || !over && (r.Restore() || ended) {
			return false
		}
	}
	if told == 0 || !s.end(ctx, r, told) {
		return false
	}
	s.o.Log.Info("a resource is gone, and all of it is told", "scope", r.Name())
	return true
}

// end ends and removes an informer of which all up to the deletion at told is on the bus; false: the set ends first, or the informer was
// removed before.
func (s *Manager) end(ctx context.Context, r *running, told uint64) (ended bool) {
	if r.Store().SendProgress(ctx) != nil {
		return false // the set ends
	}
	r.cancel()
	<-r.Done()
	for more := true; more; {
		var err error
		if told, err = r.tellMissed(ctx, told); err != nil {
			return false // the set ends
		}
		err = s.decide(ctx, func(context.Context) {
			ours := s.active.informers[r.Name()] == r
			more = ours && r.RemovedAt() > told // another resource of that name came and went meanwhile
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

// tellMissed tells of a resource of the same name that came and went behind told, while the informer was coming to its end, and
// returns up to where all is told. Its error is the cause of ctx.
func (r *running) tellMissed(ctx context.Context, told uint64) (uint64, error) {
	to := r.RemovedAt()
	if to <= told {
		return told, nil
	}
	gap := &object.StreamEvent{
		Kind: object.Gap, Resource: r.Resource(), Scope: r.Name(), History: r.Store().History(), From: told, To: to,
		Since: r.LastSeen(), Reason: object.Expired,
	}
	return to, r.Store().SendStream(ctx, gap)
}

// endOrphans has the informers end whose namespace is gone. The caller holds mu.
func (n *namespaces) endOrphans(ctx context.Context) {
	for _, r := range n.set.active.informers {
		if _, _, orphan := n.orphanLocked(r); orphan && !r.namespaceGone {
			r.namespaceGone = true
			n.set.goRun(ctx, func(ctx context.Context) { n.endOrphan(ctx, r) })
		}
	}
}

// orphanLocked reports whether the namespace of an informer is gone (back: and exists again), for an informer that has not ended. at is
// a resourceVersion at which the namespace did not exist.
func (n *namespaces) orphanLocked(r *running) (at uint64, back, orphan bool) {
	t := n.resources[groupResource(r.Resource())]
	if r.Selection().Namespace == "" || t == nil || !t.split || r.HasEnded() {
		return 0, false, false
	}
	at, absent := n.there.AbsentAt(r.Selection().Namespace)
	return at, !absent, absent || r.LostNamespace()
}

// endOrphan ends an informer once the bus has everything of the namespace that is gone. It returns earlier if the informer goes on,
// since its namespace exists again.
func (n *namespaces) endOrphan(ctx context.Context, r *running) {
	var end uint64 // the resourceVersion to come to, 0: not known
	for b := retry.New(); ; {
		var at uint64
		var back, orphan bool
		err := n.set.decide(ctx, func(context.Context) {
			at, back, orphan = n.orphanLocked(r)
			r.namespaceGone = orphan
		})
		if err != nil || !orphan {
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

// awaitEnd waits until a scope has come to end, or its namespace exists again, and reports whether it has. If the watch may not go on before,
// it has the informer infer the rest. Its error is the cause of ctx.
func (n *namespaces) awaitEnd(ctx context.Context, r *running, end uint64) (over bool, err error) {
	var refused bool
	err = r.Wait(ctx, func(v scope.View) bool {
		back, orphan := n.orphan(r)
		over = v.Finished || v.Reached >= end && v.Empty
		refused = v.RemovedAt == 0 && v.Forbidden
		return !orphan || back || over || refused
	})
	if err == nil && refused && !over {
		n.giveUp(r, end)
	}
	return over, err
}

// awaitRestored waits until an informer goes on, since its namespace exists again, or that is gone again. over: it does not go on, and has
// sent everything. Its error is the cause of ctx.
func (n *namespaces) awaitRestored(ctx context.Context, r *running) (over bool, err error) {
	err = r.Wait(ctx, func(v scope.View) bool {
		back, orphan := n.orphan(r)
		over = v.Finished
		return !orphan || !back || over || v.RemovedAt == 0 || r.IsRestorable()
	})
	if err != nil || r.RemovedAt() != 0 && !r.Restore() {
		return over && err == nil, err
	}
	r.FoundNamespace()
	return false, nil
}

// orphan is orphanLocked without the lock.
func (n *namespaces) orphan(r *running) (back, orphan bool) {
	n.set.mu.RLock()
	defer n.set.mu.RUnlock()
	_, back, orphan = n.orphanLocked(r)
	return back, orphan
}

// giveUp has an informer infer that everything in its namespace is deleted: its watch cannot tell that any more.
func (n *namespaces) giveUp(r *running, at uint64) {
	r.RemoveWithNamespace(at, func() bool {
		_, absent := n.there.AbsentAt(r.Selection().Namespace)
		return !absent
	})
}

// endOf returns the resourceVersion by which all of a namespace was deleted that was gone at a resourceVersion. A resource that may
// have another etcd tells that in a namespace where it may be asked; 0: nowhere.
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
	ended := n.set.end(ctx, r, r.RemovedAt())
	_ = n.set.decide(ctx, func(context.Context) { // or the set ends
		if t := n.resources[groupResource(r.Resource())]; t != nil {
			delete(t.access, r.Selection().Namespace) // if the namespace is made again, its access is reviewed again
		}
	})
	if ended {
		n.set.o.Log.Info("a namespace is gone, and all of it is told", "scope", r.Name())
	}
	signal(n.woken)
}
