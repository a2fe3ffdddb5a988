package informers

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/store"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A resource whose CustomResourceDefinition was deleted has no objects any more. The API server deletes them first, and ends
// their watch a moment later; so the informer goes on until it is told that the resource is not served, and what its watch has
// not told of by then is inferred, behind a gap. Only then, and when all of it is on the bus, it is ended and forgotten.
//
// That a resource is not served says nothing by itself: its versions may be unserved for a while, another server may be away, or
// the API server may have been restarted without the group. So a deletion is inferred only if the resource is known to come from a
// definition, whose uid the checkpoint keeps, and that definition is known not to exist any more.

// burials ends what is gone.
type burials struct {
	set   *Set
	begin func([]*running)
	wg    sync.WaitGroup // ends with the context that add was given
}

func (b *burials) wait() { b.wg.Wait() }

// add ends the informers of the resource whose definition, of that name, was gone at rv.
func (b *burials) add(ctx context.Context, name string, rv uint64) {
	s := b.set
	s.mu.Lock()
	var all []*running
	for _, i := range s.informers {
		if i.resource.String() == name && !i.silent {
			all = append(all, i)
		}
	}
	s.mu.Unlock()
	for _, r := range all {
		again := func() bool { return s.extensions.IsEstablished(name) }
		if was := r.vanishedAgain(rv); was != 0 {
			if !s.has(r) { // it has been forgotten meanwhile, and did not see this
				b.wg.Go(func() { _, _ = r.tellMissed(ctx, was) }) // or the set ends
			}
			continue
		}
		if r.store.ResourceVersion() >= rv && again() {
			continue // it has listed what came later
		}
		r.again.Store(&again)
		r.setVanished(rv)
		r.prod()
		s.o.Log.Info("the definition of a resource is deleted: its informer ends once all is told", "scope", r.scope, "rv", rv)
		b.wg.Go(func() {
			if b.bury(ctx, r) || r.vanished.Load() == 0 {
				b.begin(s.bear()) // what has the name now
			} else if ctx.Err() == nil && r.hasEnded() {
				s.looking.Lock() // who ended it gives it a successor before that is released
				defer s.looking.Unlock()
				b.add(ctx, name, rv)
			}
		})
	}
}

// unheard finds what has an informer although it is neither served nor defined: it began after its definition was deleted.
// Discovery found it before. The caller holds the set's mu.
func (s *Set) unheard(all []selection.APIResource, unknown []string) {
	for _, i := range s.informers {
		if _, ok := selection.Current(all, i.resource); ok || i.silent || i.vanished.Load() != 0 || !selection.GroupKnown(unknown, i.resource.Group) || i.isAggregated() {
			continue
		}
		if at, gone := s.extensions.DeletedAt(i.resource, i.definitionUID()); gone {
			select {
			case s.undefined <- vanished{i.resource.String(), at}:
			default: // the next discovery finds it again
			}
		}
	}
}

// vanished is a resource whose definition was gone at a resourceVersion.
type vanished struct {
	name string
	at   uint64
}

// bury waits until all of what is gone is on the bus, and forgets it; false: ctx ended first, or it lives on.
func (b *burials) bury(ctx context.Context, r *running) bool {
	for over := false; !over; {
		ended := false
		err := r.Wait(ctx, func(v View) bool {
			over, ended = v.Vanished == 0 || v.BuriedAt >= v.Vanished && v.Finished, v.Ended
			return over || ended || r.mayLiveOn()
		})
		if err != nil || !over && (r.livesOn() || ended) {
			return false
		}
	}
	told := min(r.buriedAt.Load(), r.vanished.Load())
	if told == 0 || !b.set.conclude(ctx, r, told) {
		return false
	}
	b.set.o.Log.Info("a resource is gone, and all of it is told", "scope", r.scope)
	return true
}

// conclude ends and forgets an informer of which all up to the deletion at told is on the bus; false: the set ends first, or it is
// not the set's any more.
func (s *Set) conclude(ctx context.Context, r *running, told uint64) bool {
	err := r.store.SendProgress(ctx)
	if err != nil {
		return false // the set ends
	}
	s.mu.Lock()
	cancel := r.cancel
	s.mu.Unlock()
	if cancel == nil {
		return false // it was settled: it has begun
	}
	cancel()
	<-r.done
	for {
		if told, err = r.tellMissed(ctx, told); err != nil {
			return false // the set ends
		}
		switch s.dismiss(r, told) {
		case dismissed:
			return true
		case notOurs:
			return false
		case moreCame:
		}
	}
}

// dismissal is what came of forgetting an informer.
type dismissal uint8

const (
	dismissed dismissal = iota
	notOurs             // it is not the set's any more
	moreCame            // another resource of that name came and went meanwhile
)

// dismiss forgets an informer that has told all up to the deletion at told.
func (s *Set) dismiss(r *running, told uint64) dismissal {
	s.mu.Lock()
	switch {
	case s.informers[r.scope] != r:
		s.mu.Unlock()
		return notOurs
	case r.vanished.Load() > told:
		s.mu.Unlock()
		return moreCame
	}
	gr := schema.GroupResource{Group: r.resource.Group, Resource: r.resource.Name}
	s.remembered[gr] = max(s.remembered[gr], r.store.History())
	delete(s.informers, r.scope)
	s.forget(r.scope)
	s.release(r.scope)
	s.mu.Unlock()
	if s.hearing != nil {
		s.hearing.forget(r.resource, r.scope)
	}
	return dismissed
}

// tellMissed tells of a resource of the same name that came and went behind told, while the informer was coming to its end, and
// returns up to where all is told. Its error is the cause of ctx.
func (r *running) tellMissed(ctx context.Context, told uint64) (uint64, error) {
	to := r.vanished.Load()
	if to <= told {
		return told, nil
	}
	gap := &object.StreamEvent{
		Kind: object.Gap, Resource: r.resource, Scope: r.scope, History: r.store.History(), From: told, To: to,
		Since: r.state.lastSeen(), Reason: object.Expired,
	}
	return to, r.store.SendStream(ctx, gap)
}

// life is what an informer knows of the life of its resource.
type life struct {
	prodded chan struct{} // of one element: what is waited for may be there
	// vanished is the resourceVersion at which the resource's definition was deleted, 0: it was not.
	vanished atomic.Uint64
	// buriedAt is the resourceVersion up to which it was told that there is nothing any more.
	buriedAt atomic.Uint64
	again    atomic.Pointer[func() bool] // tells if it is defined again; nil: it was not deleted
	deciding sync.Mutex                  // held while it is decided if the informer lives on
	decided  bool                        // it does not
	// edition counts how many times the definition was changed, as far as that was seen.
	edition atomic.Uint32
	ending  atomic.Pointer[context.CancelCauseFunc] // ends the HTTP watch that there is, nil: none
	// clean is one more than the edition that the last HTTP watch began with, if it ended as it should, else 0.
	clean    atomic.Uint32
	orphaned atomic.Bool // it is vanished because its namespace is: no watch ends for that
	// aggregated tells that another server serves the resource, or did so when this was known last. servedBy tells if one does
	// now; nil: nobody can be asked.
	aggregated atomic.Bool
	servedBy   func() (another, known bool)
	// definition is the uid of the resource's definition, as far as it is known. definedBy returns that of the one that there
	// is now, "": none; nil: nobody can be asked.
	definition atomic.Pointer[string]
	definedBy  func() string

	// Of the goroutine that lists: the resourceVersion at which the resource was established, behind which its first object
	// is, and when that was seen; 0: it is not known, or done with.
	born     uint64
	bornAt   time.Time
	listedAs uint32 // edition when the last list was begun
}

// isCustom tells if a definition stands behind the resource, as far as is known.
func (i *informer) isCustom() bool {
	return !discovery.IsBuiltIn(i.resource.Group) && !i.isAggregated()
}

// watchEnded notes how an HTTP watch has ended.
func (l *life) watchEnded(edition uint32, err error) {
	if err != nil {
		l.clean.Store(0)
		return
	}
	l.clean.Store(edition + 1)
}

// toldAll tells if the watch has told all that became of the objects: it ended as it should, and they are all gone. Behind a
// changed definition it may have ended before.
func (i *informer) toldAll() bool {
	return i.clean.Load() == i.edition.Load()+1 && !i.orphaned.Load() && i.store.Loss() == nil && i.store.IsEmpty()
}

// vanishedAgain tells from which resourceVersion on the resource is being ended already, 0: it is not. While it was, one of that
// name may have come and gone at rv.
func (i *informer) vanishedAgain(rv uint64) (was uint64) {
	i.deciding.Lock() // it may live on
	defer i.deciding.Unlock()
	was = i.vanished.Load()
	if was != 0 && rv > was {
		i.edition.Add(1) // what the watch has told is not all
		i.setVanished(rv)
		i.prod()
	}
	return was
}

// isAggregated tells if another server serves the resource, as far as that is known. That it is registered no more does not
// change that: it may come back. It does not block.
func (l *life) isAggregated() bool {
	if l.servedBy != nil {
		if another, known := l.servedBy(); known {
			l.aggregated.Store(another)
		}
	}
	return l.aggregated.Load()
}

// definitionUID is the uid of the definition that the resource has, or had when it was known last. "": the resource is not
// known to have one. It does not block.
func (l *life) definitionUID() string {
	known := l.definition.Load()
	if l.definedBy != nil {
		if uid := l.definedBy(); uid != "" && (known == nil || uid != *known) {
			known = &uid
			l.definition.Store(known)
		}
	}
	if known == nil {
		return ""
	}
	return *known
}

// isOver tells if a watch that has ended with err shows that its resource, of which the definition is deleted, is not served
// any more. It may be served again by now, under another definition: then the watch has expired.
func (i *informer) isOver(err error) bool {
	return i.vanished.Load() != 0 && (apierrors.IsNotFound(err) || apiserver.IsGone(err) || i.orphaned.Load() && apierrors.IsForbidden(err))
}

// isBuried decides if the resource is gone: then at is the resourceVersion for which that is known.
func (i *informer) isBuried() (at uint64, gone bool) {
	if i.livesOn() {
		return 0, false
	}
	i.deciding.Lock()
	defer i.deciding.Unlock()
	at = i.vanished.Load()
	i.decided = at != 0
	return at, i.decided
}

// livesOn tells if the resource was defined again before the informer had ended: the API server goes on with an open watch then,
// or the objects were listed since. All that was deleted is told of, and what came later is told in the order of history: it is as
// if the definition had never gone.
func (i *informer) livesOn() bool {
	i.deciding.Lock()
	defer i.deciding.Unlock()
	if !i.isBackLocked() {
		return false
	}
	i.setVanished(0)
	i.prod()
	return true
}

// mayLiveOn reports whether livesOn would return true. It changes nothing.
func (i *informer) mayLiveOn() bool {
	i.deciding.Lock()
	defer i.deciding.Unlock()
	return i.isBackLocked()
}

func (i *informer) isBackLocked() bool {
	gone, again := i.vanished.Load(), i.again.Load()
	return gone != 0 && !i.decided && i.store.ResourceVersion() >= gone && (*again)()
}

// setVanished notes the resourceVersion at which the resource was deleted, 0: it was not.
func (i *informer) setVanished(rv uint64) {
	i.vanished.Store(rv)
	i.store.Notify()
}

// setBuried notes the resourceVersion up to which it was told that there is nothing any more.
func (i *informer) setBuried(at uint64) {
	i.buriedAt.Store(at)
	i.store.Notify()
}

// loadNothing takes it that there are no objects any more, and waits until ctx ends: nobody has to watch.
func (i *informer) loadNothing(ctx context.Context, at uint64) error {
	s := i.store
	at = max(at, s.ResourceVersion())
	switch {
	case s.IsLoaded():
		from := s.ResourceVersion()
		s.BeginList(store.Relist)
		switch {
		case i.toldAll():
			s.EndList(at, nil) // the watch has told all
		default:
			s.Lose(store.Loss{From: from, Since: i.since(), Reason: object.Expired, SkipIfRecovered: i.isCustom()})
			// Where it is defined again in the same versions, etcd's history may still be read.
			s.EndList(at, nil, i.gapUnlessFound(at))
		}
	case i.resume != nil: // nothing is known of the objects at the checkpoint
		i.giveUpGone(at)
	case i.born != 0 && i.born < at: // gone before it was listed: what it had, nobody has seen
		s.BeginList(store.Fresh)
		s.Lose(store.Loss{From: i.born, Since: i.bornAt, Reason: object.Expired, Unrecoverable: true})
		s.EndList(at, nil, s.Gap(at, nil))
	default: // nothing was ever sent of it
		s.BeginList(store.Fresh)
		s.EndList(at, nil)
	}
	s.MarkGone()
	i.setBuried(at)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-i.prodded:
		}
		if to := i.vanished.Load(); to > at { // what came and went meanwhile
			from := at
			at = to
			s.BeginList(store.Relist)
			s.Lose(store.Loss{From: from, Since: i.since(), Reason: object.Expired, SkipIfRecovered: i.isCustom()})
			s.EndList(at, nil, i.gapUnlessFound(at))
			i.setBuried(at)
		}
	}
}

// giveUpGone gives up what the checkpoint holds: at resourceVersion at there is nothing.
func (i *informer) giveUpGone(at uint64) {
	c := i.resume
	i.resume = nil
	i.store.Restart(store.Loss{From: c.ResourceVersion, Since: c.LastSeen, Reason: object.Expired})
	i.store.BeginList(store.Fresh)
	notices := []*store.Notice{i.store.Gap(at, nil)}
	var snap *store.Snapshot
	if i.snapshots != SnapshotNever {
		var start *store.Notice
		snap, start = i.store.NewSnapshot(at)
		notices = append(notices, start)
	}
	i.store.EndList(at, snap, notices...)
}

// partGone finds scopes of the last run whose resource is not defined any more, and says farewell to them. The caller holds mu.
func (s *Set) partGone(all []selection.APIResource, unknown []string) (out []*farewell) {
	for scope, c := range s.origins {
		r := &object.Resource{Group: c.Group, Version: c.Version, Name: c.Resource, Kind: c.Kind, Namespaced: c.Namespaced}
		if _, ok := selection.Current(all, r); ok || c.Aggregated || !selection.GroupKnown(unknown, c.Group) {
			continue // or it may come back
		}
		at, gone := s.extensions.DeletedAt(r, c.Definition)
		if !gone {
			s.sayUnserved(scope)
			continue
		}
		delete(s.origins, scope)
		f := s.farewellOf(&c, selection.Unreadable(r, scope, &c, s.o.Match))
		f.gone = at
		out = append(out, f)
		s.farewells = append(s.farewells, f)
	}
	slices.SortFunc(out, func(a, b *farewell) int { return strings.Compare(a.scope, b.scope) })
	return out
}

// sayUnserved logs, once, that nothing is inferred from a resource of the last run that is not served. The caller holds mu.
func (s *Set) sayUnserved(scope string) {
	if s.saidUnserved[scope] {
		return
	}
	s.saidUnserved[scope] = true
	s.o.Log.Warn("a resource of the last run is not served now, and not known to come from a deleted CustomResourceDefinition: "+
		"no deletion is inferred, and the scope resumes when the resource is served again", "scope", scope)
}

// sayGone says farewell to a scope whose resource is gone: nothing is known of what was in it, and nothing is there.
func (f *farewell) sayGone(ctx context.Context) error {
	s := f.store
	log := s.LogNumber()
	f.gone = max(f.gone, f.from.ResourceVersion+1) // the scope may have come further than the definitions
	gap := &object.StreamEvent{
		Kind: object.Gap, Resource: f.resource, Scope: f.scope, History: s.History(), From: f.from.ResourceVersion, To: f.gone,
		Since: f.from.LastSeen, Reason: object.Expired,
	}
	if err := f.begin(ctx); err != nil {
		return err
	}
	if err := s.SendStream(ctx, gap); err != nil {
		return err
	}
	if err := f.sayNothingIsKnown(ctx, f.gone); err != nil {
		return err
	}
	if err := f.end(log); err != nil {
		return err
	}
	f.log.Info("the resource of a scope of the last run is not defined any more", "scope", f.scope, "rv", f.gone)
	return nil
}
