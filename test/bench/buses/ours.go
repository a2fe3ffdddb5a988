package buses

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// maxEventBytes is the agent's default.
const maxEventBytes = 900 << 10

// Server is the destination.
type Server struct {
	NATS  string   // URL
	Kafka []string // brokers
	HTTP  string   // URL
	// Name is the name of the stream or topic, which must not exist.
	Name string
	// Batch is how many events an HTTP request may hold.
	Batch int
}

// inFlight is the number of HTTP requests in flight at once. With batches it is lower, so that
// there is something to batch.
func (s *Server) inFlight() int {
	if s.Batch > 1 {
		return 4
	}
	return publish.InFlight
}

func (s *Server) bus(log *slog.Logger) (publish.Bus, error) {
	switch {
	case s.NATS != "":
		return nats.New(nats.Config{
			URL: s.NATS, Stream: natsconfig.Stream{Name: s.Name, Create: true}, Env: driver.Env{
				Cluster:       cluster,
				MaxEventBytes: maxEventBytes,
			},
		}, log, nil)
	case len(s.Kafka) > 0:
		return kafka.New(kafka.Config{
			Brokers:     s.Kafka,
			Topic:       s.Name,
			Compression: "zstd",
			Create: &kafkaconfig.Topic{
				Partitions:        partitions,
				ReplicationFactor: 1,
			},
			Env: driver.Env{Cluster: cluster, MaxEventBytes: maxEventBytes},
		}, log, nil)
	default:
		return publishhttp.New(publishhttp.Config{URL: s.HTTP, Batch: s.Batch, InFlight: s.inFlight()}, log, nil)
	}
}

// Ours sends the workload as the agent does and returns how long that took, from the first event
// until the last one was acknowledged.
func Ours(ctx context.Context, s *Server, w *Workload) (time.Duration, error) {
	return withBus(ctx, s, func(ctx context.Context, b publish.Bus) error {
		d := publish.NewDispatcher(newQueue(w), func(it item) *object.Delta { return it.delta }, encoder(), b,
			publish.Options{MaxEventBytes: maxEventBytes}, slog.New(slog.DiscardHandler), nil)
		return d.Run(ctx)
	})
}

// Publisher is Ours with events that were encoded beforehand, as for Bare. So it measures only the
// publisher.
func Publisher(ctx context.Context, s *Server, w *Workload) (time.Duration, error) {
	return withBus(ctx, s, func(ctx context.Context, b publish.Bus) error {
		queue := newQueue(w)
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		for {
			it, err := queue.Get(ctx)
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			b.Publish(publish.NewEvent(it.event, func(err error) {
				if err != nil {
					cancel(err)
					return
				}
				queue.Done(it)
			}, nil))
		}
	})
}

// withBus runs a publisher, waits until it is ready, and measures how long send takes.
func withBus(
	ctx context.Context, s *Server, send func(context.Context, publish.Bus) error,
) (took time.Duration, err error) {
	b, err := s.bus(slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.Run(ctx) })
	g.Go(func() error {
		defer cancel()
		if err := ready(ctx, b); err != nil {
			return err
		}
		begin := time.Now()
		err := send(ctx, b)
		took = time.Since(begin)
		return err
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return 0, err
	}
	if took == 0 {
		return 0, fmt.Errorf("ended before the last event: %w", context.Cause(ctx))
	}
	return took, nil
}

// ready waits until the bus is ready.
func ready(ctx context.Context, b publish.Bus) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := b.Ready(); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
