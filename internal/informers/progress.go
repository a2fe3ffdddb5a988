package informers

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
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
		if i.alive(time.Now()) && i.store.tellProgress(ctx) != nil {
			return
		}
	}
}

// tellProgress says up to where everything is on the bus, once the first snapshot is.
func (s *store) tellProgress(ctx context.Context) error {
	s.mu.Lock()
	m, _ := s.ledger.Mark()
	ev := &object.StreamEvent{
		Kind: object.Progress, Resource: s.o.Resource, Scope: s.o.Scope, ResourceVersion: m.rv, History: s.history,
	}
	// While a gap is not announced, or a list is read, the mark speaks of what is given up perhaps.
	s.noteLog()
	told := s.adopted && s.caughtUp && s.lost == nil && s.listing == notListing && !s.log.owes()
	s.mu.Unlock()
	if !told {
		return nil
	}
	return s.sendStream(ctx, ev)
}

// Finish says of each scope up to where it is on the bus, and waits until these words are too. It is called after Run, once
// the queue is drained, and before it is closed.
func (s *Set) Finish(ctx context.Context) error {
	s.mu.Lock()
	all := make([]*running, 0, len(s.informers))
	for _, i := range s.informers {
		all = append(all, i)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for n, i := range all {
		wg.Go(func() { errs[n] = i.store.tellProgress(ctx) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
