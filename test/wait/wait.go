package wait

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// poll is the time between two evaluations of a condition.
const poll = 20 * time.Millisecond

// For waits until cond returns nil. When d has passed, or ctx ends, it returns the last error of
// cond.
func For(ctx context.Context, d time.Duration, cond func() error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// Eventually waits until cond returns nil, and fails the test if it has not done so within d. It
// may be called from a function that t.Cleanup registered.
func Eventually(t testing.TB, d time.Duration, cond func() error) {
	t.Helper()
	if err := For(context.WithoutCancel(t.Context()), d, cond); err != nil {
		t.Fatalf("after %s: %v", d, err)
	}
}

// Settled waits until value has not changed for the time quiet, and fails the test if that has not
// happened within limit. It is for work whose end nothing reports.
func Settled(t testing.TB, quiet, limit time.Duration, value func() uint64) {
	t.Helper()
	last, since := value(), time.Now()
	err := For(t.Context(), limit, func() error {
		if v := value(); v != last {
			last, since = v, time.Now()
		}
		if time.Since(since) < quiet {
			return errors.New("it changes still")
		}
		return nil
	})
	if err != nil {
		t.Fatal(fmt.Errorf("no %s without a change within %s, last value %d: %w", quiet, limit, last, err))
	}
}
