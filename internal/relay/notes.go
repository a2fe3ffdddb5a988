package relay

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// noteWindow is how long further log lines of one kind are held back after the first.
const noteWindow = time.Minute

// notes lets the first of each kind through per noteWindow and counts the others. Kinds are a fixed few.
type notes struct {
	mu    sync.Mutex
	kinds map[string]*note
}

type note struct {
	until      time.Time
	suppressed int
}

// first reports whether a line of that kind is due, and how many were held back since the last one.
func (n *notes) first(kind string) (suppressed int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	k := n.kinds[kind]
	if k == nil {
		if n.kinds == nil {
			n.kinds = map[string]*note{}
		}
		k = new(note)
		n.kinds[kind] = k
	}
	if now.Before(k.until) {
		k.suppressed++
		return 0, false
	}
	suppressed = k.suppressed
	k.suppressed, k.until = 0, now.Add(noteWindow)
	return suppressed, true
}

const (
	retryFirst = 250 * time.Millisecond
	retryMax   = 30 * time.Second
)

// backoff waits after that many failures, which count from 1: from retryFirst to retryMax by doubling, half of it random.
func backoff(ctx context.Context, failures int) error {
	d := retryMax
	if failures < 10 {
		d = min(d, retryFirst<<(failures-1))
	}
	return sleep(ctx, d/2+rand.N(d/2+1))
}

// sleep waits, and returns the cause of ctx if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
