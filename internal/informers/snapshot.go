package informers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kubecdc/kubecdc/internal/informers/store"
)

// Snapshot sends the objects of a resource ("pods", "deployments.apps"; "": all resources) in a namespace ("": all) once more,
// beside live changes. It returns once each snapshot has begun, was in progress, or was given up (ErrNotBegun).
func (s *Manager) Snapshot(ctx context.Context, resource, namespace string) ([]store.Started, error) {
	s.mu.Lock()
	var all []*running
	names := map[string]bool{}
	for _, i := range s.active.informers {
		if i.Spec().Internal {
			continue
		}
		names[i.Resource().String()] = true
		if (resource == "" || resource == i.Resource().String()) && i.Observes(namespace) {
			all = append(all, i)
		}
	}
	s.mu.Unlock()
	if len(all) == 0 {
		what := resource
		if what == "" {
			what = "nothing"
		}
		if namespace != "" {
			what += " of namespace " + namespace
		}
		var known []string
		for n := range names {
			known = append(known, n)
		}
		slices.Sort(known)
		return nil, fmt.Errorf("%s is not captured; captured are: %v", what, known)
	}
	slices.SortFunc(all, func(a, b *running) int { return strings.Compare(a.Name(), b.Name()) })
	// All at once: each waits for a save of the checkpoint, and shares it with the others.
	begun, errs := make([]store.Started, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for n, i := range all {
		wg.Go(func() {
			var err error
			if begun[n], err = i.TakeSnapshot(ctx, namespace); err != nil {
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
