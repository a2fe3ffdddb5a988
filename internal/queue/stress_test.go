package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kubecdc/kubecdc/internal/queue"
)

// TestStress runs many producers and many workers on a small queue. All of them give up at random
// and retry. Every item is checked against the rules.
func TestStress(t *testing.T) {
	const (
		producers = 24
		workers   = 48
		keys      = 5 // per producer
		maxEvents = 64
		maxBytes  = 4000
		maxFlying = 800
		keyShare  = 7
	)
	perKey := 200
	if testing.Short() {
		perKey = 60
	}
	q := queue.New[int](queue.Options{Events: maxEvents, Bytes: maxBytes, InFlightBytes: maxFlying}, nil)
	q.SetKeyShare(keyShare)
	q.WeighBy(func(n int) int64 { return int64(n * n % 90) })

	type record struct {
		inFlight atomic.Bool
		next     int // guarded by inFlight
	}
	seen := map[string]*record{}
	for p := range producers {
		for k := range keys {
			seen[fmt.Sprintf("%d/%d", p, k)] = &record{}
		}
	}
	var taken, lone atomic.Int64

	var produce, work sync.WaitGroup
	for p := range producers {
		produce.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(p), 1))
			l := q.Lane(fmt.Sprint(p % 8))
			next := make([]int, keys)
			for left := perKey * keys; left > 0; {
				k := rnd.IntN(keys)
				if next[k] == perKey {
					continue
				}
				size := rnd.IntN(200)
				if rnd.IntN(500) == 0 {
					size = maxBytes + 1
				}
				key := fmt.Sprintf("%d/%d", p, k)
				if rnd.IntN(4) == 0 {
					if !l.TryPut(key, size, next[k]) {
						continue
					}
				} else if err := givingUp(rnd, func(ctx context.Context) error {
					return l.Put(ctx, key, size, next[k])
				}); err != nil {
					continue // not taken: retry the same item, or there would be a hole
				}
				taken.Add(1)
				next[k]++
				left--
			}
		})
	}
	for w := range workers {
		work.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 2))
			for {
				var it *queue.Item[int]
				err := givingUp(rnd, func(ctx context.Context) (err error) {
					it, err = q.Get(ctx)
					return err
				})
				if errors.Is(err, queue.ErrClosed) {
					return
				}
				if err != nil {
					continue
				}
				r := seen[it.Key()]
				if !r.inFlight.CompareAndSwap(false, true) {
					t.Errorf("two items of key %s in flight", it.Key())
				}
				if it.Value != r.next {
					t.Errorf("key %s: item %d, want %d", it.Key(), it.Value, r.next)
				}
				r.next = it.Value + 1
				if events, flying, bytes := q.State(); events > maxEvents || bytes > maxBytes && events > 1 ||
					flying > workers {
					t.Errorf("out of bounds: %d events, %d bytes, %d in flight", events, bytes, flying)
				} else if bytes > maxBytes {
					lone.Add(1)
				}
				if s := q.Stats(); s.InflightBytes > maxFlying && s.Inflight > 1 {
					t.Errorf("out of bounds: %d bytes of %d items in flight", s.InflightBytes, s.Inflight)
				}
				if rnd.IntN(4) == 0 { // never larger: the bound would not hold
					q.Resize(it, int64(it.Value*it.Value%90/2))
				}
				for range rnd.IntN(3) {
					runtime.Gosched()
				}
				r.inFlight.Store(false)
				q.Done(it)
			}
		})
	}

	produce.Wait()
	q.Close()
	if err := q.Drained(t.Context()); err != nil {
		t.Error(err)
	}
	work.Wait()
	for key, r := range seen {
		if r.next != perKey {
			t.Errorf("key %s: %d items came out, want %d", key, r.next, perKey)
		}
	}
	if want := int64(producers * keys * perKey); taken.Load() != want {
		t.Errorf("%d items taken, want %d", taken.Load(), want)
	}
	if lone.Load() == 0 {
		t.Error("no oversize item was seen: the test tests nothing of them")
	}
	if puts, gets, rooms, held := q.Waiting(); q.Len() != 0 || q.Bytes() != 0 || puts+gets+rooms+held != 0 {
		t.Errorf("left behind: %d events, %d bytes, %d Put, %d Get, %d channels of Room, %d keys", q.Len(), q.Bytes(),
			puts, gets, rooms, held)
	}
}

// givingUp calls f with a context that ends soon, if at all, and mostly while f waits.
func givingUp(rnd *rand.Rand, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rnd.IntN(3) > 0 {
		return f(ctx)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	yields := rnd.IntN(4)
	wg.Go(func() {
		for range yields {
			runtime.Gosched()
		}
		cancel()
	})
	return f(ctx)
}

// TestCancelledAtTheMomentOfGrant races the end of a context with the grant that its call waits
// for. In both outcomes, the error is correct, and the slot or the item is neither lost nor used
// twice.
func TestCancelledAtTheMomentOfGrant(t *testing.T) {
	const rounds = 40_000 // fewer miss the moment
	t.Run("put", func(t *testing.T) {
		q := queue.New[int](queue.Options{Events: 1, Bytes: 10}, nil)
		l := q.Lane("pods")
		outcomes := map[bool]int{}
		for i := range rounds {
			if err := l.Put(t.Context(), "held", 1, -1); err != nil {
				t.Fatal(err)
			}
			held, err := q.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { err = l.Put(ctx, "k", 1, i) })
			for puts := 0; puts == 0; puts, _, _, _ = q.Waiting() {
				runtime.Gosched()
			}
			race(i, cancel, func() { q.Done(held) })
			wg.Wait()
			outcomes[err == nil]++
			if taken := q.Len() == 1; taken != (err == nil) {
				t.Fatalf("Put: %v, but the queue holds %d", err, q.Len())
			}
			if err == nil {
				it, err := q.Get(t.Context())
				if err != nil || it.Value != i {
					t.Fatalf("Get: %v, %v", it, err)
				}
				q.Done(it)
			}
		}
		t.Logf("taken: %d, given up: %d", outcomes[true], outcomes[false])
	})
	t.Run("get", func(t *testing.T) {
		q := queue.New[int](queue.Options{Events: 1, Bytes: 10}, nil)
		l := q.Lane("pods")
		outcomes := map[bool]int{}
		for i := range rounds {
			ctx, cancel := context.WithCancel(t.Context())
			var (
				wg  sync.WaitGroup
				it  *queue.Item[int]
				err error
			)
			wg.Go(func() { it, err = q.Get(ctx) })
			for gets := 0; gets == 0; _, gets, _, _ = q.Waiting() {
				runtime.Gosched()
			}
			race(i, cancel, func() {
				if err := l.Put(t.Context(), "k", 1, i); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			outcomes[err == nil]++
			if err != nil { // then the item is still there, for another call
				if _, flying, _ := q.State(); flying != 0 {
					t.Fatal("Get failed, but its item is in flight")
				}
				it, err = q.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
			}
			if it.Value != i {
				t.Fatalf("got %d, want %d", it.Value, i)
			}
			q.Done(it)
		}
		t.Logf("got: %d, given up: %d", outcomes[true], outcomes[false])
	})
}

// race runs the two functions at nearly the same time: one of them runs while the other's goroutine
// is being scheduled.
func race(round int, a, b func()) {
	if round%2 == 0 {
		a, b = b, a
	}
	var wg sync.WaitGroup
	wg.Go(a)
	if round%3 == 0 {
		runtime.Gosched()
	}
	b()
	wg.Wait()
}

// TestNobodyStarves keeps the queue full. One lane has many producers, large items and a hot key;
// three lanes have one modest producer each; the items of another lane need nearly the whole queue.
// Every lane gets its turn.
func TestNobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[string](queue.Options{Events: 40, Bytes: 1000}, nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		push := func(lane string, size int, key func(int) string) {
			go func() {
				for i := 0; q.Lane(lane).Put(ctx, key(i), size, lane) == nil; i++ {
				}
			}()
		}
		for range 20 {
			push("greedy", 30, func(int) string { return "hot" })
			push("greedy", 30, func(i int) string { return fmt.Sprint("greedy", i%1000) })
		}
		for _, lane := range []string{"a", "b", "c"} {
			push(lane, 1, func(i int) string { return fmt.Sprint(lane, i%10) })
		}
		push("large", 900, func(int) string { return "large" })

		count := map[string]int{}
		for range 4000 {
			synctest.Wait() // until every producer waits
			it, err := q.Get(ctx)
			if err != nil {
				t.Fatal(err)
			}
			count[it.Value]++
			q.Done(it)
		}
		t.Log(count)
		for _, lane := range []string{"a", "b", "c", "large", "greedy"} {
			if count[lane] < 40 {
				t.Errorf("lane %s: only %d of 4000 items", lane, count[lane])
			}
		}
	})
}
