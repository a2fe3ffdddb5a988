package queue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/queue"
)

// TestStuckLanesStopNoOther has some lanes whose items do not come back until the end, as if a
// topic is missing. One after the other, they push all their items into the queue, live or as
// catch-up, and take all workers they can. Other lanes' live deltas and catch-up still pass, also
// many more than the queue holds. At the end all items come out, in order.
func TestStuckLanesStopNoOther(t *testing.T) {
	for _, tc := range []struct{ stuck, workers, events, inFlight int }{
		{stuck: 1, workers: 2, events: 32},
		{stuck: 1, workers: 3, events: 32},
		{stuck: 1, workers: 512, events: 2048},
		{stuck: 5, workers: 256, events: 2048},
		{stuck: 6, workers: 512, events: 8192},
		// There are enough workers; the stuck lanes use up the bytes in flight.
		{stuck: 1, workers: 256, events: 512, inFlight: 200},
		{stuck: 4, workers: 256, events: 1024, inFlight: 2000},
	} {
		for _, how := range []string{"live", "catch-up", "both"} {
			t.Run(fmt.Sprintf("%d of %d workers and %d bytes, %s", tc.stuck, tc.workers, tc.inFlight, how),
				func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						stuckLanes(t, tc.stuck, tc.workers, tc.events, int64(tc.inFlight), how)
					})
				})
		}
	}
}

func stuckLanes(t *testing.T, stuck, workers, events int, inFlight int64, how string) {
	q := queue.New[int](queue.Options{Events: events, Bytes: 1 << 20, InFlight: workers, InFlightBytes: inFlight}, nil)
	q.WeighBy(func(round int) int64 { return int64(10 + 10*(round%2)) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mended := make(chan struct{})

	var (
		mu    sync.Mutex
		next  = map[string]int{} // per key
		total int
	)
	var working, pushing sync.WaitGroup
	for range workers {
		working.Go(func() {
			for {
				it, err := q.Get(ctx)
				if err != nil {
					return
				}
				if strings.HasPrefix(it.Key(), "stuck") {
					select {
					case <-mended:
					case <-ctx.Done():
					}
				}
				mu.Lock()
				if want := next[it.Key()]; it.Value != want {
					t.Errorf("%s: item %d, want %d", it.Key(), it.Value, want)
				}
				next[it.Key()]++
				total++
				mu.Unlock()
				q.Done(it)
			}
		})
	}
	out := func() int {
		mu.Lock()
		defer mu.Unlock()
		return total
	}

	// push sends rounds of items under the given number of keys.
	push := func(lane string, keys, rounds int, catchUp bool) {
		l := q.Lane(lane)
		for i := range keys * rounds {
			key := fmt.Sprint(lane, "/", catchUp, "/", i%keys)
			for catchUp && !l.TryPut(key, 1, i/keys) {
				if err := roomy(ctx, l.Room()); err != nil {
					t.Error(err)
					return
				}
			}
			if !catchUp {
				if err := l.Put(ctx, key, 1, i/keys); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}
	more := events // of each lane: with two rounds, twice what the queue holds
	for i := range stuck {
		if how != "catch-up" {
			pushing.Go(func() { push(fmt.Sprint("stuck-", i), more, 2, false) })
		}
		if how != "live" {
			pushing.Go(func() { push(fmt.Sprint("stuck-", i), more, 2, true) })
		}
		synctest.Wait() // one lane after the other: each takes everything that those before it have left
	}
	if out() != 0 {
		t.Fatalf("%d items are out before all is mended", out())
	}

	pushing.Go(func() { push("configmaps", 100, 2*events/100+1, false) })
	pushing.Go(func() { push("nodes", 100, 2*events/100+1, true) })
	synctest.Wait()
	well := 2 * 100 * (2*events/100 + 1)
	if out() != well {
		t.Errorf("%d of %d items of lanes that are well have come out", out(), well)
	}

	close(mended)
	pushing.Wait()
	q.Close()
	if err := q.Drained(ctx); err != nil {
		t.Error(err)
	}
	working.Wait()
	pushed := 2 * more * stuck
	if how == "both" {
		pushed *= 2
	}
	if want := well + pushed; out() != want {
		t.Errorf("%d items are out at the end, want %d", out(), want)
	}
}

// A lane alone has two thirds of the items in flight, and each lane may have one, as long as the
// bound allows one more.
func TestItemsInFlightOfALane(t *testing.T) {
	for bound, want := range map[int]int{0: 100, 1: 1, 2: 1, 3: 2, 4: 2, 6: 4, 8: 5, 90: 60} {
		t.Run(fmt.Sprint(bound), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := queue.New[int](queue.Options{Events: 1000, Bytes: 1000, InFlight: bound}, nil)
				for i := range 100 {
					if err := q.Lane("pods").Put(t.Context(), fmt.Sprint(i), 1, i); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var callers sync.WaitGroup
				for range cmp.Or(bound, 100) {
					callers.Go(func() {
						if _, err := q.Get(ctx); err != nil && !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				if got := q.Stats().Inflight; got != want {
					t.Errorf("%d in flight, want %d", got, want)
				}
				if err := q.Lane("nodes").Put(t.Context(), "node", 1, 100); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := q.Stats().Inflight; bound > 1 && got != want+1 {
					t.Errorf("%d in flight with one of another lane, want %d", got, want+1)
				}
				cancel()
				callers.Wait()
			})
		})
	}
}

// Suspended items have no bytes in flight. They keep their keys, and count against the items in
// flight. Once resumed, they are handed out before later ones.
func TestSuspendedItemsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// one lane alone has four of them
		q := queue.New[int](queue.Options{Events: 100, Bytes: 1 << 20, InFlight: 6, InFlightBytes: 6}, nil)
		q.WeighBy(func(int) int64 { return 1 })
		for i := range 20 {
			key := i
			if i == 5 {
				key = 0 // queued after the first item of its key
			}
			if err := q.Lane("pods").Put(t.Context(), fmt.Sprint("pod-", key), 1, i); err != nil {
				t.Fatal(err)
			}
		}
		// expect takes all items that are handed out.
		expect := func(when string, want ...int) (items []*queue.Item[int]) {
			t.Helper()
			var got []int
			for {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				it, err := q.Get(ctx)
				cancel()
				if err != nil {
					break
				}
				items, got = append(items, it), append(got, it.Value)
			}
			if !slices.Equal(want, got) {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
			return items
		}
		first := expect("at first", 0, 1, 2, 3)
		for _, it := range first {
			q.Suspend(it)
		}
		if s := q.Stats(); s.Inflight != 4 || s.InflightBytes != 0 {
			t.Errorf("%d items and %d bytes are in flight, want 4 and 0", s.Inflight, s.InflightBytes)
		}
		expect("with four suspended")
		q.Done(first[1:]...)
		second := expect("with three done", 4, 6, 7)
		q.Resume(first[0])
		q.Done(second...)
		third := expect("with the first resumed", 0, 8, 9, 10)
		q.Done(third...)
		expect("behind the first of a key", 5, 11, 12, 13)
	})
}

// A closed queue has items for Get as long as a suspended one may come back.
func TestClosedQueueWaitsForSuspendedItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[int](queue.Options{Events: 10, Bytes: 10}, nil)
		if err := q.Lane("pods").Put(t.Context(), "pod", 1, 1); err != nil {
			t.Fatal(err)
		}
		it, err := q.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		q.Suspend(it)
		q.Close()
		again := make(chan error, 1)
		go func() {
			it, err := q.Get(t.Context())
			if err == nil {
				q.Done(it)
			}
			again <- err
		}()
		synctest.Wait()
		q.Resume(it)
		if err := <-again; err != nil {
			t.Error(err)
		}
		if _, err := q.Get(t.Context()); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("got %v, want %v", err, queue.ErrClosed)
		}
	})
}
