package queue_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/queue"
)

func TestMain(m *testing.M) {
	// Cases are cheap here, and the interesting ones are rare. The command line overrides this.
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// fixture is a queue in a bubble. It logs the results of its calls, so that a test reads as a
// transcript: step by step, sorted if one step ends several calls.
type fixture struct {
	*queue.Queue[string]
	t   *testing.T
	ctx context.Context
	log []string
	in  map[string]*queue.Item[string] // in flight, by value

	mu   sync.Mutex
	step []string
}

func inBubble(t *testing.T, o queue.Options, f func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel() // calls left waiting by a failed test would deadlock the bubble
		f(&fixture{
			Queue: queue.New[string](o, nil),
			t:     t,
			ctx:   ctx,
			in:    map[string]*queue.Item[string]{},
		})
	})
}

func (f *fixture) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step = append(f.step, fmt.Sprintf(format, args...))
}

// rest waits until the queue is idle.
func (f *fixture) rest() {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.step)
	f.log = append(f.log, f.step...)
	f.step = nil
}

// put starts a Put on the named lane. The value is its key, or key#n.
func (f *fixture) put(lane, value string, bytes int) {
	l, ctx := f.Lane(lane), f.ctx
	key, _, _ := strings.Cut(value, "#")
	go func() {
		if err := l.Put(ctx, key, bytes, value); err != nil {
			f.note("put %s: %v", value, err)
			return
		}
		f.note("put %s", value)
	}()
	f.rest()
}

func (f *fixture) tryPut(lane, value string, bytes int) bool {
	key, _, _ := strings.Cut(value, "#")
	defer f.rest()
	return f.Lane(lane).TryPut(key, bytes, value)
}

// roomy waits for room on a lane.
func roomy(ctx context.Context, room <-chan struct{}) error {
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// roomy begins to wait for room on the named lane.
func (f *fixture) roomy(lane string) {
	room, ctx := f.Lane(lane).Room(), f.ctx
	go func() { f.note("roomy %s: %v", lane, roomy(ctx, room)) }()
	f.rest()
}

// get starts a Get.
func (f *fixture) get() {
	ctx := f.ctx
	go func() {
		it, err := f.Get(ctx)
		if err != nil {
			f.note("get: %v", err)
			return
		}
		f.note("got %s", it.Value)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.in[it.Value] = it
	}()
	f.rest()
}

func (f *fixture) done(value string) {
	f.t.Helper()
	it := f.in[value]
	if it == nil {
		f.t.Fatalf("%s is not in flight", value)
	}
	delete(f.in, value)
	f.Done(it)
	f.rest()
}

// pass gets the next item and is done with it.
func (f *fixture) pass() {
	f.t.Helper()
	f.get()
	if len(f.log) == 0 || !strings.HasPrefix(f.log[len(f.log)-1], "got ") {
		f.t.Fatalf("got nothing: %q", f.log)
	}
	f.done(strings.TrimPrefix(f.log[len(f.log)-1], "got "))
}

// expect compares the results of calls since the last expect.
func (f *fixture) expect(want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.log, cmpopts.EquateEmpty()); diff != "" {
		f.t.Fatalf("outcomes (-want +got):\n%s", diff)
	}
	f.log = nil
}

func TestSlotIsHeldUntilDone(t *testing.T) {
	for name, o := range map[string]queue.Options{
		"events": {Events: 5, Bytes: 1000},
		"bytes":  {Events: 1000, Bytes: 50},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, o, func(f *fixture) {
				for _, v := range []string{"a", "b", "c", "d"} { // of five, a lane alone has three
					f.put("pods", v, 10)
				}
				f.expect("put a", "put b", "put c")
				for range 3 {
					f.get()
				}
				f.expect("got a", "got b", "got c")
				if f.Len() != 3 || f.Bytes() != 30 {
					t.Errorf("holds %d events, %d bytes; want 3, 30", f.Len(), f.Bytes())
				}
				f.done("b")
				f.expect("put d")
				f.done("a")
				f.done("c")
				f.pass()
				f.expect("got d")
				if f.Len() != 0 || f.Bytes() != 0 {
					t.Errorf("holds %d events, %d bytes; want none", f.Len(), f.Bytes())
				}
			})
		})
	}
}

func TestOneItemOfAKeyIsInFlight(t *testing.T) {
	inBubble(t, queue.Options{Events: 100, Bytes: 100}, func(f *fixture) {
		for _, v := range []string{"a#1", "a#2", "a#3", "b#1"} {
			f.put("pods", v, 1)
		}
		f.put("pods in shop", "a#4", 1) // the same object, by way of another informer
		f.log = nil
		for range 6 {
			f.get()
		}
		f.expect("got a#1", "got b#1")
		f.done("b#1")
		f.expect()
		f.done("a#1")
		f.expect("got a#2")
		f.done("a#2")
		f.done("a#3")
		f.done("a#4")
		f.expect("got a#3", "got a#4")
		f.Close()
		f.rest()
		f.expect("get: " + queue.ErrClosed.Error())
	})
}

func TestLanesAreServedInTurn(t *testing.T) {
	inBubble(t, queue.Options{Events: 100, Bytes: 100}, func(f *fixture) {
		for i := range 6 {
			f.put("pods", fmt.Sprint("p", i), 1)
		}
		for i := range 2 {
			f.put("events", fmt.Sprint("e", i), 1)
			f.put("nodes", fmt.Sprint("n", i), 1)
		}
		f.log = nil
		for range 5 {
			f.pass()
		}
		f.put("events", "e2", 1)
		f.expect("got p0", "got e0", "got n0", "got p1", "got e1", "put e2")
		for range 6 {
			f.pass()
		}
		f.expect("got n1", "got p2", "got e2", "got p3", "got p4", "got p5")
	})
}

// If a key's next item were appended to its lane, a key with many items would send one per round
// over all keys. Its oldest item would hold back the checkpoint.
func TestOldestOfALaneGoesFirst(t *testing.T) {
	inBubble(t, queue.Options{Events: 100, Bytes: 100}, func(f *fixture) {
		for _, v := range []string{"hot#1", "hot#2", "warm#1", "hot#3", "cold", "warm#2", "hot#4"} {
			f.put("pods", v, 1)
		}
		f.log = nil
		for range 7 {
			f.pass()
		}
		f.expect("got hot#1", "got hot#2", "got warm#1", "got hot#3", "got cold", "got warm#2", "got hot#4")
	})
}

// The oldest goes first, however many keys have a next item, and in whatever order they became
// free.
func TestOldestOfManyKeysGoesFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "keys")
		q := queue.New[int](queue.Options{Events: 1000, Bytes: 1000}, nil)
		ctx := context.Background()
		for i := range 2 * n {
			if err := q.Lane("pods").Put(ctx, fmt.Sprint(i%n), 1, i); err != nil {
				t.Fatal(err)
			}
		}
		elders := make([]*queue.Item[int], n)
		for i := range elders {
			elders[i], _ = q.Get(ctx)
		}
		for _, it := range rapid.Permutation(elders).Draw(t, "done") {
			q.Done(it)
		}
		for want := n; want < 2*n; want++ {
			it, err := q.Get(ctx)
			if err != nil || it.Value != want {
				t.Fatalf("got %v, %v; want item %d", it.Value, err, want)
			}
		}
	})
}

func TestWaitersEndWithTheirContext(t *testing.T) {
	cause := errors.New("resource is gone")
	inBubble(t, queue.Options{Events: 4, Bytes: 100}, func(f *fixture) {
		all := f.ctx
		var end context.CancelCauseFunc
		f.ctx, end = context.WithCancelCause(all)
		f.get()
		end(cause)
		f.rest()
		f.expect("get: " + cause.Error())

		f.ctx = all
		f.put("pods", "p0", 60)
		f.log = nil
		f.ctx, end = context.WithCancelCause(all)
		f.put("nodes", "first", 60)
		f.tryPut("leases", "large", 60)
		f.roomy("leases")
		f.ctx = all
		f.put("nodes", "second", 40) // fits, but first was first
		f.expect()
		end(cause)
		f.rest()
		f.expect("put first: "+cause.Error(), "put second", "roomy leases: "+cause.Error())
		if puts, gets, rooms, keys := f.Waiting(); puts+gets != 0 || rooms != 1 || keys != 2 {
			// the lane keeps its channel
			t.Errorf("left behind: %d Put, %d Get, %d channels of Room, %d keys", puts, gets, rooms, keys-2)
		}
	})
}

// A context that has ended takes precedence over room and items. Otherwise, a loop of Get would
// outlive it as long as there is work.
func TestEndedContextIsNotServed(t *testing.T) {
	inBubble(t, queue.Options{Events: 4, Bytes: 100}, func(f *fixture) {
		f.put("pods", "p0", 1)
		cause := errors.New("stop")
		ctx, end := context.WithCancelCause(f.ctx)
		end(cause)
		f.ctx = ctx
		f.put("pods", "p1", 1)
		f.get()
		f.expect("put p0", "put p1: stop", "get: stop")
		if err := f.Drained(ctx); !errors.Is(err, cause) {
			t.Errorf("Drained: %v", err)
		}
	})
}

func TestCloseRunsDry(t *testing.T) {
	inBubble(t, queue.Options{Events: 5, Bytes: 100}, func(f *fixture) {
		for _, v := range []string{"a#1", "a#2", "b"} {
			f.put("pods", v, 1)
		}
		f.log = nil
		f.put("pods", "late", 1)
		f.roomy("pods")
		f.Close()
		f.Close()
		f.rest()
		f.expect("put late: " + queue.ErrClosed.Error()) // nor is there room from here on
		f.put("nodes", "n", 1)
		f.expect("put n: " + queue.ErrClosed.Error())
		if f.tryPut("nodes", "n", 1) {
			t.Error("TryPut: taken")
		}

		go func() { f.note("drained: %v", f.Drained(f.ctx)) }()
		for range 4 {
			f.get()
		}
		f.expect("got a#1", "got b") // a#2 waits for a#1: two calls of Get still wait
		f.done("a#1")
		f.expect("got a#2")
		f.done("b")
		f.expect()
		go func() { f.note("drained too: %v", f.Drained(f.ctx)) }() // nothing is queued, but one is in flight
		f.rest()
		f.expect()
		f.done("a#2")
		f.expect("drained too: <nil>", "drained: <nil>", "get: "+queue.ErrClosed.Error())
		f.get()
		f.expect("get: " + queue.ErrClosed.Error())
	})
}

func TestReleasedLane(t *testing.T) {
	inBubble(t, queue.Options{Events: 9, Bytes: 100}, func(f *fixture) {
		old := f.Lane("widgets")
		f.put("widgets", "w#1", 1)
		f.put("pods", "p", 1)
		f.Release("widgets")
		f.Release("widgets")
		if err := old.Put(f.ctx, "w", 1, "w#2"); err != nil {
			t.Errorf("Put: %v", err)
		}
		f.log = nil

		// The resource is back while the last deltas of the old one are still queued: their order
		// is kept.
		if f.Lane("widgets") == old {
			t.Fatal("the released lane came back")
		}
		f.put("widgets", "w#3", 1)
		f.expect("put w#3")
		f.get()
		f.get()
		f.get()
		f.expect("got w#1", "got p")
		f.done("p")
		f.expect()
		f.done("w#1")
		f.expect("got w#2")
		f.get()
		f.done("w#2")
		f.expect("got w#3")
	})
}

func TestDoneTwicePanics(t *testing.T) {
	q := queue.New[int](queue.Options{Events: 4, Bytes: 100}, nil)
	other := queue.New[int](queue.Options{Events: 4, Bytes: 100}, nil)
	if err := q.Lane("pods").Put(t.Context(), "a", 1, 1); err != nil {
		t.Fatal(err)
	}
	it, err := q.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []func(){
		func() { other.Done(it) },
		func() { q.Done(it); q.Done(it) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			wrong()
		}()
	}
	if q.Len() != 0 || q.Bytes() != 0 {
		t.Errorf("holds %d events, %d bytes", q.Len(), q.Bytes())
	}
}

func TestOneAllocationPerItem(t *testing.T) {
	ctx := t.Context()
	q := queue.New[int](queue.Options{Events: 4, Bytes: 100}, nil)
	l := q.Lane("pods")
	allocs := testing.AllocsPerRun(1000, func() {
		if err := l.Put(ctx, "a", 1, 1); err != nil {
			t.Fatal(err)
		}
		it, err := q.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		q.Done(it)
	})
	if allocs > 1 {
		t.Errorf("%v allocations for an item's way through the queue, want 1", allocs)
	}
}

// Waiting calls reuse the waiters of earlier ones.
func TestWaitingDoesNotAllocate(t *testing.T) {
	q := queue.New[int](queue.Options{Events: 1, Bytes: 100}, nil)
	var worker sync.WaitGroup
	worker.Go(func() {
		for {
			it, err := q.Get(t.Context())
			if err != nil {
				return
			}
			q.Done(it)
		}
	})
	// AllocsPerRun leaves one processor: of two Puts, the first is handed to the waiting worker,
	// and the second waits for the worker.
	allocs := testing.AllocsPerRun(1000, func() {
		if err := q.Lane("pods").Put(t.Context(), "a", 1, 1); err != nil {
			t.Error(err)
		}
	})
	q.Close()
	worker.Wait()
	// One is the item. If waiters were not reused, it would be four; the race detector makes a
	// sync.Pool drop a quarter.
	if allocs > 3 {
		t.Errorf("%v allocations per item", allocs)
	}
}

func TestSmallestBounds(t *testing.T) {
	inBubble(t, queue.Options{}, func(f *fixture) {
		f.put("pods", "a", 10)
		f.put("pods", "b", -1)
		f.expect("put a")
		f.pass()
		f.expect("got a", "put b")
		if f.Bytes() != 0 {
			t.Errorf("holds %d bytes", f.Bytes())
		}
		f.roomy("pods")
		f.expect()
		f.pass()
		f.expect("got b", "roomy pods: <nil>")
		if !f.tryPut("pods", "c", 10) {
			t.Error("TryPut on an empty queue: refused")
		}
	})
}

func TestBlockedTimeIsCountedWhileItPasses(t *testing.T) {
	inBubble(t, queue.Options{Events: 1, Bytes: 100}, func(f *fixture) {
		check := func(want time.Duration) {
			t.Helper()
			if got := f.Blocked(); got != want {
				t.Errorf("blocked for %v, want %v", got, want)
			}
		}
		f.put("pods", "a", 1)
		f.put("pods", "b", 1)
		ctx, cancel := context.WithTimeout(f.ctx, 3*time.Second)
		defer cancel()
		f.ctx = ctx
		f.put("nodes", "c", 1)
		<-time.After(2 * time.Second)
		check(4 * time.Second)
		<-time.After(2 * time.Second)
		check(7 * time.Second)
		f.rest()
		f.expect("put a", "put c: "+context.DeadlineExceeded.Error())
		f.ctx = t.Context()
		f.pass()
		f.expect("got a", "put b")
		<-time.After(time.Hour)
		check(7 * time.Second)
	})
}
