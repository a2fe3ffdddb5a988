package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/kubecdc/kubecdc/internal/queue"
)

func TestLaneLeavesHalfOfWhatItHolds(t *testing.T) {
	for name, o := range map[string]queue.Options{
		"events": {Events: 9, Bytes: 1000},
		"bytes":  {Events: 1000, Bytes: 90},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, o, func(f *fixture) {
				for i := range 8 {
					f.put("events", fmt.Sprint("e", i), 10)
				}
				if f.Len() != 6 {
					t.Fatalf("a lane alone was let have %d of 9, want 6", f.Len())
				}
				f.log = nil
				f.put("pods", "p0", 10)
				f.put("pods", "p1", 10)
				f.put("pods", "p2", 10)
				f.put("nodes", "n0", 10)
				f.expect("put p0", "put p1", "put n0") // p2 would leave nothing for others

				// e6 came first, but its lane still holds too much.
				f.pass()
				f.expect("got e0")
				f.pass()
				f.expect("got p0", "put p2")
				f.pass()
				f.expect("got n0")
				f.pass()
				f.expect("got e1")
				f.pass()
				f.expect("got p1", "put e6")
			})
		})
	}
}

// Free room is given in order of arrival, except to lanes that hold too much.
func TestRoomGoesByArrival(t *testing.T) {
	inBubble(t, queue.Options{Events: 8, Bytes: 1000}, func(f *fixture) {
		for i := range 5 {
			f.put("events", fmt.Sprint("e", i), 10)
			f.put("pods", fmt.Sprint("p", i), 10)
		}
		f.expect("put e0", "put p0", "put e1", "put p1", "put e2", "put p2") // a fourth would leave one slot
		f.pass()
		f.expect("got e0", "put e3")
		f.pass()
		f.expect("got p0", "put p3")
		f.pass()
		f.expect("got e1", "put e4")
	})
}

// Lanes that hold much, each limited by another bound, do not wait for each other.
func TestSharesDoNotDeadlock(t *testing.T) {
	inBubble(t, queue.Options{Events: 8, Bytes: 100}, func(f *fixture) {
		f.put("configmaps", "large", 60)
		for i := range 6 {
			f.put("events", fmt.Sprint("e", i), 0)
		}
		f.put("configmaps", "c1", 20)
		f.expect("put large", "put e0", "put e1", "put e2", "put e3")
		for range 3 {
			f.get()
		}
		f.done("e0")
		f.expect("got large", "got e0", "got e1", "put e4")
		f.done("large")
		f.expect("put c1", "put e5")
	})
}

func TestKeyHolds256(t *testing.T) {
	inBubble(t, queue.Options{Events: 10000, Bytes: 10000}, func(f *fixture) {
		for i := range 256 {
			f.put("pods", fmt.Sprint("stuck#", i), 1)
		}
		f.log = nil
		f.get()
		f.put("pods", "stuck#256", 1)
		f.put("pods", "stuck#257", 1)
		f.expect("got stuck#0")

		// That does not block its lane, another lane, catch-up, or a watch that reopens.
		f.put("pods", "other", 1)
		f.put("nodes", "node", 1)
		f.expect("put other", "put node")
		if !f.tryPut("nodes", "caught-up", 1) {
			t.Error("TryPut: refused for the sake of a Put that waits for its key")
		}
		f.roomy("nodes")
		f.expect("roomy nodes: <nil>")

		// It can do nothing for that key.
		if f.tryPut("nodes", "stuck#258", 1) {
			t.Error("TryPut: went past the key's share")
		}
		f.roomy("nodes")
		f.expect()
		f.done("stuck#0")
		f.expect("put stuck#256")
		for range 5 {
			f.get()
		}
		f.expect("got stuck#1", "got node", "got other", "got caught-up")
		f.done("stuck#1")
		f.expect("got stuck#2", "put stuck#257")
		f.done("stuck#2")
		f.expect("roomy nodes: <nil>")
	})
}

func TestOversizePassesAlone(t *testing.T) {
	inBubble(t, queue.Options{Events: 8, Bytes: 100}, func(f *fixture) {
		f.put("pods", "a", 10)
		f.put("nodes", "b", 10)
		f.put("configmaps", "huge", 101)
		f.put("pods", "c", 0) // would fit, but must not overtake
		f.expect("put a", "put b")
		if f.tryPut("nodes", "read", 0) {
			t.Error("TryPut: overtook")
		}
		f.pass()
		f.expect("got a")
		f.pass()
		f.expect("got b", "put huge")
		f.get()
		f.expect("got huge")
		if f.tryPut("nodes", "read", 0) {
			t.Error("TryPut: joined it")
		}
		f.done("huge")
		f.expect("put c")
	})
}

// An item is too large for a lane that is never empty: the lane's later items wait, so the lane
// drains.
func TestLargeItemOfABusyLane(t *testing.T) {
	inBubble(t, queue.Options{Events: 16, Bytes: 100}, func(f *fixture) {
		f.put("configmaps", "c0", 1)
		f.put("configmaps", "c1", 1)
		f.put("configmaps", "large", 80)
		f.put("configmaps", "c2", 1) // waits for the large item
		f.put("pods", "p0", 10)      // does not
		f.expect("put c0", "put c1", "put p0")
		f.pass()
		f.expect("got c0")
		f.pass()
		f.expect("got p0")
		f.pass()
		f.expect("got c1", "put large")
		f.pass()
		f.expect("got large", "put c2")
	})
}

func TestSmallItemsDoNotStarveALargeOne(t *testing.T) {
	inBubble(t, queue.Options{Events: 100, Bytes: 100}, func(f *fixture) {
		for i := range 6 {
			f.put("pods", fmt.Sprint("p", i), 10)
		}
		f.put("nodes", "large", 70)
		for i := range 5 {
			f.put(fmt.Sprint("lane", i), fmt.Sprint("small", i), 1)
		}
		f.log = nil
		for range 3 {
			f.pass()
		}
		f.expect("got p0", "got p1", "got p2", "put large")
	})
}

func TestCatchUpHasHalf(t *testing.T) {
	for name, o := range map[string]queue.Options{
		"events": {Events: 18, Bytes: 1000},
		"bytes":  {Events: 1000, Bytes: 180},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, o, func(f *fixture) {
				for i := range 8 { // of the half, a lane alone has two thirds
					if took := f.tryPut("pods", fmt.Sprint("r", i), 10); took != (i < 6) {
						t.Fatalf("TryPut at %d of 18: %v", i, took)
					}
				}
				for i := range 3 { // and leaves the rest for others
					if took := f.tryPut("nodes", fmt.Sprint("n", i), 10); took != (i < 2) {
						t.Fatalf("TryPut of another lane at %d of 18: %v", 6+i, took)
					}
				}
				f.roomy("pods")
				f.roomy("leases")
				f.expect("roomy leases: <nil>")
				f.put("pods", "live", 10) // has the other half
				f.expect("put live")
				f.pass() // Waiting callers are woken together, further down.
				f.expect("got r0")
				f.pass()
				f.expect("got n0")
				f.pass()
				f.pass()
				f.expect("got r1", "got n1")
				f.pass()
				f.expect("got r2", "roomy pods: <nil>")
			})
		})
	}
}

func TestCatchUpNeverGoesBeforeLive(t *testing.T) {
	inBubble(t, queue.Options{Events: 8, Bytes: 100}, func(f *fixture) {
		f.put("pods", "p0", 40)
		f.put("nodes", "live", 70)
		if f.tryPut("leases", "read", 1) {
			t.Error("TryPut: took room that a live delta waits for")
		}
		f.roomy("leases")
		f.expect("put p0")
		f.pass()
		f.expect("got p0", "put live", "roomy leases: <nil>")
	})
}

// A live delta for which its lane holds too much is admitted before any further catch-up of that
// lane.
func TestCatchUpNeverGoesBeforeLiveOfItsLane(t *testing.T) {
	inBubble(t, queue.Options{Events: 1000, Bytes: 900}, func(f *fixture) {
		const reads = 100
		var caughtUp atomic.Int64
		pods, ctx := f.Lane("pods"), f.ctx
		go func() {
			for i := range reads {
				for !pods.TryPut(fmt.Sprint("r", i), 10, fmt.Sprint("r", i)) {
					if roomy(ctx, pods.Room()) != nil {
						return
					}
				}
				caughtUp.Add(1)
			}
		}()
		f.rest()
		before := caughtUp.Load() // two thirds of the half
		f.put("pods", "live", 450)
		f.expect() // fits, but has to wait until no more than 150 bytes are held
		if !f.tryPut("nodes", "n", 10) {
			t.Error("TryPut of another lane: refused for the sake of a Put that waits for its own")
		}
		passed := 0
		for ; !slices.Contains(f.log, "put live"); passed++ {
			if caughtUp.Load() != before {
				t.Fatalf("%d of %d reads have come in while a live delta of their lane waited", caughtUp.Load()-before,
					reads-before)
			}
			f.pass()
		}
		// The calls that waited for it continue.
		for ; passed < reads+2; passed++ {
			f.pass()
		}
		if caughtUp.Load() != reads || f.Len() != 0 {
			t.Errorf("%d of %d reads have come in, %d items are left", caughtUp.Load(), reads, f.Len())
		}
	})
}

// A lane whose Put waits has room after the Put was admitted or has given up.
func TestRoomWaitsForLiveOfItsLane(t *testing.T) {
	for _, how := range []string{"in", "gives up"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, queue.Options{Events: 1000, Bytes: 90}, func(f *fixture) {
				all := f.ctx
				f.put("pods", "p0", 10)
				f.put("pods", "p1", 10)
				ctx, cancel := context.WithCancel(f.ctx)
				f.ctx = ctx
				f.put("pods", "live", 55)
				f.ctx = all
				if f.tryPut("pods", "read", 0) {
					t.Error("TryPut: overtook a live delta of its lane")
				}
				f.roomy("pods")
				f.expect("put p0", "put p1")
				f.pass()
				f.expect("got p0") // 10 bytes are held, and 55 more would leave only 25
				if how == "gives up" {
					cancel()
					f.rest()
					f.expect("put live: context canceled", "roomy pods: <nil>")
					return
				}
				f.pass()
				f.expect("got p1", "put live")
				cancel()
				f.pass()
				f.expect("got live", "roomy pods: <nil>")
			})
		})
	}
}

// A loop of TryPut and Room must not spin on a value that is too large for half a queue.
func TestRoomWaitsForWhatWasRefused(t *testing.T) {
	inBubble(t, queue.Options{Events: 8, Bytes: 100}, func(f *fixture) {
		f.put("pods", "p0", 30)
		if f.tryPut("nodes", "large", 80) {
			t.Fatal("TryPut: out of bounds")
		}
		f.roomy("nodes")
		f.roomy("leases")
		f.expect("put p0", "roomy leases: <nil>")
		f.pass()
		f.expect("got p0", "roomy nodes: <nil>")
		if !f.tryPut("nodes", "large", 80) {
			t.Error("TryPut: refused after Room")
		}
	})
}

// The live delta of an object whose catch-up was refused sends both. Nothing is left to wait for.
func TestRoomForgetsWhatWasPut(t *testing.T) {
	inBubble(t, queue.Options{Events: 8, Bytes: 100}, func(f *fixture) {
		f.put("pods", "p0", 30)
		if f.tryPut("nodes", "n#read", 80) {
			t.Fatal("TryPut: out of bounds")
		}
		f.roomy("nodes")
		f.put("nodes", "n#live", 1)
		f.expect("put p0", "put n#live", "roomy nodes: <nil>")
	})
}
