// Package pause waits, unless there is no longer a reason to. It is pure.
package pause

import (
	"context"
	"time"
)

// For waits for d, and returns the cause of ctx if that ends first. If d is not positive, it does
// not wait.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
