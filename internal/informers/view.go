package informers

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/informers/scope"
)

// Wait returns nil once cond returns true, or the cause of ctx. It calls cond after each change of the informer and of the manager.
// cond must change neither.
func (r *running) Wait(ctx context.Context, cond func(scope.View) bool) error {
	for {
		set := r.set.Next()
		v, changed := r.View()
		if cond(v) {
			return nil
		}
		select {
		case <-changed:
		case <-set:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
