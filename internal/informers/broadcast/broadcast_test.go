package broadcast_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
)

// Each waiter waits for each value of a counter in turn, and the counter moves on only when all
// have seen it: one missed change blocks the test for ever.
func TestNoWaiterMissesAChange(t *testing.T) {
	const waiters, changes = 8, 2000
	var (
		mu    broadcast.Mutex
		n     int
		seen  int
		group sync.WaitGroup
	)
	for range waiters {
		group.Go(func() {
			for want := 1; want <= changes; want++ {
				err := mu.Wait(t.Context(), func() bool {
					mu.RLock()
					defer mu.RUnlock()
					return n >= want
				})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				seen++
				mu.Unlock()
			}
		})
	}
	for k := 1; k <= changes; k++ {
		mu.Lock()
		n = k
		mu.Unlock()
		if err := mu.Wait(t.Context(), func() bool {
			mu.RLock()
			defer mu.RUnlock()
			return seen == k*waiters
		}); err != nil {
			t.Fatal(err)
		}
	}
	group.Wait()
}

func TestWaitEndsWithItsContext(t *testing.T) {
	cause := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	var s broadcast.Signal
	if err := s.Wait(ctx, func() bool { return false }); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	if err := s.Wait(ctx, func() bool { return true }); err != nil {
		t.Errorf("a condition that is true: got %v", err)
	}
}

// A reader of the state wakes nobody: else a condition that reads it would wake its own waiter, for
// ever.
func TestReaderWakesNobody(t *testing.T) {
	var mu broadcast.Mutex
	next := mu.Next()
	mu.RLock()
	mu.RUnlock() //nolint:staticcheck // what it reads is not the point
	select {
	case <-next:
		t.Fatal("woken by a reader")
	default:
	}
	mu.Lock()
	mu.Unlock() //nolint:staticcheck // the change is not the point
	<-next
}

func TestNotifyWithoutWaitersAllocatesNothing(t *testing.T) {
	var mu broadcast.Mutex
	if n := testing.AllocsPerRun(1000, func() { mu.Lock(); mu.Unlock() }); n != 0 { //nolint:staticcheck // as above
		t.Errorf("%v allocations for a change that nobody waits for", n)
	}
}

// BenchmarkUnlock compares a change that nobody waits for with a plain mutex.
func BenchmarkUnlock(b *testing.B) {
	b.Run("sync", func(b *testing.B) {
		var mu sync.Mutex
		for b.Loop() {
			mu.Lock()
			mu.Unlock() //nolint:staticcheck // as above
		}
	})
	b.Run("broadcast", func(b *testing.B) {
		var mu broadcast.Mutex
		b.ReportAllocs()
		for b.Loop() {
			mu.Lock()
			mu.Unlock() //nolint:staticcheck // as above
		}
	})
}
