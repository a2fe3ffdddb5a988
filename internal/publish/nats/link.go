package nats

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// link is the state of the connection: up while it is open and its stream has been checked.
type link struct {
	up atomic.Bool // written with mu held

	mu       sync.Mutex
	closed   bool
	epoch    uint64          // counts lost connections
	standing chan struct{}   // closed while the link is up, and after close
	current  context.Context //nolint:containedctx // canceled when the connection is lost
	lose     context.CancelFunc
}

func newLink() *link {
	l := &link{standing: make(chan struct{})}
	l.current, l.lose = context.WithCancel(context.Background())
	return l
}

// wait returns nil when the link is up, ErrClosed when it is closed, and the cause of ctx if ctx ends first.
func (l *link) wait(ctx context.Context) error {
	l.mu.Lock()
	standing := l.standing
	l.mu.Unlock()
	select {
	case <-standing:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return publish.ErrClosed
	}
	return nil
}

// lost returns the number of lost connections.
func (l *link) lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// during returns a context that is also canceled when the connection is lost: the next connection never delivers the response.
func (l *link) during(ctx context.Context) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	current := l.current
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(current, cancel)
	return ctx, func() { stop(); cancel() }
}

// raise sets the link up, unless a connection was lost after epoch was read: then the check was made on the lost connection. It reports
// whether the link was down.
func (l *link) raise(epoch uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up.Load() || l.closed || l.epoch != epoch {
		return false
	}
	l.up.Store(true)
	close(l.standing)
	return true
}

// lower sets the link down after a loss, and reports whether it was up.
func (l *link) lower() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	l.lose()
	if l.closed {
		return false
	}
	l.current, l.lose = context.WithCancel(context.Background())
	if !l.up.Swap(false) {
		return false
	}
	l.standing = make(chan struct{})
	return true
}

// close sets the link down for good.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.lose()
	if !l.up.Swap(false) {
		close(l.standing)
	}
}
