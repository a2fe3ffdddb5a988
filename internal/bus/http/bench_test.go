package http_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/encode"
)

// BenchmarkBus compares publishing with plain net/http, to the same receiver in this process, which
// shares the processor. An operation is always an event of 4 KiB.
//
// single: 64 events in flight. With plain net/http, 64 workers each Post an event and read the
// answer to its end.
//
// batch: 32 events a request, 4 requests in flight, 256 events handed over and not yet
// acknowledged. With plain net/http, events come one at a time through a channel that holds the
// waiting ones. Each of 4 workers joins up to 32 of them to an array and posts it. The array's
// buffer is reused, which is safe only if the receiver reads a request before it answers. Workers
// report no event's result to a caller. With Publish, each of 256 calls waits for its own event's
// result, which keeps keys in order.
func BenchmarkBus(b *testing.B) {
	const workers, batch, flights, handed = 64, 32, 4, 256
	body := []byte(strings.Repeat("x", 4<<10))
	var requests atomic.Int64
	receiver := func(b *testing.B) string {
		requests.Store(0)
		return serve(b, func(_ http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
		})
	}
	// measure runs f, which must end b.N events, in as many goroutines as there are workers.
	measure := func(b *testing.B, workers int, f func() error) {
		b.Helper()
		b.ReportAllocs()
		cpu := processCPU(b)
		b.ResetTimer()
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				if err := f(); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		report(b, cpu)
		b.ReportMetric(float64(b.N)/float64(requests.Load()), "events/request")
	}
	poster := func(b *testing.B, idle int, contentType string) func(body []byte) error {
		url := receiver(b)
		transport := &http.Transport{MaxIdleConns: idle, MaxIdleConnsPerHost: idle}
		b.Cleanup(transport.CloseIdleConnections)
		client := &http.Client{Transport: transport}
		return func(body []byte) error {
			res, err := client.Post(url, contentType, bytes.NewReader(body))
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, res.Body)
			return res.Body.Close()
		}
	}
	ours := func(b *testing.B, cfg publishhttp.Config, workers int) {
		cfg.URL = receiver(b)
		r := run(b, cfg)
		var n, k atomic.Int64
		measure(b, workers, func() error {
			ev := event(fmt.Sprintf("web-%d", k.Add(1)), 1, string(body))
			for n.Add(1) <= int64(b.N) {
				if err := r.Publish(b.Context(), ev); err != nil {
					return err
				}
			}
			return nil
		})
	}

	b.Run("single/bare", func(b *testing.B) {
		post := poster(b, workers, "application/cloudevents+json")
		var n atomic.Int64
		measure(b, workers, func() error {
			for n.Add(1) <= int64(b.N) {
				if err := post(body); err != nil {
					return err
				}
			}
			return nil
		})
	})
	b.Run("single/publish", func(b *testing.B) { ours(b, publishhttp.Config{InFlight: workers}, workers) })
	b.Run("batch/bare", func(b *testing.B) {
		post := poster(b, flights, "application/cloudevents-batch+json")
		events := make(chan *encode.Event, handed-batch*flights)
		var feeder sync.WaitGroup
		feeder.Go(func() {
			defer close(events)
			ev := event("web-1", 1, string(body))
			for range b.N {
				events <- ev
			}
		})
		measure(b, flights, func() error {
			var array []byte
			for ev := range events {
				array = append(append(array[:0], '['), ev.Body...)
				for n, more := 1, true; more && n < batch; n++ {
					select {
					case next, ok := <-events:
						more = ok
						if ok {
							array = append(append(array, ','), next.Body...)
						}
					default:
						more = false
					}
				}
				array = append(array, ']')
				if err := post(array); err != nil {
					for range events { // otherwise the feeder would wait forever
					}
					return err
				}
			}
			return nil
		})
		feeder.Wait()
	})
	b.Run("batch/publish", func(b *testing.B) {
		ours(b, publishhttp.Config{Batch: batch, InFlight: flights}, handed)
	})
}

// processCPU returns the CPU time that this process has used, including the receiver.
func processCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func report(b *testing.B, cpuBefore time.Duration) {
	b.Helper()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(processCPU(b)-cpuBefore)/float64(b.N), "cpu-ns/op")
}
