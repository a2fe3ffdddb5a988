package informers

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// restWithin is how long Reload waits for informers that come to rest. That usually takes milliseconds. If the bus does not take
	// the records of a resource, it may never happen.
	restWithin = 3 * time.Second
	// retiringSlow is when it is logged that a scope cannot be retired.
	retiringSlow = 10 * time.Second
)

// drain is the informers of the same objects that come to rest. No informer of these objects begins meanwhile: its reads must
// not overtake what is still on its way.
type drain struct {
	objects   schema.GroupResource
	informers []*running    // under the set's mu
	done      chan struct{} // closed when others have taken their place
	begun     bool          // of the goroutine that takes reloads
}

// objectsOf names the objects of a resource, which may be served under two names.
func objectsOf(r *object.Resource) schema.GroupResource {
	return selection.Canonical(groupResource(r))
}

// bringToRest has an informer come to rest. again: the selection has its scope. The caller holds mu.
func (s *Set) bringToRest(i *running, again bool) {
	first := i.leaving == ""
	i.leaving = PhaseDraining
	if again {
		i.retiring.Store(nil)
	} else if i.leaving = PhaseRetiring; i.retiring.Load() == nil {
		i.retiring.Store(&checkpoint.Retiring{Since: time.Now().UTC().Truncate(time.Second)})
	}
	if !first {
		return
	}
	of := objectsOf(i.resource)
	r := s.drains[of]
	if r == nil {
		r = &drain{objects: of, done: make(chan struct{})}
		s.drains[of] = r
	}
	r.informers = append(r.informers, i)
	i.store.Stop()
}

// runDrain waits until informers have come to rest, and has others take their place, unless ctx ends first.
func (s *Set) runDrain(ctx context.Context, r *drain, begin func([]*running, []*farewell)) {
	slow := time.AfterFunc(retiringSlow, func() { s.sayDraining(r) })
	defer slow.Stop()
	for {
		s.mu.Lock()
		all := slices.Clone(r.informers)
		s.mu.Unlock()
		var g errgroup.Group
		for _, i := range all {
			g.Go(func() error { return s.settle(ctx, i) })
		}
		if g.Wait() != nil {
			return // the set ends
		}
		if s.replace(r, len(all), begin) {
			return
		}
	}
}

// sayDraining logs what has not come to rest yet.
func (s *Set) sayDraining(r *drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range r.informers {
		s.o.Log.Warn("the changed configuration is not in force for a scope yet: the bus has not acknowledged all that was sent of it",
			"scope", i.scope, "phase", string(i.leaving), "advice", "see why the bus does not take the records of this resource; other resources are not affected")
	}
}

// replace has the selection that is in force now take the place of n informers that have come to rest; false: there are more.
func (s *Set) replace(r *drain, n int, begin func([]*running, []*farewell)) bool {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.mu.Lock()
	if len(r.informers) > n {
		s.mu.Unlock()
		return false
	}
	all, unknown := s.served, s.unknown
	take, _ := s.sel.Choose(s.withObserved(all), unknown, s.stillTaken(s.sel))
	take = slices.DeleteFunc(take, func(c selection.Choice) bool { return objectsOf(&c.Resource) != r.objects })
	var inherited []checkpoint.Scope // what informers that have not begun were to go on from
	for _, i := range r.informers {
		if s.informers[i.scope] != i {
			continue // its resource has gone meanwhile
		}
		if c := s.leave(i); c != nil {
			inherited = append(inherited, *c)
		}
	}
	delete(s.drains, r.objects)
	added := s.add(take)
	s.inherit(added, inherited...)
	bequeath(r.informers, added)
	if slices.ContainsFunc(r.informers, func(i *running) bool { return i.silent }) {
		added = append(added, s.followNodes()...)
	}
	if s.departures != nil && s.departures.taken != nil {
		added = append(added, s.resumeTaken()...)
	}
	parting := s.part(all, unknown, added)
	s.mu.Unlock()
	begin(added, parting)
	close(r.done)
	return true
}

// leave takes an informer that has come to rest out of the set, which goes on from where it was. If it has not begun, what it was to
// go on from is returned, nil: nothing. The caller holds mu.
func (s *Set) leave(i *running) (inherited *checkpoint.Scope) {
	delete(s.informers, i.scope)
	again := i.leaving == PhaseDraining
	switch p, ok := i.position(); {
	case ok:
		s.origins[i.scope] = p.Scope
		// One that has not got as far as that has not told what a run tells at its start.
		s.continued[i.scope] = again && (i.resume == nil || i.resume.continued)
	case i.resume != nil && i.resume.lost == nil:
		inherited = &i.resume.Scope
		fallthrough
	default:
		if !again {
			s.forget(i.scope)
		}
	}
	if !again {
		s.release(i.scope)
	}
	if s.departures != nil {
		s.departures.drop(i)
	}
	return inherited
}

// retiring are the scopes to which a farewell is said. The caller holds mu.
func (s *Set) retiring() (out []Status) {
	for _, f := range s.farewells {
		if !f.isSaid() && s.informers[f.scope] == nil { // else the one that waits for it shows
			st := f.status()
			st.Phase, st.Stale = PhaseRetiring, false
			out = append(out, st)
		}
	}
	return out
}

// IsRetiring reports whether a scope is no longer selected, and the bus does not have all of it.
func (s *Set) IsRetiring(scope string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.informers[scope]; i != nil {
		return i.leaving == PhaseRetiring
	}
	return s.isParting(scope)
}

// sayRetiring logs, after a while, that the farewell is not on the bus.
func (f *farewell) sayRetiring() *time.Timer {
	return time.AfterFunc(retiringSlow, func() {
		f.log.Warn("a scope is no longer selected, but the bus does not have yet that its objects left: this is retried, and again at each start",
			"scope", f.scope, "advice", "see why the bus does not take the records of this resource; to give the scope up, stop the agent and run 'kubecdc checkpoint forget'")
	})
}
