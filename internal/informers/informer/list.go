package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// oldList is the age of a list from which on the history after it may be gone. If the answer of the
// bus takes that long, the list is read again, to avoid a gap after it.
const oldList = 30 * time.Second

// unsupportedRetry is the delay before the list of a resource that cannot be captured is retried.
const unsupportedRetry = 5 * time.Minute

// errRestart means that another kind of list is required.
var errRestart = errors.New("list must be restarted")

// list loads the store until it succeeds, and returns the resourceVersion from which to watch. Its
// only error is the cause of ctx.
func (i *Informer) list(ctx context.Context) (uint64, error) {
	b, again := retry.New(), false
	for {
		began := i.formNow()
		rv, cause, err := i.load(ctx)
		if again {
			cause = "retry"
		}
		i.metrics.lists.WithLabelValues(cause).Inc()
		if err != nil {
			i.dropStarted()
			i.state.enterFrom(PhaseListing, PhaseWaiting)
		}
		if errors.Is(err, errRestart) {
			continue
		}
		if err == nil {
			if !i.broken {
				i.noteRecovered()
			}
			i.noteSeen(time.Now(), i.deps.Now())
			i.coverage.noteList(i.deps.Now())
			i.listing = listing{}
			began.rv = rv
			i.content.noteFirstList(began)
			return rv, nil
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		err = i.withFieldFix(err)
		again = true
		delay := b.Next(err)
		i.listing.noteFailure(err)
		switch {
		case errors.Is(err, apiserver.ErrTooMany):
			delay = max(delay, tooManyPause)
		case apierrors.IsForbidden(err):
			i.deps.Denied(ctx, i)
			delay = max(delay, time.Second)
		case apierrors.IsNotFound(err) && i.created != 0: // a new resource is served soon
		case errors.Is(err, apiserver.ErrUnsupported):
			// until the resource is served in another way, and its lists may be large
			delay = max(delay, unsupportedRetry)
		case apierrors.IsNotFound(err):
			delay = max(delay, time.Second)
		}
		i.noteFailed(ctx, "list", err, delay)
		if !i.pause(ctx, err, delay) {
			return 0, context.Cause(ctx)
		}
	}
}

// load reads one list of the required kind into the store, and announces it. cause is the reason,
// for the metric. After a failure, the next list begins from the start.
func (i *Informer) load(ctx context.Context) (rv uint64, cause string, err error) {
	reason := i.relist
	if reason == relistRewound {
		i.relist = relistExpired
		i.restart(object.Rewound)
	}
	i.generation.listed = i.generation.number.Load()
	if at, gone := i.decideRemoval(); gone {
		return 0, "gone", i.loadRemoved(ctx, at)
	}
	cause, load := "start", i.loadFresh
	switch {
	case i.resume == nil && i.created != 0:
		cause, load = "birth", i.loadCreated
	case i.store.View().Loaded:
		cause, load = reason.String(), i.loadAgain
	case i.resume != nil:
		cause, load = "resume", i.loadCheckpoint
	}
	rv, err = load(ctx)
	if err == nil {
		i.relist = relistExpired
	}
	return rv, cause, err
}

// restart gives up the known history.
func (i *Informer) restart(reason object.GapReason) {
	i.resume = nil
	i.coverage.noteChange()
	i.store.Restart(store.Loss{From: i.store.View().Reached, Since: i.lostSince(), Reason: reason})
}

// loadFresh reads the current objects if nothing is known about them.
func (i *Informer) loadFresh(ctx context.Context) (uint64, error) {
	rv, err := i.listFirst(ctx)
	if err != nil {
		return 0, err
	}
	listed := time.Now()
	now, err := i.askBus(ctx, rv)
	if err != nil {
		return 0, err
	}
	if time.Since(listed) > oldList {
		return 0, errRestart
	}
	i.noteMissedHistory(now)
	var notices []*store.Notice
	l := i.store.View().Loss
	to := rv
	if l != nil {
		if l.Reason != object.Rewound {
			// an aggregated API server may return a lower list in the same history: the position
			// stays
			to = max(rv, l.From)
		}
		notices = append(notices, i.store.Gap(to, nil))
		i.log.Warn("history was lost: publishing a gap and reading the objects again", "scope", i.name,
			"from_rv", l.From, "to_rv", to, "reason", l.Reason, "since", l.Since)
	}
	if i.spec.Snapshots == SnapshotNever {
		notices = append(notices, i.store.Adopt())
	} else { // if there is no gap, the snapshot itself says that versions may be missing
		notices = append(notices, i.store.NewSnapshot(to, l == nil))
	}
	i.store.EndList(to, notices...)
	return to, nil
}

// loadAgain reads the current objects and compares them with the last-known ones. It is used if the
// watch could not resume, or if only a comparison shows that history is the same. It returns the
// resourceVersion from which to watch.
func (i *Informer) loadAgain(ctx context.Context) (uint64, error) {
	l := store.Loss{
		From:            i.store.View().Reached,
		Since:           i.lostSince(),
		Reason:          object.Expired,
		SkipIfRecovered: i.isCustom(),
	}
	i.store.BeginList(store.Relist)
	rv, err := i.readList(ctx, i.newReader(), metav1.ListOptions{}, i.comparing())
	if err != nil {
		return 0, err
	}
	v := i.store.View()
	if v.Older || !i.IsAggregated() && (rv < l.From || v.WentBack) {
		i.restart(object.Rewound)
		return 0, errRestart
	}
	to := max(rv, l.From) // a lower list of an aggregated API server may be of the same history: the position stays
	watched := to
	if i.relist == relistExpired {
		watched = rv // no watch resumes at the position
	}
	isUnchanged := rv == l.From || v.Unchanged && (rv < l.From || i.relist.keepsHistory())
	if isUnchanged && v.Loss == nil {
		i.store.EndList(l.From)
		return min(watched, l.From), nil
	}
	i.announceRelist(l, to)
	return watched, nil
}

// announceRelist ends a Relist at to. The history from l to there is lost.
func (i *Informer) announceRelist(l store.Loss, to uint64) {
	i.coverage.noteChange()
	i.store.Lose(l)
	gap := i.store.Gap(to, i.recoverVersions)
	from := i.store.View().Loss.From // an earlier list, if its gap is not announced yet
	if from < i.replayed && i.spec.Snapshots != SnapshotNever {
		// The previous run may have sent versions after the checkpoint that neither end of the gap
		// shows, for example of an object that was created and deleted. Only the sweep of a
		// snapshot removes such an object.
		gap.Sweeps = true
	}
	i.store.EndList(to, gap)
}

// taking has functions for the objects of a list, and for their metadata, which these must not
// keep. If the list is streamed, an object may come again in a later version, or be dropped.
type taking struct {
	take, drop func(o *object.Object, m *object.Scanned)
}

// loading loads the objects of a list.
func (i *Informer) loading() taking { return taking{i.store.Load, i.store.Remove} }

// comparing compares the objects of a list with the last-known ones.
func (i *Informer) comparing() taking { return taking{i.store.Compare, i.store.Miss} }

// readList reads one list of the scope, and returns its resourceVersion, or the highest one of its
// objects if that is higher.
func (i *Informer) readList(ctx context.Context, r *reader, o metav1.ListOptions, to taking) (rv uint64, err error) {
	if i.relist == relistStalled {
		pass, err := i.deps.Lists.Turn(ctx)
		if err != nil {
			return 0, err
		}
		defer pass()
	}
	return i.readListAs(ctx, r, &i.listing, o, to)
}

// readListAs does what readList does, in the way of l. Any goroutine may call it.
func (i *Informer) readListAs(
	ctx context.Context, r *reader, l *listing, o metav1.ListOptions, to taking,
) (rv uint64, err error) {
	way := l.way
	if o.ResourceVersionMatch != "" {
		way = paged
	}
	if way == unpaged {
		pass, err := i.deps.Lists.Turn(ctx)
		if err != nil {
			return 0, err
		}
		defer pass()
	}
	rv, highest, err := i.listInSlot(ctx, r, to, func(p *listTaker) (uint64, error) {
		o.LabelSelector, o.FieldSelector = i.selection.LabelSelector, i.selection.FieldSelector
		return i.requestList(ctx, l, way, o, p)
	})
	if err == nil && highest > rv {
		i.state.noteLowLists(rv, highest)
		rv = highest
	}
	return rv, err
}

// listTaker has functions that a list calls: for its objects, and at the limits of its pages.
type listTaker struct {
	asks func()                                      // before a page is requested
	each func(typ watch.EventType, raw []byte) error // for each object
	page func(*object.ListMeta) error                // after a page
}

// takeListed takes an object of a list that has each object once.
func (t *listTaker) takeListed(raw []byte) error { return t.each(watch.Added, raw) }

// listInSlot makes a list in a slot, and returns its resourceVersion, and the highest one of its
// objects.
func (i *Informer) listInSlot(
	ctx context.Context, r *reader, to taking, list func(*listTaker) (uint64, error),
) (rv, highest uint64, err error) {
	slot, err := i.deps.Lists.Acquire(ctx, i.resource.Group)
	if err != nil {
		return 0, 0, err
	}
	defer func() { slot.Release(err == nil) }()
	of := r.state
	of.enterFrom(PhaseWaiting, PhaseListing)
	r.lean = true
	var loaded int
	asks := func() {
		slot.Sent()
		of.noteWaiting(time.Now(), false)
	}
	each := func(typ watch.EventType, raw []byte) error {
		slot.Answered()
		of.noteWaiting(time.Now(), true)
		o, err := r.read(raw, false)
		highest = max(highest, o.rv)
		switch {
		case err != nil || o.object == nil:
		case typ == watch.Deleted, typ == watch.Modified && o.outside:
			to.drop(o.object, r.scanned)
		case !o.outside:
			to.take(o.object, r.scanned)
			loaded++
		}
		return err
	}
	page := func(meta *object.ListMeta) error {
		expects := 0
		if meta.RemainingItemCount > 0 {
			expects = loaded + int(meta.RemainingItemCount)
		}
		of.noteAnswer(time.Now(), expects)
		if meta.Continue != "" {
			asks()
		}
		return nil
	}
	asks()
	rv, err = list(&listTaker{asks, each, page})
	return rv, highest, err
}

// requestList makes the requests of a list. It returns errRestart if the API server does not stream
// lists.
func (i *Informer) requestList(
	ctx context.Context, l *listing, way wayOfListing, o metav1.ListOptions, p *listTaker,
) (rv uint64, err error) {
	client, namespace := i.deps.Client, i.selection.Namespace
	switch way {
	case paged:
		return client.Pages(ctx, i.resource, namespace, apiserver.JSON, o, p.takeListed, p.page)
	case unpaged:
		return client.Unpaged(ctx, i.resource, namespace, apiserver.JSON, o, i.deps.MaxUnpaged, p.takeListed)
	case streamed:
	}
	err = apiserver.ErrNotStreamed
	if !client.IsMissing(apiserver.InitialEvents, i.server()) {
		rv, err = client.Streamed(ctx, i.resource, namespace, o, p.each)
		i.noteMissing(err)
	}
	isRefused := errors.Is(err, apiserver.ErrNotStreamed) || errors.Is(err, apiserver.ErrCut)
	if isRefused && ctx.Err() == nil {
		i.log.Debug("a list is not streamed: it is made without pages", "scope", i.name, "err", err)
		l.way = unpaged
		return 0, errRestart
	}
	return rv, err
}

// wayOfListing is the kind of request that reads a list.
type wayOfListing uint8

const (
	paged    wayOfListing = iota
	streamed              // as the initial events of a watch
	unpaged               // in one response
)

const (
	// expiredLists is how many lists must end because the API server no longer has the next page,
	// until one is made in another way.
	expiredLists = 3
	// tooManyPause is the least pause after a list without pages that has too many objects.
	tooManyPause = time.Minute
)

// listing decides how the next list is read. The zero value is that of the first one.
type listing struct {
	way     wayOfListing
	expired int // lists in a row that have expired
	cut     int // first lists in a row that a watch has not completed
}

// noteFailure notes the error of a list. After several expired ones, the next list is streamed.
func (l *listing) noteFailure(err error) {
	switch {
	case errors.Is(err, apiserver.ErrTooMany):
		*l = listing{}
	case l.way == paged && apiserver.Reason(err) == apiserver.ReasonExpired:
		l.expired++
		if l.expired == expiredLists {
			l.way = streamed
		}
	}
}

// withFieldFix adds to an error how to fix it, if the API server does not know the field that
// selects the agent's part.
func (i *Informer) withFieldFix(err error) error {
	if !i.spec.Shared || !apiserver.SelectableFields.IsMissing(err) {
		return err
	}
	return fmt.Errorf(
		"%w: the API server cannot select it by %s: make that a selectable field of its definition, or watch it in mode cluster or central: %w",
		apiserver.ErrUnsupported, i.selection.FieldSelector, err)
}

// loadCreated reads a new resource, which had no objects before i.created.
func (i *Informer) loadCreated(ctx context.Context) (uint64, error) {
	from := i.created
	// The bus may have events of an earlier resource with that name, and its history number.
	if _, err := i.askBus(ctx, from); err != nil {
		return 0, err
	}
	if h := i.lastEvent; h != nil {
		i.store.RaiseHistory(h.History)
		i.lastEvent = nil
	}
	if !i.store.View().Loaded {
		i.state.unlisted.Store(true) // the absence of objects is not a list
		i.store.BeginList(store.AtCheckpoint)
		if i.spec.Snapshots == SnapshotNever {
			i.store.EndList(from)
		} else {
			i.store.EndList(from, i.store.NewSnapshot(from, false))
		}
	}
	i.store.BeginList(store.Relist)
	rv, err := i.readList(ctx, i.newReader(), metav1.ListOptions{}, i.comparing())
	if err != nil {
		return 0, err
	}
	i.state.unlisted.Store(false)
	i.created = 0
	if rv < from || i.store.View().WentBack {
		// Etcd was restored, or there were objects before: read the resource like any other.
		reason := object.Expired
		if rv < from {
			reason = object.Rewound
		}
		i.restart(reason)
		return 0, errRestart
	}
	if rv == from && i.store.View().Loss == nil {
		i.store.EndList(rv)
	} else {
		i.coverage.noteChange()
		i.store.Lose(store.Loss{
			From:            from,
			Since:           i.createdAt,
			Reason:          object.Expired,
			SkipIfRecovered: true,
		})
		i.store.EndList(rv, i.store.Gap(rv, i.recoverVersions))
	}
	return rv, nil
}
