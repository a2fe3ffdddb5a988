package informers

import (
	"context"
	"sync"
)

// Finish says of each scope up to where it is on the bus, and waits until these words are too. It is called after Run, once
// the queue is drained, and before it is closed.
func (s *Manager) Finish(ctx context.Context) error {
	s.mu.Lock()
	all := make([]*running, 0, len(s.active.informers))
	for _, i := range s.active.informers {
		all = append(all, i)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for n, i := range all {
		wg.Go(func() { errs[n] = i.Store().SendProgress(ctx) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
