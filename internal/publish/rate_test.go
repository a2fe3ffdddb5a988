package publish_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
)

// slowBus takes each event after a second. The poisoned one breaks the connection that it is sent
// on, with all events in flight on it.
type slowBus struct {
	ctx context.Context // of the test

	mu       sync.Mutex
	flying   map[*publish.Event]bool
	attempts int // to send the poisoned event alone
}

func (b *slowBus) Publish(e *publish.Event) {
	poisoned := e.Delta.Ref.Name() == "hemlock"
	b.mu.Lock()
	b.flying[e] = true
	var broken []*publish.Event
	switch {
	case poisoned && e.Alone:
		b.attempts++
		broken = append(broken, e)
	case poisoned:
		for f := range b.flying {
			if !f.Alone {
				broken = append(broken, f)
			}
		}
	}
	for _, f := range broken {
		delete(b.flying, f)
	}
	b.mu.Unlock()
	for _, f := range broken {
		f.Done(&publish.RetryError{Reason: publish.ReasonConnection, Alone: true, Err: errors.New("cut")})
	}
	if poisoned {
		return
	}
	go func() {
		select {
		case <-time.After(time.Second):
		case <-b.ctx.Done():
		}
		b.mu.Lock()
		flies := b.flying[e]
		delete(b.flying, e)
		b.mu.Unlock()
		if flies {
			e.Done(nil)
		}
	}()
}

func (*slowBus) Run(context.Context) error { return nil }
func (*slowBus) Ready() error              { return nil }

// While an isolated event is retried, others keep nine tenths of their rate, also the events of its
// resource.
func TestRateBesideAnIsolatedEvent(t *testing.T) {
	const span, inFlight = 10 * time.Minute, 24
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b := &slowBus{ctx: ctx, flying: map[*publish.Event]bool{}}
		l := offerTo(t, b, inFlight, 0)
		rate := func() int {
			before := l.Count()
			<-time.After(span)
			return l.Count() - before
		}
		alone := rate()
		l.Put(t, "hemlock")
		beside := rate()
		b.mu.Lock()
		attempts := b.attempts
		b.mu.Unlock()
		t.Logf("%d events in %v, %d beside an isolated one, which was tried %d times", alone, span, beside, attempts)
		if 10*beside < 9*alone || alone == 0 {
			t.Errorf("%d events beside an isolated one, %d without it", beside, alone)
		}
		if ids := l.Isolated(); attempts < 5 || len(ids) != 1 || ids[0] != "pods/uid-hemlock/1" {
			t.Errorf("isolated are %v, after %d attempts", ids, attempts)
		}
		l.Stop()
	})
}

// offerTo publishes events of one resource to a bus, through the agent's queue.
func offerTo(tb testing.TB, bus publish.Bus, inFlight int, pace time.Duration) *bustest.Load {
	tb.Helper()
	q := queue.New[*object.Delta](queue.Options{Events: 4 * inFlight, Bytes: 1 << 30, InFlight: inFlight}, nil)
	lane := q.Lane("pods")
	return bustest.StartLoad(tb, bus, q, func(it *queue.Item[*object.Delta]) *object.Delta { return it.Value },
		func(ctx context.Context, d *object.Delta) error {
			return lane.Put(ctx, d.Ref.Key, 1, d)
		}, pace)
}
