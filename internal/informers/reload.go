package informers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A new selection is taken while the set runs. Of each scope one of four things becomes:
//
//   - it is as it was, at most other filters apply: its informer goes on (where others withhold objects as a whole, a snapshot
//     tells of those that there are);
//   - the same objects are taken, but other rules take them, or they are cut and redacted otherwise: the informer comes to
//     rest, and another one goes on from there, as after a restart of the agent;
//   - it is no longer selected: its informer comes to rest, and a farewell is said (farewell.go);
//   - it is new: it begins as at a start.
//
// To come to rest is to take nothing more from the watch, and to wait until the bus has acknowledged all that was sent: then
// nothing is lost, and nothing is said twice. An informer whose list is still being read has sent nothing that would have to be
// waited for, and ends in the middle of it; but one that takes the place of another scope comes to say what became of its objects
// first, as long as it can.
//
// The set waits for none of that (drain.go). A selection is in force at once, except for resources of which an informer comes to
// rest. When it has, the selection that is in force by then decides what observes them.

// reload is a selection that is to take the place of the one that there is.
type reload struct {
	sel  *selection.Selection
	done chan reloaded // buffered
}

// reloaded is what became of it.
type reloaded struct {
	err    error
	rested []<-chan struct{} // closed once resources have what the selection asks for
}

// Reload has spec take the place of the selection that there is. It returns nil once that is so, while what is new is being
// read. It waits a few seconds, and not longer, for informers that have to come to rest. An error says what is wrong with spec, and
// nothing has changed, or it is the cause of ctx: then spec may be in force all the same. A set that does not run yet begins with
// spec. Calls follow one another.
func (s *Set) Reload(ctx context.Context, spec selection.Spec) error {
	next, err := selection.Compile(spec)
	if err != nil {
		return err
	}
	s.mu.Lock()
	ran := s.ran
	if !ran {
		s.sel = next
	}
	s.mu.Unlock()
	if !ran {
		return nil
	}
	r := &reload{sel: next, done: make(chan reloaded, 1)}
	select {
	case s.reloads <- r:
	case <-s.ended:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var now reloaded
	select {
	case now = <-r.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	patient := time.NewTimer(s.restWithin)
	defer patient.Stop()
	for _, rested := range now.rested {
		select {
		case <-rested:
		case <-patient.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return now.err
}

// takeReloads takes one selection after the other until ctx ends. begin begins informers, and farewells.
func (s *Set) takeReloads(ctx context.Context, begin func([]*running, []*farewell)) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-s.reloads:
			draining, err := s.reload(ctx, r.sel, begin)
			now := reloaded{err: err}
			for _, d := range draining {
				if !d.begun {
					d.begun = true
					running.Go(func() { s.runDrain(ctx, d, begin) })
				}
				now.rested = append(now.rested, d.done)
			}
			r.done <- now
		}
	}
}

// reload takes sel, except for the resources of which informers come to rest: those are returned. An error says what is wrong with
// sel, and nothing has changed.
func (s *Set) reload(ctx context.Context, sel *selection.Selection, begin func([]*running, []*farewell)) ([]*drain, error) {
	s.looking.Lock() // discovery waits
	defer s.looking.Unlock()
	s.mu.Lock()
	all, unknown := s.served, s.unknown
	if !s.discovered { // nothing runs yet
		s.sel = sel
		s.mu.Unlock()
		s.extensions.Need(s.takesExtensions())
		return nil, nil
	}
	s.mu.Unlock()
	if now, un, err := discovery.Discover(ctx, s.client); err == nil {
		all, unknown = now, un
	}
	s.namespaces.widen(ctx)

	s.mu.Lock()
	chosen, unserved := sel.Choose(s.withObserved(all), unknown, s.stillTaken(sel))
	want, err := s.want(sel, chosen)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	s.sel = sel // what is born from here on is observed as it says
	if err := s.tellNodes(); err != nil {
		s.o.Log.Error("nodes that go are told as before", "err", err)
	}
	for scope, i := range s.informers {
		w, ok := want[scope]
		same := i.silent && i.redactsAs(sel) || !i.silent && ok && i.selection.IsSame(&w)
		if !same || i.leaving != "" {
			s.bringToRest(i, ok || i.silent)
		} else if !i.silent {
			i.filter(&w)
		}
	}
	s.served, s.unknown, s.unserved = all, unknown, unserved
	added := s.add(chosen)
	s.inherit(added)
	if s.departures != nil && s.departures.taken != nil {
		added = append(added, s.resumeTaken()...)
	}
	parting := s.part(all, unknown, added)
	draining := slices.Collect(maps.Values(s.drains))
	s.mu.Unlock()
	begin(added, parting)
	return draining, nil
}

// want are the scopes that a selection asks for, by name. The caller holds mu.
func (s *Set) want(sel *selection.Selection, chosen []selection.Choice) (map[string]selection.Scope, error) {
	out := map[string]selection.Scope{}
	for n := range chosen {
		c := &chosen[n]
		scopes, err := s.scopesOf(sel, c)
		if err != nil {
			return nil, err
		}
		for _, one := range scopes {
			out[one.Name] = one
			if s.departures == nil || c.Part.FieldSelector == "" {
				continue
			}
			for node := range s.departures.taken { // what is taken over follows
				of := one.ForNode(node)
				out[of.Name] = of
			}
		}
	}
	return out, nil
}

// stillTaken are those of taken that a rule of sel names as they are taken. The caller holds mu.
func (s *Set) stillTaken(sel *selection.Selection) map[schema.GroupResource]bool {
	out := map[schema.GroupResource]bool{}
	for _, i := range s.informers {
		r := i.resource
		if sel.Takes(r) {
			out[groupResource(r)] = true
		}
	}
	return out
}

// taken are the resources that have an informer. The caller holds mu.
func (s *Set) taken() map[schema.GroupResource]bool {
	out := map[schema.GroupResource]bool{}
	for _, i := range s.informers {
		out[schema.GroupResource{Group: i.resource.Group, Resource: i.resource.Name}] = true
	}
	return out
}

// withObserved are those that are served, and those that are not any more and have an informer, which waits for them. The caller
// holds mu.
func (s *Set) withObserved(all []selection.APIResource) []selection.APIResource {
	out := slices.Clone(all)
	for _, i := range s.informers {
		r := i.resource
		if !slices.ContainsFunc(out, func(o selection.APIResource) bool { return o.Group == r.Group && o.Name == r.Name }) {
			out = append(out, selection.APIResource{Group: r.Group, Name: r.Name, Versions: []object.Resource{*r}})
		}
	}
	return out
}

// settle brings an informer to rest: it has ended then, and all it has sent is on the bus. Its error is the cause of ctx.
func (s *Set) settle(ctx context.Context, r *running) error {
	r.store.Stop()
	err := r.Wait(ctx, func(v View) bool {
		return s.hasBegun(r) && (v.Ended || v.Resting && (v.Adopted || !s.isHeir(r, v)))
	})
	if err != nil {
		return err
	}
	r.cancel()
	<-r.done
	// Reads may have gone on meanwhile. Of what others have ended, nothing is waited for.
	return r.Wait(ctx, func(v View) bool { return v.InFlight == 0 || !s.has(r) })
}

// isHeir tells that an informer takes the place of another scope, and is about to say what became of its objects: nobody else
// would. One that cannot, since its list fails or that of a farewell before it, is not waited for.
func (s *Set) isHeir(r *running, v View) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !r.heir || v.Failing {
		return false
	}
	return !slices.ContainsFunc(s.farewells, func(f *farewell) bool {
		return slices.Contains(r.after, (<-chan struct{})(f.done)) && f.state.lastError() != nil
	})
}

// has tells that an informer is in the set.
func (s *Set) has(r *running) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.informers[r.scope] == r
}

// hasBegun tells that an informer can be ended.
func (s *Set) hasBegun(r *running) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return r.cancel != nil
}

func (r *running) hasEnded() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// bidding are the farewells of a resource that are not said yet. The caller holds mu.
func (s *Set) bidding(r *object.Resource) (out []<-chan struct{}) {
	s.farewells = slices.DeleteFunc(s.farewells, (*farewell).isSaid)
	for _, f := range s.farewells {
		if f.resource.Group == r.Group && f.resource.Name == r.Name {
			out = append(out, f.done)
		}
	}
	return out
}
