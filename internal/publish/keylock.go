package publish

import (
	"context"
	"sync"
)

// keyLock is a lock for each key. The zero value is ready. It keeps one entry per key for ever: there are as many as scopes.
type keyLock struct {
	mu    sync.Mutex
	locks map[string]chan struct{} // each has room for one: a full one is locked. Never closed.
}

// lock waits until it has the key, and returns what gives it back; or the cause of ctx, if that ends first.
func (l *keyLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	if l.locks == nil {
		l.locks = map[string]chan struct{}{}
	}
	c := l.locks[key]
	if c == nil {
		c = make(chan struct{}, 1)
		l.locks[key] = c
	}
	l.mu.Unlock()
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
