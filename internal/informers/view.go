package informers

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/informers/store"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// View is what others wait for of an informer, as it is at one moment.
type View struct {
	store.View
	Phase     Phase
	Ended     bool   // the informer has ended
	Failing   bool   // the last request failed
	Forbidden bool   // it failed because it is not permitted
	RemovedAt uint64 // resourceVersion at which the resource was removed, 0: it exists
	EmptyAt   uint64 // resourceVersion up to which the informer has found that no object exists any more, 0: it has not
}

// View returns the present view, and a channel that is closed by the next change of the informer.
func (r *running) View() (View, <-chan struct{}) {
	changed := r.store.Changed() // before anything is read
	v := View{Ended: r.hasEnded(), RemovedAt: r.RemovedAt(), EmptyAt: r.emptyAt(), Phase: r.state.now(), View: r.store.View()}
	if err := r.state.lastError(); err != nil {
		v.Failing, v.Forbidden = true, apierrors.IsForbidden(err)
	}
	return v, changed
}

// Wait returns nil once cond returns true, or the cause of ctx. It calls cond after each change of the informer and of the set.
// cond must change neither.
func (r *running) Wait(ctx context.Context, cond func(View) bool) error {
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
