package informers

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// retiringSlow is when it is logged that a scope cannot be drained, or retired.
const retiringSlow = 10 * time.Second

// drain is the informers of the same objects that drain: they take nothing more from their watches, and wait until the bus has acknowledged
// all that was sent. No informer of these objects begins meanwhile: its reads must not overtake what is still on its way. Under the set's mu.
type drain struct {
	informers []*running
	done      chan struct{} // closed when others have taken their place
}

// objectsOf names the objects of a resource, which may be served under two names.
func objectsOf(r *object.Resource) schema.GroupResource {
	return selection.Canonical(groupResource(r))
}

// drain drains an informer. again: the selection has its scope. The caller holds mu.
func (s *Set) drain(ctx context.Context, r *running, again bool) {
	first := !r.state.now().isLeaving()
	if again {
		r.state.to(PhaseDraining)
		r.retiring.Store(nil)
	} else if r.state.to(PhaseRetiring); r.retiring.Load() == nil {
		r.retiring.Store(&checkpoint.Retiring{Since: time.Now().UTC().Truncate(time.Second)})
	}
	if !first {
		return
	}
	r.store.Stop()
	objects := objectsOf(r.resource)
	if d := s.active.drains[objects]; d != nil {
		d.informers = append(d.informers, r)
		return
	}
	d := &drain{informers: []*running{r}, done: make(chan struct{})}
	s.active.drains[objects] = d
	s.goRun(ctx, func(ctx context.Context) { s.endDrain(ctx, objects, d) })
}

// endDrain waits until all informers of a drain rest, ends them, and has others take their place.
func (s *Set) endDrain(ctx context.Context, objects schema.GroupResource, d *drain) {
	slow := time.AfterFunc(retiringSlow, func() { s.logDraining(d) })
	defer slow.Stop()
	for replaced := false; !replaced; {
		var all []*running
		err := s.decide(ctx, func(context.Context) { all = slices.Clone(d.informers) })
		for _, r := range all {
			err = cmp.Or(err, r.Wait(ctx, func(v View) bool { return v.Ended || v.Resting && (v.Adopted || !s.isSuccessor(r, v)) }))
		}
		if err != nil {
			return // the set ends
		}
		for _, r := range all {
			r.cancel()
			<-r.done
		}
		for _, r := range all { // Reads may have gone on meanwhile. Nothing is waited for if others have removed it.
			err = cmp.Or(err, r.Wait(ctx, func(v View) bool { return v.InFlight == 0 || !s.has(r) }))
		}
		err = cmp.Or(err, s.decide(ctx, func(ctx context.Context) {
			for _, r := range all {
				r.state.move(PhaseDraining, PhaseDrained)
			}
			if replaced = len(all) == len(d.informers); replaced {
				s.replace(ctx, objects, d)
			}
		}))
		if err != nil {
			return // the set ends
		}
	}
}

// isSuccessor reports whether an informer takes the place of another scope, and is about to tell what became of its objects: nothing else
// would. One that cannot, since its list fails or that of a tombstone before it, is not waited for.
func (s *Set) isSuccessor(r *running, v View) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r.spec.Origin == nil || !r.spec.Origin.Inherited || v.Failing {
		return false
	}
	for _, t := range s.active.tombstones {
		if slices.Contains(r.after, (<-chan struct{})(t.done)) && t.state.lastError() != nil {
			return false
		}
	}
	return true
}

// has reports whether an informer is in the set.
func (s *Set) has(r *running) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.active.informers[r.scope] == r
}

// logDraining logs what has not drained yet.
func (s *Set) logDraining(d *drain) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range d.informers {
		s.o.Log.Warn("the changed configuration is not in force for a scope yet: the bus has not acknowledged all that was sent of it",
			"scope", r.scope, "phase", r.state.now().String(), "advice", "see why the bus does not take the records of this resource; other resources are not affected")
	}
}

// replace has the selection in force take the place of informers that have drained. The caller holds mu.
func (s *Set) replace(ctx context.Context, objects schema.GroupResource, d *drain) {
	chosen, _ := s.sel.Choose(s.withObserved(s.served.all), s.served.unknown, s.stillTaken(s.sel))
	chosen = slices.DeleteFunc(chosen, func(c selection.Choice) bool { return objectsOf(&c.Resource) != objects })
	var left []checkpoint.Scope // what informers that have not begun were to resume from
	for _, r := range d.informers {
		if s.active.informers[r.scope] != r {
			continue // its resource was removed meanwhile
		}
		f := succeeded
		if r.state.now() == PhaseRetiring {
			f = deselected
		}
		if c := s.remove(r, f); c != nil {
			left = append(left, *c)
		}
	}
	delete(s.active.drains, objects)
	s.observeChosen(ctx, chosen, d.informers, left)
	close(d.done)
}

// retiring returns the scopes whose tombstones are not on the bus. The caller holds mu.
func (s *Set) retiring() (out []Status) {
	for scope, t := range s.active.tombstones {
		if !t.isDone() && s.active.informers[scope] == nil { // else the one that waits for it shows
			out = append(out, t.status())
		}
	}
	return out
}

// IsRetiring reports whether a scope is no longer selected, and the bus does not have all of it.
func (s *Set) IsRetiring(scope string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.active.informers[scope]; r != nil {
		return r.state.now() == PhaseRetiring
	}
	return s.isRetired(scope)
}
