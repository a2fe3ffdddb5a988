package informer

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// RetiringSlow is the time after which a log line says that a scope cannot be drained, or retired.
const RetiringSlow = 10 * time.Second

// UnreadableFor is how long a tombstone retries to read objects that are not served, or not
// permitted. A new role, applied together with the configuration, often removes the permission
// along with the resource.
const UnreadableFor = time.Minute

// Tombstone ends a scope of the last run that this run does not observe. Without it, consumers
// would keep the objects of the scope forever. Objects that another scope observes now must not
// leave:
//
//  1. It reads the objects at the stored position, without those of the successors
//     (loadLeft).
//  2. It sends a gap, left events for the rest, and scope.ended. If the objects are not known, an
//     empty snapshot makes consumers delete them (send).
//  3. Informers of the same resource begin when Released is closed. Their reads follow the left
//     events in the order of history.
//  4. The stored position is dropped at the end. A run that ends before repeats the tombstone.
//
// If etcd has no later resourceVersion yet, scope.ended precedes the left events (sendLater).
type Tombstone struct {
	*Informer                         // Informer of the old scope. Its origin is the position in the last run.
	Forget         func()             // drops the stored position; nil: none is stored
	ReplacedBy     func() []string    // names of the scopes that have its objects now
	Successors     func() []Successor // Informers of the same resource
	OtherResources func() []*Informer // Informers of other resources of the same etcd; nil if they are not known
	DeletedAt      func() (at uint64, deleted bool)
	Gone           uint64        // resourceVersion at which the resource is no longer defined; 0 if it is
	UnreadableFor  time.Duration // how long it retries to read: the constant UnreadableFor, less in tests

	released chan struct{} // closed when successors may begin
	resumed  chan struct{} // capacity 1: the scope is selected again
	waits    atomic.Bool   // it waits for a later resourceVersion

	ended      atomic.Pointer[checkpoint.Ended] // set once the bus has all left events
	unreadable bool                             // the objects can no longer be read
	// the last resourceVersion is below the position, and does not prove that etcd was restored
	unproven bool
}

// Successor is an Informer that observes the resource of a Tombstone.
type Successor struct {
	*Informer
	Waits bool // it starts after the Tombstone has released it
}

// Released returns a channel that is closed when other scopes may begin that can have the objects.
// Usually the Tombstone ends then. An informer of the same scope must wait for Done.
func (t *Tombstone) Released() <-chan struct{} { return t.released }

// IsReleased reports whether Released is closed: the bus has the end of the scope.
func (t *Tombstone) IsReleased() bool {
	select {
	case <-t.released:
		return true
	default:
		return false
	}
}

// SelectAgain makes a Tombstone end that waits for a later resourceVersion: its scope is selected
// again.
func (t *Tombstone) SelectAgain() { broadcast.Wake(t.resumed) }

// Retire marks the scope as no longer selected. It must be called before Run.
func (t *Tombstone) Retire() {
	t.released, t.resumed = make(chan struct{}), make(chan struct{}, 1)
	t.retiring.Store(cmp.Or(t.resume.Retiring, retiringSince(time.Now())))
	t.state.enter(PhaseRetiring)
}

const (
	// idleFor is how long a Tombstone waits for a later resourceVersion before successors begin.
	// The etcd of a cluster has one every ten seconds, because of the leases of its API servers.
	idleFor = 15 * time.Second
	// laterEvery is the longest time between two questions for a later resourceVersion.
	laterEvery = time.Minute
)

// errSentToOldLog means that a part of a tombstone may be on a log that was replaced.
var errSentToOldLog = errors.New("the log of the bus was replaced")

// Run sends the tombstone. It retries after temporary errors until ctx ends; then the next run
// sends it.
func (t *Tombstone) Run(ctx context.Context) {
	defer close(t.done)
	defer t.release()
	slow := time.AfterFunc(RetiringSlow, func() {
		if t.waits.Load() {
			return
		}
		t.log.Warn(
			"a scope is no longer selected, but the bus has not acknowledged its left events yet: retrying, also after each start",
			"scope", t.name, "advice",
			"check why the bus rejects the records of this resource; to give the scope up, stop the agent and run 'kubecdc checkpoint forget'")
	})
	defer slow.Stop()
	var since time.Time // time since which the objects cannot be read; zero if they can
	_ = retry.Do(ctx, func() error {
		for {
			err := t.send(ctx)
			switch {
			case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
				since = time.Time{}
			case since.IsZero():
				since = time.Now()
			case time.Since(since) > t.UnreadableFor:
				t.unreadable = true
			}
			if at, gone := t.DeletedAt(); gone && apierrors.IsNotFound(err) {
				t.Gone = at
			} else if !errors.Is(err, errSentToOldLog) { // else it is sent again, to the new log
				return err
			}
		}
	}, func(err error, delay time.Duration) bool {
		t.noteFailed(ctx, "list", err, delay)
		return true
	})
}

// send sends the tombstone: a gap, followed by the objects that left, or by an empty snapshot if
// they are not known. If the resource is no longer defined, nothing is known about its objects.
func (t *Tombstone) send(ctx context.Context) (err error) {
	s := t.store
	log := s.LogNumber()
	reason := object.Expired
	known := false
	// the position of the scope may be later than that of the definitions
	now := max(t.Gone, t.resume.ResourceVersion+1)
	if t.Gone == 0 {
		reason = object.SelectionChanged
		now, err = t.awaitNewest(ctx)
		if err != nil {
			return err
		}
		known, err = t.loadLeft(ctx, now)
		if err != nil {
			return err
		}
	}
	t.ended.Store(nil) // it is sent to another log again
	begun := *t.retiring.Load()
	begun.Announced = true // the following events may be on the bus
	t.retiring.Store(&begun)
	if err := t.deps.Save(ctx); err != nil {
		return err
	}
	if err := s.SendStream(ctx, &object.StreamEvent{
		Kind:     object.Gap,
		Resource: t.resource,
		Scope:    t.name,
		History:  s.View().History,
		From:     t.resume.ResourceVersion,
		To:       now,
		Since:    t.Store().Past(t.resume.LastSeen),
		Reason:   reason,
	}); err != nil {
		return err
	}
	if t.Gone == 0 && t.lastEvents != nil {
		t.lastEvents.AddTombstone(t.resource)
	}
	if !known {
		if err := t.sweep(ctx, now); err != nil {
			return err
		}
	}
	switch {
	case now == t.resume.ResourceVersion && s.View().Objects > 0:
		now, err = t.sendLater(ctx)
	default:
		err = t.sendEnd(ctx, now, log)
	}
	if err != nil {
		return err
	}
	if t.Forget != nil {
		t.Forget()
	}
	t.log.Info("a scope of the previous run has ended", "scope", t.name, "reason", reason, "rv", now, "left",
		s.View().Objects, "objects_known", known)
	s.Clear()
	return nil
}

// sweep makes consumers delete all objects of the scope, because nobody knows those that left.
func (t *Tombstone) sweep(ctx context.Context, now uint64) error {
	t.store.Clear() // it may have a part of them
	if t.spec.Snapshots == SnapshotNever {
		return nil
	}
	return t.store.SendEmptySnapshot(ctx, now)
}

// sendEnd sends the objects that left, and scope.ended, to the log of this number.
func (t *Tombstone) sendEnd(ctx context.Context, now, log uint64) error {
	s, end := t.store, t.endEvent(now)
	isSameLog := func() bool { return s.LogNumber() == log }
	err := s.SendLeft(ctx, now, func() {
		if isSameLog() {
			t.ended.Store(&checkpoint.Ended{Reason: string(end.End), Successors: end.Successors})
		}
	})
	if err == nil && t.ended.Load() != nil {
		err = s.SendStream(ctx, end)
	}
	if err == nil && !isSameLog() {
		return errSentToOldLog
	}
	return err
}

// Position returns the position of the scope, or of its end.
func (t *Tombstone) Position() (checkpoint.Position, bool) {
	p, ok := t.Informer.Position()
	p.Ended = t.ended.Load()
	if p.Ended != nil {
		p.Retiring = nil
	}
	return p, ok
}

// endEvent returns the end of the scope, whose objects have left at resourceVersion now.
func (t *Tombstone) endEvent(now uint64) *object.StreamEvent {
	ev := &object.StreamEvent{
		Kind:            object.ScopeEnded,
		Resource:        t.resource,
		Scope:           t.name,
		History:         t.store.View().History,
		ResourceVersion: now,
		End:             object.Deselected,
	}
	if t.Gone != 0 {
		ev.End = object.Removed
		return ev
	}
	ev.Successors = t.ReplacedBy()
	if len(ev.Successors) > 0 {
		ev.End = object.Replaced
	}
	return ev
}

// sendLater sends the left events if no resourceVersion is later than the position yet. An idle
// etcd of its own may not have one for long. Until then the objects are as they were, so the scope
// has ended, and its successors begin. sendLater returns the resourceVersion at which the objects
// left. The only error is the cause of ctx.
func (t *Tombstone) sendLater(ctx context.Context) (uint64, error) {
	s, position := t.store, t.resume.ResourceVersion
	if err := s.SendStream(ctx, t.endEvent(position)); err != nil {
		return 0, err
	}
	t.release()
	t.log.Info(
		"a scope is no longer selected, and its etcd has no later resourceVersion: its left events are sent when there is one",
		"scope", t.name, "rv", position, "left", s.View().Objects)
	now, err := t.awaitLater(ctx)
	switch {
	case err != nil:
		return 0, err
	case now == position: // it is selected again
		return now, t.sweep(ctx, now)
	}
	for {
		log := s.LogNumber()
		err := s.SendLeft(ctx, now, func() {})
		if err != nil || s.LogNumber() == log {
			return now, err
		}
	}
}

// awaitLater waits until there is a later resourceVersion than the position, and removes the
// objects that other scopes have then. It returns the version at which the objects left, or the
// position if the scope is selected again. The only error is the cause of ctx.
func (t *Tombstone) awaitLater(ctx context.Context) (now uint64, err error) {
	position := t.resume.ResourceVersion
	wait := time.Second
	err = retry.Do(ctx, func() error {
		for {
			t.waits.Store(true)
			again := t.sleepUnlessSelected(ctx, wait)
			t.waits.Store(false)
			wait = min(2*wait, laterEvery)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if again {
				now = position
				return nil
			}
			now, err = t.askNewest(ctx)
			if err != nil {
				return err
			}
			if t.judgeLatest(now, position) == another { // etcd was restored
				t.store.RaiseHistory(t.resume.History + 1)
				return t.removeInSuccessors(ctx, now)
			}
			if now <= position {
				continue
			}
			if err = t.removeInSuccessors(ctx, position+1); err == nil {
				now = position + 1 // the next version, which precedes all later changes
				return nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return t.removeInSuccessors(ctx, now) // it may be compacted
		}
	}, func(err error, delay time.Duration) bool {
		t.noteFailed(ctx, "list", err, delay)
		return true
	})
	return now, err
}

// sleepUnlessSelected waits for d. It returns true at once if the scope is selected again.
func (t *Tombstone) sleepUnlessSelected(ctx context.Context, d time.Duration) (again bool) {
	select {
	case <-t.resumed:
		return true
	case <-time.After(d):
	case <-ctx.Done():
	}
	return false
}

// removeInSuccessors removes the objects that other scopes have at resourceVersion now.
func (t *Tombstone) removeInSuccessors(ctx context.Context, now uint64) error {
	for _, o := range t.Successors() {
		err := t.removeIn(ctx, &o, now)
		if err != nil {
			return err
		}
	}
	return nil
}

// errNotAtVersion means that a list has another resourceVersion than the one asked for.
var errNotAtVersion = errors.New("the list is of another resourceVersion")

// removeIn removes the objects that another scope has at a resourceVersion.
func (t *Tombstone) removeIn(ctx context.Context, o *Successor, at uint64) error {
	r := o.newReader()
	r.state = &t.state
	rv, err := o.readList(ctx, r, metav1.ListOptions{
		ResourceVersion: object.FormatVersion(at), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}, taking{t.store.Remove, t.store.Remove})
	if err == nil && rv != at {
		err = errNotAtVersion
	}
	return err
}

// release lets successors begin, if they wait.
func (t *Tombstone) release() {
	if !t.IsReleased() {
		close(t.released)
	}
}

// awaitNewest waits until the last resourceVersion differs from the scope's position: a left event
// must be later than all events of the scope. After idleFor it returns the position. If the last
// one is lower, and that proves nothing, it returns the one after the position.
func (t *Tombstone) awaitNewest(ctx context.Context) (uint64, error) {
	until := time.Now().Add(idleFor)
	t.waits.Store(true)
	defer t.waits.Store(false)
	for {
		now, err := t.askNewest(ctx)
		switch {
		case err != nil:
			return 0, err
		case t.judgeLatest(now, t.resume.ResourceVersion) == uncertain:
			t.unproven = true
			return t.resume.ResourceVersion + 1, nil
		case now != t.resume.ResourceVersion, !time.Now().Before(until):
			return now, nil
		}
		if pause.For(ctx, time.Second) != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// loadLeft loads the objects that left at resourceVersion now. It returns false if nobody can know
// them.
func (t *Tombstone) loadLeft(ctx context.Context, now uint64) (known bool, err error) {
	switch c := t.resume; {
	case t.judgeLatest(now, c.ResourceVersion) == another: // etcd was restored
		t.store.RaiseHistory(c.History + 1)
	// Consumers may still have objects that no longer exist: only the sweep of a snapshot removes
	// them.
	case t.store.LogNumber() > c.Log, c.Sweep, c.Snapshot != nil && c.Snapshot.Namespace == "":
	case c.Where != "", t.unreadable, t.unproven: // withheld objects must not be sent now
	default:
		return t.collectLeft(ctx, now)
	}
	return false, nil
}

// collectLeft loads the objects that the scope had at its checkpoint, except those that another
// scope had then or has now. If another scope takes an object by now, that scope sends it, at a
// resourceVersion not above now. known is false if history does not go back so far, may not be
// read, or is another one.
func (t *Tombstone) collectLeft(ctx context.Context, now uint64) (known bool, err error) {
	lost, err := t.listCheckpoint(ctx)
	if lost == object.Rewound {
		t.store.RaiseHistory(t.resume.History + 1)
	}
	if err != nil || lost != "" {
		return false, retryable(err)
	}
	for _, o := range t.Successors() {
		versions := []uint64{t.resume.ResourceVersion, now}
		if o.Waits && o.resume == nil {
			versions = versions[1:] // it starts later with the current objects, and has sent nothing before
		}
		for _, at := range versions {
			err := t.removeIn(ctx, &o, at)
			if err != nil {
				if errors.Is(err, errNotAtVersion) {
					err = nil
				}
				return false, retryable(err)
			}
		}
	}
	return true, nil
}

// retryable returns err if a retry may help, else nil.
func retryable(err error) error {
	if apiserver.IsPermanent(err) && !apierrors.IsNotFound(err) { // it may be served again
		return nil
	}
	return err
}

// askNewest returns the last resourceVersion, even if only successors, in other namespaces, may
// read it. If nobody can read the objects any more, it asks for other resources of the same etcd,
// or assumes the version after the last known one.
func (t *Tombstone) askNewest(ctx context.Context) (uint64, error) {
	rv, err := t.Latest(ctx)
	if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return rv, err
	}
	var others []*Informer
	for _, o := range t.Successors() {
		others = append(others, o.Informer)
	}
	if t.unreadable && t.OtherResources != nil {
		others = append(others, t.OtherResources()...)
	}
	for _, r := range others {
		if rv, err := r.Latest(ctx); err == nil {
			return rv, nil
		}
	}
	if t.unreadable && t.OtherResources == nil {
		return t.resume.ResourceVersion + 1, nil
	}
	return 0, err
}
