package publish

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Source is where deltas wait, as items of type I.
//
// Get hands out an item and blocks until there is one; it never hands out two of one key before Done of the first. An
// error says that the source is closed and nothing waits in it, or is the cause of ctx. Done gives back what Get handed
// out, exactly once. Resize says how many bytes of memory an item takes that was handed out and has been encoded. Park says that
// another caller of Get has taken the place of the one who has the item, which is not done yet. All are safe for concurrent use.
type Source[I any] interface {
	Get(ctx context.Context) (I, error)
	Resize(item I, bytes int64)
	Park(item I)
	Done(item I)
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

// What an event that is too large gives up; see PumpOptions.Oversize.
const (
	GiveUpPatch  = "patch"
	GiveUpBefore = "before"
	// Reference puts the whole event into the claim store; the one on the bus says where that is, and has neither object.
	Reference = "reference"
)

// PumpOptions say what becomes of events that the bus does not take as they are.
type PumpOptions struct {
	Workers       int // how many events are on their way to the bus at once; 0: DefaultWorkers
	Copies        int // of an event that the publisher holds until it is acknowledged, with the event itself; 0: 1
	MaxEventBytes int // an event that is larger, as encode.Event.Size has it, is too large; 0: the bus says what is
	// Oversize is what an event that is too large gives up, one after the other until the bus takes it: GiveUpPatch,
	// GiveUpBefore, Reference.
	Oversize []string
	// Claims takes the whole of events that are too large. nil: no reference can be made.
	Claims ClaimStore
	// DeadLetters takes what the bus refuses for good. nil: such an event ends the pump with an error.
	DeadLetters Publisher
	// Tracer is told of the events that are traced. nil: nobody is.
	Tracer Tracer
}

// Pump moves deltas from a source to a bus.
type Pump[I any] struct {
	source    Source[I]
	delta     func(I) *object.Delta
	encoder   Encoder
	publisher Publisher
	o         PumpOptions
	log       *slog.Logger
	metrics   *Metrics
	window    Window
	parked    atomic.Int64
	scopes    keyLock // held while a stream event of the scope is published

	// events are those of no worker. A worker that waits for a delta has none: hundreds of them would hold as many buffers.
	events sync.Pool
}

// DefaultWorkers is how many events are on their way to the bus at once.
const DefaultWorkers = 256

// NewPump returns a pump. delta is what an item of the source holds.
func NewPump[I any](source Source[I], delta func(I) *object.Delta, encoder Encoder, publisher Publisher, o PumpOptions, log *slog.Logger, m *Metrics) *Pump[I] {
	if o.Workers <= 0 {
		o.Workers = DefaultWorkers
	}
	o.Copies = max(o.Copies, 1)
	if m == nil {
		m = NewMetrics(nil)
	}
	p := &Pump[I]{source: source, delta: delta, encoder: encoder, publisher: publisher, o: o, log: log, metrics: m}
	p.events.New = func() any { return new(encode.Event) }
	return p
}

// deltaOverhead is about what an event of a delta takes besides its objects, in bytes.
const deltaOverhead = 2 << 10

// Weigh estimates how many bytes of memory d takes in flight with a publisher that holds this many copies of its event.
func Weigh(d *object.Delta, copies int) int64 { return int64(copies) * int64(d.Size()+deltaOverhead) }

// weigh corrects the estimate of Weigh for an event that turned out much larger or smaller. Small differences are not worth
// the lock of the source.
func (p *Pump[I]) weigh(item I, ev *encode.Event) {
	estimated, actual := Weigh(ev.Delta, p.o.Copies), int64(p.o.Copies)*int64(ev.Footprint())
	if actual > estimated+estimated/4+worthResizing || actual < estimated/2-worthResizing {
		p.source.Resize(item, actual)
	}
}

// worthResizing is by how many bytes an estimate may be wrong in any case.
const worthResizing = 32 << 10

// Run pumps until the source is closed and empty, which is how to drain, or ctx ends, which is when a drain's grace
// period is over: what is on its way then is given up, unacknowledged. It returns an error where it had to give up
// something, where an event is refused and there are no dead letters to take it, and where the bus is gone for good.
func (p *Pump[I]) Run(ctx context.Context) error {
	workers, wctx := errgroup.WithContext(ctx)
	for range p.o.Workers {
		p.start(wctx, workers)
	}
	return workers.Wait()
}

// maxParked bounds the events that wait for long beside those of the workers.
const maxParked = 1024

// worker is one of a pump's. One whose event is parked has started another in its place, and ends with the event.
type worker[I any] struct {
	p       *Pump[I]
	ctx     context.Context //nolint:containedctx // of all workers, for the one in its place
	workers *errgroup.Group
	item    I
	parked  bool
}

type workerKey struct{}

// Park frees the worker that ctx is for, if it is one: the event that it has may wait for minutes, by itself.
func Park(ctx context.Context) {
	if w, ok := ctx.Value(workerKey{}).(interface{ park() }); ok {
		w.park()
	}
}

func (w *worker[I]) park() {
	if w.parked {
		return
	}
	if w.p.parked.Add(1) > maxParked {
		w.p.parked.Add(-1)
		return
	}
	w.parked = true
	w.p.source.Park(w.item)
	w.p.start(w.ctx, w.workers)
}

func (p *Pump[I]) start(ctx context.Context, workers *errgroup.Group) {
	w := &worker[I]{p: p, ctx: ctx, workers: workers}
	workers.Go(func() error { return w.work(context.WithValue(ctx, workerKey{}, w)) })
}

func (w *worker[I]) work(ctx context.Context) error {
	p := w.p
	for !w.parked {
		item, err := p.source.Get(ctx)
		if err != nil {
			return nil // closed and empty, or over
		}
		w.item = item
		ev := p.events.Get().(*encode.Event) // nothing else is put there
		if err := p.move(ctx, ev, item); err != nil {
			return err
		}
		ev.Reset()
		p.events.Put(ev)
	}
	p.parked.Add(-1)
	return nil
}

// move brings one delta onto the bus: whole, shortened, or as a dead letter and a gap. An error ends the pump, and the delta
// stays unacknowledged: the next run comes to it again.
func (p *Pump[I]) move(ctx context.Context, ev *encode.Event, item I) error {
	d := p.delta(item)
	if d.Stream != nil {
		// A gap behind a dead letter has the same key, and may come from another worker.
		unlock, err := p.scopes.lock(ctx, d.Stream.Scope)
		if err != nil {
			return fmt.Errorf("publish %s of %s: %w", d.Stream.Kind, d.Stream.Scope, err)
		}
		defer unlock()
	}
	if err := p.carry(ctx, ev, item, d); err != nil {
		return err
	}
	if d.Acker != nil {
		d.Acker.Acked(d)
	}
	p.source.Done(item)
	return nil
}

// carry encodes d and brings it onto the bus, and tells the tracer of it.
func (p *Pump[I]) carry(ctx context.Context, ev *encode.Event, item I, d *object.Delta) error {
	taken := time.Now()
	err := p.encoder.Encode(ev, d)
	if err == nil {
		p.weigh(item, ev)
	}
	if p.o.Tracer == nil {
		return p.deliver(ctx, ev, d, err)
	}
	if !ev.Trace.Sampled() {
		return p.deliver(ctx, ev, d, err)
	}
	c := newCapture(ev, taken)
	c.step(StepEncode, taken, ev.Size(), err)
	err = p.deliver(c.within(ctx), ev, d, err)
	c.End, c.Err = time.Now(), err
	p.o.Tracer.Captured(c)
	return err
}

// deliver brings onto the bus what Encode has made of d, or what is to be had instead; failure is its error.
func (p *Pump[I]) deliver(ctx context.Context, ev *encode.Event, d *object.Delta, failure error) error {
	if failure != nil {
		return p.unencodable(ctx, ev, d, failure)
	}
	if err := p.offer(ctx, ev); err != nil {
		return p.refused(ctx, ev, d, err)
	}
	return nil
}

// offer publishes ev, unless it is larger than it may be.
func (p *Pump[I]) offer(ctx context.Context, ev *encode.Event) error {
	if err := p.checkSize(ev); err != nil {
		return err
	}
	start := time.Now()
	err := p.publisher.Publish(ctx, ev)
	p.step(ctx, offered(ev), start, ev.Size(), err)
	if err != nil {
		return err
	}
	p.metrics.observe(ev, start)
	return nil
}

// offered is what offer does with ev.
func offered(ev *encode.Event) string {
	if ev.Delta.Stream != nil {
		return StepGap
	}
	return StepPublish
}

func (p *Pump[I]) checkSize(ev *encode.Event) error {
	if size := ev.Size(); p.o.MaxEventBytes > 0 && size > p.o.MaxEventBytes {
		return fmt.Errorf("%w: it has %d bytes, and event.maxBytes is %d", ErrTooLarge, size, p.o.MaxEventBytes)
	}
	return nil
}

func resourceOf(d *object.Delta) *object.Resource {
	if d.Stream != nil {
		return d.Stream.Resource
	}
	return d.Ref.Resource
}
