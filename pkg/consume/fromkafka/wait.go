package fromkafka

import (
	"context"
	"time"
)

const (
	apiTimeout  = 10 * time.Second
	dialTimeout = 5 * time.Second
	// retryFirst and retryMax limit the pauses between attempts.
	retryFirst = 100 * time.Millisecond
	retryMax   = 2 * time.Second
)

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
