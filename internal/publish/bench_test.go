package publish_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// BenchmarkPublish compares blocking calls from 256 workers with jetstream's asynchronous publishing with 4,000 pending,
// both of 4 KB with ids into an embedded server, which shares the processor.
func BenchmarkPublish(b *testing.B) {
	body := strings.Repeat("x", 4<<10)
	b.Run("blocking-256", func(b *testing.B) {
		s := startServer(b, b.TempDir(), -1)
		r := run(b, testConfig(s.ClientURL()))
		if err := r.Publish(b.Context(), event("web-1", 0, body)); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.ResetTimer()
		var n atomic.Int64
		var wg sync.WaitGroup
		for k := range 256 {
			wg.Go(func() {
				ev := event(fmt.Sprintf("web-%d", k), 1, body)
				for {
					rv := n.Add(1)
					if rv > int64(b.N) {
						return
					}
					ev.ID = fmt.Appendf(ev.ID[:0], "pods/uid/%d", rv)
					if err := r.Publish(b.Context(), ev); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("jetstream-async-4000", func(b *testing.B) {
		s := startServer(b, b.TempDir(), -1)
		nc, err := nats.Connect(s.ClientURL())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(nc.Close)
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
			Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, Discard: jetstream.DiscardNew, AllowDirect: true,
		}); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			m := nats.NewMsg(fmt.Sprintf("kubecdc.prod-eu-1.object.core.pods.shop.web-%d", i%256))
			m.Data = []byte(body)
			m.Header.Set("content-type", "application/cloudevents+json; charset=UTF-8")
			if _, err := js.PublishMsgAsync(m, jetstream.WithMsgID(fmt.Sprintf("pods/uid/%016d", i)), jetstream.WithStallWait(time.Minute)); err != nil {
				b.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
}

func BenchmarkSubject(b *testing.B) {
	s, err := publish.NewSubjects("", "prod-eu-1")
	if err != nil {
		b.Fatal(err)
	}
	d := delta("apps", "deployments", "shop", "web-5d8f9c7b6-x2k4p")
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = s.Append(buf[:0], d)
	}
}
