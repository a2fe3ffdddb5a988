package informers

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	backoffFirst = 100 * time.Millisecond
	backoffMax   = 30 * time.Second
)

// backoff spaces retries against the API server: exponentially with jitter, and at least as far apart as the server
// asks for.
type backoff struct{ wait.Backoff }

func newBackoff() *backoff {
	return &backoff{wait.Backoff{Duration: backoffFirst, Factor: 2, Jitter: 0.5, Steps: 10, Cap: backoffMax}}
}

// next is how long to wait after err.
func (b *backoff) next(err error) time.Duration {
	d := b.Step()
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, time.Duration(seconds)*time.Second)
	}
	return d
}

// wait waits after err; false: ctx ended first.
func (b *backoff) wait(ctx context.Context, err error) bool {
	return sleep(ctx, b.next(err))
}

// sleep waits for d; false: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
