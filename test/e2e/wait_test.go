package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/wait"
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

// settled waits until value has not changed for quiet, and fails the test if it has not come to rest within most. It is for work of
// others that has no other end, such as controllers. The value has to be the test's own: other tests share the control plane.
func settled(t testing.TB, quiet, most time.Duration, value func() uint64) {
	t.Helper()
	wait.Settled(t, quiet, most, value)
}
