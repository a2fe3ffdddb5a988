package scope

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// blockedFor is how long an HTTP watch may stay unread before it is ended. The API server buffers an unread watch (of
	// Events without a bound), and a slow reader taxes every other watcher.
	blockedFor = 250 * time.Millisecond
	// watchEarly is how much earlier it may end and still have ended in time: clocks differ.
	watchEarly = 5 * time.Second

	// batchEvents and batchBytes (of JSON) bound a batch: a read buffer may hold thousands of small frames.
	batchEvents = 64
	batchBytes  = 64 << 10
)

// errBlocked ends an HTTP watch whose events the queue does not take.
var errBlocked = errors.New("watch blocked by a full queue")

// batch is the events that lay in the read buffer: at least one.
type batch struct {
	events    []store.Event // an object that is not captured has become a bookmark
	objects   int           // frames that are no bookmarks
	bookmarks int
	read      time.Time
}

// stream reads one HTTP watch in a goroutine of its own, and hands its events to the informer's owner.
//
// A batch is filled while the owner applies the one before: there are two, used in turn. The channel is not buffered, so when the owner
// takes a batch, it is done with the one before.
type stream struct {
	informer *Informer
	reader   *reader
	ctx      context.Context //nolint:containedctx // of the HTTP watch, which has a timeout
	owner    context.Context //nolint:containedctx // ends when the owner takes no more batches
	stop     context.CancelFunc
	end      context.CancelCauseFunc // ends the HTTP watch
	timeout  time.Duration
	silence  *time.Timer // runs while an answer or a frame is awaited; ends the HTTP watch
	body     io.ReadCloser
	frames   *object.Frames
	opened   time.Time
	done     sync.WaitGroup

	batches  chan *batch  // closed by the reader when the HTTP watch has ended, and all of its events are delivered
	applying atomic.Int64 // since when the owner has been applying one event, in nanoseconds after opened; 0: it is not

	// Of the reader, until it has closed batches.
	whole bool
	err   error
}

// newStream prepares an HTTP watch that the API server is asked to end after timeout. The caller closes it.
func newStream(ctx context.Context, i *Informer, r *reader, timeout time.Duration) *stream {
	s := &stream{informer: i, reader: r, timeout: timeout, batches: make(chan *batch)}
	s.owner, s.stop = context.WithCancel(ctx)
	s.ctx, s.end = context.WithCancelCause(s.owner)
	s.silence = time.AfterFunc(apiserver.Silence, func() { s.end(apiserver.ErrSilent) })
	return s
}

// close ends the HTTP watch and the reader.
func (s *stream) close() {
	s.silence.Stop()
	s.stop()
	s.done.Wait()
	if s.body != nil {
		s.body.Close()
	}
	s.end(nil)
}

// open opens the HTTP watch. fresh: on a connection of its own.
func (s *stream) open(rv uint64, fresh bool) error {
	i := s.informer
	seconds := int64(s.timeout.Seconds())
	open := i.deps.Client.Watch
	if fresh {
		open = i.deps.Client.WatchAlone
	}
	body, err := open(s.ctx, i.resource, i.selection.Namespace, metav1.ListOptions{
		ResourceVersion: object.FormatVersion(rv), LabelSelector: i.selection.LabelSelector, FieldSelector: i.selection.FieldSelector,
		AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	s.silence.Stop()
	switch cause := context.Cause(s.ctx); {
	case err == nil:
	case errors.Is(cause, errGeneration):
		return errGeneration
	case errors.Is(cause, apiserver.ErrSilent):
		return fmt.Errorf("open watch: %w for %v", cause, apiserver.Silence)
	default:
		return err
	}
	s.body, s.opened = body, time.Now()
	s.frames = object.NewFrames(body, apiserver.MaxObject)
	return nil
}

// start starts the reader.
func (s *stream) start() {
	s.done.Go(func() {
		defer close(s.batches)
		// A server that is gone silently does not end the watch at the requested timeout.
		dead := time.AfterFunc(s.timeout+apiserver.WatchGrace-time.Since(s.opened), func() { s.end(nil) })
		defer dead.Stop()
		s.err = s.read()
	})
}

// read reads until the HTTP watch ends, and delivers all of its events. A nil error: it ended cleanly.
func (s *stream) read() error {
	var turns [2]batch
	patience := time.NewTimer(blockedFor)
	patience.Stop()
	for n := 0; ; n++ {
		b := &turns[n%2]
		err := s.fill(b)
		if len(b.events) > 0 {
			// An event that was read is delivered, however long that takes.
			if err := s.deliver(b, patience); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			s.whole = s.ctx.Err() == nil && time.Since(s.opened) > s.timeout-watchEarly
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// fill waits for a frame, and reads it and all others in the read buffer. If it returns an error, b has the events before it. The error is
// io.EOF if the HTTP watch has ended.
func (s *stream) fill(b *batch) error {
	*b = batch{events: b.events[:0]}
	s.reader.newBatch()
	if s.informer.state.sendsBookmarks() {
		s.silence.Reset(apiserver.Silence)
	}
	for bytes := 0; ; {
		typ, raw, err := s.frames.Next()
		if len(b.events) == 0 {
			s.silence.Stop()
			b.read = time.Now()
		}
		if err := s.ended(err); err != nil {
			return err
		}
		if len(b.events) == 0 {
			s.informer.state.answered(b.read)
		}
		if err := s.add(b, watch.EventType(typ), raw); err != nil {
			return err
		}
		bytes += len(raw)
		if len(b.events) == batchEvents || bytes >= batchBytes || !s.frames.Ready() {
			return nil
		}
	}
}

// ended returns why the HTTP watch has ended, err being the read error. nil: it has not.
func (s *stream) ended(err error) error {
	cause := context.Cause(s.ctx)
	switch {
	case errors.Is(cause, apiserver.ErrSilent):
		return apiserver.ErrSilent
	case errors.Is(cause, errGeneration):
		return errGeneration
	case err == nil, errors.Is(err, io.EOF):
		return err
	case cause != nil:
		return io.EOF
	default:
		return fmt.Errorf("watch: %w", err)
	}
}

// add appends the event of a frame. An ERROR frame is returned as the API error that it carries.
func (s *stream) add(b *batch, typ watch.EventType, raw []byte) error {
	switch typ {
	case watch.Added, watch.Modified, watch.Deleted:
		o, err := s.reader.read(raw, typ != watch.Deleted)
		if errors.Is(err, errExcluded) {
			s.informer.metrics.store.Excluded.Inc()
			typ, err = watch.Bookmark, nil
		}
		if err != nil {
			return err
		}
		b.events = append(b.events, store.Event{
			Type: typ, Version: o.rv, Object: o.object, Outside: o.outside, ChangedBy: o.changedBy, Observed: b.read.UnixNano(),
		})
		b.objects++
		return nil
	case watch.Bookmark:
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &m); err != nil {
			return fmt.Errorf("bookmark: %w", err)
		}
		rv, err := strconv.ParseUint(m.ResourceVersion, 10, 64)
		if err != nil || rv == 0 {
			// No watch can resume from there.
			return fmt.Errorf("%w: a bookmark has the resourceVersion %q", apiserver.ErrUnsupported, m.ResourceVersion)
		}
		s.informer.state.bookmarked()
		b.events = append(b.events, store.Event{Type: typ, Version: rv})
		b.bookmarks++
		return nil
	case watch.Error:
		return apiserver.FrameError(raw)
	default:
		return fmt.Errorf("watch: frame of unknown type %q", typ)
	}
}

// deliver hands a batch to the owner. If the owner cannot take it because the store has held one event for blockedFor, the HTTP watch
// is ended meanwhile, and errBlocked returned once the batch is taken: the next watch begins after it.
func (s *stream) deliver(b *batch, patience *time.Timer) error {
	select {
	case s.batches <- b:
		return nil
	default:
	}
	for left := blockedFor; left > 0; {
		patience.Reset(left)
		select {
		case s.batches <- b:
			patience.Stop()
			return nil
		case <-s.owner.Done():
			return context.Cause(s.owner)
		case <-patience.C:
		}
		left = blockedFor
		if since := s.applying.Load(); since != 0 {
			left -= time.Since(s.opened) - time.Duration(since)
		}
	}
	s.body.Close()
	s.informer.setBlocked(true)
	select {
	case s.batches <- b:
		return errBlocked
	case <-s.owner.Done():
		return context.Cause(s.owner)
	}
}
