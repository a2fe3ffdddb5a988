package informers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

const (
	// blockedFor is how long an HTTP watch may stay unread before it is ended. The API server buffers an unread watch (of
	// Events without a bound), and a slow reader taxes every other watcher.
	blockedFor = 250 * time.Millisecond
	// watchTimeout is how long an HTTP watch lasts at least; up to twice that, so that a fleet of them spreads.
	watchTimeout = 5 * time.Minute
	// watchGrace is how much longer it may last until it is taken for dead.
	watchGrace = 30 * time.Second
	// watchEarly is how much earlier it may end and still have ended in time: clocks differ.
	watchEarly = 5 * time.Second
	// shortWatch is how long an HTTP watch must have lasted for the next one to be opened at once.
	shortWatch = time.Second
	// watchSilence is how long an HTTP watch may take to open; and, on a resource whose watches have sent bookmarks (one a
	// minute), how long it may say nothing. Without a word it also waits for a resourceVersion that does not exist yet.
	watchSilence = 150 * time.Second
	// freshTries is how many times an expired watch is tried again on a connection of its own: behind the same address may be
	// another API server, whose history goes back further.
	freshTries = 3
	// reopenAfter is how long a watch that was ended because it was blocked waits for room at most.
	reopenAfter = 5 * time.Second
)

var (
	// errBlocked ends an HTTP watch whose events nobody takes.
	errBlocked = errors.New("watch blocked by a full queue")
	// errEdition ends an HTTP watch behind which objects are stored in another version: nothing comes on it any more.
	errEdition = errors.New("the objects are stored in another version")
	// errRewound ends an HTTP watch on a history that is not the one which was followed so far.
	errRewound = errors.New("history went on elsewhere: etcd was restored")
)

// Watch implements cache.ListerWatcher; the reflector calls WatchWithContext.
func (i *informer) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return i.WatchWithContext(context.Background(), o)
}

// WatchWithContext returns a watch from o.ResourceVersion that outlives the HTTP watches beneath it. It never ends by
// itself but with a 410.
func (i *informer) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &liveWatch{
		informer: i, reader: i.newReader(), rv: o.ResourceVersion, witness: i.newest(), result: make(chan watch.Event), cancel: cancel,
		patience: time.NewTimer(0), edition: i.listedAs,
	}
	w.reader.lean = true
	if !i.readers.enter() {
		cancel()
		return nil, errEnded
	}
	go func() {
		defer i.readers.leave()
		w.run(ctx)
	}()
	return w, nil
}

// liveWatch implements watch.Interface over a succession of HTTP watches.
type liveWatch struct {
	informer *informer
	reader   *reader
	rv       string   // of the last event that the reflector took
	witness  *witness // of the last that it took, or that was listed; nil: none yet
	edition  uint32   // of the definition, when the last HTTP watch that told anything was opened, or the list begun
	doubtful bool     // the history behind the API server may be another one since

	probed        time.Time // when history was asked for last
	unanswered    time.Time // when that had no answer
	witnessHidden bool      // the API server does not tell of a single object

	// result is not buffered: that the reflector takes an event means that it is done with the one before.
	// It is never closed: the reflector would list again.
	result chan watch.Event
	cancel context.CancelFunc

	patience *time.Timer // reused by deliver
}

// Stop implements watch.Interface.
func (w *liveWatch) Stop() { w.cancel() }

// ResultChan implements watch.Interface.
func (w *liveWatch) ResultChan() <-chan watch.Event { return w.result }

// run follows one HTTP watch after the other until ctx ends or history is gone.
func (w *liveWatch) run(ctx context.Context) {
	i := w.informer
	b, soon := retry.New(), retry.New()
	i.clean.Store(0)
	expired := 0 // in a row
	for ctx.Err() == nil {
		fresh := expired > 0
		got, err := w.follow(ctx, fresh)
		long := got.lasted > shortWatch
		if got.objects > 0 || long {
			b = retry.New()
		}
		if got.objects > 0 || long && !apiserver.IsGone(err) {
			expired = 0
		}
		if ctx.Err() != nil {
			return
		}
		if fresh {
			i.metrics.expiredRetries.WithLabelValues(got.result(err)).Inc()
		}
		// An API server that has come back may have come back with another history. A watch on which nothing came may have
		// waited for a resourceVersion that its history has not reached.
		if !errors.Is(err, errBlocked) && (!got.whole || got.frames == 0) {
			w.doubtful = true
		}
		over := i.isOver(err)
		if !over {
			i.watchEnded(got.edition, err)
		}
		switch {
		case over:
			i.metrics.watches.WithLabelValues("closed").Inc()
			w.surface(ctx, &apierrors.NewResourceExpired("the resource is not defined any more").ErrStatus)
			return
		case errors.Is(err, errBlocked):
			i.metrics.watches.WithLabelValues("blocked").Inc()
			// Not for ever: a queue that others keep full has a share for this resource, but only for one who asks.
			wait, cancel := context.WithTimeout(ctx, reopenAfter)
			err := i.lane.Roomy(wait)
			cancel()
			if err != nil && wait.Err() == nil {
				return // the queue is closed
			}
			i.setBlocked(false)
		case errors.Is(err, errRewound), apiserver.IsGone(err) && time.Since(w.unanswered) >= probeEvery && w.rewound(ctx, true):
			i.metrics.watches.WithLabelValues("rewound").Inc()
			i.rewound.Store(true)
			w.surface(ctx, &apierrors.NewResourceExpired(errRewound.Error()).ErrStatus)
			return
		case apiserver.IsGone(err):
			i.metrics.watches.WithLabelValues("expired").Inc()
			// Behind a changed definition every API server has begun its history anew.
			if expired == freshTries || w.edition != i.edition.Load() {
				var status apierrors.APIStatus
				errors.As(err, &status)
				s := status.Status()
				w.surface(ctx, &s)
				return
			}
			if expired == 0 {
				soon = retry.New() // of its own: history goes on, and b may have grown in an outage
			}
			expired++
			if !soon.Wait(ctx, nil) {
				return
			}
		case errors.Is(err, errEdition):
			i.metrics.watches.WithLabelValues("closed").Inc()
		case errors.Is(err, apiserver.ErrSilent):
			i.metrics.watches.WithLabelValues("silent").Inc()
			i.log.Debug("a watch was silent for too long: it is opened again", "scope", i.scope, "rv", w.rv, "silent_for", watchSilence)
		case err == nil:
			i.metrics.watches.WithLabelValues("closed").Inc()
			// The server ends every watch now and then; one that does it all the time is not to be hammered.
			if !long && !b.Wait(ctx, nil) {
				return
			}
		default:
			i.metrics.watches.WithLabelValues("error").Inc()
			delay := b.Next(err)
			i.failed(ctx, "watch", err, delay)
			if !i.pause(ctx, delay) {
				return
			}
		}
	}
}

// surface has the reflector list again.
func (w *liveWatch) surface(ctx context.Context, s *metav1.Status) {
	w.send(ctx, watch.Event{Type: watch.Error, Object: s})
}

// followed is what came of one HTTP watch.
type followed struct {
	frames  int
	objects int           // frames that are no bookmarks
	lasted  time.Duration // since the server agreed to it
	whole   bool          // it ended when it was asked to
	edition uint32        // of the definition, when the server agreed to it
}

// result is what came of a watch on a connection of its own, for a metric's label.
func (f *followed) result(err error) string {
	switch {
	case f.frames > 0:
		return "found"
	case apiserver.IsGone(err):
		return "expired"
	case err == nil, f.lasted > shortWatch:
		return "found"
	default:
		return "failed"
	}
}

// follow opens one HTTP watch and hands its events on until it ends. A nil error: it ended cleanly. fresh: on a connection
// of its own.
func (w *liveWatch) follow(parent context.Context, fresh bool) (got followed, err error) {
	i := w.informer
	timeout := watchTimeout + rand.N(watchTimeout)
	seconds := int64(timeout.Seconds())
	// A server that is gone without a word does not keep to the timeout that it was asked for.
	ctx, cancel := context.WithTimeout(parent, timeout+watchGrace)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	i.ending.Store(&end)
	defer i.ending.Store(nil)
	silence := time.AfterFunc(watchSilence, func() { end(apiserver.ErrSilent) })
	defer silence.Stop()
	open := i.client.Watch
	if fresh {
		open = i.client.WatchAlone
	}
	body, err := open(ctx, i.resource, i.selection.Namespace, metav1.ListOptions{
		ResourceVersion: w.rv, LabelSelector: i.selection.LabelSelector, FieldSelector: i.selection.FieldSelector,
		AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	silence.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errEdition) {
			return got, errEdition
		}
		if cause := context.Cause(ctx); errors.Is(cause, apiserver.ErrSilent) {
			err = fmt.Errorf("open watch: %w for %v", cause, watchSilence)
		}
		return got, err
	}
	defer body.Close()
	opened := time.Now()
	got.edition = i.edition.Load()
	defer func() { got.lasted = time.Since(opened) }()
	i.state.heard(opened)
	i.recovered()
	if w.probeDue() && w.rewound(ctx, false) {
		return got, errRewound
	}
	waited := false // an object has waited for a probe
	frames := object.NewFrames(body, apiserver.MaxObject)
	for {
		if i.state.sendsBookmarks() {
			silence.Reset(watchSilence)
		}
		typ, raw, err := frames.Next()
		silence.Stop() // what follows may take its time
		switch {
		case errors.Is(context.Cause(ctx), apiserver.ErrSilent):
			return got, apiserver.ErrSilent
		case errors.Is(context.Cause(ctx), errEdition):
			return got, errEdition
		case errors.Is(err, io.EOF):
			got.whole = time.Since(opened) > timeout-watchEarly
			return got, nil
		case ctx.Err() != nil:
			return got, nil
		case err != nil:
			return got, fmt.Errorf("watch: %w", err)
		}
		i.state.heard(time.Now())
		switch watch.EventType(typ) {
		case watch.Added, watch.Modified, watch.Deleted:
			if !waited && w.rewound(ctx, true) {
				return got, errRewound
			}
			waited = true
		case watch.Bookmark:
			if w.probeDue() && w.rewound(ctx, false) {
				return got, errRewound
			}
		}
		ev, err := w.event(string(typ), raw)
		switch {
		case errors.Is(err, errExcluded):
			// It takes its place among the others: history up to there is none of the store's business.
			i.metrics.store.Excluded.Inc()
			ev.Type = watch.Bookmark
			got.objects++
		case err != nil:
			return got, err
		case ev.Type == watch.Bookmark:
			i.state.bookmarked()
		default:
			got.objects++
		}
		got.frames++
		w.edition = got.edition
		// An event that was read is delivered, however long that takes: the timeout is for a silent server.
		if err := w.deliver(parent, ev, body); err != nil {
			return got, err
		}
	}
}

// event makes a watch event of a frame. An ERROR frame is returned as the API error that it carries.
func (w *liveWatch) event(typ string, raw []byte) (watch.Event, error) {
	switch t := watch.EventType(typ); t {
	case watch.Added, watch.Modified, watch.Deleted:
		o, err := w.reader.read(raw, t != watch.Deleted)
		return watch.Event{Type: t, Object: o}, err
	case watch.Bookmark:
		var b metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &b); err != nil {
			return watch.Event{}, fmt.Errorf("bookmark: %w", err)
		}
		if rv, err := strconv.ParseUint(b.ResourceVersion, 10, 64); err != nil || rv == 0 {
			// Going on from there would be going on from anywhere.
			return watch.Event{}, fmt.Errorf("%w: a bookmark has the resourceVersion %q", apiserver.ErrUnsupported, b.ResourceVersion)
		}
		return watch.Event{Type: t, Object: &observed{rv: b.ResourceVersion, at: time.Now().UnixNano()}}, nil
	case watch.Error:
		var s metav1.Status
		if err := json.Unmarshal(raw, &s); err != nil {
			return watch.Event{}, fmt.Errorf("error frame: %w", err)
		}
		return watch.Event{}, &apierrors.StatusError{ErrStatus: s}
	default:
		return watch.Event{}, fmt.Errorf("watch: frame of unknown type %q", typ)
	}
}

// deliver hands an event to the reflector. If that takes longer than blockedFor, the HTTP watch is ended meanwhile and
// errBlocked returned once the event is taken: it is in the store then, so the next watch goes on behind it.
func (w *liveWatch) deliver(ctx context.Context, ev watch.Event, body io.Closer) error {
	i := w.informer
	select {
	case w.result <- ev:
		w.advance(ev)
		return nil
	default:
	}
	w.patience.Reset(blockedFor)
	select {
	case w.result <- ev:
		w.patience.Stop()
		w.advance(ev)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.patience.C:
	}
	body.Close()
	i.setBlocked(true)
	if !w.send(ctx, ev) {
		return context.Cause(ctx)
	}
	w.advance(ev)
	return errBlocked
}

// advance notes that the reflector has taken ev.
func (w *liveWatch) advance(ev watch.Event) {
	o, ok := ev.Object.(*observed)
	if !ok {
		return
	}
	w.rv = o.rv
	switch {
	case w.doubtful: // the one of the history before is kept until the doubt ends
	case ev.Type == watch.Added, ev.Type == watch.Modified:
		w.witness = &witness{object: o.object}
	case ev.Type == watch.Deleted && !w.informer.selection.HasServerSelector(): // else it may live on
		w.witness = &witness{object: o.object, gone: true}
	}
	w.informer.seen(time.Unix(0, o.at))
}

// send hands an event to the reflector, however long that takes; false: ctx ended first.
func (w *liveWatch) send(ctx context.Context, ev watch.Event) bool {
	select {
	case w.result <- ev:
		return true
	case <-ctx.Done():
		return false
	}
}

// setBlocked shows that the watch rests because the queue is full: it is not stale.
func (i *informer) setBlocked(blocked bool) {
	i.state.setBlocked(blocked, time.Now())
	v := 0.0
	if blocked {
		v = 1
	}
	i.metrics.blocked.Set(v)
}
