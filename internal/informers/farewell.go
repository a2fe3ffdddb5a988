package informers

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/store"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// farewellPatience is for how long a farewell asks again for what is not served, or may not be read: a role that is rolled out with
// the configuration often takes the permission along with the resource.
const farewellPatience = time.Minute

// farewell tells of a scope that the last run observed and this one does not: the objects that no scope observes any more
// have left.
type farewell struct {
	*informer // of the old scope
	from      checkpoint.Scope
	heirs     func() []*running // of the same resource, as it is observed now
	memory    Memory            // nil: nothing is remembered
	gone      uint64            // the resourceVersion at which the resource is not defined any more, 0: it is
	isGone    func() (at uint64, gone bool)
	elsewhere func() []*running // of other resources of the same etcd; nil: that cannot be told
	patience  time.Duration     // see farewellPatience
	blind     bool              // the objects cannot be read any more
	done      chan struct{}
}

// part finds scopes of the last run that are no longer selected although they are served, and has the informers that take
// their place wait for them. The caller holds mu.
func (s *Set) part(all []selection.APIResource, unknown []string, begin []*running) []*farewell {
	var out []*farewell
	for scope, c := range s.origins {
		r := &object.Resource{Group: c.Group, Version: c.Version, Name: c.Resource, Kind: c.Kind, Namespaced: c.Namespaced}
		if s.drains[objectsOf(r)] != nil {
			continue // what observes it is not decided yet
		}
		current, ok := selection.Current(all, r)
		if !ok || !selection.AliasesKnown(unknown) || !selection.GroupKnown(unknown, c.Group) {
			continue // not served, or not known: it may come back
		}
		if s.foreign(&c) {
			s.o.Log.Info("a scope of the last run is observed by others now", "scope", scope)
			delete(s.origins, scope)
			if s.o.Memory != nil {
				s.o.Memory.Forget(scope)
			}
			continue
		}
		was, err := s.sel.FromCheckpoint(current, scope, &c, s.o.Match)
		if err != nil {
			s.o.Log.Error("a scope of the last run cannot be told to have ended", "scope", scope, "err", err)
			continue
		}
		delete(s.origins, scope)
		f := s.farewellOf(&c, was)
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

// farewellOf is that to a scope, as c left it. was is what it observed.
func (s *Set) farewellOf(c *checkpoint.Scope, was selection.Scope) *farewell {
	r, uid, scope := was.Resource, c.Definition, was.Name
	f := &farewell{
		informer: s.newInformer(was, s.o.Lane(scope)), from: *c, memory: s.o.Memory, patience: s.patience, done: make(chan struct{}),
		heirs:  func() []*running { return s.of(r) },
		isGone: func() (uint64, bool) { return s.extensions.DeletedAt(r, uid) },
	}
	if inMainEtcd(r) && !c.Aggregated {
		f.elsewhere = func() []*running {
			return slices.DeleteFunc(s.observing(), func(o *running) bool { return !inMainEtcd(o.resource) || o.isAggregated() })
		}
	}
	f.store.SetHistory(c.History)
	retiring := checkpoint.Retiring{Since: time.Now().UTC().Truncate(time.Second)}
	if c.Retiring != nil {
		retiring = *c.Retiring
	}
	f.retiring.Store(&retiring)
	if s.o.Memory != nil {
		s.o.Memory.Track(scope, f.position)
	}
	return f
}

// position is where the next run finds the scope, if it is not retired before.
func (f *farewell) position() (checkpoint.Position, bool) {
	p := checkpoint.Position{Scope: f.from}
	p.Retiring = f.retiring.Load()
	return p, true
}

// isSaid reports whether it has ended: the bus has all of it, or the set ends.
func (f *farewell) isSaid() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// begin has it remembered that what follows may be on the bus.
func (f *farewell) begin(ctx context.Context) error {
	told := *f.retiring.Load()
	told.Told = true
	f.retiring.Store(&told)
	if f.memory == nil {
		return nil
	}
	return f.memory.Flush(ctx)
}

// end has the scope forgotten, unless the log was replaced since the replacement with the number log: a part of the farewell may be on the
// old one. Then the error says so.
func (f *farewell) end(log uint64) error {
	switch {
	case f.store.LogReplaced(log):
		return errSaidToOldLog
	case f.memory != nil:
		f.memory.Forget(f.scope)
	}
	return nil
}

// errSaidToOldLog is the error of a farewell of which a part may be on a log that was replaced.
var errSaidToOldLog = errors.New("the log of the bus was replaced")

// inMainEtcd tells that a resource, if no other server serves it, is in the etcd that most are in: events may have one of their own.
func inMainEtcd(r *object.Resource) bool { return !discovery.IsBuiltIn(r.Group) || r.Name != "events" }

// run says farewell. What may pass it retries until ctx ends; then the next run says it.
func (f *farewell) run(ctx context.Context) {
	defer close(f.done)
	defer f.sayRetiring().Stop()
	var since time.Time // the objects cannot be read; zero: they can
	_ = retry.Do(ctx, func() error {
		for {
			err := f.say(ctx)
			switch {
			case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
				since = time.Time{}
			case since.IsZero():
				since = time.Now()
			case time.Since(since) > f.patience:
				f.blind = true
			}
			if at, gone := f.isGone(); gone && apierrors.IsNotFound(err) {
				f.gone = at
			} else if !errors.Is(err, errSaidToOldLog) { // else it is said to the new one
				return err
			}
		}
	}, func(err error, delay time.Duration) bool {
		f.cannotSay(ctx, err, delay)
		return true
	})
}

// cannotSay is failed. That something may not be read which nobody selects any more is no news.
func (f *farewell) cannotSay(ctx context.Context, err error, delay time.Duration) {
	if !apierrors.IsForbidden(err) {
		f.failed(ctx, "list", err, delay)
		return
	}
	f.noteError("list", err)
	f.state.fail(err, apiserver.Reason(err), time.Now(), func() {})
	f.progressed()
	f.log.Debug("not permitted to read a scope that is no longer selected, retrying", "scope", f.scope, "err", err, "retry_in", delay)
}

func (f *farewell) say(ctx context.Context) error {
	if f.gone != 0 {
		return f.sayGone(ctx)
	}
	s := f.store
	log := s.LogNumber()
	now, err := f.newest(ctx)
	// What leaves has to be later than all that was ever said of it.
	for ; err == nil && now == f.from.ResourceVersion; now, err = f.newest(ctx) {
		if !retry.Sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
	if err != nil {
		return err
	}
	told := false
	switch {
	case now < f.from.ResourceVersion: // etcd was restored
		s.SetHistory(f.from.History + 1)
	// Consumers may know of objects that are gone since: only the sweep of a snapshot removes them.
	case s.LogReplaced(f.from.Log), f.from.Snapshot != nil && f.from.Snapshot.Namespace == "":
	case f.from.Where != "": // what was kept back is not told now
	case !f.blind:
		if told, err = f.collect(ctx, now); err != nil {
			return err
		}
	}
	gap := &object.StreamEvent{
		Kind: object.Gap, Resource: f.resource, Scope: f.scope, History: s.History(), From: f.from.ResourceVersion, To: now,
		Since: f.from.LastSeen, Reason: object.SelectionChanged,
	}
	if err := f.begin(ctx); err != nil {
		return err
	}
	if err := s.SendStream(ctx, gap); err != nil {
		return err
	}
	if f.hearing != nil {
		f.hearing.part(f.resource)
	}
	left := 0
	if told {
		if left, err = s.SendLeft(ctx, now); err != nil {
			return err
		}
	} else if err := f.sayNothingIsKnown(ctx, now); err != nil {
		return err
	}
	if err := f.end(log); err != nil {
		return err
	}
	s.Clear()
	f.log.Info("a scope of the last run is no longer selected", "scope", f.scope, "left", left, "objects_known", told)
	return nil
}

// sayNothingIsKnown sends an empty snapshot: nothing of this scope is known any more.
func (f *farewell) sayNothingIsKnown(ctx context.Context, rv uint64) error {
	if f.snapshots == SnapshotNever {
		return nil
	}
	return f.store.SendEmptySnapshot(ctx, rv)
}

// collect loads the objects that the scope had at its checkpoint and no other scope had then, or has now: of one that another
// scope has come to take, that scope says so, at a resourceVersion that is not above now. told is false where history does not
// go back so far, or may not be read.
func (f *farewell) collect(ctx context.Context, now uint64) (told bool, err error) {
	f.store.BeginList(store.AtCheckpoint)
	exactly := func(rv uint64) metav1.ListOptions {
		return metav1.ListOptions{ResourceVersion: object.FormatVersion(rv), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	}
	rv, err := f.pages(ctx, exactly(f.from.ResourceVersion), f.store.Load)
	if err != nil || rv != f.from.ResourceVersion {
		return false, passing(err)
	}
	for _, heir := range f.heirs() {
		versions := []uint64{f.from.ResourceVersion, now}
		if slices.Contains(heir.after, (<-chan struct{})(f.done)) && heir.resume == nil {
			versions = versions[1:] // it begins after this with what there is, and tells of nothing before
		}
		for _, at := range versions {
			rv, err := heir.pagesBy(ctx, heir.newReader(), &f.state, exactly(at), f.store.Remove)
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
		errors.Is(err, apiserver.ErrUnsupported) {
		return nil
	}
	return err
}

// newest is the last resourceVersion, also where only heirs may ask for it: they are in other namespaces. Where the objects cannot be
// read any more, other resources tell it, or it is taken for the one behind the last that is known.
func (f *farewell) newest(ctx context.Context) (uint64, error) {
	rv, err := f.latest(ctx)
	if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return rv, err
	}
	others := f.heirs()
	if f.blind && f.elsewhere != nil {
		others = append(others, f.elsewhere()...)
	}
	for _, r := range others {
		if rv, err := r.latest(ctx); err == nil {
			return rv, nil
		}
	}
	if f.blind && f.elsewhere == nil {
		return f.from.ResourceVersion + 1, nil
	}
	return 0, err
}
