package record

import (
	"context"
	"maps"
	"slices"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// CustomNames returns the words for the resources whose CRDs the record has, sorted: plurals,
// singulars and short names.
func (r *Record) CustomNames(ctx context.Context) ([]string, error) {
	crds, err := r.readCRDs(ctx, &Selection{})
	all := map[string]bool{}
	for i := range crds {
		n := &crds[i].Spec.Names
		for _, word := range append([]string{n.Plural, n.Singular}, n.ShortNames...) {
			if word != "" {
				all[word] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), err
}

// Namespaces returns the namespaces of the objects of a selection that the record ever had, sorted,
// as ObjectNames.
func (r *Record) Namespaces(ctx context.Context, s *Selection) []string {
	return r.collectNames(ctx, s, func(e *consume.Event) string { return e.Namespace })
}

// ObjectNames returns the names of the objects of a selection that the record ever had, sorted. A
// JetStream sends one event for each object if each has a subject of its own. If ctx ends before
// the end of the record, ObjectNames returns the names found so far.
func (r *Record) ObjectNames(ctx context.Context, s *Selection) []string {
	return r.collectNames(ctx, s, func(e *consume.Event) string { return e.Name })
}

// collectNames returns what a function returns for the objects of a selection, sorted.
func (r *Record) collectNames(ctx context.Context, s *Selection, of func(*consume.Event) string) []string {
	all := map[string]bool{}
	q := consume.Query{
		Objects:    s.objects(),
		Events:     consume.ObjectEvents,
		Start:      consume.Beginning(),
		LastOfEach: true,
	}
	_, _ = r.read(ctx, q, nil, s.taken(), func(e *consume.Event) (bool, error) {
		// no names, or some: completion has no place for an error
		if e.Data != nil {
			all[of(e)] = true
		}
		return false, nil
	})
	delete(all, "") // a namespace of cluster-scoped objects
	return slices.Sorted(maps.Keys(all))
}
