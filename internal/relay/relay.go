package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Refused is what becomes of a record that the target refuses for good.
type Refused string

// What becomes of it.
const (
	Stop Refused = "stop" // the relay ends with an error; started again, it comes to the same record
	Skip Refused = "skip" // it is counted and logged, and stays on the bus it was read from
)

const (
	saveInterval  = time.Second
	checkInterval = 10 * time.Second // of the cursor, where nothing moves it, and of how much lies behind it
	saveTimeout   = 5 * time.Second
	// DefaultGrace is how long what is on its way to the target may take after the end.
	DefaultGrace = 5 * time.Second

	queueEvents = 1024
	queueBytes  = 16 << 20
)

// errGrace ends deliveries that take too long after the end.
var errGrace = errors.New("the grace period is over")

// Options say what a relay relays, and where to.
type Options struct {
	Name    string // names the cursor, and is the label of its metrics
	Source  Source
	Target  Target
	Match   func(*consume.Event) bool // nil: all events
	Refused Refused                   // "": Stop
	Grace   time.Duration             // 0: DefaultGrace
}

// Relay takes records from a source to a target. See the package's documentation.
type Relay struct {
	o       Options
	log     *slog.Logger
	metrics *Metrics
	notes   notes
	queue   *queue.Queue[*object.Delta]
	lane    *queue.Lane[*object.Delta]
	marks   *marks
	copies  copies
	open    atomic.Bool
	silent  atomic.Pointer[error] // the bus did not answer when it was asked last
	number  uint64                // of records read; the reader's
}

// New returns a relay; Run starts it. m may be shared by several; nil: there are none.
func New(o Options, log *slog.Logger, m *Metrics) *Relay {
	if o.Refused == "" {
		o.Refused = Stop
	}
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	if m == nil {
		m = NewMetrics(nil)
	}
	q := queue.New[*object.Delta](queue.Options{Events: queueEvents, Bytes: queueBytes, InFlight: o.Target.InFlight()}, nil)
	m.begin(o.Name)
	return &Relay{
		o: o, log: log.With("relay", o.Name), metrics: m, queue: q, lane: q.Lane(o.Name), marks: newMarks(),
	}
}

// Name is what names the relay's cursor.
func (r *Relay) Name() string { return r.o.Name }

// Ready returns nil while the relay reads, and its target can be reached.
func (r *Relay) Ready() error {
	if err := r.o.Source.Ready(); err != nil {
		return err // says why it is not open
	}
	if !r.open.Load() {
		return errors.New("its bus is not connected, or its cursor not taken yet")
	}
	if err := r.silent.Load(); err != nil {
		return fmt.Errorf("its bus does not answer: %w", *err)
	}
	return r.o.Target.Ready()
}

// Run relays until ctx ends or the source does; then it waits a little for what is on its way, saves the cursor, and returns nil. An error says
// that the relay cannot go on: its cursor has been taken over (ErrElsewhere), a record is refused, or source or target are
// gone for good. Call it once.
func (r *Relay) Run(ctx context.Context) error {
	running := r.metrics.up.WithLabelValues(r.o.Name)
	running.Set(1)
	defer running.Set(0)
	err := r.run(ctx)
	if err != nil {
		return fmt.Errorf("relay %s: %w", r.o.Name, err)
	}
	return nil
}

func (r *Relay) run(ctx context.Context) error {
	defer func() {
		r.open.Store(false)
		_ = r.o.Source.Close() // nothing to be done about it
	}()
	// The target outlives ctx, for what is on its way when that ends.
	targeting, stopTarget := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTarget()
	g, gctx := errgroup.WithContext(targeting)
	g.Go(func() error { return r.o.Target.Run(targeting) })
	g.Go(func() error {
		defer stopTarget()
		pumping, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(gctx, stop)() // the target has ended
		if err := r.o.Source.Open(pumping); err != nil {
			return endOf(pumping, err)
		}
		r.open.Store(true)
		err := r.pump(pumping)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if !errors.Is(err, ErrElsewhere) {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
			defer cancel()
			if failed := r.save(last, false); failed != nil && err == nil {
				err = failed
			}
		}
		if errors.Is(err, publish.ErrClosed) {
			return nil // the target has failed, and its own error says why
		}
		return err
	})
	return g.Wait()
}

// endOf is err, but nil where it only says that ctx has ended.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// pump reads and delivers until ctx ends or something fails for good.
func (r *Relay) pump(ctx context.Context) error {
	g, reading := errgroup.WithContext(ctx)
	delivering, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	ended := context.AfterFunc(reading, func() {
		r.queue.Close()
		if ctx.Err() == nil {
			giveUp(errGrace) // another one may deliver by now
			return
		}
		late := time.AfterFunc(r.o.Grace, func() { giveUp(errGrace) })
		context.AfterFunc(delivering, func() { late.Stop() })
	})
	defer ended()
	g.Go(func() error { return r.read(reading) })
	g.Go(func() error {
		d := publish.NewDispatcher(r.queue, func(it *queue.Item[*object.Delta]) *object.Delta { return it.Value }, encoder{}, r.o.Target,
			publish.Options{Refused: r.refused}, r.log, nil)
		if err := d.Run(delivering); !errors.Is(err, errGrace) {
			return err
		}
		return nil // what is given up comes again, behind the cursor
	})
	g.Go(func() error { return r.keep(reading) })
	return g.Wait()
}

// read reads, and hands on what is asked for.
func (r *Relay) read(ctx context.Context) error {
	for {
		rec, err := r.o.Source.Next(ctx)
		var missed *consume.MissedError
		switch {
		case errors.As(err, &missed):
			r.miss(missed)
			continue
		case errors.Is(err, io.EOF):
			if err := r.marks.allIdle(ctx); err != nil {
				return nil // over
			}
			return io.EOF // it ends the others too
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		r.number++
		rec.Number = r.number
		if r.marks.stuck() {
			for _, s := range r.copies.release() {
				r.marks.done(s)
			}
		}
		s, err := r.marks.add(ctx, rec)
		if err != nil {
			return nil // over
		}
		if err := r.take(ctx, rec, s); err != nil {
			return endOf(ctx, err)
		}
	}
}

func (r *Relay) miss(err *consume.MissedError) {
	if err.Recreated {
		r.log.Error("log is another one than the relay has read: it was created again, or restored; the relay reads it from its beginning, and what the former one still held does not reach the target",
			"log", err.Log.Name, "partition", err.Log.Partition, "former", err.Log.ID, "read_to", err.From-1, "end", err.To)
		return
	}
	if err.To >= err.From {
		r.metrics.missed.WithLabelValues(r.o.Name).Add(float64(err.To - err.From + 1))
	}
	r.log.Error("records were gone before they could be relayed: what they said does not reach the target; let the bus keep records for longer than the relay may be away or behind",
		"log", err.Log.Name, "partition", err.Log.Partition, "from", err.From, "to", err.To)
}

// take decides about one record.
func (r *Relay) take(ctx context.Context, rec *Record, s *slot) error {
	if rec.LeftOut > 0 {
		r.metrics.passed.WithLabelValues(r.o.Name, passedFilter).Add(float64(rec.LeftOut))
	}
	switch e := rec.Event; {
	case rec.NoRecord:
		r.marks.done(s)
		return nil
	case rec.Err != nil, e != nil && e.Data == nil && e.Stream == nil:
		r.passOver(rec, passedUnreadable)
		r.marks.done(s)
		return nil
	// What a bus has refused is among the dead letters for people to look at, and is no part of the stream.
	case e.DeadLetterReason != "", r.o.Match != nil && !r.o.Match(e), e.Stream != nil && !r.o.Target.Stream():
		r.passOver(rec, passedFilter)
		r.marks.done(s)
		return nil
	case e.Stream != nil:
		return r.stream(ctx, rec, s)
	default:
		r.marks.begin(resourceOf(e))
		return r.lane.Put(ctx, keyOf(e), len(e.Data.Before)+len(e.Data.After)+1024, r.delta(rec, s))
	}
}

func resourceOf(e *consume.Event) string { return e.Source + " " + e.GroupResource() }

// keyOf is the same for all events of an object.
func keyOf(e *consume.Event) string {
	if e.PartitionKey != "" {
		return e.PartitionKey
	}
	return resourceOf(e) + " " + e.Namespace + " " + e.Name
}

// passOver counts and logs a record that is not delivered.
func (r *Relay) passOver(rec *Record, reason string) {
	r.metrics.passed.WithLabelValues(r.o.Name, reason).Inc()
	if reason != passedUnreadable {
		return
	}
	err := rec.Err
	if err == nil {
		err = fmt.Errorf("%w of this release: its type is %.100q", consume.ErrNotKubecdc, rec.Event.Type)
	}
	if suppressed, ok := r.notes.first(reason); ok {
		r.log.Error("record cannot be read as an event and is passed over: look at it on the bus",
			"record", rec.Where(), "err", err, "suppressed", suppressed)
	}
}

// stream delivers a stream event at its place: after all records of its resource that come before it, and before all later ones.
func (r *Relay) stream(ctx context.Context, rec *Record, s *slot) error {
	slots, late, complete := r.copies.come(rec, s)
	for _, l := range late {
		r.marks.done(l)
	}
	if !complete {
		return nil
	}
	resource := resourceOf(rec.Event)
	if err := r.marks.idle(ctx, resource); err != nil {
		return err
	}
	r.marks.begin(resource)
	if err := r.lane.Put(ctx, keyOf(rec.Event), 1024, r.delta(rec, slots...)); err != nil {
		return err
	}
	return r.marks.idle(ctx, resource)
}

// refused decides about a record that the target refuses for good.
func (r *Relay) refused(d *object.Delta, err error) error {
	to := d.Acker.(*delivery) //nolint:forcetypeassert // the relay makes all of them
	rec := to.record
	if r.o.Refused != Skip {
		return fmt.Errorf("%s: the target refuses event %s for good: mend the target, or let the relay pass over such records with refused: skip: %w",
			rec.Where(), rec.Event.ID, err)
	}
	to.skipped = true
	r.passOver(rec, passedRefused)
	r.log.Error("record is refused by the target and skipped as configured; it stays on the bus it was read from",
		"record", rec.Where(), "event_id", rec.Event.ID, "err", err)
	return nil
}

// keep saves the cursor until ctx ends.
func (r *Relay) keep(ctx context.Context) error {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	checked := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			check := now.Sub(checked) >= checkInterval
			if check {
				checked = now
			}
			saving, cancel := context.WithTimeout(ctx, saveTimeout)
			err := r.save(saving, check)
			if check && err == nil {
				r.lookBehind(saving)
			}
			cancel()
			if err != nil {
				return endOf(ctx, err)
			}
		}
	}
}

// save saves the marks that have moved; check: also where none has, which tells whether the cursor is still ours. Those that
// have not moved are not saved again: what is there now may be another's, or of a topic that was made anew. Its error is
// ErrElsewhere; others pass.
func (r *Relay) save(ctx context.Context, check bool) error {
	marks := r.marks.all(true)
	if len(marks) == 0 && !check {
		return nil
	}
	err := r.o.Source.Save(ctx, marks)
	switch {
	case err == nil:
		r.marks.saved(marks)
		r.metrics.saved.WithLabelValues(r.o.Name).SetToCurrentTime()
	case errors.Is(err, ErrElsewhere):
		return err
	default:
		if suppressed, ok := r.notes.first("save"); ok {
			r.log.Warn("cursor cannot be saved, trying on; a restart would deliver again what has been delivered since", "err", err, "suppressed", suppressed)
		}
	}
	return nil
}

func (r *Relay) lookBehind(ctx context.Context) {
	behind, err := r.o.Source.Behind(ctx, r.marks.all(false))
	switch {
	case err == nil:
		r.silent.Store(nil)
		r.metrics.behind.WithLabelValues(r.o.Name).Set(float64(behind))
	case !errors.Is(err, context.Canceled): // a reader that waits for a bus that is away looks like one that has read all
		r.silent.Store(&err)
		if suppressed, ok := r.notes.first("behind"); ok {
			r.log.Warn("bus does not answer, trying on", "err", err, "suppressed", suppressed)
		}
	}
}
