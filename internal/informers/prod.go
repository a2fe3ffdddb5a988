package informers

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// patience is for how long to wait until a list is tried again that failed with err, and would be tried after delay: nothing
// mends within an instant what is not served or not permitted. But what was defined just now is served soon.
func (i *informer) patience(err error, delay time.Duration) time.Duration {
	if i.born != 0 && apierrors.IsNotFound(err) {
		return delay
	}
	return max(delay, time.Second)
}

// kick ends the waiting for the next try.
func (i *informer) kick() {
	select {
	case i.kicked <- struct{}{}:
	default: // it will try at once
	}
}

// wakeWithin is the time over which scopes spread their retries when the API server answers again after an outage.
const wakeWithin = time.Second

// pause waits for d after err, or until it is kicked, or until the API server has answered another scope after it had failed for all;
// false: ctx ended first.
func (i *informer) pause(ctx context.Context, err error, d time.Duration) bool {
	var answers <-chan struct{}
	if apiserver.IsShared(apiserver.Reason(err)) {
		answers = i.outage.await(i.retried)
	}
	defer func() { i.retried = time.Now() }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-i.kicked:
		return true
	case <-answers:
		return retry.Sleep(ctx, min(d, retry.First+rand.N(wakeWithin)))
	case <-ctx.Done():
		return false
	}
}

// isUnserved tells if the resource was not served when it was asked for.
func (s *state) isUnserved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return apierrors.IsNotFound(s.err)
}

// isFailing tells if requests fail for a reason that a definition may mend.
func (s *state) isFailing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil && !apierrors.IsForbidden(s.err) && !apierrors.IsTooManyRequests(s.err)
}
