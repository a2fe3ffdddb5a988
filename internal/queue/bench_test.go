package queue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/kubecdc/kubecdc/internal/queue"
)

type payload struct{ _ [64]byte }

// benchKeys returns n keys per lane, ready made as an informer's are.
func benchKeys(lanes, n int) [][]string {
	keys := make([][]string, lanes)
	for l := range keys {
		for i := range n {
			keys[l] = append(keys[l], fmt.Sprintf("apps/deployments/namespace-%d/name-%d", l, i))
		}
	}
	return keys
}

// BenchmarkPath sends items from 32 informers through the queue to a number of workers, each of
// which waits for an acknowledgement, as publish does. The baseline sends them through a channel,
// which knows neither keys nor lanes.
func BenchmarkPath(b *testing.B) {
	const lanes = 32
	keys := benchKeys(lanes, 200)
	v := &payload{}
	for _, workers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("workers=%d/queue", workers), func(b *testing.B) {
			b.ReportAllocs()
			q := queue.New[*payload](queue.Options{Events: 131072, Bytes: 64 << 20, InFlight: workers}, nil)
			runPath(b, lanes, workers, func(ctx context.Context, lane, n int) {
				l := q.Lane(fmt.Sprint(lane))
				for i := range n {
					if err := l.Put(ctx, keys[lane][i%200], 600, v); err != nil {
						b.Error(err)
						return
					}
				}
			}, q.Close, func(ctx context.Context, acknowledged func()) {
				for {
					it, err := q.Get(ctx)
					if err != nil {
						if !errors.Is(err, queue.ErrClosed) {
							b.Error(err)
						}
						return
					}
					acknowledged()
					q.Done(it)
				}
			})
		})
		b.Run(fmt.Sprintf("workers=%d/channel", workers), func(b *testing.B) {
			b.ReportAllocs()
			ch := make(chan *payload, 131072)
			runPath(b, lanes, workers, func(ctx context.Context, _, n int) {
				for range n {
					select {
					case ch <- v:
					case <-ctx.Done():
						return
					}
				}
			}, func() { close(ch) }, func(ctx context.Context, acknowledged func()) {
				for {
					select {
					case _, ok := <-ch:
						if !ok {
							return
						}
						acknowledged()
					case <-ctx.Done():
						return
					}
				}
			})
		})
	}
}

func runPath(
	b *testing.B, lanes, workers int,
	produce func(ctx context.Context, lane, n int), end func(), work func(ctx context.Context, acknowledged func()),
) {
	ctx := b.Context()
	bus := make(chan chan struct{}, workers)
	var acks, workersLeft, producersLeft sync.WaitGroup
	acks.Go(func() {
		for reply := range bus {
			reply <- struct{}{}
		}
	})
	b.ResetTimer()
	for range workers {
		workersLeft.Go(func() {
			reply := make(chan struct{}, 1)
			work(ctx, func() { bus <- reply; <-reply })
		})
	}
	for lane := range lanes {
		n := b.N / lanes
		if lane < b.N%lanes {
			n++
		}
		producersLeft.Go(func() { produce(ctx, lane, n) })
	}
	producersLeft.Wait()
	end()
	workersLeft.Wait()
	b.StopTimer()
	close(bus)
	acks.Wait()
}

// BenchmarkPutGetDone is the way of one item, with nobody else there.
func BenchmarkPutGetDone(b *testing.B) {
	for name, depth := range map[string]int{"empty": 0, "100000 queued": 100000} {
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			q := queue.New[*payload](queue.Options{Events: 1 << 18, Bytes: 64 << 20}, nil)
			l := q.Lane("pods")
			keys := benchKeys(1, 110000)[0]
			for i := range depth {
				if err := l.Put(ctx, keys[i], 1, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			i := depth
			for b.Loop() {
				if err := l.Put(ctx, keys[i%len(keys)], 1, nil); err != nil {
					b.Fatal(err)
				}
				it, err := q.Get(ctx)
				if err != nil {
					b.Fatal(err)
				}
				q.Done(it)
				i++
			}
		})
	}
}

// BenchmarkFull has 40 informers wait at a full queue: each Done lets the next one in.
func BenchmarkFull(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	q := queue.New[*payload](queue.Options{Events: 1000, Bytes: 64 << 20}, nil)
	var wg sync.WaitGroup
	for lane, keys := range benchKeys(40, 200) {
		wg.Go(func() {
			l := q.Lane(fmt.Sprint(lane))
			for i := 0; l.Put(ctx, keys[i%200], 1, nil) == nil; i++ {
			}
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		it, err := q.Get(ctx)
		if err != nil {
			b.Fatal(err)
		}
		q.Done(it)
	}
	cancel()
	wg.Wait()
}

// BenchmarkMemory reports what 100,000 queued items cost, besides the values and the keys' bytes.
func BenchmarkMemory(b *testing.B) {
	const n = 100000
	ctx := b.Context()
	for name, perKey := range map[string]int{"one per key": 1, "ten per key": 10} {
		b.Run(name, func(b *testing.B) {
			keys := benchKeys(1, n/perKey)[0]
			for b.Loop() {
				before := heap()
				q := queue.New[*payload](queue.Options{Events: 1 << 18, Bytes: 64 << 20}, nil)
				l := q.Lane("pods")
				for i := range n {
					if err := l.Put(ctx, keys[i%len(keys)], 1, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(heap()-before)/n, "B/item")
				runtime.KeepAlive(q)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkHandOff has a mostly empty queue and workers that wait, as when the bus is faster than
// the cluster.
func BenchmarkHandOff(b *testing.B) {
	for _, workers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			ctx := b.Context()
			// As many slots as workers: were there more, the one informer would fill them before
			// the first worker runs.
			q := queue.New[*payload](queue.Options{Events: min(workers, 8), Bytes: 64 << 20}, nil)
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for {
						it, err := q.Get(ctx)
						if err != nil {
							return
						}
						q.Done(it)
					}
				})
			}
			l, keys := q.Lane("pods"), benchKeys(1, 200)[0]
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := l.Put(ctx, keys[i%200], 1, nil); err != nil {
					b.Fatal(err)
				}
			}
			q.Close()
			wg.Wait()
		})
	}
}
