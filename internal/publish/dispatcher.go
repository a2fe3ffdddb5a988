package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Queue holds waiting deltas, as items of type I. Package queue has one.
//
// Get returns an item, and blocks until one may be in flight. It never returns two items of one key
// before Done of the first. Its error means that the queue is closed and empty, or is the cause of
// ctx. Resize corrects the item's size in memory. Suspend frees these bytes; after Resume, Get
// returns the item again. Resize without Get reserves bytes again. Done gives back items, each
// exactly once. All methods are safe for concurrent use.
type Queue[I comparable] interface {
	Get(ctx context.Context) (I, error)
	Resize(item I, bytes int64)
	Suspend(item I)
	Resume(item I)
	Done(items ...I)
}

// Encoder encodes a delta as an event: it resets ev and reuses its buffers. An error concerns this
// delta, and every attempt returns it again. Safe for concurrent use.
type Encoder interface {
	Encode(ev *encode.Event, d *object.Delta) error
	// EncodeShort omits members; without all of them the event fits into encode.MaxShort.
	EncodeShort(ev *encode.Event, d *object.Delta, s encode.Short) error
	// EncodeWhole is Encode in structured mode.
	EncodeWhole(ev *encode.Event, d *object.Delta) error
}

// The parts that are omitted from an event that is too large; see Options.Oversize.
const (
	GiveUpPatch  = "patch"
	GiveUpBefore = "before"
	// Reference stores the whole event in the claim store; the event on the bus has its URI, and
	// neither object.
	Reference = "reference"
)

// Options configure a Dispatcher: its limits, and the handling of events that the bus rejects.
type Options struct {
	Copies        int // of an unacknowledged event in the bus driver, the event itself included; 0: 1
	MaxEventBytes int // limit of encode.Event.Size; a larger event is too large; 0: the bus decides
	// Oversize lists the steps for an event that is too large, in order, until the bus accepts it:
	// GiveUpPatch, GiveUpBefore, Reference. For an event that has only the object before, Reference
	// is the first.
	Oversize []string
	// Claims stores the whole of events that are too large. nil: Reference is impossible.
	Claims ClaimStore
	// DeadLetters receives events that the bus refuses for good, with Event.DeadLetter set; it may
	// be the bus itself. nil: such an event ends Run with an error.
	DeadLetters Bus
	// Refused replaces the dead letters for events that the bus refuses for good. If it returns
	// nil, the event counts as acknowledged; an error ends Run. nil: use the dead letters.
	Refused func(d *object.Delta, err error) error
	// Tracer receives the captures of traced events. nil: none is traced.
	Tracer Tracer
}

// Dispatcher moves deltas from a queue to a bus. See the package's documentation.
type Dispatcher[I comparable] struct {
	queue   Queue[I]
	delta   func(I) *object.Delta
	encoder Encoder
	bus     Bus
	o       Options
	log     *slog.Logger
	metrics *Metrics
	window  Window

	referenceFirst []string // Options.Oversize for events that have only the object before

	flights sync.Pool
	results *Inbox[*flight[I]] // finished by the bus, for completeFlights
	steps   *Inbox[*flight[I]] // to encode once more, for encodeAgain
	retries *retries[I]
	turns   turns[I]
	open    atomic.Int64 // items between Get and Done

	// The fields below belong to the goroutine of completeFlights.
	done      []I
	resources map[*object.Resource]prometheus.Counter
}

// NewDispatcher returns a dispatcher. delta returns the delta of an item.
func NewDispatcher[I comparable](
	queue Queue[I], delta func(I) *object.Delta, encoder Encoder, bus Bus, o Options, log *slog.Logger, m *Metrics,
) *Dispatcher[I] {
	o.Copies = max(o.Copies, 1)
	d := &Dispatcher[I]{
		queue:          queue,
		delta:          delta,
		encoder:        encoder,
		bus:            bus,
		o:              o,
		log:            log,
		metrics:        cmp.Or(m, NewMetrics(nil)),
		referenceFirst: referenceFirst(o.Oversize),
		results:        NewInbox[*flight[I]](),
		steps:          NewInbox[*flight[I]](),
		retries:        newRetries[I](),
		resources:      map[*object.Resource]prometheus.Counter{},
	}
	d.flights.New = func() any { return newFlight(d) }
	return d
}

// Run dispatches until the queue is closed and empty, or ctx ends. To drain, close the queue, and
// end ctx after the grace period: Run then gives up the events in flight, unacknowledged. It
// returns an error if it gave up an event, if the bus is gone for good, or if an event is refused
// without dead letters that accept it. It is called once.
func (d *Dispatcher[I]) Run(ctx context.Context) error {
	all, gctx := errgroup.WithContext(ctx)
	rest, stop := context.WithCancel(gctx)
	defer stop()
	var encoders errgroup.Group
	for range runtime.GOMAXPROCS(0) {
		encoders.Go(func() error { return d.encodeDeltas(gctx) })
	}
	var ended error // the first error of Get
	all.Go(func() error {
		defer stop() // Get ends only when nothing is left, or with gctx
		ended = encoders.Wait()
		return nil
	})
	all.Go(func() error { return d.completeFlights(rest) })
	all.Go(func() error { d.encodeAgain(rest, all); return nil })
	if err := all.Wait(); err != nil {
		return err
	}
	if over := context.Cause(ctx); over != nil && errors.Is(ended, over) { // else the queue was closed and empty
		return fmt.Errorf("stopped before the queue was drained, with %d events that the bus has not acknowledged: %w",
			d.open.Load(), over)
	}
	return nil
}

// encodeDeltas takes deltas from the queue and publishes their events until Get fails; it returns
// that error.
func (d *Dispatcher[I]) encodeDeltas(ctx context.Context) error {
	for {
		item, err := d.queue.Get(ctx)
		if err != nil {
			return err
		}
		f := d.flights.Get().(*flight[I]) // nothing else is put there
		f.item, f.delta = item, d.delta(item)
		if again := d.retries.take(item); again != nil {
			f.attempts = *again
		} else {
			d.open.Add(1)
			f.taken = time.Now()
		}
		if d.enterTurn(f) {
			d.prepare(f)
		}
	}
}

// encodeAgain encodes events once more: shortened events, dead letters, gaps, stream events that
// got their turn, and events that are sent alone.
func (d *Dispatcher[I]) encodeAgain(ctx context.Context, all *errgroup.Group) {
	var batch []*flight[I]
	for {
		select {
		case <-d.steps.Ready:
		case <-ctx.Done():
			return
		}
		batch = d.steps.Take(batch)
		for _, f := range batch {
			if f.stage == shortened && f.err != nil {
				// the bus refused it in its present form; otherwise send it once more
				d.shorten(ctx, f, all)
			} else {
				d.prepare(f)
			}
		}
	}
}

// completeFlights ends events that the bus has finished, and resumes those whose backoff is over.
func (d *Dispatcher[I]) completeFlights(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var batch []*flight[I]
	for over := false; ; {
		select {
		case <-d.results.Ready:
		case <-timer.C:
		case <-ctx.Done():
			over = true // earlier acknowledgements still count
		}
		now := time.Now()
		batch = d.results.Take(batch)
		for _, f := range batch {
			if err := d.finish(f, now); err != nil {
				d.endCapture(f, now, err)
				return err
			}
		}
		clear(batch)
		if len(d.done) > 0 {
			d.open.Add(-int64(len(d.done)))
			d.queue.Done(d.done...)
			clear(d.done)
			d.done = d.done[:0]
		}
		if over {
			return nil
		}
		items, alone := d.retries.takeDue(now)
		for _, item := range items {
			d.queue.Resume(item)
		}
		if alone != nil {
			d.sendAlone(alone)
		}
		timer.Reset(d.retries.untilDue(now))
	}
}

// turns allows one stream event of a scope in flight at a time. The gap that replaces a dead letter
// has the key of its scope's stream events, but comes from another item of the queue. An event
// that waits for another attempt gives up its turn. Otherwise the events that wait for it could
// fill the in-flight limit.
type turns[I comparable] struct {
	mu     sync.Mutex
	scopes map[string][]*flight[I] // waiting, by scope; an entry exists while one is in flight
}

// enter reports whether f has the turn. If not, leave returns f later.
func (t *turns[I]) enter(scope string, f *flight[I]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting, taken := t.scopes[scope]
	if !taken {
		if t.scopes == nil {
			t.scopes = map[string][]*flight[I]{}
		}
		t.scopes[scope] = nil
		return true
	}
	t.scopes[scope] = append(waiting, f)
	return false
}

// leave ends a turn, and returns the flight with the next one, or nil if none waits.
func (t *turns[I]) leave(scope string) *flight[I] {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := t.scopes[scope]
	if len(waiting) == 0 {
		delete(t.scopes, scope)
		return nil
	}
	t.scopes[scope] = waiting[1:]
	return waiting[0]
}
