package nats_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/publish/publishtest"
)

// BenchmarkPublish compares blocking calls from 256 and 1,024 workers with jetstream's asynchronous publishing with 4,000 pending,
// both of 4 KB with ids into an embedded server, which shares the processor.
func BenchmarkPublish(b *testing.B) {
	body := strings.Repeat("x", 4<<10)
	for _, workers := range []int{256, 1024} {
		b.Run(fmt.Sprintf("blocking-%d", workers), func(b *testing.B) {
			s := publishtest.StartServer(b, b.TempDir(), -1)
			r := publishtest.RunNATS(b, publishtest.NATSConfig(s.ClientURL()))
			if err := r.Publish(b.Context(), publishtest.Event("web-1", 0, body)); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			cpu := publishtest.ProcessCPU(b)
			b.ResetTimer()
			var n atomic.Int64
			var wg sync.WaitGroup
			for k := range workers {
				wg.Go(func() {
					ev := publishtest.Event(fmt.Sprintf("web-%d", k), 1, body)
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
			publishtest.Report(b, cpu)
		})
	}
	b.Run("jetstream-async-4000", func(b *testing.B) {
		s := publishtest.StartServer(b, b.TempDir(), -1)
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
		cpu := publishtest.ProcessCPU(b)
		b.ResetTimer()
		for i := range b.N {
			m := nats.NewMsg(fmt.Sprintf("kubecdc.prod-eu-1.object.core.pods.shop.web-%d", i%256))
			m.Data = []byte(body)
			m.Header.Set("content-type", "application/cloudevents+json")
			if _, err := js.PublishMsgAsync(m, jetstream.WithMsgID(fmt.Sprintf("pods/uid/%016d", i)), jetstream.WithStallWait(time.Minute)); err != nil {
				b.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
		publishtest.Report(b, cpu)
	})
}
