package fromnats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

// BenchmarkRead reads records of 12 KB from an embedded server, which uses the same processors.
func BenchmarkRead(b *testing.B) {
	record := consumetest.RecordOf12KB(b)
	bus := startBus(b)
	nc, js := bus.client()
	bus.stream(js, fromnats.DefaultStream)
	const records = 10000
	for range records {
		if err := nc.Publish("kubecdc.x.object.core.pods.shop.web", record); err != nil {
			b.Fatal(err)
		}
	}
	until(b, "all are stored", func() bool {
		s, err := js.Stream(b.Context(), fromnats.DefaultStream)
		return err == nil && s.CachedInfo().State.LastSeq == records
	})
	source := fromnats.JetStream{URL: bus.ClientURL()}
	q := consume.Query{Start: consume.Beginning(), StopAtEnd: true}

	b.Run("jetstream", func(b *testing.B) {
		b.SetBytes(int64(len(record)))
		for n := 0; n < b.N; {
			r, err := source.Read(b.Context(), q)
			if err != nil {
				b.Fatal(err)
			}
			for ; n < b.N; n++ {
				if _, err = r.Next(b.Context()); err != nil {
					break
				}
			}
			if err != nil && !errors.Is(err, io.EOF) {
				b.Fatal(err)
			}
			r.Close()
		}
	})
	b.Run("run", func(b *testing.B) {
		b.SetBytes(int64(len(record)))
		done := errors.New("done")
		for n := 0; n < b.N; {
			ctx, cancel := context.WithCancelCause(b.Context())
			left := min(b.N-n, records)
			err := fromnats.Run(ctx,
				fromnats.RunOptions{JetStream: source, Start: q.Start, Durable: fmt.Sprint("d", b.N, "-", n)},
				func(context.Context, *consume.Event) error {
					n++
					left--
					if left == 0 {
						cancel(done)
					}
					return nil
				})
			if !errors.Is(err, done) {
				b.Fatal(err)
			}
		}
	})
	// The cost of nats.go alone: the same consumer counts the messages and discards them.
	b.Run("baseline-nats.go", func(b *testing.B) {
		b.SetBytes(int64(len(record)))
		for n := 0; n < b.N; {
			c, err := js.OrderedConsumer(b.Context(), fromnats.DefaultStream, jetstream.OrderedConsumerConfig{})
			if err != nil {
				b.Fatal(err)
			}
			messages, err := c.Messages()
			if err != nil {
				b.Fatal(err)
			}
			for left := min(b.N-n, records); left > 0; left-- {
				if _, err := messages.Next(); err != nil {
					b.Fatal(err)
				}
				n++
			}
			messages.Stop()
		}
	})
}
