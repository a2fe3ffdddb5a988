package leader

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrLost says that this process may never write again: another agent leads, or may have led.
var ErrLost = errors.New("not the leader any more")

// instant is a point in time by two clocks, in nanoseconds: the monotonic one, which nobody sets and which stands still while a
// machine is suspended, and the wall clock, which goes on then.
type instant struct{ Mono, Wall int64 }

// clock tells the time. It has no lock.
type clock func() instant

func systemClock() clock {
	base := time.Now()
	return func() instant {
		now := time.Now()
		return instant{Mono: int64(now.Sub(base)), Wall: now.UnixNano()}
	}
}

// since is the time between two instants by the monotonic clock.
func (i instant) since(earlier instant) time.Duration { return time.Duration(i.Mono - earlier.Mono) }

// within tells if less than d lies between two instants, by both clocks. A wall clock that was set back by more than d is as
// little to be trusted as one that was set forward.
func (i instant) within(d time.Duration, earlier instant) bool {
	mono, wall := i.Mono-earlier.Mono, i.Wall-earlier.Wall
	return mono < int64(d) && wall < int64(d) && wall > -int64(d)
}

// Fence tells whether this process may write to the bus. It is safe for concurrent use.
type Fence struct {
	now   clock
	valid time.Duration // of a renewal

	renewed atomic.Pointer[instant] // when the request was sent that renewed the Lease last; nil: never, or it is over

	mu      sync.Mutex
	changed chan struct{} // closed, and made anew, when renewed changes
	over    error         // it never passes again
}

func newFence(now clock, valid time.Duration) *Fence {
	return &Fence{now: now, valid: valid, changed: make(chan struct{})}
}

// Pass returns nil while this process may write. While that is not known it blocks, until it is, or ctx ends: then it returns
// the cause of ctx. Where it may never again, the error wraps ErrLost. With a ctx that has ended it does not block.
//
// An open fence costs two reads of the clock, and takes no lock.
func (f *Fence) Pass(ctx context.Context) error {
	if f.open() {
		return nil
	}
	for {
		f.mu.Lock()
		changed, over := f.changed, f.over
		f.mu.Unlock()
		switch {
		case over != nil:
			return over
		case f.open():
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *Fence) open() bool {
	renewed := f.renewed.Load()
	return renewed != nil && f.validAt(f.now(), renewed)
}

// validAt tells if a renewal that was asked for at an earlier time still counts.
func (f *Fence) validAt(now instant, renewed *instant) bool { return now.within(f.valid, *renewed) }

// renew opens the fence for as long as a renewal is valid whose request was sent at that time.
func (f *Fence) renew(sent instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over != nil {
		return
	}
	f.renewed.Store(&sent)
	f.wake()
}

// shut shuts the fence for good.
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

// ended is why it never passes again, nil: it may.
func (f *Fence) ended() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

func (f *Fence) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}
