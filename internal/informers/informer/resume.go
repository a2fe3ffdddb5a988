package informer

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// loadCheckpoint rebuilds the last-known objects as they were at the checkpoint. They have been
// sent, up to the cursor of a snapshot. The watch resumes there. If that is not possible,
// loadCheckpoint returns errRestart.
func (i *Informer) loadCheckpoint(ctx context.Context) (uint64, error) {
	c := i.resume
	if !c.Inherited {
		i.store.Resume(&c.Scope)
	}
	if c.Rewound {
		return 0, i.giveUpCheckpoint(ctx, c.ResourceVersion, object.Rewound)
	}
	// If the resourceVersion is in the future, only a list without one distinguishes a lagging API
	// server from a restored etcd.
	i.state.noteWaiting(time.Now(), false)
	now, err := i.Latest(ctx)
	if err != nil {
		return 0, err
	}
	i.state.noteAnswer(time.Now(), 0)
	latest := i.judgeLatest(now, c.ResourceVersion)
	if latest == another {
		return 0, i.giveUpCheckpoint(ctx, now, object.Rewound)
	}
	list := i.listCheckpoint
	if latest == uncertain {
		list = i.listPresent
	}
	lost, err := list(ctx)
	if err != nil {
		return 0, err
	}
	now, err = i.askBus(ctx, now)
	if err != nil {
		return 0, err
	}
	if lost != "" || i.isBusAhead(now) {
		return 0, i.giveUpCheckpoint(ctx, now, cmp.Or(lost, object.Rewound))
	}
	isRefuted, err := i.compareWithBus(ctx, now)
	switch {
	case err != nil:
		return 0, err
	case isRefuted:
		return 0, i.giveUpCheckpoint(ctx, now, object.Rewound)
	}
	if !c.Continued && !i.isUnknownToBus() { // otherwise the bus has no later event
		i.store.AwaitReplay(now)
	}
	i.store.EndList(c.ResourceVersion, i.announceCheckpoint(c, now)...)
	i.resume = nil
	i.resumed = c
	i.replayed = now
	i.created = 0 // the store has what was before it
	i.state.resumed.Store(true)
	i.log.Debug("resumed", "scope", i.name, "rv", c.ResourceVersion, "last_seen", c.LastSeen)
	return c.ResourceVersion, nil
}

// listPresent lists the present objects, because the present list of an aggregated API server is
// below the checkpoint. If they are those of the checkpoint, nothing has happened since. Otherwise
// lost is the reason why history cannot be followed.
func (i *Informer) listPresent(ctx context.Context) (lost object.GapReason, err error) {
	_, matches, err := i.listToResume(ctx, metav1.ListOptions{})
	if err == nil && (i.resume.Inherited || !matches) {
		return object.Expired, nil
	}
	return "", err
}

// listToResume loads a list, and reports whether its objects are those of the checkpoint.
func (i *Informer) listToResume(ctx context.Context, o metav1.ListOptions) (rv uint64, matches bool, err error) {
	i.store.BeginList(store.AtCheckpoint)
	r := i.newReader()
	if i.spec.OwnNames != nil {
		r.own = map[string]store.Fingerprint{}
	}
	rv, err = i.readList(ctx, r, o, i.loading())
	if err != nil {
		return rv, false, err
	}
	match := i.store.Matches(&i.resume.Scope, r.own)
	i.otherForms = match == store.OtherForms
	return rv, match != store.MatchesNot, nil
}

// listCheckpoint lists the objects as they were at the checkpoint. If that is not possible, lost is
// the reason, else "".
func (i *Informer) listCheckpoint(ctx context.Context) (lost object.GapReason, err error) {
	c := i.resume
	rv, matches, err := i.listToResume(ctx, metav1.ListOptions{
		ResourceVersion:      object.FormatVersion(c.ResourceVersion),
		ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return object.Compacted, nil
	case apiserver.ExactLists.IsMissing(err), err == nil && rv != c.ResourceVersion:
		// the server does not support Exact
		return object.Expired, nil
	case err == nil && (c.Rewound || !c.Inherited && !matches):
		return object.Rewound, nil
	default:
		return "", err
	}
}

// announceCheckpoint returns the notices that precede the changes since the checkpoint. now is the
// last known resourceVersion.
func (i *Informer) announceCheckpoint(c *Origin, now uint64) []*store.Notice {
	rv := c.ResourceVersion
	if c.Lost == nil && c.isOf(i.resource) && i.hasOtherForms(c) {
		return i.announceForms(c, now)
	}
	notices := i.snapshotAfterResume(c)
	reason := object.ContentChanged
	switch {
	case c.Lost != nil:
		i.store.Lose(*c.Lost)
		return append([]*store.Notice{i.store.Gap(rv, nil)}, notices...)
	case !c.isOf(i.resource):
		// The same objects have another form: the next before differs from the last after.
		i.generation.number.Add(1)
		reason = object.SelectionChanged
	case !c.Inherited && c.Content != "" && c.Content != i.selection.Content():
	default:
		return notices
	}
	i.store.Lose(store.Loss{From: rv, Since: c.LastSeen, Reason: reason})
	recovered := i.store.Gap(rv, func(context.Context, uint64) (complete, recovered bool, err error) {
		return false, true, nil
	})
	return append([]*store.Notice{recovered}, notices...)
}

// hasOtherForms reports whether the API server serves the objects of the checkpoint in another
// form, under the same rules.
func (i *Informer) hasOtherForms(c *Origin) bool {
	return i.otherForms && !c.Inherited && c.Content == i.selection.Content()
}

// isOf reports whether the origin is of the version and kind of a resource.
func (o *Origin) isOf(r *object.Resource) bool { return o.Version == r.Version && o.Kind == r.Kind }

// announceForms returns the notices that the API server serves the objects of the checkpoint in
// another form. If the last run has begun a snapshot, another one replaces it.
func (i *Informer) announceForms(c *Origin, now uint64) []*store.Notice {
	i.log.Warn(
		"since the last run, the API server serves known versions with other contents: publishing a gap and reading the objects again",
		"scope", i.name, "since", c.LastSeen)
	notices := []*store.Notice{
		i.store.FormsChanged(c.Forms, store.Loss{From: c.ResourceVersion, Since: c.LastSeen}, now),
	}
	switch {
	case i.spec.Snapshots == SnapshotNever:
	case !c.Continued && i.isUnknownToBus():
		notices = append(notices, i.store.NewSnapshot(c.ResourceVersion, false))
	default: // the bus may have later events
		i.store.RequireSnapshot()
	}
	return notices
}

// snapshotAfterResume returns the snapshot to send right after resuming from a checkpoint, nil if
// there is none. Or it makes a snapshot follow the replay.
func (i *Informer) snapshotAfterResume(c *Origin) []*store.Notice {
	switch {
	case i.spec.Snapshots == SnapshotNever:
		return nil
	case c.Inherited, !c.Continued && i.isUnknownToBus():
		return []*store.Notice{i.store.NewSnapshot(c.ResourceVersion, false)}
	case c.Sweep, c.Where != i.store.Where(), !c.Continued && i.spec.Snapshots == SnapshotAlways,
		c.Snapshot.MayBeGivenUp():
		i.store.RequireSnapshot()
		return nil
	case c.Snapshot == nil:
		return nil
	}
	scope := i.name
	if c.Snapshot.Namespace != "" {
		scope = i.selection.NameIn(c.Snapshot.Namespace)
	}
	return []*store.Notice{i.store.ResumeSnapshot(scope, &c.Scope)}
}

// lostSince returns the time of the last sign of life before history was lost.
func (i *Informer) lostSince() time.Time {
	if c := i.resumed; c != nil && c.ResourceVersion == i.store.View().Reached {
		return c.LastSeen
	}
	return i.LastSeen()
}

// isBusAhead reports whether the bus has events of a history that the API server lacks. now is the
// last resourceVersion. Then etcd was restored, and the checkpoint with it.
func (i *Informer) isBusAhead(now uint64) bool {
	h := i.lastEvent
	return h != nil && (h.History > i.resume.History || i.judgeLatest(now, h.ResourceVersion) == another)
}

// compareWithBus reports whether the newest event of an object on the bus is of a history that the
// API server does not have. now is the last resourceVersion. If the previous run sent that event
// after its last save, and etcd was restored to a point in between, the checkpoint does not show
// it.
func (i *Informer) compareWithBus(ctx context.Context, now uint64) (refuted bool, err error) {
	if i.lastEvent == nil || i.lastEvent.Object == nil {
		return false, nil
	}
	o := i.lastEvent.Object
	if o.History != i.resume.History || o.ResourceVersion <= i.resume.ResourceVersion {
		return false, nil
	}
	switch i.judgeLatest(now, o.ResourceVersion) {
	case another:
		return true, nil
	case uncertain:
		return false, nil
	case same, likely:
	}
	ref := object.NewRef(i.resource, o.Namespace, o.Name, o.UID)
	isSame, known, err := i.inHistory(ctx, ref, o.ResourceVersion, o.Gone, func(there *backfill.Answer) bool {
		return there.Object.Ref.UID == o.UID && there.Object.ResourceVersion == o.ResourceVersion &&
			wasChangedBy(there.Managers, o.ChangedBy)
	})
	return known && !isSame, err
}

// wasChangedBy reports whether the managedFields of a version have all entries of an event's
// changedBy. The times differ between two histories that assign one resourceVersion to the same
// object.
func wasChangedBy(managers *object.Scanned, changedBy []byte) bool {
	type change struct {
		Manager, Operation string
		Time               time.Time
	}
	var want, have []change
	if changedBy == nil || managers == nil || json.Unmarshal(changedBy, &want) != nil {
		return true // nothing is known about them
	}
	if all := managers.AppendChangedBy(nil, 0); json.Unmarshal(all, &have) != nil {
		return true
	}
	for _, c := range want {
		if !slices.ContainsFunc(have, func(h change) bool {
			return h.Manager == c.Manager && h.Operation == c.Operation && h.Time.Equal(c.Time)
		}) {
			return false
		}
	}
	return true
}

// giveUpCheckpoint drops the checkpoint, and starts over with a fresh list.
func (i *Informer) giveUpCheckpoint(ctx context.Context, now uint64, reason object.GapReason) error {
	now, err := i.askBus(ctx, now) // the bus may have a higher history number
	if err != nil {
		return err
	}
	if i.isBusAhead(now) {
		reason = object.Rewound // whatever the other reason is
	}
	if h := i.lastEvent; h != nil {
		known := h.History
		if reason == object.Rewound && h.Scope != i.name && known > 0 {
			known-- // another scope has announced this restore: this one gets the same number
		}
		i.store.RaiseHistory(known)
	}
	i.coverage.noteChange()
	c := i.resume
	i.resume = nil
	l := store.Loss{From: c.ResourceVersion, Since: c.LastSeen, Reason: reason}
	if c.Lost != nil { // the changes before it are not known either
		l.From, l.Unrecoverable = c.Lost.From, true
	}
	if h := i.lastEvent; reason == object.Rewound && h != nil && h.ResourceVersion > l.From {
		l.From, l.Since = h.ResourceVersion, h.At // the checkpoint is as old as the copy of etcd
	}
	i.store.Restart(l)
	return errRestart
}

// isUnknownToBus reports whether the bus was asked, and has nothing of the scope.
func (i *Informer) isUnknownToBus() bool {
	return i.asked && i.lastEvent == nil && i.lastEvents.isComplete()
}

// askBus asks the bus, once, for the last events of the resource. now is the last known
// resourceVersion. An agent of another part of the resource may send a later event between the two
// questions. So the result is at least that of the events, unless etcd was restored.
func (i *Informer) askBus(ctx context.Context, now uint64) (uint64, error) {
	if i.lastEvents == nil {
		return now, nil
	}
	if !i.asked {
		h, ok, err := i.lastEvents.Of(ctx, i.resource, i.name)
		if err != nil {
			return 0, err
		}
		i.asked = true
		if ok {
			i.lastEvent = &h
		}
	}
	if i.lastEvent == nil || i.lastEvent.newest() <= now {
		return now, nil
	}
	return i.Latest(ctx)
}

// noteMissedHistory compares now, the last resourceVersion, with the last event on the bus. Without
// a checkpoint, or with one that was restored with etcd, only the bus shows that there was more.
func (i *Informer) noteMissedHistory(now uint64) {
	h := i.lastEvent
	i.lastEvent = nil // once
	if h == nil || i.store.View().Loss != nil {
		return
	}
	i.store.RaiseHistory(h.History)
	switch l := (store.Loss{From: h.ResourceVersion, Since: h.At, Unrecoverable: true}); {
	case i.judgeLatest(now, h.ResourceVersion) == another:
		l.Reason = object.Rewound
		i.store.Lose(l)
	case h.Scope == i.name || !i.spec.Remembered && !i.spec.Shared:
		// the bus has only the event of the last scope, and there may be others
		l.Reason = object.CheckpointLost
		if i.lastEvents.hadTombstone(i.resource) && !h.Recalled { // nothing was lost: it was not selected for a while
			l.Reason = object.SelectionChanged
		}
		i.store.Lose(l)
	}
}
