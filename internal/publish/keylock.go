package publish

import (
	"context"
	"sync"
)

// keyLock is a lock for each key. The zero value is ready. It keeps nothing of a key that nobody holds or waits for.
type keyLock struct {
	mu    sync.Mutex
	locks map[string]*keyHeld
}

type keyHeld struct {
	c     chan struct{} // has room for one: a full one is locked. Never closed.
	users int           // that hold it or wait for it
}

// lock waits until it has the key, and returns what gives it back; or the cause of ctx, if that ends first.
func (l *keyLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	if l.locks == nil {
		l.locks = map[string]*keyHeld{}
	}
	h := l.locks[key]
	if h == nil {
		h = &keyHeld{c: make(chan struct{}, 1)}
		l.locks[key] = h
	}
	h.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(l.locks, key)
		}
	}
	select {
	case h.c <- struct{}{}:
		return func() { <-h.c; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
