package informers

import (
	"context"
	"errors"
	"slices"
	"strings"
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

// unreadableFor is for how long a tombstone asks again for objects that are not served, or may not be read: a role that is rolled out with
// the configuration often takes the permission along with the resource.
const unreadableFor = time.Minute

// tombstone tells that a scope of the last run is not observed by this one: the objects that no scope observes any more have left.
type tombstone struct {
	*informer  // of the old scope
	from       checkpoint.Scope
	successors func() []*running // of the same resource, as it is observed now
	memory     Memory            // nil: nothing is remembered
	gone       uint64            // the resourceVersion at which the resource is not defined any more, 0: it is
	isGone     func() (at uint64, gone bool)
	elsewhere  func() []*running // of other resources of the same etcd; nil: that cannot be told
	patience   time.Duration     // see unreadableFor
	blind      bool              // the objects cannot be read any more
	done       chan struct{}
}

// tombstonesOf returns those of scopes of the last run that are no longer selected although they are served, and has the informers that take
// their place wait for them. The caller holds mu.
func (s *Set) tombstonesOf(begin []*running) (out []*tombstone) {
	all, unknown := s.served.all, s.served.unknown
	for scope, c := range s.active.origins {
		r := &object.Resource{Group: c.Group, Version: c.Version, Name: c.Resource, Kind: c.Kind, Namespaced: c.Namespaced}
		if s.active.drains[objectsOf(r)] != nil {
			continue // what observes it is not decided yet
		}
		current, ok := selection.Current(all, r)
		if !ok || !selection.AliasesKnown(unknown) || !selection.GroupKnown(unknown, c.Group) {
			continue // not served, or not known: it may come back
		}
		if s.foreign(&c) {
			s.o.Log.Info("a scope of the last run is observed by others now", "scope", scope)
			delete(s.active.origins, scope)
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
		t := s.newTombstone(&c, was)
		for _, i := range begin {
			if i.observesOf(t.resource) {
				i.after = append(i.after, t.done)
			}
		}
		out = append(out, t)
	}
	return out
}

// tombstonesOfGone returns those of scopes of the last run whose resource is not defined any more. The caller holds mu.
func (s *Set) tombstonesOfGone() (out []*tombstone) {
	for scope, c := range s.active.origins {
		r := &object.Resource{Group: c.Group, Version: c.Version, Name: c.Resource, Kind: c.Kind, Namespaced: c.Namespaced}
		if _, ok := selection.Current(s.served.all, r); ok || c.Aggregated || !selection.GroupKnown(s.served.unknown, c.Group) || s.active.drains[objectsOf(r)] != nil {
			continue // or it may come back
		}
		at, gone := s.extensions.DeletedAt(r, c.Definition)
		if !gone {
			s.logUnserved(scope)
			continue
		}
		t := s.newTombstone(&c, selection.Unreadable(r, scope, &c, s.o.Match))
		t.gone = at
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *tombstone) int { return strings.Compare(a.scope, b.scope) })
	return out
}

// logUnserved logs, once, that nothing is inferred from a resource of the last run that is not served. The caller holds mu.
func (s *Set) logUnserved(scope string) {
	if s.active.unserved[scope] {
		return
	}
	s.active.unserved[scope] = true
	s.o.Log.Warn("a resource of the last run is not served now, and not known to come from a deleted CustomResourceDefinition: "+
		"no deletion is inferred, and the scope resumes when the resource is served again", "scope", scope)
}

// newTombstone adds that of a scope to the set. c is where the scope was left, was what it observed. The caller holds mu.
func (s *Set) newTombstone(c *checkpoint.Scope, was selection.Scope) *tombstone {
	r, uid, scope := was.Resource, c.Definition, was.Name
	delete(s.active.origins, scope)
	t := &tombstone{
		informer: s.newInformer(&Spec{Scope: was, Lane: s.o.Lane(scope), Snapshots: s.o.Snapshot, History: c.History}), from: *c, memory: s.o.Memory, patience: s.limits.unreadable, done: make(chan struct{}),
		successors: func() []*running { return s.of(r) },
		isGone:     func() (uint64, bool) { return s.extensions.DeletedAt(r, uid) },
	}
	if inMainEtcd(r) && !c.Aggregated {
		t.elsewhere = func() []*running {
			return slices.DeleteFunc(s.observing(), func(o *running) bool { return !inMainEtcd(o.resource) || o.definition.IsAggregated() })
		}
	}
	retiring := checkpoint.Retiring{Since: time.Now().UTC().Truncate(time.Second)}
	if c.Retiring != nil {
		retiring = *c.Retiring
	}
	t.retiring.Store(&retiring)
	if s.o.Memory != nil {
		s.o.Memory.Track(scope, t.position)
	}
	t.state.to(PhaseRetiring)
	s.active.tombstones[scope] = t
	return t
}

// isRetired reports whether the tombstone of a scope is not on the bus yet. The caller holds mu.
func (s *Set) isRetired(scope string) bool {
	t := s.active.tombstones[scope]
	return t != nil && !t.isDone()
}

// tombstonesBefore returns the ends of the tombstones of a resource that are not on the bus yet. The caller holds mu.
func (s *Set) tombstonesBefore(r *object.Resource) (out []<-chan struct{}) {
	for _, t := range s.active.tombstones {
		if !t.isDone() && t.observesOf(r) {
			out = append(out, t.done)
		}
	}
	return out
}

// position is where the next run finds the scope, if it is not retired before.
func (t *tombstone) position() (checkpoint.Position, bool) {
	p := checkpoint.Position{Scope: t.from}
	p.Retiring = t.retiring.Load()
	return p, true
}

// isDone reports whether it has ended: the bus has all of it, or the set ends.
func (t *tombstone) isDone() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// begin has it remembered that what follows may be on the bus.
func (t *tombstone) begin(ctx context.Context) error {
	told := *t.retiring.Load()
	told.Told = true
	t.retiring.Store(&told)
	if t.memory == nil {
		return nil
	}
	return t.memory.Flush(ctx)
}

// end has the scope forgotten, unless the log was replaced since the replacement with the number log: a part of the tombstone may be on the
// old one. Then the error says so.
func (t *tombstone) end(log uint64) error {
	switch {
	case t.store.LogNumber() > log:
		return errSaidToOldLog
	case t.memory != nil:
		t.memory.Forget(t.scope)
	}
	return nil
}

// errSaidToOldLog is the error of a tombstone of which a part may be on a log that was replaced.
var errSaidToOldLog = errors.New("the log of the bus was replaced")

// inMainEtcd tells that a resource, if no other server serves it, is in the etcd that most are in: events may have one of their own.
func inMainEtcd(r *object.Resource) bool { return !discovery.IsBuiltIn(r.Group) || r.Name != "events" }

// run says tombstone. What may pass it retries until ctx ends; then the next run says it.
func (t *tombstone) run(ctx context.Context) {
	defer close(t.done)
	defer t.logRetiring().Stop()
	var since time.Time // the objects cannot be read; zero: they can
	_ = retry.Do(ctx, func() error {
		for {
			err := t.say(ctx)
			switch {
			case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
				since = time.Time{}
			case since.IsZero():
				since = time.Now()
			case time.Since(since) > t.patience:
				t.blind = true
			}
			if at, gone := t.isGone(); gone && apierrors.IsNotFound(err) {
				t.gone = at
			} else if !errors.Is(err, errSaidToOldLog) { // else it is said to the new one
				return err
			}
		}
	}, func(err error, delay time.Duration) bool {
		t.cannotSay(ctx, err, delay)
		return true
	})
}

// cannotSay is failed. That something may not be read which nobody selects any more is no news.
func (t *tombstone) cannotSay(ctx context.Context, err error, delay time.Duration) {
	if !apierrors.IsForbidden(err) {
		t.failed(ctx, "list", err, delay)
		return
	}
	t.noteError("list", err)
	t.state.fail(err, apiserver.Reason(err), time.Now(), func() {})
	t.progressed()
	t.log.Debug("not permitted to read a scope that is no longer selected, retrying", "scope", t.scope, "err", err, "retry_in", delay)
}

func (t *tombstone) say(ctx context.Context) error {
	if t.gone != 0 {
		return t.sayGone(ctx)
	}
	s := t.store
	log := s.LogNumber()
	now, err := t.newest(ctx)
	// What leaves has to be later than all that was ever said of it.
	for ; err == nil && now == t.from.ResourceVersion; now, err = t.newest(ctx) {
		if !retry.Sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
	if err != nil {
		return err
	}
	told := false
	switch {
	case now < t.from.ResourceVersion: // etcd was restored
		s.SetHistory(t.from.History + 1)
	// Consumers may know of objects that are gone since: only the sweep of a snapshot removes them.
	case s.LogNumber() > t.from.Log, t.from.Snapshot != nil && t.from.Snapshot.Namespace == "":
	case t.from.Where != "": // what was kept back is not told now
	case !t.blind:
		if told, err = t.collect(ctx, now); err != nil {
			return err
		}
	}
	gap := &object.StreamEvent{
		Kind: object.Gap, Resource: t.resource, Scope: t.scope, History: s.History(), From: t.from.ResourceVersion, To: now,
		Since: t.from.LastSeen, Reason: object.SelectionChanged,
	}
	if err := t.begin(ctx); err != nil {
		return err
	}
	if err := s.SendStream(ctx, gap); err != nil {
		return err
	}
	if t.hearing != nil {
		t.hearing.part(t.resource)
	}
	left := 0
	if told {
		if left, err = s.SendLeft(ctx, now); err != nil {
			return err
		}
	} else if err := t.sayNothingIsKnown(ctx, now); err != nil {
		return err
	}
	if err := t.end(log); err != nil {
		return err
	}
	s.Clear()
	t.log.Info("a scope of the last run is no longer selected", "scope", t.scope, "left", left, "objects_known", told)
	return nil
}

// sayNothingIsKnown sends an empty snapshot: nothing of this scope is known any more.
func (t *tombstone) sayNothingIsKnown(ctx context.Context, rv uint64) error {
	if t.spec.Snapshots == SnapshotNever {
		return nil
	}
	return t.store.SendEmptySnapshot(ctx, rv)
}

// collect loads the objects that the scope had at its checkpoint and no other scope had then, or has now: of one that another
// scope has come to take, that scope says so, at a resourceVersion that is not above now. told is false where history does not
// go back so far, or may not be read.
func (t *tombstone) collect(ctx context.Context, now uint64) (told bool, err error) {
	t.store.BeginList(store.AtCheckpoint)
	exactly := func(rv uint64) metav1.ListOptions {
		return metav1.ListOptions{ResourceVersion: object.FormatVersion(rv), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	}
	rv, err := t.pages(ctx, exactly(t.from.ResourceVersion), t.store.Load)
	if err != nil || rv != t.from.ResourceVersion {
		return false, passing(err)
	}
	for _, o := range t.successors() {
		versions := []uint64{t.from.ResourceVersion, now}
		if slices.Contains(o.after, (<-chan struct{})(t.done)) && o.resume == nil {
			versions = versions[1:] // it begins after this with what there is, and tells of nothing before
		}
		for _, at := range versions {
			rv, err := o.pagesBy(ctx, o.newReader(), &t.state, exactly(at), t.store.Remove)
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
func (t *tombstone) newest(ctx context.Context) (uint64, error) {
	rv, err := t.latest(ctx)
	if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return rv, err
	}
	others := t.successors()
	if t.blind && t.elsewhere != nil {
		others = append(others, t.elsewhere()...)
	}
	for _, r := range others {
		if rv, err := r.latest(ctx); err == nil {
			return rv, nil
		}
	}
	if t.blind && t.elsewhere == nil {
		return t.from.ResourceVersion + 1, nil
	}
	return 0, err
}

// sayGone says farewell to a scope whose resource is gone: nothing is known of what was in it, and nothing is there.
func (t *tombstone) sayGone(ctx context.Context) error {
	s := t.store
	log := s.LogNumber()
	t.gone = max(t.gone, t.from.ResourceVersion+1) // the scope may have come further than the definitions
	gap := &object.StreamEvent{
		Kind: object.Gap, Resource: t.resource, Scope: t.scope, History: s.History(), From: t.from.ResourceVersion, To: t.gone,
		Since: t.from.LastSeen, Reason: object.Expired,
	}
	if err := t.begin(ctx); err != nil {
		return err
	}
	if err := s.SendStream(ctx, gap); err != nil {
		return err
	}
	if err := t.sayNothingIsKnown(ctx, t.gone); err != nil {
		return err
	}
	if err := t.end(log); err != nil {
		return err
	}
	t.log.Info("the resource of a scope of the last run is not defined any more", "scope", t.scope, "rv", t.gone)
	return nil
}

// logRetiring logs, after a while, that the tombstone is not on the bus.
func (t *tombstone) logRetiring() *time.Timer {
	return time.AfterFunc(retiringSlow, func() {
		t.log.Warn("a scope is no longer selected, but the bus does not have yet that its objects left: this is retried, and again at each start",
			"scope", t.scope, "advice", "see why the bus does not take the records of this resource; to give the scope up, stop the agent and run 'kubecdc checkpoint forget'")
	})
}
