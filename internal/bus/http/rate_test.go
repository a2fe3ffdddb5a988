package http_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
)

// While isolated events are retried, one that is cut and one that is denied, others keep nine
// tenths of their rate.
func TestRateBesideAnIsolatedEvent(t *testing.T) {
	var cut, denied atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch body := string(b); {
		case strings.Contains(body, "hemlock"):
			cut.Add(1)
			cutOff(w)
		case strings.Contains(body, "stranger"):
			denied.Add(1)
			w.WriteHeader(http.StatusForbidden)
		}
	})
	r := run(t, publishhttp.Config{URL: url})
	l := offerTo(t, r.bus, 64, time.Millisecond)
	l.Put(t, "hemlock")
	l.Put(t, "stranger")
	wait(t, "two isolated events", func() bool { return len(l.Isolated()) == 2 })
	l.RateBeside(t, func() int { return int(cut.Load() + denied.Load()) })
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
