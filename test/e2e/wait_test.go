package e2e_test

import (
	"context"
	"testing"
	"time"
)

// poll is how often a condition is looked at.
const poll = 20 * time.Millisecond

// eventually waits until cond returns nil and fails the test when it has not within d.
func eventually(t testing.TB, d time.Duration, cond func() error) {
	t.Helper()
	if err := await(t.Context(), d, cond); err != nil {
		t.Fatalf("after %s: %v", d, err)
	}
}

// await waits until cond returns nil; after d, or when ctx ends, it returns what cond returned last.
func await(ctx context.Context, d time.Duration, cond func() error) error {
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

// settled waits until value has not changed for a while: the only way to tell that nobody is at work any more, where
// nobody says so.
func settled(t testing.TB, quiet, most time.Duration, value func() uint64) {
	t.Helper()
	last, since := value(), time.Now()
	_ = await(t.Context(), most, func() error {
		if v := value(); v != last {
			last, since = v, time.Now()
		}
		if time.Since(since) < quiet {
			return context.DeadlineExceeded
		}
		return nil
	})
}
