package informers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// selection is which objects of a resource an informer observes.
type selection struct {
	namespace  string            // the only one, "" for all
	namespaces func(string) bool // of those, which are taken
	patterns   []string          // as configured, none: all
	labels     string            // the selectors that the API server applies
	fields     string
	clauses    []clause // what each rule takes, in order; never empty
	union      string   // what several clauses take together, "": everything, or there is one

	rest     *object.Cutter // of objects that no clause takes
	redacted []string       // what any clause redacts
	content  string         // names what is done to objects: another name, another content
}

// ignored tells if an object is the agent's own.
func (s *Set) ignored(ref *object.Ref) bool {
	return slices.ContainsFunc(s.o.Ignore, func(n Name) bool {
		return n.Resource == ref.Resource.Name && n.Group == ref.Resource.Group && n.Name == ref.Name() && n.Namespace == ref.Namespace()
	})
}

// begins gives an informer what is known of its scope. The caller holds mu.
func (s *Set) begins(i *informer) {
	history, known := s.remembered[schema.GroupResource{Group: i.resource.Group, Resource: i.resource.Name}]
	i.store.history, i.forgotten = history, !known
	c, ok := s.origins[i.scope]
	if !ok {
		s.beginsBorn(i)
		return
	}
	delete(s.origins, i.scope)
	i.resume = &origin{Scope: c, continued: s.continued[i.scope]}
	delete(s.continued, i.scope)
	i.store.previous = &checkpoint.Position{Scope: c}
	i.store.history, i.store.began, i.store.lastSnapshot = c.History, c.SnapshotBegan, c.SnapshotBegan
	i.state.last = c.LastSeen
	i.aggregated.Store(c.Aggregated)
}

// inherit gives those that begin and have no checkpoint one of their resource that no informer goes on from: the selection
// was changed. They begin where the scope that is furthest behind was left, so that no change of an object that both select is
// lost, and read all of their objects. others are such scopes beside the origins. The caller holds mu.
func (s *Set) inherit(begin []*running, others ...checkpoint.Scope) {
	for _, i := range begin {
		for _, c := range append(slices.Collect(maps.Values(s.origins)), others...) {
			if i.resume != nil && (!i.resume.inherited || i.resume.ResourceVersion <= c.ResourceVersion) ||
				c.Group != i.resource.Group || c.Resource != i.resource.Name {
				continue
			}
			i.resume, i.heir = &origin{Scope: c, inherited: true}, true
		}
	}
}

// mayBegin waits until scopes that the informer takes the place of have said farewell; false: ctx ended first.
func (r *running) mayBegin(ctx context.Context) bool {
	for _, c := range r.after {
		select {
		case <-c:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// farewell tells of a scope that the last run observed and this one does not: the objects that no scope observes any more
// have left.
type farewell struct {
	*informer // of the old scope
	from      checkpoint.Scope
	heirs     func() []*running // of the same resource, as it is observed now
	memory    Memory            // nil: nothing is remembered
	gone      uint64            // the resourceVersion at which the resource is not defined any more, 0: it is
	done      chan struct{}
}

// part finds scopes of the last run that are no longer selected although they are served, and has the informers that take
// their place wait for them. The caller holds mu.
func (s *Set) part(all []served, unknown []string, begin []*running) []*farewell {
	var out []*farewell
	for scope, c := range s.origins {
		r := &object.Resource{Group: c.Group, Version: c.Version, Name: c.Resource, Kind: c.Kind, Namespaced: c.Namespaced}
		current, ok := currentVersion(all, r)
		if !ok || !aliasesTold(unknown) || !told(unknown, c.Group) {
			continue // not served, or not known: it may come back
		}
		if s.o.Part != nil && s.foreign(&c) {
			s.o.Log.Info("a scope of the last run is observed by others now", "scope", scope)
			delete(s.origins, scope)
			if s.o.Memory != nil {
				s.o.Memory.Forget(scope)
			}
			continue
		}
		sel, err := s.sel.restored(current, scope, &c, s.o.Match)
		if err != nil {
			s.o.Log.Error("a scope of the last run cannot be told to have ended", "scope", scope, "err", err)
			continue
		}
		delete(s.origins, scope)
		f := &farewell{informer: s.newInformer(current, scope, sel, s.o.Lane(scope)), from: c, memory: s.o.Memory, done: make(chan struct{})}
		f.store.history = c.History
		f.heirs = func() []*running { return s.of(f.resource) }
		for _, i := range begin {
			if i.observesOf(f.resource) {
				i.after = append(i.after, f.done)
			}
		}
		out = append(out, f)
		s.farewells = append(s.farewells, f)
	}
	return out
}

// of are the informers of a resource.
func (s *Set) of(r *object.Resource) []*running {
	return slices.DeleteFunc(s.observing(), func(i *running) bool { return !i.observesOf(r) })
}

// observesOf tells that an informer is of a resource, in whatever version.
func (i *informer) observesOf(r *object.Resource) bool {
	return i.resource.Group == r.Group && i.resource.Name == r.Name
}

// currentVersion is the resource as it is served.
func currentVersion(all []served, r *object.Resource) (*object.Resource, bool) {
	for _, s := range all {
		if s.group == r.Group && s.name == r.Name {
			for v := range s.versions {
				if s.versions[v] == *r {
					return r, true
				}
			}
			return &s.versions[0], true
		}
	}
	return nil, false
}

// isName tells a namespace from a pattern.
func isName(pattern string) bool {
	for _, c := range pattern {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// run says farewell. What may pass it retries until ctx ends; then the next run says it.
func (f *farewell) run(ctx context.Context) {
	defer close(f.done)
	b := newBackoff()
	for {
		err := f.say(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		delay := b.next(err)
		f.failed(ctx, "list", err, delay)
		if !sleep(ctx, delay) {
			return
		}
	}
}

func (f *farewell) say(ctx context.Context) error {
	if f.gone != 0 {
		return f.sayGone(ctx)
	}
	s := f.store
	now, err := f.newest(ctx)
	// What leaves has to be later than all that was ever said of it.
	for ; err == nil && now == f.from.ResourceVersion; now, err = f.newest(ctx) {
		if !sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
	if err != nil {
		return err
	}
	told := false
	if now > f.from.ResourceVersion {
		if told, err = f.collect(ctx, now); err != nil {
			return err
		}
	} else { // etcd was restored
		s.history = f.from.History + 1
	}
	gap := &object.StreamEvent{
		Kind: object.Gap, Resource: f.resource, Scope: f.scope, History: s.history, From: f.from.ResourceVersion, To: now,
		Since: f.from.LastSeen, Reason: object.SelectionChanged,
	}
	s.metrics.gap(gap)
	if err := s.sendStream(ctx, gap); err != nil {
		return err
	}
	if f.hearing != nil {
		f.hearing.part(f.resource)
	}
	left := 0
	if told {
		if left, err = s.leave(ctx, now); err != nil {
			return err
		}
	} else if f.snapshots != SnapshotNever { // an empty snapshot: nothing of this scope is known any more
		snap := newSnapshot(f.scope, "", now, s.now())
		for _, kind := range []object.StreamKind{object.SnapshotStarted, object.SnapshotCompleted} {
			ev := snap.event(kind, f.resource)
			ev.History = s.history
			if err := s.sendStream(ctx, ev); err != nil {
				return err
			}
		}
	}
	if f.memory != nil {
		f.memory.Forget(f.scope)
	}
	s.metrics.objects.Set(0)
	s.metrics.heldBytes.Set(0)
	f.log.Info("a scope of the last run is no longer selected", "scope", f.scope, "left", left, "objects_known", told)
	return nil
}

// collect loads the objects that the scope had at its checkpoint and no other scope had then, or has now: of one that another
// scope has come to take, that scope says so, at a resourceVersion that is not above now. told is false where history does not
// go back so far, or may not be read.
func (f *farewell) collect(ctx context.Context, now uint64) (told bool, err error) {
	f.store.beginList(listResume)
	exactly := func(rv uint64) metav1.ListOptions {
		return metav1.ListOptions{ResourceVersion: object.FormatVersion(rv), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	}
	rv, err := f.pages(ctx, exactly(f.from.ResourceVersion), f.store.load)
	if err != nil || rv != f.from.ResourceVersion {
		return false, passing(err)
	}
	for _, heir := range f.heirs() {
		for _, at := range []uint64{f.from.ResourceVersion, now} {
			rv, err := heir.pages(ctx, exactly(at), func(o *object.Object, _ *object.Scanned) {
				f.store.mu.Lock()
				defer f.store.mu.Unlock()
				f.store.set(o.Ref.Key, entry{})
			})
			if err != nil || rv != at {
				return false, passing(err)
			}
		}
	}
	return true, nil
}

// passing is err where asking again may help.
func passing(err error) error {
	if err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsForbidden(err) || cannotTell(err) ||
		errors.Is(err, errRefused) {
		return nil
	}
	return err
}

// leave sends that every object of the store has left at resourceVersion rv, and waits until that is on the bus. Nobody else
// uses the store.
func (s *store) leave(ctx context.Context, rv uint64) (int, error) {
	all := newCount()
	for key, e := range s.objects {
		d := &object.Delta{
			Op: object.Left, Inferred: true, Ref: e.last.Ref, Before: e.last, ResourceVersion: rv, Previous: e.last.ResourceVersion,
			History: s.history, Observed: s.now().UnixNano(), Scope: s.scope, Acker: all.Add(struct{}{}),
		}
		s.metrics.count(d)
		if err := s.lane.Put(ctx, key, heldBytes(d), d); err != nil {
			return 0, err
		}
	}
	done := make(chan struct{})
	all.Seal(func() { close(done) })
	select {
	case <-done:
		return len(s.objects), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
