package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/subscription"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Refused is the handling of a record that the target refuses for good.
type Refused string

// The ways to handle a refused record.
const (
	Stop Refused = "stop" // the relay ends with an error; after a restart it reads the same record
	Skip Refused = "skip" // it is counted and logged, and stays on the bus that it was read from
)

const (
	saveInterval  = time.Second
	checkInterval = 10 * time.Second // of an idle cursor, and of the number of records after it
	saveTimeout   = 5 * time.Second
	// DefaultGrace is the default time limit for deliveries in flight at the end.
	DefaultGrace = 5 * time.Second

	queueEvents = 1024
	queueBytes  = 16 << 20
)

// openBackoff is the backoff of attempts to reach the bus, and Slack.
func openBackoff() publish.Backoff {
	return publish.Backoff{First: 250 * time.Millisecond, Limit: 10 * time.Second}
}

var errNotOpen = errors.New("its bus is not connected, or its cursor not acquired yet")

var errGrace = errors.New("the grace period is over")

// Options configure a relay.
type Options struct {
	Name         string // of the cursor, and label of its metrics
	Subscription driver.Subscription
	Target       Target
	Match        func(*consume.Event) bool // nil: all events
	Refused      Refused                   // "": Stop
	Grace        time.Duration             // 0: DefaultGrace
	// Whole reports whether Match takes all events of a scope of a resource ("deployments.apps"),
	// and the target keeps them in one place. scope is its name; "" stands for all scopes of the
	// resource. The progress of agents is sent with what it says about such scopes. nil: all are.
	Whole func(resource, scope string) bool
	// ProgressWait is how long a progress waits for the delivery of earlier records. It is not sent
	// if that takes longer. 0: DefaultProgressWait. Negative: it waits without a limit.
	ProgressWait time.Duration
}

// Relay forwards the records of a subscription to a target. See the package's documentation.
type Relay struct {
	o       Options
	log     *slog.Logger
	metrics *Metrics
	window  publish.Window
	queue   *queue.Queue[*object.Delta]
	lane    *queue.Lane[*object.Delta]
	marks   *marks
	copies  copies
	missing missing
	problem atomic.Pointer[error] // why it cannot read; nil: it reads
	number  uint64                // of records read; belongs to the reader

	objectsOnly bool // the target does not want stream events
}

// New returns a relay; Run starts it. Several relays may share m; nil: no metrics.
func New(o Options, log *slog.Logger, m *Metrics) *Relay {
	o.Grace, o.ProgressWait = cmp.Or(o.Grace, DefaultGrace), cmp.Or(o.ProgressWait, DefaultProgressWait)
	stream, inFlight := true, publish.InFlight
	if t, ok := o.Target.(Limited); ok {
		stream, inFlight = t.Stream(), t.InFlight()
	}
	m = cmp.Or(m, NewMetrics(nil))
	q := queue.New[*object.Delta](queue.Options{Events: queueEvents, Bytes: queueBytes, InFlight: inFlight}, nil)
	m.begin(o.Name)
	r := &Relay{
		o:           o,
		log:         log.With("relay", o.Name),
		metrics:     m,
		queue:       q,
		lane:        q.Lane(o.Name),
		marks:       newMarks(),
		objectsOnly: !stream,
	}
	r.problem.Store(&errNotOpen)
	if t, ok := o.Target.(LossReader); ok {
		t.ReadLosses(r.missing.holeEnd)
	}
	return r
}

// Name returns the name of the relay and its cursor.
func (r *Relay) Name() string { return r.o.Name }

// Ready returns nil while the relay reads and its target is ready.
func (r *Relay) Ready() error {
	if err := r.problem.Load(); err != nil {
		return *err
	}
	if err := r.o.Subscription.Ready(); err != nil {
		return err
	}
	return r.o.Target.Ready()
}

// Run relays until ctx or the subscription ends; then it waits up to Options.Grace for deliveries,
// saves the cursor, and returns nil. Its error is final: another relay has the cursor
// (subscription.ErrElsewhere), a record is refused, or the subscription or the target failed. Call
// it once.
func (r *Relay) Run(ctx context.Context) error {
	running := r.metrics.up.WithLabelValues(r.o.Name)
	running.Set(1)
	defer running.Set(0)
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("relay %s: %w", r.o.Name, err)
	}
	return nil
}

func (r *Relay) run(ctx context.Context) error {
	defer func() {
		r.problem.Store(&errNotOpen)
		_ = r.o.Subscription.Close() // the relay ends in any case
	}()
	// The target outlives ctx, for the deliveries in flight at its end.
	targeting, stopTarget := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTarget()
	g, gctx := errgroup.WithContext(targeting)
	g.Go(func() error { return r.o.Target.Run(targeting) })
	g.Go(func() error {
		defer stopTarget()
		pumping, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(gctx, stop)() // the target has ended
		if err := r.connect(pumping); err != nil {
			return endOf(pumping, err)
		}
		err := r.pump(pumping)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if !errors.Is(err, subscription.ErrElsewhere) {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
			defer cancel()
			if failed := r.save(last, false); failed != nil && err == nil {
				err = failed
			}
		}
		if errors.Is(err, publish.ErrClosed) {
			return nil // the target failed, and returns its own error
		}
		return err
	})
	return g.Wait()
}

// connect opens the subscription. It retries until that succeeds, the error is final, or ctx ends.
func (r *Relay) connect(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := r.o.Subscription.Open(ctx)
		var transient driver.TransientError
		switch {
		case err == nil:
			r.restoreLosses()
			r.problem.Store(nil)
			return nil
		case !errors.As(err, &transient):
			return err
		}
		r.problem.Store(&err)
		if suppressed, ok := r.window.First("open"); ok && ctx.Err() == nil {
			r.log.Warn("cannot read the bus yet, retrying", "err", err, "suppressed", suppressed)
		}
		if err := pause.For(ctx, openBackoff().Delay(failures)); err != nil {
			return err
		}
	}
}

// restoreLosses reads the losses of former relays of this name from the cursor.
func (r *Relay) restoreLosses() {
	noter, ok := r.o.Subscription.(driver.Noter)
	if !ok {
		return
	}
	note, known := noter.Note()
	if !known || r.missing.load(note) != nil {
		r.missing.forget(time.Now())
	}
}

// endOf returns err, or nil if ctx has ended.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (r *Relay) pump(ctx context.Context) error {
	g, reading := errgroup.WithContext(ctx)
	delivering, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	ended := context.AfterFunc(reading, func() {
		r.queue.Close()
		if ctx.Err() == nil {
			giveUp(errGrace) // another relay may deliver by now
			return
		}
		late := time.AfterFunc(r.o.Grace, func() { giveUp(errGrace) })
		context.AfterFunc(delivering, func() { late.Stop() })
	})
	defer ended()
	g.Go(func() error { return r.readRecords(reading) })
	g.Go(func() error {
		d := publish.NewDispatcher(r.queue, func(it *queue.Item[*object.Delta]) *object.Delta { return it.Value },
			encoder{}, r.o.Target,
			publish.Options{Refused: r.handleRefusal}, r.log, nil)
		if err := d.Run(delivering); !errors.Is(err, errGrace) {
			return err
		}
		return nil // records given up are after the cursor, and come again
	})
	g.Go(func() error { return r.keepCursor(reading) })
	return g.Wait()
}

func (r *Relay) readRecords(ctx context.Context) error {
	for {
		rec, err := r.o.Subscription.Next(ctx)
		var missed *consume.MissedError
		switch {
		case errors.As(err, &missed):
			r.noteMissed(missed)
			continue
		case errors.Is(err, io.EOF):
			if err := r.marks.waitAllIdle(ctx); err != nil {
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
		if r.marks.isStuck() {
			for _, s := range r.copies.release() {
				r.marks.finish(s)
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

func (r *Relay) noteMissed(err *consume.MissedError) {
	r.missing.loseAny(time.Now())
	if err.Recreated {
		r.log.Error(
			"log was recreated or restored: the relay reads it from its beginning, and the undelivered records of the previous log are lost",
			"log", err.Log.Name, "partition", err.Log.Partition, "former", err.Log.ID, "read_to", err.From-1, "end",
			err.To)
		return
	}
	if err.To >= err.From {
		r.metrics.missed.WithLabelValues(r.o.Name).Add(float64(err.To - err.From + 1))
	}
	r.log.Error(
		"records were removed before the relay read them, and do not reach the target: make the bus keep records for longer than the relay may be down or behind",
		"log", err.Log.Name, "partition", err.Log.Partition, "from", err.From, "to", err.To)
}

func (r *Relay) take(ctx context.Context, rec *driver.Record, s *slot) error {
	if rec.LeftOut > 0 {
		r.metrics.passed.WithLabelValues(r.o.Name, passedFilter).Add(float64(rec.LeftOut))
	}
	switch e := rec.Event; {
	case rec.NoRecord:
		r.marks.finish(s)
		return nil
	case rec.Err != nil, e != nil && e.Data == nil && e.Stream == nil && e.Progress == nil && !e.IsFormerProgress():
		r.missing.lose(e, time.Now())
		r.passOver(rec, passedUnreadable)
		r.marks.finish(s)
		return nil
	// Dead letters are for inspection, and not part of the stream.
	case e.DeadLetterReason != "", r.o.Match != nil && !r.o.Match(e), e.Data == nil && r.objectsOnly:
		r.passOver(rec, passedFilter)
		r.marks.finish(s)
		return nil
	}
	r.missing.noteRead(rec.Event)
	switch e := rec.Event; {
	case e.Progress != nil:
		return r.deliverProgress(ctx, rec, s)
	case e.Stream != nil:
		return r.deliverStream(ctx, rec, s)
	default:
		r.marks.beginRecord(resourceOf(e))
		size := len(e.Data.Before) + len(e.Data.After) + len(e.Data.Patch) + 1024
		return r.lane.Put(ctx, keyOf(e), size, r.newDelta(rec, s))
	}
}

func resourceOf(e *consume.Event) string { return resourceIn(e.ClusterKey(), e.GroupResource()) }

func resourceIn(cluster consume.ClusterKey, resource string) string {
	return cluster.Source + " " + cluster.UID + " " + resource
}

func keyOf(e *consume.Event) string {
	if e.PartitionKey != "" {
		return e.PartitionKey
	}
	return resourceOf(e) + " " + e.Namespace + " " + e.Name
}

func (r *Relay) passOver(rec *driver.Record, reason string) {
	r.metrics.passed.WithLabelValues(r.o.Name, reason).Inc()
	if reason != passedUnreadable {
		return
	}
	err := rec.Err
	if err == nil {
		err = fmt.Errorf("%w of this release: its type is %.100q", consume.ErrNotKubecdc, rec.Event.Type)
	}
	if suppressed, ok := r.window.First(reason); ok {
		r.log.Error("skipping a record that cannot be read as an event: check it on the bus",
			"record", rec.Where(), "err", err, "suppressed", suppressed)
	}
}

// deliverStream delivers a stream event in order: after all earlier records of its resource, and
// before all later ones.
func (r *Relay) deliverStream(ctx context.Context, rec *driver.Record, s *slot) error {
	slots, late, complete := r.copies.addCopy(rec, s)
	for _, l := range late {
		r.marks.finish(l)
	}
	if !complete {
		return nil
	}
	resource := resourceOf(rec.Event)
	if err := r.marks.waitIdle(ctx, resource); err != nil {
		return err
	}
	r.marks.beginRecord(resource)
	if err := r.lane.Put(ctx, keyOf(rec.Event), 1024, r.newDelta(rec, slots...)); err != nil {
		return err
	}
	return r.marks.waitIdle(ctx, resource)
}

func (r *Relay) handleRefusal(d *object.Delta, err error) error {
	to := d.Acker.(*delivery) //nolint:forcetypeassert // the relay makes all of them
	rec := to.record
	if r.o.Refused != Skip {
		return fmt.Errorf(
			"%s: the target rejects event %s permanently: correct the target, or skip such records with refused: skip: %w",
			rec.Where(), rec.Event.ID, err)
	}
	to.skipped = true
	r.missing.lose(rec.Event, time.Now())
	r.passOver(rec, passedRefused)
	r.log.Error("the target rejects a record, which is skipped as configured; it stays on the source bus",
		"record", rec.Where(), "event_id", rec.Event.ID, "err", err)
	return nil
}

func (r *Relay) keepCursor(ctx context.Context) error {
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

// save saves the marks that have moved; check: even if none has, to verify that this relay still
// holds the cursor. It saves no others again: the stored ones may belong to another relay, or to a
// topic that was created again. It returns subscription.ErrElsewhere, and logs other errors.
func (r *Relay) save(ctx context.Context, check bool) error {
	marks := r.marks.all(true)
	if len(marks) == 0 && !check {
		return nil
	}
	if noter, ok := r.o.Subscription.(driver.Noter); ok {
		noter.SetNote(r.missing.encode()) // after marks: it has all that was lost before them
	}
	err := r.o.Subscription.Save(ctx, marks)
	switch {
	case err == nil:
		r.marks.noteSaved(marks)
		r.metrics.saved.WithLabelValues(r.o.Name).SetToCurrentTime()
	case errors.Is(err, subscription.ErrElsewhere):
		return err
	default:
		if suppressed, ok := r.window.First("save"); ok {
			r.log.Warn("cannot save the cursor, retrying; a restart would deliver later records again", "err", err,
				"suppressed", suppressed)
		}
	}
	return nil
}

func (r *Relay) lookBehind(ctx context.Context) {
	behind, err := r.o.Subscription.Behind(ctx, r.marks.all(false))
	switch {
	case err == nil:
		r.problem.Store(nil)
		r.metrics.behind.WithLabelValues(r.o.Name).Set(float64(behind))
	case !errors.Is(err, context.Canceled):
		// needed because a reader whose bus is away looks like one that has read all
		err = fmt.Errorf("its bus does not respond: %w", err)
		r.problem.Store(&err)
		if suppressed, ok := r.window.First("behind"); ok {
			r.log.Warn("cannot read the end of the bus, retrying", "err", err, "suppressed", suppressed)
		}
	}
}
