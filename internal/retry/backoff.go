package retry

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubecdc/kubecdc/internal/pause"
)

const (
	// First is the first delay of a Backoff, before jitter.
	First = 100 * time.Millisecond
	// longest is the longest delay, before jitter.
	longest = 30 * time.Second
	// jitter is the share of a delay that may be added to it.
	jitter = 0.5
	// doublings is enough steps to get from First to longest.
	doublings = 10
)

// Backoff has the delays between attempts: from First to 30 s, doubled each time, plus up to a half
// of each at random. Use New to make one.
type Backoff struct{ b wait.Backoff }

// New returns a Backoff that starts at First.
func New() *Backoff {
	return &Backoff{wait.Backoff{
		Duration: First,
		Factor:   2,
		Jitter:   jitter,
		Steps:    doublings,
		Cap:      longest,
	}}
}

// Next returns the delay after err, which may be nil: at least as long as an API server requests in
// err.
func (b *Backoff) Next(err error) time.Duration {
	d := b.b.Step()
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, time.Duration(seconds)*time.Second)
	}
	return d
}

// Wait waits for Next(err). It returns false if ctx ended first.
func (b *Backoff) Wait(ctx context.Context, err error) bool {
	return pause.For(ctx, b.Next(err)) == nil
}

// Do calls f until it returns nil. After an error it calls failed, with the delay until the next
// attempt, unless ctx has ended. If failed returns false, another attempt cannot help, and Do
// returns the error of f. If ctx has ended, Do returns its cause.
func Do(ctx context.Context, f func() error, failed func(err error, delay time.Duration) (again bool)) error {
	for b := New(); ; {
		err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		delay := b.Next(err)
		if !failed(err, delay) {
			return err
		}
		if pause.For(ctx, delay) != nil {
			return context.Cause(ctx)
		}
	}
}
