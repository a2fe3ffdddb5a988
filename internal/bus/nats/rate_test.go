package nats_test

import (
	"context"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
)

// While an isolated event is retried, others keep nine tenths of their rate, also those of its
// resource.
func TestRateBesideAnIsolatedEvent(t *testing.T) {
	s := bustest.StartServer(t, t.TempDir(), -1)
	p := bustest.StartProxy(t, s.Addr().String())
	p.Poison("hemlock")
	r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
	l := offerTo(t, r.Bus, 64, time.Millisecond)
	l.Put(t, "hemlock")
	bustest.Wait(t, "an isolated event", func() bool { return len(l.Isolated()) == 1 })
	l.RateBeside(t, p.Poisonings)
	l.Stop()
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
