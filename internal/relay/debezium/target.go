package debezium

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Options configure a Target.
type Options struct {
	driver.Changelog
	Log *slog.Logger
}

// Target is the target of a relay. It implements relay.Target and relay.LossReader.
type Target struct {
	o       Options
	known   *history
	sweeps  *publish.Inbox[*publish.Event]
	losses  func(of consume.ClusterKey, resource string) (until time.Time, lost bool)
	problem atomic.Pointer[error] // why a sweep has not been made yet; nil: none waits
	window  publish.Window
}

// New returns a target; Run starts both buses.
func New(o Options) *Target {
	return &Target{
		o:      o,
		known:  newHistory(),
		sweeps: publish.NewInbox[*publish.Event](),
		losses: func(consume.ClusterKey, string) (time.Time, bool) { return time.Time{}, false },
	}
}

// ReadLosses implements relay.LossReader.
func (t *Target) ReadLosses(losses func(of consume.ClusterKey, resource string) (until time.Time, lost bool)) {
	t.losses = losses
}

// Run implements publish.Bus.
func (t *Target) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.o.Rows.Run(ctx) })
	g.Go(func() error { return t.o.Stream.Run(ctx) })
	g.Go(func() error {
		t.runSweeps(ctx)
		return nil
	})
	return g.Wait()
}

// Ready implements publish.Bus.
func (t *Target) Ready() error {
	if err := t.problem.Load(); err != nil {
		return *err
	}
	return errors.Join(t.o.Rows.Ready(), t.o.Stream.Ready())
}

// Publish implements publish.Bus.
func (t *Target) Publish(e *publish.Event) {
	ev := relay.RecordOf(e).Event
	if ev.Type == consume.TypeSnapshotStarted {
		t.known.clear()
	}
	switch {
	case ev.Data != nil:
		t.publishRow(e, ev, false)
	case t.sweepOf(ev) == nil:
		t.publishStream(e, ev)
	case !t.sweeps.Put(e):
		e.Done(publish.ErrClosed)
	}
}

// publishRow sends the row of an event of an object. If the row is too large, it is sent without
// the object before.
func (t *Target) publishRow(e *publish.Event, ev *consume.Event, noBefore bool) {
	if t.known.isLate(ev) {
		e.Done(nil)
		return
	}
	if ev.PartitionKey == "" { // all such objects would have one row
		e.Done(fmt.Errorf("row of %s: %w: it has no partitionkey", ev.ID, publish.ErrRefused))
		return
	}
	value, gone, err := Row(ev, noBefore, time.Now())
	if err != nil {
		e.Done(fmt.Errorf("row of %s: %w: %w", ev.ID, publish.ErrRefused, err))
		return
	}
	d := *e.Delta
	d.Op = object.Updated
	d.Stream = nil
	d.Report = nil
	if gone {
		d.Op = object.Deleted // also of an event of op l: a tombstone follows
	}
	t.o.Rows.Publish(derived(e, &d, value, func(err error) {
		switch {
		case err == nil:
			t.known.note(ev)
		case !noBefore && objectOf(ev.Data.Before) != nil && errors.Is(err, publish.ErrTooLarge):
			t.publishRow(e, ev, true)
			return
		}
		e.Done(err)
	}))
}

// publishStream sends a stream event.
func (t *Target) publishStream(e *publish.Event, ev *consume.Event) {
	value, err := streamValue(ev, e.Body, time.Now())
	if err != nil {
		e.Done(fmt.Errorf("row of %s: %w: %w", ev.ID, publish.ErrRefused, err))
		return
	}
	// The topic is one for all, so the resource does not matter. The record has the present time,
	// so that Kafka keeps it for as long as others, however old the event is.
	d := &object.Delta{Op: object.Updated, Ref: object.NewRef(&object.Resource{}, "", "", "")}
	t.o.Stream.Publish(derived(e, d, value, e.Done))
}

// derived returns an event with another value, under the key of e. done receives its outcome.
func derived(e *publish.Event, d *object.Delta, value []byte, done func(error)) *publish.Event {
	out := publish.NewEvent(&encode.Event{
		Delta:        d,
		ID:           e.ID,
		Source:       e.Source,
		ClusterUID:   e.ClusterUID,
		Type:         e.Type,
		PartitionKey: e.PartitionKey,
		ContentType:  mediaType,
		Body:         value,
	}, done, e.Retried)
	out.Alone = e.Alone
	return out
}

const mediaType = "application/json"
