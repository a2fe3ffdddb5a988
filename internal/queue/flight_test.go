package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/queue"
)

// flightQueue is a queue with as many workers as can be of use; the items that they get stay in
// flight until the test ends them. An item's value is its weight.
type flightQueue struct {
	*queue.Queue[int]
	t *testing.T

	mu     sync.Mutex
	flying []*queue.Item[int]
}

func inFlightOf(t *testing.T, bytes int64, f func(*flightQueue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &flightQueue{
			Queue: queue.New[int](queue.Options{Events: 10_000, Bytes: 10_000, InFlightBytes: bytes}, nil),
			t:     t,
		}
		q.WeighBy(func(weight int) int64 { return int64(weight) })
		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		defer workers.Wait()
		defer cancel()
		for range 60 {
			workers.Go(func() {
				for {
					it, err := q.Get(ctx)
					if err != nil {
						return
					}
					q.mu.Lock()
					q.flying = append(q.flying, it)
					q.mu.Unlock()
				}
			})
		}
		f(q)
	})
}

func (q *flightQueue) put(lane, key string, weight int) {
	q.t.Helper()
	if err := q.Lane(lane).Put(q.t.Context(), key, 1, weight); err != nil {
		q.t.Fatal(err)
	}
}

// inFlight returns the keys in flight, sorted.
func (q *flightQueue) inFlight() []string {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	keys := []string{}
	for _, it := range q.flying {
		keys = append(keys, it.Key())
	}
	slices.Sort(keys)
	return keys
}

func (q *flightQueue) want(keys ...string) {
	q.t.Helper()
	slices.Sort(keys)
	if diff := cmp.Diff(append([]string{}, keys...), q.inFlight()); diff != "" {
		q.t.Errorf("in flight (-want +got):\n%s", diff)
	}
}

// find returns the item in flight with that key.
func (q *flightQueue) find(key string) *queue.Item[int] {
	q.t.Helper()
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.flying, func(it *queue.Item[int]) bool { return it.Key() == key })
	if i < 0 {
		q.t.Fatalf("%s is not in flight", key)
	}
	return q.flying[i]
}

func (q *flightQueue) done(key string) {
	q.t.Helper()
	it := q.find(key)
	q.mu.Lock()
	q.flying = slices.DeleteFunc(q.flying, func(other *queue.Item[int]) bool { return other == it })
	q.mu.Unlock()
	q.Done(it)
}

func TestBytesInFlight(t *testing.T) {
	inFlightOf(t, 90, func(q *flightQueue) {
		// A lane alone has two thirds.
		for i := range 10 {
			q.put("pods", fmt.Sprint("pod-", i), 10)
		}
		q.want("pod-0", "pod-1", "pod-2", "pod-3", "pod-4", "pod-5")
		// The rest is for other lanes: each may have one item as long as there is room.
		q.put("nodes", "node-0", 10)
		q.put("events", "event-0", 20)
		q.put("leases", "lease-0", 10)
		q.want("pod-0", "pod-1", "pod-2", "pod-3", "pod-4", "pod-5", "node-0", "event-0")
		q.done("pod-0")
		q.want("pod-1", "pod-2", "pod-3", "pod-4", "pod-5", "node-0", "event-0", "lease-0")
	})
}

// The item itself counts in the share of its lane.
func TestLargeItemWouldCrowdOutOtherLanes(t *testing.T) {
	inFlightOf(t, 90, func(q *flightQueue) {
		q.put("pods", "pod-0", 20)
		q.put("pods", "pod-1", 44)
		q.want("pod-0")
		q.put("nodes", "node-0", 10)
		q.want("pod-0", "node-0")
	})
}

// The item that overtakes may need all of the free room.
func TestItemThatFitsTheFreeRoomOvertakes(t *testing.T) {
	inFlightOf(t, 90, func(q *flightQueue) {
		q.put("pods", "pod-0", 40)
		q.put("nodes", "node-0", 30)
		q.put("secrets", "large", 60)
		q.put("events", "event-0", 21)
		q.put("leases", "lease-0", 20)
		q.want("pod-0", "node-0", "lease-0")
	})
}

func TestItemLargerThanTheFlightGoesAlone(t *testing.T) {
	inFlightOf(t, 90, func(q *flightQueue) {
		q.put("pods", "pod-0", 10)
		q.put("secrets", "giant", 500)
		q.put("nodes", "node-0", 10)
		q.want("pod-0")
		q.done("pod-0")
		q.want("giant")
		q.put("pods", "pod-1", 10)
		q.want("giant")
		q.done("giant")
		q.want("node-0", "pod-1")
	})
}

// An item that turns out larger than estimated does not wait, and others wait until the bound holds
// again.
func TestResize(t *testing.T) {
	inFlightOf(t, 90, func(q *flightQueue) {
		q.put("pods", "pod-0", 10)
		q.want("pod-0")
		q.Resize(q.find("pod-0"), 85)
		q.put("nodes", "node-0", 10)
		q.want("pod-0")
		q.Resize(q.find("pod-0"), 5)
		q.want("pod-0", "node-0")
		q.done("pod-0")
		q.done("node-0")
		if got := q.Stats().InflightBytes; got != 0 {
			t.Errorf("%d bytes are in flight at the end", got)
		}
	})
}

// An item that has bytes in flight again counts in the share of its lane. The lane then loses its
// place in line, and the next lane is served.
func TestResizeOfASuspendedItemServesOtherLanes(t *testing.T) {
	inFlightOf(t, 90, func(q *flightQueue) {
		q.put("pods", "pod-0", 10)
		q.put("nodes", "node-0", 60)
		q.want("pod-0", "node-0")
		q.Suspend(q.find("pod-0"))
		q.put("pods", "large", 80)
		q.put("secrets", "secret-0", 20)
		q.want("pod-0", "node-0")
		q.Resize(q.find("pod-0"), 5)
		q.want("pod-0", "node-0", "secret-0")
	})
}

func TestStatsCountWaitingPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[int](queue.Options{Events: 1, Bytes: 100}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var puts sync.WaitGroup
		for n := range 3 {
			puts.Go(func() { _ = q.Lane("pods").Put(ctx, fmt.Sprint(n), 1, n) }) // the last two are cancelled
		}
		synctest.Wait()
		waiting := q.Stats().Waiting
		cancel()
		puts.Wait()
		if left := q.Stats().Waiting; waiting != 2 || left != 0 {
			t.Errorf("%d wait, then %d; want 2, then none", waiting, left)
		}
	})
}

// A heavy item waits for those that were in flight before it, but not for later ones, however many
// light ones there are.
func TestHeavyItemIsNotOvertakenForEver(t *testing.T) {
	for seed := range uint64(10) {
		inFlightOf(t, 100, func(q *flightQueue) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			lanes, n := 5, 0
			supply := func() {
				for l := range lanes {
					if q.Stats().Events > 80 {
						return
					}
					for range 3 {
						q.put(fmt.Sprint("light-", l), fmt.Sprint("light-", n), 1+rnd.IntN(12))
						n++
					}
				}
			}
			supply()
			before := q.inFlight()
			heavy := 50 + rnd.IntN(51)
			q.put("heavy", "heavy", heavy)
			overtaken := 0
			for len(before) > 0 {
				supply()
				flying := q.inFlight()
				overtaken = max(overtaken, len(flying)-len(before))
				if slices.Contains(flying, "heavy") {
					break
				}
				// Mostly, items that overtook it come back first.
				key := flying[rnd.IntN(len(flying))]
				if i := slices.Index(before, key); i >= 0 {
					if rnd.IntN(3) > 0 && overtaken > 0 {
						continue
					}
					before = slices.Delete(before, i, i+1)
				}
				q.done(key)
			}
			if !slices.Contains(q.inFlight(), "heavy") {
				q.t.Errorf("seed %d: an item of %d waits, though all that was in flight before it is done", seed, heavy)
			}
			if heavy < 80 && overtaken == 0 {
				q.t.Errorf("seed %d: nothing went on while an item of %d waited", seed, heavy)
			}
		})
	}
}

// An item that waits for items in flight of a stuck lane blocks only its own lane.
func TestItemThatWaitsForAStuckLaneStopsNoOther(t *testing.T) {
	inFlightOf(t, 90, func(q *flightQueue) {
		for i := range 9 {
			q.put("stuck", fmt.Sprint("stuck-", i), 10)
		}
		q.want("stuck-0", "stuck-1", "stuck-2", "stuck-3", "stuck-4", "stuck-5")
		q.put("heavy", "heavy", 40)
		for i := range 100 {
			key := fmt.Sprint("pod-", i)
			q.put("pods", key, 10)
			q.done(key)
		}
		q.want("stuck-0", "stuck-1", "stuck-2", "stuck-3", "stuck-4", "stuck-5")
		q.done("stuck-0") // Its lane was passed over, and kept its place before the heavy one.
		q.want("stuck-1", "stuck-2", "stuck-3", "stuck-4", "stuck-5", "stuck-6")
		q.done("stuck-1")
		q.want("stuck-2", "stuck-3", "stuck-4", "stuck-5", "stuck-6", "heavy")
	})
}
