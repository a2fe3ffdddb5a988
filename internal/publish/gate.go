package publish

import (
	"context"
	"sync"
	"sync/atomic"
)

// gate is open while a connection stands whose stream has been checked. Waiting at an open gate takes no lock.
type gate struct {
	mu    sync.Mutex
	epoch uint64                        // counts shut
	ch    atomic.Pointer[chan struct{}] // closed while the gate is open
	open  bool
	ended bool // open for good, so that whoever waits learns that the publisher is closed

	epochCtx context.Context //nolint:containedctx // of the epoch: ends with it
	over     context.CancelFunc
}

func newGate() *gate {
	g := new(gate)
	g.epochCtx, g.over = context.WithCancel(context.Background())
	ch := make(chan struct{})
	g.ch.Store(&ch)
	return g
}

// wait returns nil once the gate is open, the cause of ctx if that ends first.
func (g *gate) wait(ctx context.Context) error {
	ch := *g.ch.Load()
	select {
	case <-ch:
		return nil
	default:
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isOpen tells whether wait would return at once, and the epoch to hand to unlock.
func (g *gate) isOpen() (open bool, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open, g.epoch
}

// current is the epoch: it changes when the connection is lost.
func (g *gate) current() uint64 {
	_, epoch := g.isOpen()
	return epoch
}

// during returns a context that ends with the epoch too: what is asked on a connection is never answered on the next.
func (g *gate) during(ctx context.Context) (context.Context, context.CancelFunc) {
	g.mu.Lock()
	epoch := g.epochCtx
	g.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(epoch, cancel)
	return ctx, func() { stop(); cancel() }
}

// unlock opens the gate, unless it was shut after epoch was read: then what was checked since is about a connection
// that is gone. It reports whether it has opened it, which it has not where it was open.
func (g *gate) unlock(epoch uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open || g.epoch != epoch {
		return false
	}
	g.open = true
	close(*g.ch.Load())
	return true
}

// end opens the gate for good.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.over()
	if !g.open {
		g.open = true
		close(*g.ch.Load())
	}
}

// shut closes the gate and reports whether it was open.
func (g *gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.epoch++
	g.over()
	if !g.ended {
		g.epochCtx, g.over = context.WithCancel(context.Background())
	}
	if !g.open || g.ended {
		return false
	}
	g.open = false
	ch := make(chan struct{})
	g.ch.Store(&ch)
	return true
}
