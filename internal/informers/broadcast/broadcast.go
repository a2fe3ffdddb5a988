package broadcast

import (
	"context"
	"sync"
	"sync/atomic"
)

// Signal wakes waiters after a change. The zero value is ready for use.
type Signal struct {
	next     atomic.Pointer[chan struct{}] // closed by the next Notify; nil if nothing waits
	notified atomic.Uint64
}

// Changes returns how often Notify was called.
func (s *Signal) Changes() uint64 { return s.notified.Load() }

// Next returns a channel that is closed by the next Notify.
func (s *Signal) Next() <-chan struct{} {
	for {
		if c := s.next.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		if s.next.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// Notify wakes all waiters. It must be called after the change.
func (s *Signal) Notify() {
	s.notified.Add(1)
	if s.next.Load() == nil {
		return
	}
	if c := s.next.Swap(nil); c != nil {
		close(*c)
	}
}

// Wait returns nil once cond returns true, or the cause of ctx. It calls cond at once and after
// each Notify. cond must not call Notify.
func (s *Signal) Wait(ctx context.Context, cond func() bool) error {
	for {
		next := s.Next()
		if cond() {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Mutex guards state for which other goroutines wait: Unlock notifies. The zero value is ready for
// use.
type Mutex struct {
	Signal
	mu sync.Mutex
}

// Lock locks m to change the state.
func (m *Mutex) Lock() { m.mu.Lock() }

// Unlock unlocks m and notifies.
func (m *Mutex) Unlock() {
	m.mu.Unlock()
	m.Notify()
}

// RLock locks m to read the state, exclusively as Lock does. A condition must use it, since Unlock
// would wake its own waiter.
func (m *Mutex) RLock() { m.mu.Lock() }

// RUnlock unlocks m after RLock, and does not notify.
func (m *Mutex) RUnlock() { m.mu.Unlock() }

// Wake makes the receiver of c check the state. c must have capacity 1.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is already woken, and checks the state, not the number of wakes
	}
}
