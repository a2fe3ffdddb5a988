package informers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kubecdc/kubecdc/internal/informers/store"
)

// Snapshot sends the objects of a resource ("pods", "deployments.apps"; "": all resources) in a
// namespace ("": all) once more, beside live changes. It returns once each snapshot has begun, was
// in progress, or was given up (ErrNotBegun).
func (m *Manager) Snapshot(ctx context.Context, resource, namespace string) ([]store.Started, error) {
	var all []*running
	names := map[string]bool{}
	for _, i := range m.observing() {
		if i.Spec().Internal {
			continue
		}
		names[i.Resource().String()] = true
		if (resource == "" || resource == i.Resource().String()) &&
			(namespace == "" || i.Selection().Takes(namespace)) {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		what := cmp.Or(resource, "nothing")
		if namespace != "" {
			what += " of namespace " + namespace
		}
		return nil, fmt.Errorf("%s is not captured; captured are: %v", what, slices.Sorted(maps.Keys(names)))
	}
	slices.SortFunc(all, func(a, b *running) int { return strings.Compare(a.Name(), b.Name()) })
	// All at once: each waits for a save of the checkpoint, which all share.
	begun, errs := make([]store.Started, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for n, i := range all {
		wg.Go(func() {
			var err error
			begun[n], err = i.TakeSnapshot(ctx, namespace)
			if err != nil {
				errs[n] = fmt.Errorf("%s: %w", i.Name(), err)
			}
		})
	}
	wg.Wait()
	var out []store.Started
	for n, started := range begun {
		if errs[n] == nil {
			out = append(out, started)
		}
	}
	return out, errors.Join(errs...)
}

// Rebase makes each scope whose log was replaced send a gap and a snapshot on the new one
// (store/log.go). It does not wait.
func (m *Manager) Rebase() {
	for _, i := range m.observing() {
		i.Store().Rebase()
	}
}
