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

// Snapshot has the objects of a resource ("pods", "deployments.apps"; "": all resources) in a namespace ("": all) read and
// sent once more, while changes go on. It returns once each has begun, was in progress, or was given up (ErrNotBegun).
func (s *Set) Snapshot(ctx context.Context, resource, namespace string) ([]store.Started, error) {
	s.mu.Lock()
	var all []*running
	names := map[string]bool{}
	for _, i := range s.active.informers {
		if i.spec.Internal {
			continue
		}
		names[i.resource.String()] = true
		if (resource == "" || resource == i.resource.String()) && i.observes(namespace) {
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
	slices.SortFunc(all, func(a, b *running) int { return strings.Compare(a.scope, b.scope) })
	// All at once: each waits for a save of the checkpoint, and shares it with the others.
	begun, errs := make([]store.Started, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for n, i := range all {
		wg.Go(func() {
			var err error
			if begun[n], err = i.snapshot(ctx, namespace); err != nil {
				errs[n] = fmt.Errorf("%s: %w", i.scope, err)
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

// observes tells if the scope has, or may have, objects in a namespace ("": asks for none).
func (i *informer) observes(namespace string) bool {
	return namespace == "" || i.selection.Takes(namespace)
}

// snapshot asks for one of a namespace ("": of all).
func (i *informer) snapshot(ctx context.Context, namespace string) (store.Started, error) {
	if i.selection.Namespace == namespace {
		namespace = "" // the scope has no other
	}
	scope := i.scope
	if namespace != "" {
		scope = i.selection.NameIn(namespace)
	}
	return i.store.TakeSnapshot(ctx, scope, namespace)
}
