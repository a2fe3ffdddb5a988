package informers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// blockedFor is how long an HTTP watch may stay unread before it is ended. The API server buffers an unread watch (of
	// Events without a bound), and a slow reader taxes every other watcher.
	blockedFor = 250 * time.Millisecond
	// watchTimeout is how long an HTTP watch lasts at least; up to twice that, so that a fleet of them spreads.
	watchTimeout = 5 * time.Minute
	// watchGrace is how much longer it may last until it is taken for dead.
	watchGrace = 30 * time.Second
	// shortWatch is how long an HTTP watch must have lasted for the next one to be opened at once.
	shortWatch = time.Second
	// reopenAfter is how long a watch that was ended because it was blocked waits for room at most.
	reopenAfter = 5 * time.Second
)

// errBlocked ends an HTTP watch whose events nobody takes.
var errBlocked = errors.New("watch blocked by a full queue")

// Watch implements cache.ListerWatcher; the reflector calls WatchWithContext.
func (i *informer) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return i.WatchWithContext(context.Background(), o)
}

// WatchWithContext returns a watch from o.ResourceVersion that outlives the HTTP watches beneath it. It never ends by
// itself but with a 410.
func (i *informer) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &liveWatch{
		informer: i, reader: i.newReader(), rv: o.ResourceVersion, result: make(chan watch.Event), cancel: cancel,
		patience: time.NewTimer(0),
	}
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
	rv       string // of the last event that the reflector took

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
	b := newBackoff()
	for ctx.Err() == nil {
		got, err := w.follow(ctx)
		long := got.lasted > shortWatch
		if got.objects > 0 || long {
			b = newBackoff()
		}
		var status apierrors.APIStatus
		switch {
		case ctx.Err() != nil:
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
		case errors.As(err, &status) && status.Status().Code == http.StatusGone:
			i.metrics.watches.WithLabelValues("expired").Inc()
			s := status.Status()
			w.send(ctx, watch.Event{Type: watch.Error, Object: &s})
			return
		case err == nil:
			i.metrics.watches.WithLabelValues("closed").Inc()
			// The server ends every watch now and then; one that does it all the time is not to be hammered.
			if !long && !b.wait(ctx, nil) {
				return
			}
		default:
			i.metrics.watches.WithLabelValues("error").Inc()
			delay := b.next(err)
			i.failed(ctx, "watch", err, delay)
			if !sleep(ctx, delay) {
				return
			}
		}
	}
}

// followed is what came of one HTTP watch.
type followed struct {
	objects int           // events that are no bookmarks
	lasted  time.Duration // since the server agreed to it
}

// follow opens one HTTP watch and hands its events on until it ends. A nil error: it ended cleanly.
func (w *liveWatch) follow(parent context.Context) (got followed, err error) {
	i := w.informer
	timeout := watchTimeout + rand.N(watchTimeout)
	seconds := int64(timeout.Seconds())
	// A server that is gone without a word does not keep to the timeout that it was asked for.
	ctx, cancel := context.WithTimeout(parent, timeout+watchGrace)
	defer cancel()
	body, err := i.client.watch(ctx, i.resource, i.namespace, metav1.ListOptions{
		ResourceVersion: w.rv, LabelSelector: i.labels, FieldSelector: i.fields,
		AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return got, err
	}
	defer body.Close()
	opened := time.Now()
	defer func() { got.lasted = time.Since(opened) }()
	i.recovered()
	frames := object.NewFrames(body, maxObject)
	for {
		typ, raw, err := frames.Next()
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return got, nil
		}
		if err != nil {
			return got, fmt.Errorf("watch: %w", err)
		}
		ev, err := w.event(string(typ), raw)
		if errors.Is(err, errExcluded) {
			i.metrics.skippedNamespace.Inc()
			w.advance(ev)
			got.objects++
			continue
		}
		if err != nil {
			return got, err
		}
		// An event that was read is delivered, however long that takes: the timeout is for a silent server.
		if err := w.deliver(parent, ev, body); err != nil {
			return got, err
		}
		if ev.Type != watch.Bookmark {
			got.objects++
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
			return watch.Event{}, fmt.Errorf("%w: a bookmark has the resourceVersion %q", errRefused, b.ResourceVersion)
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

// advance notes that history up to ev is in the store, or none of its business.
func (w *liveWatch) advance(ev watch.Event) {
	o, ok := ev.Object.(*observed)
	if !ok {
		return
	}
	w.rv = o.rv
	if rv, err := strconv.ParseUint(o.rv, 10, 64); err == nil {
		w.informer.delivered.Store(rv)
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
	i.state.setBlocked(blocked)
	v := 0.0
	if blocked {
		v = 1
	}
	i.metrics.blocked.Set(v)
}
