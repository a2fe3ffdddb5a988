package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Load is a dispatcher with a queue of events.
type Load struct {
	Stop func() // ends it without an error of the dispatcher

	offered, acked atomic.Int64

	add   func(ctx context.Context, d *object.Delta) error
	stuck func() []publish.Stuck
}

// StartLoad publishes versions of 64 objects of one resource to a bus until Stop, those of each
// object one after the other. It publishes one event each pace, or as many as the bus takes if pace
// is 0. add adds a delta to the queue, in one lane.
func StartLoad[I comparable](
	tb testing.TB, bus publish.Bus, queue publish.Queue[I], delta func(I) *object.Delta, add func(
		ctx context.Context, d *object.Delta,
	) error, pace time.Duration,
) *Load {
	tb.Helper()
	l := &Load{add: add}
	dispatcher := publish.NewDispatcher(queue, delta, l, bus, publish.Options{}, Discard, nil)
	l.stuck = dispatcher.Stuck
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return dispatcher.Run(ctx) })
	g.Go(func() error {
		tick := time.NewTicker(max(pace, 1))
		defer tick.Stop()
		for i := 0; l.put(ctx, fmt.Sprint("web-", i%64), i/64+1) == nil; i++ {
			l.offered.Add(1)
			if pace > 0 {
				<-tick.C
			}
		}
		return nil
	})
	l.Stop = func() {
		cancel()
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			tb.Error(err)
		}
	}
	return l
}

func (l *Load) put(ctx context.Context, name string, version int) error {
	d := Event(name, version, "").Delta
	d.Acker = l
	return l.add(ctx, d)
}

// Put adds an event of another object of the same resource. Its body contains the name.
func (l *Load) Put(tb testing.TB, name string) {
	tb.Helper()
	if err := l.put(tb.Context(), name, 1); err != nil {
		tb.Fatal(err)
	}
}

// Acked implements object.Acker.
func (l *Load) Acked(*object.Delta) { l.acked.Add(1) }

// Count returns the number of acknowledged events.
func (l *Load) Count() int { return int(l.acked.Load()) }

// Isolated returns the ids of the events that are sent alone and wait for another attempt.
func (l *Load) Isolated() (ids []string) {
	for _, s := range l.stuck() {
		if s.Alone {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// Encode implements publish.Encoder.
func (*Load) Encode(ev *encode.Event, d *object.Delta) error {
	*ev = *Event(d.Ref.Name(), int(d.ResourceVersion), fmt.Sprintf(`{"name":%q}`, d.Ref.Name()))
	ev.Delta = d
	ev.PartitionKey = []byte(d.Ref.Name())
	return nil
}

var errWhole = errors.New("a load has whole events only")

// EncodeShort implements publish.Encoder.
func (*Load) EncodeShort(*encode.Event, *object.Delta, encode.Short) error { return errWhole }

// EncodeWhole implements publish.Encoder.
func (*Load) EncodeWhole(*encode.Event, *object.Delta) error { return errWhole }

// RateBeside checks that the bus takes nine tenths of the offered events while isolated ones are
// tried a few more times. attempts returns how often they were tried so far.
func (l *Load) RateBeside(tb testing.TB, attempts func() int) {
	tb.Helper()
	const least, tries = 3000, 3
	tried := attempts()
	offered := l.offered.Load()
	acked := l.acked.Load()
	Wait(tb, "attempts", func() bool { return attempts() >= tried+tries && l.offered.Load() >= offered+least })
	acked, offered = l.acked.Load()-acked, l.offered.Load()-offered
	tb.Logf("%d of %d offered events were acknowledged while isolated events were tried %d times", acked, offered,
		attempts()-tried)
	if 10*acked < 9*offered {
		tb.Errorf("%d of %d offered events were acknowledged beside isolated ones, want nine tenths", acked, offered)
	}
}
