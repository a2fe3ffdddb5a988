package informers

import (
	"context"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/retry"
)

// What is in a namespace is deleted before the namespace is. So a scope of a namespace that has gone at a resourceVersion is
// complete when its watch has come so far: an event or a bookmark has told it. Then it is ended and forgotten. Who may read it was
// told by the namespace, too: a watch that ends before cannot be opened again. Then the objects that are still known are inferred to
// be deleted, behind a gap.

// latestWithin bounds one question for the resourceVersion now.
const latestWithin = 30 * time.Second

// endOrphans ends the scopes of namespaces that have gone, until ctx ends.
func (n *namespaces) endOrphans(ctx context.Context) {
	var ending sync.WaitGroup
	defer ending.Wait()
	for {
		for _, r := range n.orphans() {
			ending.Go(func() { n.endOrphan(ctx, r) })
		}
		select {
		case <-n.left:
		case <-ctx.Done():
			return
		}
	}
}

// orphans returns the informers whose namespace has gone since the last call.
func (n *namespaces) orphans() (out []*running) {
	s := n.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.informers {
		if _, _, orphan := n.orphanLocked(r); orphan && !r.orphan {
			r.orphan = true
			out = append(out, r)
		}
	}
	return out
}

// orphanLocked reports whether the namespace of an informer is gone (back: and exists again), for an informer that has not ended. at is
// a resourceVersion at which the namespace did not exist.
func (n *namespaces) orphanLocked(r *running) (at uint64, back, orphan bool) {
	t := n.resources[groupResource(r.resource)]
	if r.selection.Namespace == "" || t == nil || !t.split || r.hasEnded() {
		return 0, false, false
	}
	at, absent := n.there.AbsentAt(r.selection.Namespace)
	return at, !absent, absent || r.orphaned.Load()
}

// endOrphan ends an informer once the bus has everything of the namespace that is gone. It returns earlier if the informer goes on,
// since its namespace exists again.
func (n *namespaces) endOrphan(ctx context.Context, r *running) {
	var end uint64 // the resourceVersion to come to, 0: not known
	b := retry.New()
	for {
		n.set.mu.Lock()
		at, back, orphan := n.orphanLocked(r)
		r.orphan = orphan
		n.set.mu.Unlock()
		switch {
		case !orphan:
			return
		case back:
			end = 0
		case end == 0:
			to, ok := n.endOf(ctx, r, at)
			if !ok {
				if !b.Wait(ctx, nil) {
					return
				}
				continue
			}
			end = to
		}
		var over, refused bool
		err := r.Wait(ctx, func(v View) bool {
			n.set.mu.RLock()
			_, is, orphan := n.orphanLocked(r)
			n.set.mu.RUnlock()
			over = v.Finished || !back && v.Reached >= end && v.Empty
			refused = !back && v.Vanished == 0 && v.Forbidden
			return !orphan || is != back || over || refused || back && (v.Vanished == 0 || r.mayLiveOn())
		})
		switch {
		case err != nil:
			return
		case back && (r.vanished.Load() == 0 || r.livesOn()):
			r.orphaned.Store(false)
		case over:
			n.end(ctx, r)
			return
		case refused:
			n.giveUp(r, end)
		}
	}
}

// giveUp has an informer infer that everything in its namespace is deleted: its watch cannot tell that any more.
func (n *namespaces) giveUp(r *running, at uint64) {
	again := func() bool {
		_, absent := n.there.AbsentAt(r.selection.Namespace)
		return !absent
	}
	r.orphaned.Store(true)
	r.again.Store(&again)
	r.setVanished(at)
	r.prod()
}

// endOf returns the resourceVersion by which all of a namespace was deleted that was gone at a resourceVersion. A resource that may
// have another etcd tells that in a namespace where it may be asked; false: nowhere.
func (n *namespaces) endOf(ctx context.Context, o *running, at uint64) (uint64, bool) {
	s := n.set
	s.mu.RLock()
	comparable := n.isComparable(o.resource)
	var siblings []*running
	for _, r := range s.informers {
		if groupResource(r.resource) == groupResource(o.resource) {
			siblings = append(siblings, r)
		}
	}
	s.mu.RUnlock()
	if comparable {
		return at, true
	}
	for _, r := range siblings {
		ctx, cancel := context.WithTimeout(ctx, latestWithin)
		rv, err := r.latest(ctx)
		cancel()
		if err == nil {
			return rv, true
		}
	}
	return 0, false
}

// end ends and forgets an informer.
func (n *namespaces) end(ctx context.Context, r *running) {
	s := n.set
	s.mu.Lock()
	if t := n.resources[groupResource(r.resource)]; t != nil {
		delete(t.access, r.selection.Namespace) // of one that comes again, it is asked again
	}
	s.mu.Unlock()
	if s.conclude(ctx, r, r.vanished.Load()) {
		s.o.Log.Info("a namespace is gone, and all of it is told", "scope", r.scope)
	}
	signal(n.woken)
}
