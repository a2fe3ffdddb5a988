package publish

import (
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

// Source is where deltas wait, as items of type I. package queue has one.
//
// Get hands out an item and blocks until there is one that may be in flight; it never hands out two of one key before Done of the first. Its
// error says that the source is closed and empty, or is the cause of ctx. Resize corrects how many bytes of memory the item takes. Suspend
// frees these bytes; Resume has Get hand the item out again, and Resize takes bytes again without Get. Done gives items back, each exactly
// once. All are safe for concurrent use.
type Source[I comparable] interface {
	Get(ctx context.Context) (I, error)
	Resize(item I, bytes int64)
	Suspend(item I)
	Resume(item I)
	Done(items ...I)
}

// Encoder makes an event of a delta: it resets ev, and uses its buffers again. An error is about this delta and comes
// back however often it is tried. Safe for concurrent use.
type Encoder interface {
	Encode(ev *encode.Event, d *object.Delta) error
	// EncodeShort leaves members out; with all of them the event fits into encode.MaxShort.
	EncodeShort(ev *encode.Event, d *object.Delta, s encode.Short) error
	// EncodeWhole is Encode in structured mode.
	EncodeWhole(ev *encode.Event, d *object.Delta) error
}

// The parts that an event gives up if it is too large; see Options.Oversize.
const (
	GiveUpPatch  = "patch"
	GiveUpBefore = "before"
	// Reference puts the whole event into the claim store; the one on the bus says where that is, and has neither object.
	Reference = "reference"
)

// Options say what becomes of events that the bus does not take as they are.
type Options struct {
	Copies        int // of an event that the bus holds until it is acknowledged, with the event itself; 0: 1
	MaxEventBytes int // an event that is larger, as encode.Event.Size has it, is too large; 0: the bus says what is
	// Oversize is what an event that is too large gives up, one after the other until the bus takes it: GiveUpPatch,
	// GiveUpBefore, Reference.
	Oversize []string
	// Claims takes the whole of events that are too large. nil: no reference can be made.
	Claims ClaimStore
	// DeadLetters takes what the bus refuses for good, with Event.DeadLetter set; it may be the bus itself. nil: such an event ends
	// Run with an error.
	DeadLetters Bus
	// Refused decides about an event that the bus refuses for good, in the place of the dead letters: nil has it count as acknowledged, an
	// error ends Run. nil: the dead letters take it.
	Refused func(d *object.Delta, err error) error
	// Tracer gets the captures of traced events. nil: none is traced.
	Tracer Tracer
}

// Dispatcher moves deltas from a source to a bus. See the package's documentation.
type Dispatcher[I comparable] struct {
	source  Source[I]
	delta   func(I) *object.Delta
	encoder Encoder
	bus     Bus
	o       Options
	log     *slog.Logger
	metrics *Metrics
	window  Window

	flights sync.Pool
	results *inbox[*flight[I]] // those that the bus is done with, for complete
	steps   *inbox[*flight[I]] // those to encode once more, for work
	retries *retries[I]
	turns   turns[I]
	open    atomic.Int64 // items that Get has handed out and Done has not ended

	// Those below belong to the goroutine of complete.
	done      []I
	resources map[*object.Resource]prometheus.Counter
}

// NewDispatcher returns a dispatcher. delta is what an item of the source holds.
func NewDispatcher[I comparable](source Source[I], delta func(I) *object.Delta, encoder Encoder, bus Bus, o Options, log *slog.Logger, m *Metrics) *Dispatcher[I] {
	o.Copies = max(o.Copies, 1)
	if m == nil {
		m = NewMetrics(nil)
	}
	d := &Dispatcher[I]{
		source: source, delta: delta, encoder: encoder, bus: bus, o: o, log: log, metrics: m,
		results: newInbox[*flight[I]](), steps: newInbox[*flight[I]](), retries: newRetries[I](), resources: map[*object.Resource]prometheus.Counter{},
	}
	d.flights.New = func() any { return newFlight(d) }
	return d
}

// Run dispatches until the source is closed and empty, or ctx ends. To drain, close the source, and end ctx after the grace period: Run
// then gives up the events in flight, unacknowledged. It returns an error in three cases: it had to give up an event, an event is refused and
// no dead letters take it, or the bus is gone for good. It is called once.
func (d *Dispatcher[I]) Run(ctx context.Context) error {
	all, gctx := errgroup.WithContext(ctx)
	rest, stop := context.WithCancel(gctx)
	defer stop()
	var encoders errgroup.Group
	for range runtime.GOMAXPROCS(0) {
		encoders.Go(func() error { return d.encode(gctx) })
	}
	var ended error // why Get has ended first
	all.Go(func() error {
		defer stop() // all is done: Get ends only then, or with gctx
		ended = encoders.Wait()
		return nil
	})
	all.Go(func() error { return d.complete(rest) })
	all.Go(func() error { d.work(rest, all); return nil })
	if err := all.Wait(); err != nil {
		return err
	}
	if over := context.Cause(ctx); over != nil && errors.Is(ended, over) { // else the source was closed and empty
		return fmt.Errorf("ended before the source was empty, with %d events that the bus has not acknowledged: %w", d.open.Load(), over)
	}
	return nil
}

// encode takes deltas from the source and hands their events to the bus, until Get ends: it returns that error.
func (d *Dispatcher[I]) encode(ctx context.Context) error {
	for {
		item, err := d.source.Get(ctx)
		if err != nil {
			return err
		}
		f := d.flights.Get().(*flight[I]) // nothing else is put there
		f.item, f.delta = item, d.delta(item)
		if again := d.retries.take(item); again != nil {
			f.progress = *again
		} else {
			d.open.Add(1)
			f.taken = time.Now()
		}
		if d.enter(f) {
			d.prepare(f)
		}
	}
}

// work encodes events once more: those that give something up, dead letters, gaps, stream events whose turn has come, and events that are sent
// alone.
func (d *Dispatcher[I]) work(ctx context.Context, all *errgroup.Group) {
	var batch []*flight[I]
	for {
		select {
		case <-d.steps.ready:
		case <-ctx.Done():
			return
		}
		batch = d.steps.take(batch)
		for _, f := range batch {
			if f.stage == shortened && f.err != nil { // the bus has refused it as it is; else it is sent once more
				d.shorten(ctx, f, all)
			} else {
				d.prepare(f)
			}
		}
	}
}

// complete ends events that the bus is done with, and has those published again whose backoff is over.
func (d *Dispatcher[I]) complete(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var batch []*flight[I]
	for over := false; ; {
		select {
		case <-d.results.ready:
		case <-timer.C:
		case <-ctx.Done():
			over = true // what is acknowledged by now counts
		}
		now := time.Now()
		batch = d.results.take(batch)
		for _, f := range batch {
			if err := d.finish(f, now); err != nil {
				d.captured(f, now, err)
				return err
			}
		}
		clear(batch)
		if len(d.done) > 0 {
			d.open.Add(-int64(len(d.done)))
			d.source.Done(d.done...)
			clear(d.done)
			d.done = d.done[:0]
		}
		if over {
			return nil
		}
		items, alone := d.retries.due(now)
		for _, item := range items {
			d.source.Resume(item)
		}
		if alone != nil {
			d.sendAlone(alone)
		}
		timer.Reset(d.retries.wait(now))
	}
}

// inbox hands items from many goroutines to one. It is bounded by the items in flight.
type inbox[F any] struct {
	ready chan struct{} // room for one: there are items. Never closed.

	mu    sync.Mutex
	items []F
}

func newInbox[F any]() *inbox[F] { return &inbox[F]{ready: make(chan struct{}, 1)} }

func (b *inbox[F]) put(item F) {
	b.mu.Lock()
	b.items = append(b.items, item)
	first := len(b.items) == 1
	b.mu.Unlock()
	if first {
		b.wake()
	}
}

// wake has the other side look, as if there were items.
func (b *inbox[F]) wake() {
	select {
	case b.ready <- struct{}{}:
	default: // it has not looked yet
	}
}

// take returns all items. The inbox keeps emptied for those to come.
func (b *inbox[F]) take(emptied []F) []F {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = emptied[:0]
	return items
}

// turns lets one stream event of a scope be in flight at a time. The gap that takes the place of a dead letter has the same key as the
// stream events of its scope, and comes from another item of the source. An event that waits for another attempt has no turn: those that
// wait for it could otherwise use up what may be in flight.
type turns[I comparable] struct {
	mu     sync.Mutex
	scopes map[string][]*flight[I] // those that wait, by scope; there is an entry while one is in flight
}

// enter reports whether f has the turn. Otherwise leave returns it later.
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

// leave ends a turn, and returns the flight that has the next one; nil: none waits.
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
