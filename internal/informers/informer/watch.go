package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// blockedFor is how long an HTTP watch may stay unread before it is ended. The API server
	// buffers an unread watch (of Events without a bound), and a slow reader delays every other
	// watcher.
	blockedFor = 250 * time.Millisecond
	// batchEvents and batchBytes (of JSON) bound a batch: a read buffer may hold thousands of small
	// frames.
	batchEvents = 64
	batchBytes  = 64 << 10
	// markedWatch is the least time after which the API server is to end a watch, if the watches of
	// the scope have bookmarks. The most is twice as long, at random: an API server takes the same
	// times if a client names none. The end of such a watch shows nothing that a bookmark does not
	// show each minute, and the next watch costs two requests.
	markedWatch = 30 * time.Minute
)

// errBlocked ends an HTTP watch whose events do not fit into the queue.
var errBlocked = errors.New("watch blocked by a full queue")

// batch has the events of the read buffer, at least one.
type batch struct {
	events    []store.Event // a bookmark replaces an object that is not captured
	objects   int           // frames other than bookmarks
	bookmarks int
	read      time.Time
	observed  time.Time // time of the run at read
}

// stream reads one HTTP watch in its own goroutine, and hands its events to the informer's owner.
// While the owner applies a batch, which may take long if the queue is full, the API server must
// not have to wait: a watch that nobody reads is ended (blockedFor).
//
// So the reader fills one batch while the owner applies the previous one: there are two, used in
// turn. The channel is not buffered, so when the owner takes a batch, it has finished the previous
// one.
type stream struct {
	informer *Informer
	reader   *reader
	ctx      context.Context //nolint:containedctx // of the HTTP watch
	delivery context.Context //nolint:containedctx // ends when the owner takes no more batches
	stop     context.CancelFunc
	end      context.CancelCauseFunc // ends the HTTP watch
	watch    *apiserver.Stream
	// generation is that of the definition when the API server accepted the watch.
	generation uint32
	done       sync.WaitGroup

	batches  chan *batch   // closed by the reader when the HTTP watch has ended, and all of its events are delivered
	brief    bool          // the API server is asked to end it soon
	started  *started      // nil: the watch did not begin with the existing objects
	shown    atomic.Uint64 // the highest version that was read, or at which it was opened
	frames   atomic.Int64  // that were read
	applied  atomic.Int64  // the frames that the store has
	began    time.Time
	lastRead atomic.Int64 // when the last frame was read, or the watch was opened, in nanoseconds since began
	quiet    *time.Timer  // fires after askAfter without a frame, or earlier: askAbout waits for it
	suspect  atomic.Bool  // a list has a change that was not shown
	passed   atomic.Bool  // the path holds back nothing: see notePassed
	compared atomic.Pointer[compared]
	// when the owner began to apply an event, in nanoseconds since the opening of the watch; 0: no
	// event
	applying atomic.Int64

	// The reader owns these until it has closed batches.
	endedInTime bool
	err         error
	first       time.Time // when the first frame was read
}

// newStream prepares an HTTP watch. The caller must close it.
func newStream(ctx context.Context, i *Informer, r *reader) *stream {
	s := &stream{
		informer: i,
		reader:   r,
		batches:  make(chan *batch),
		brief:    i.buffering.brief,
		began:    time.Now(),
	}
	s.quiet = time.NewTimer(askAfter)
	s.delivery, s.stop = context.WithCancel(ctx)
	s.ctx, s.end = context.WithCancelCause(s.delivery)
	i.generation.endWatch.Store(&s.end)
	return s
}

// close ends the HTTP watch and the reader.
func (s *stream) close() {
	s.informer.generation.endWatch.Store(nil)
	s.stop()
	s.done.Wait()
	s.quiet.Stop()
	if s.watch != nil {
		s.watch.Close()
	}
	s.end(nil)
}

// open opens the HTTP watch. alone: on its own connection.
func (s *stream) open(rv uint64, alone bool) (err error) {
	i := s.informer
	o := i.listOptions()
	o.ResourceVersion = object.FormatVersion(rv)
	switch {
	case s.brief:
		o.TimeoutSeconds = new(int64(briefWatch.Seconds()))
	case i.state.hasBookmarks.Load():
		o.TimeoutSeconds = new(int64((markedWatch + rand.N(markedWatch)).Seconds()))
	case i.buffering.isQuiet():
		o.TimeoutSeconds = new(int64((settleEvery - rand.N(settleJitter)).Seconds()))
	}
	s.shown.Store(rv)
	s.watch, err = i.deps.Client.Stream(s.ctx, i.resource, i.selection.Namespace, o, i.state.hasBookmarks.Load(), alone)
	s.generation = i.generation.number.Load()
	s.lastRead.Store(int64(time.Since(s.began)))
	if err != nil && errors.Is(context.Cause(s.ctx), errGeneration) {
		return errGeneration
	}
	return err
}

// read reads until the HTTP watch ends, and delivers all of its events. The error is nil if the
// watch ended cleanly.
func (s *stream) read() error {
	var turns [2]batch
	patience := time.NewTimer(blockedFor)
	patience.Stop()
	for n := 0; ; n++ {
		b := &turns[n%2]
		err := s.fill(b)
		if len(b.events) > 0 {
			// Every event that was read is delivered, however long that takes.
			if err := s.deliver(b, patience); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// fill waits for a frame, and reads it and all others in the read buffer. If it returns an error, b
// has the events before it. The error is io.EOF if the HTTP watch has ended.
func (s *stream) fill(b *batch) error {
	*b = batch{events: b.events[:0]}
	s.reader.newBatch()
	for bytes := 0; ; {
		typ, raw, err := s.next()
		if err := s.endCause(err); err != nil {
			return err
		}
		if len(b.events) == 0 {
			b.read = time.Now()
			b.observed = s.informer.deps.Now()
			s.quiet.Reset(askAfter) // nothing is due earlier: see asksAt
			if s.first.IsZero() {
				s.first = b.read
			}
			s.informer.state.noteAnswer(b.read, 0)
		}
		if err := s.add(b, typ, raw); err != nil {
			return err
		}
		s.lastRead.Store(int64(b.read.Sub(s.began)))
		s.shown.Store(max(s.shown.Load(), b.events[len(b.events)-1].Version))
		s.frames.Add(1)
		bytes += len(raw)
		if len(b.events) == batchEvents || bytes >= batchBytes || !s.watch.Ready() {
			return nil
		}
	}
}

// endCause returns why the HTTP watch has ended, nil if it has not. err is the error of the last
// read.
func (s *stream) endCause(err error) error {
	switch cause := context.Cause(s.ctx); {
	case errors.Is(cause, errGeneration):
		return errGeneration
	case errors.Is(cause, errHeldBack):
		return cause
	case err == nil, errors.Is(err, apiserver.ErrSilent):
		return err
	case errors.Is(err, io.EOF):
		s.endedInTime = cause == nil && s.watch.EndsInTime()
		return io.EOF
	case cause != nil, apiserver.IsUnanswered(err):
		// a server that disappears silently does not end the watch at its timeout
		return io.EOF
	default:
		return fmt.Errorf("watch: %w", err)
	}
}

// next returns the next frame.
func (s *stream) next() (watch.EventType, []byte, error) {
	switch {
	case s.first.IsZero(), s.passed.Load(), s.watch.Ready():
		return s.watch.Next()
	case time.Since(s.first) >= passesBusy:
		s.notePassed()
		return s.watch.Next()
	}
	waits := time.AfterFunc(passesAfter, s.notePassed)
	defer waits.Stop()
	return s.watch.Next()
}

// notePassed notes that the end of the HTTP watch did not follow its frames at once. So nothing on
// the path holds back frames: a proxy that buffers passes them on with the end.
func (s *stream) notePassed() {
	s.passed.Store(true)
	s.informer.state.clearHeldBack()
	s.informer.coverage.notePassed(s.informer.deps.Now())
}

// lastFrame returns when the last frame was read, or the HTTP watch was opened.
func (s *stream) lastFrame() time.Time { return s.began.Add(time.Duration(s.lastRead.Load())) }

// isApplied reports whether the store has all frames that were read.
func (s *stream) isApplied() bool { return s.applied.Load() == s.frames.Load() }

// add appends the event of a frame.
func (s *stream) add(b *batch, typ watch.EventType, raw []byte) error {
	if typ == watch.Bookmark {
		version, err := object.VersionOf(raw)
		if err != nil {
			return fmt.Errorf("bookmark: %w", err)
		}
		rv, err := strconv.ParseUint(version, 10, 64)
		if err != nil || rv == 0 {
			// No watch can resume from there.
			return fmt.Errorf("%w: a bookmark has the resourceVersion %q", apiserver.ErrUnsupported, version)
		}
		s.informer.state.hasBookmarks.Store(true)
		b.events = append(b.events, store.Event{Type: typ, Version: rv})
		b.bookmarks++
		return nil
	}
	o, err := s.reader.read(raw, typ != watch.Deleted)
	if err != nil {
		return err
	}
	if o.object == nil {
		s.informer.metrics.store.Excluded.Inc()
		typ = watch.Bookmark
	}
	b.events = append(b.events, store.Event{
		Type:      typ,
		Version:   o.rv,
		Object:    o.object,
		Outside:   o.outside,
		ChangedBy: o.changedBy,
		Observed:  b.observed.UnixNano(),
	})
	b.objects++
	return nil
}

// deliver hands a batch to the owner. If the store has held one event for blockedFor, the owner
// cannot take the batch. Then deliver ends the HTTP watch, and returns errBlocked once the batch is
// taken: the next watch begins after it.
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
		case <-s.delivery.Done():
			return context.Cause(s.delivery)
		case <-patience.C:
		}
		left = blockedFor
		if since := s.applying.Load(); since != 0 {
			left -= time.Since(s.watch.Opened) - time.Duration(since)
		}
	}
	s.watch.Close()
	s.informer.setBlocked(true)
	select {
	case s.batches <- b:
		return errBlocked
	case <-s.delivery.Done():
		return context.Cause(s.delivery)
	}
}
