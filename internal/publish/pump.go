package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Source is where deltas wait, as items of type I.
//
// Get hands out an item and blocks until there is one; it never hands out two of one key before Done of the first. An
// error says that the source is closed and nothing waits in it, or is the cause of ctx. Done gives back what Get handed
// out, exactly once. Both are safe for concurrent use.
type Source[I any] interface {
	Get(ctx context.Context) (I, error)
	Done(item I)
}

// Encoder makes an event of a delta: it resets ev, and uses its buffers again. An error is about this delta and comes
// back however often it is tried. Safe for concurrent use.
type Encoder interface {
	Encode(ev *encode.Event, d *object.Delta) error
}

// Pump moves deltas from a source to a bus.
type Pump[I any] struct {
	source    Source[I]
	delta     func(I) *object.Delta
	encoder   Encoder
	publisher Publisher
	workers   int
	log       *slog.Logger
	metrics   *Metrics
	window    window
	lot       *lot[I]
}

// DefaultWorkers is how many events are on their way to the bus at once.
const DefaultWorkers = 256

// NewPump returns a pump with that many workers; 0 is DefaultWorkers. delta is what an item of the source holds.
func NewPump[I any](source Source[I], delta func(I) *object.Delta, encoder Encoder, publisher Publisher, workers int, log *slog.Logger, m *Metrics) *Pump[I] {
	if workers <= 0 {
		workers = DefaultWorkers
	}
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Pump[I]{
		source: source, delta: delta, encoder: encoder, publisher: publisher, workers: workers, log: log, metrics: m,
		lot: newLot[I](),
	}
}

// Run pumps until the source is closed and empty, which is how to drain, or ctx ends, which is when a drain's grace
// period is over: what is on its way then is given up, unacknowledged. It returns an error where events were left over,
// refused ones or given up ones, and where the bus is gone for good.
func (p *Pump[I]) Run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer p.lot.close() // no worker is left to park anything
		workers, wctx := errgroup.WithContext(gctx)
		for range p.workers {
			workers.Go(func() error { return p.work(wctx) })
		}
		return workers.Wait()
	})
	g.Go(func() error { return p.retryParked(gctx) })
	err := g.Wait()
	left := p.lot.len()
	p.metrics.parked.Set(0)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d events could not be published and stay unacknowledged", left)
	}
	return err
}

func (p *Pump[I]) work(ctx context.Context) error {
	var ev encode.Event
	for {
		ev.Reset()
		item, err := p.source.Get(ctx)
		if err != nil {
			return nil // closed and empty, or over
		}
		if err := p.move(ctx, &ev, item, 1); err != nil {
			return err
		}
	}
}

// move encodes and publishes one delta. What cannot be published is parked, so that the worker is free for others, and
// keeps its place in the source, so that its object's later deltas wait. An error ends the pump.
func (p *Pump[I]) move(ctx context.Context, ev *encode.Event, item I, attempt int) error {
	d := p.delta(item)
	if err := p.encoder.Encode(ev, d); err != nil {
		p.park(item, d, attempt, reasonEncode, err)
		return nil
	}
	start := time.Now()
	if err := p.publisher.Publish(ctx, ev); err != nil {
		if errors.Is(err, ErrRefused) {
			p.park(item, d, attempt, reasonRefused, err)
			return nil
		}
		return fmt.Errorf("publish %s: %w", ev.ID, err)
	}
	p.metrics.duration.Observe(time.Since(start).Seconds())
	p.metrics.bytes.Add(float64(len(ev.Body)))
	p.metrics.events.WithLabelValues(resourceOf(d).String()).Inc()
	if attempt > 1 {
		p.metrics.parked.Dec()
	}
	if d.Acker != nil {
		d.Acker.Acked(d)
	}
	p.source.Done(item)
	return nil
}

func resourceOf(d *object.Delta) *object.Resource {
	if d.Stream != nil {
		return d.Stream.Resource
	}
	return d.Ref.Resource
}

// park puts an item aside until its next attempt. The log has the first of each resource and reason per window.
func (p *Pump[I]) park(item I, d *object.Delta, attempt int, reason string, err error) {
	if attempt == 1 {
		p.metrics.parked.Inc()
	}
	p.metrics.retries.WithLabelValues(reason).Inc()
	r := resourceOf(d)
	if suppressed, ok := p.window.first(reason + " " + r.String()); ok {
		attrs := []any{"reason", reason, "resource", r.String(), "rv", d.ResourceVersion, "attempt", attempt, "err", err, "suppressed", suppressed}
		if d.Ref != nil {
			attrs = append(attrs, "namespace", d.Ref.Namespace(), "name", d.Ref.Name())
		}
		p.log.Error("event cannot be published, its object waits", attrs...)
	}
	p.lot.add(parked[I]{item: item, attempt: attempt + 1, due: time.Now().Add(parkBackoff().delay(attempt))})
}

// retryParked is one worker for all that is parked: an attempt is short unless the bus is away, and then all wait.
func (p *Pump[I]) retryParked(ctx context.Context) error {
	var ev encode.Event
	for {
		ev.Reset()
		next, ok := p.lot.take(ctx)
		if !ok {
			return nil
		}
		if err := p.move(ctx, &ev, next.item, next.attempt); err != nil {
			return err
		}
	}
}
