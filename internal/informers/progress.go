package informers

import (
	"context"
	"sync"
)

// Finish sends a last progress event of each scope, and waits until the bus has acknowledged it. It must be called after Run, once the queue
// is drained, and before the queue is closed.
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
