package leader

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrLost means that this process must never write again: another agent leads, or may have led.
var ErrLost = errors.New("no longer the leader")

// instant is a point in time on two clocks, in nanoseconds. The monotonic clock cannot be set, but
// stops while the machine is suspended. The wall clock keeps running.
type instant struct{ Mono, Wall int64 }

// clock returns the current time. It takes no lock.
type clock func() instant

func systemClock() clock {
	base := time.Now()
	return func() instant {
		now := time.Now()
		return instant{Mono: int64(now.Sub(base)), Wall: now.UnixNano()}
	}
}

// since returns the time between two instants on the monotonic clock.
func (i instant) since(earlier instant) time.Duration { return time.Duration(i.Mono - earlier.Mono) }

// isWithin reports whether less than d has passed since earlier on both clocks. A wall clock that
// was set back by more than d counts as expired, like one that was set forward.
func (i instant) isWithin(d time.Duration, earlier instant) bool {
	mono, wall := i.Mono-earlier.Mono, i.Wall-earlier.Wall
	return mono < int64(d) && wall < int64(d) && wall > -int64(d)
}

// Fence decides whether this process may write to the bus. A process may be paused at any moment,
// and another agent may lead when it continues. So the fence measures the time at each Pass: it is
// open for a limited time after the last renewal of the Lease was sent. It is safe for concurrent
// use.
type Fence struct {
	now   clock
	valid time.Duration // of a renewal

	renewed atomic.Pointer[instant] // when the last successful renewal was sent; nil before the first, and after shut

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when renewed changes
	over    error         // why it never passes again
}

func newFence(now clock, valid time.Duration) *Fence {
	return &Fence{now: now, valid: valid, changed: make(chan struct{})}
}

// Pass returns nil if this process may write. While the Lease is not renewed, Pass blocks until it
// is, or until ctx ends, and then returns the cause of ctx. If the process must never write again,
// the error wraps ErrLost.
//
// An open fence costs two reads of the clock and no lock.
func (f *Fence) Pass(ctx context.Context) error {
	if f.isOpen() {
		return nil
	}
	for {
		f.mu.Lock()
		changed, over := f.changed, f.over
		f.mu.Unlock()
		switch {
		case over != nil:
			return over
		case f.isOpen():
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *Fence) isOpen() bool {
	renewed := f.renewed.Load()
	return renewed != nil && f.isValidAt(f.now(), renewed)
}

// isValidAt reports whether a renewal that was sent at renewed is still valid.
func (f *Fence) isValidAt(now instant, renewed *instant) bool { return now.isWithin(f.valid, *renewed) }

// noteRenewal opens the fence for the validity of a renewal that was sent at sent.
func (f *Fence) noteRenewal(sent instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over != nil {
		return
	}
	f.renewed.Store(&sent)
	f.wake()
}

// shut closes the fence for good.
func (f *Fence) shut(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over != nil {
		return
	}
	f.over = why
	f.renewed.Store(nil)
	f.wake()
}

// shutCause returns why the fence never passes again, nil if it may.
func (f *Fence) shutCause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

func (f *Fence) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}
