package informers

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/retry"
)

// progressEvery is how often a scope says up to where it is on the bus.
const progressEvery = time.Minute

// tellProgress sends a progress event now and then, as long as the scope is alive: that is what tells consumers silence
// from death. It waits for the acknowledgement of each, so that no more than one is under way while the bus is away.
func (i *informer) tellProgress(ctx context.Context) {
	wait := i.progressEvery/2 + rand.N(i.progressEvery/2) // scopes that began together do not speak all at once
	for retry.Sleep(ctx, wait) {
		wait = i.progressEvery
		if i.alive(time.Now()) && i.store.SendProgress(ctx) != nil {
			return
		}
	}
}

// Finish says of each scope up to where it is on the bus, and waits until these words are too. It is called after Run, once
// the queue is drained, and before it is closed.
func (s *Set) Finish(ctx context.Context) error {
	s.mu.Lock()
	all := make([]*running, 0, len(s.active.informers))
	for _, i := range s.active.informers {
		all = append(all, i)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for n, i := range all {
		wg.Go(func() { errs[n] = i.store.SendProgress(ctx) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
