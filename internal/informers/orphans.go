package informers

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/retry"
)

// What is in a namespace is deleted before the namespace is. So a scope of a namespace that has gone at a resourceVersion is
// complete when its watch has come so far: an event or a bookmark has told it. Then it is ended and forgotten. Who may read it was
// told by the namespace, too: a watch that ends before cannot be opened again. Then the objects that are still known are inferred to
// be deleted, behind a gap.

// orphanLook is how often it is looked if all of a namespace that has gone is on the bus.
const orphanLook = 250 * time.Millisecond

// latestWithin bounds one question for the resourceVersion now.
const latestWithin = 30 * time.Second

// orphan is an informer whose namespace has gone.
type orphan struct {
	*running
	at   uint64 // a resourceVersion at which the namespace does not exist
	back bool   // there is one of that name again
}

// endOrphans ends the scopes of namespaces that have gone, until ctx ends.
func (n *namespaces) endOrphans(ctx context.Context) {
	ends := map[*running]uint64{} // the resourceVersion to come to
	for {
		all := n.orphans()
		if len(all) == 0 {
			clear(ends)
			select {
			case <-n.left:
			case <-ctx.Done():
				return
			}
			continue
		}
		for _, o := range all {
			if n.isOver(ctx, o, ends) {
				n.end(ctx, o)
			}
		}
		if !retry.Sleep(ctx, orphanLook) {
			return
		}
	}
}

// orphans are the informers whose namespace is not there, or was not.
func (n *namespaces) orphans() (out []orphan) {
	s := n.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.informers {
		t := n.resources[groupResource(r.resource)]
		if r.selection.Namespace == "" || t == nil || !t.split || r.cancel == nil || r.hasEnded() {
			continue
		}
		at, absent := n.there.AbsentAt(r.selection.Namespace)
		if !absent && !r.orphaned.Load() {
			continue
		}
		out = append(out, orphan{running: r, at: at, back: !absent})
	}
	return out
}

// isOver tells if all of a namespace that has gone is on the bus. Where the watch cannot tell any more, it has the informer give up.
func (n *namespaces) isOver(ctx context.Context, o orphan, ends map[*running]uint64) bool {
	if o.back {
		if o.vanished.Load() == 0 || o.livesOn() {
			o.orphaned.Store(false)
			return false
		}
		v, _ := o.View()
		return v.Finished
	}
	to, ok := ends[o.running]
	if !ok {
		if to, ok = n.endOf(ctx, o); !ok {
			return false
		}
		ends[o.running] = to
	}
	if v, _ := o.View(); v.Reached >= to && v.Empty || v.Finished {
		return true
	}
	if o.vanished.Load() == 0 && o.state.isForbidden() {
		again := func() bool {
			_, absent := n.there.AbsentAt(o.selection.Namespace)
			return !absent
		}
		o.orphaned.Store(true)
		o.again.Store(&again)
		o.setVanished(to)
		o.prod()
	}
	return false
}

// endOf is the resourceVersion by which all of a namespace that has gone was deleted. A resource that may have another etcd tells
// that in a namespace where it may be asked; false: nowhere.
func (n *namespaces) endOf(ctx context.Context, o orphan) (uint64, bool) {
	s := n.set
	s.mu.Lock()
	comparable := n.isComparable(o.resource)
	var siblings []*running
	for _, r := range s.informers {
		if groupResource(r.resource) == groupResource(o.resource) {
			siblings = append(siblings, r)
		}
	}
	s.mu.Unlock()
	if comparable {
		return o.at, true
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
func (n *namespaces) end(ctx context.Context, o orphan) {
	s := n.set
	s.mu.Lock()
	if t := n.resources[groupResource(o.resource)]; t != nil {
		delete(t.access, o.selection.Namespace) // of one that comes again, it is asked again
	}
	s.mu.Unlock()
	if s.conclude(ctx, o.running, o.vanished.Load()) {
		s.o.Log.Info("a namespace is gone, and all of it is told", "scope", o.scope)
	}
	signal(n.woken)
}

// isForbidden tells if requests fail because they are not permitted.
func (s *state) isForbidden() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil && apierrors.IsForbidden(s.err)
}
