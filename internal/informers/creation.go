package informers

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/informers/store"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/object"
)

// A resource that is defined while the set watches definitions is observed from its birth: the resourceVersion at which its
// CustomResourceDefinition was made. Behind it there was no object, so what is found is created, not read:
//
//	E (definition) ────────────── R (list) ──▶ watch
//	 nothing      E+1  E+2  …  R
//
// A watch from E is refused as a rule: the API server begins to keep history of a resource when it is first asked for it. So
// the objects are listed at once, and the few revisions in between are looked at one by one (package backfill). Where there are too many,
// the names that the list has are walked back, and a gap tells that it is so.
//
// Not when it was established: the API server takes objects a moment before it says so. A snapshot of no objects, at E, goes first: it is complete from there, and whatever a consumer still has of an earlier
// resource of that name is gone.

// startCreated starts informers of what was defined while the set watched, and has none yet. What is still being retired under that
// name is waited for. The caller holds mu.
func (s *Set) startCreated(ctx context.Context) {
	if s.served.discovery == 0 {
		return // the first discovery starts them
	}
	retiring := map[schema.GroupResource]bool{}
	for _, i := range s.active.informers {
		gr := groupResource(i.resource)
		retiring[gr] = retiring[gr] || i.RemovedAt() != 0
	}
	created := s.extensions.Created(retiring)
	if len(created) == 0 {
		return
	}
	out, _ := s.sel.Choose(created, nil, s.taken())
	specs := s.add(out)
	s.inherit(specs)
	s.extensions.Started(created)
	var begin []*running
	for _, spec := range specs {
		s.o.Log.Info("a resource was defined: it is observed from its birth", "scope", spec.Scope.Name, "rv", spec.Created)
		begin = append(begin, s.enroll(spec))
	}
	s.start(ctx, begin, nil)
}

// startFromCreation has an informer of which nothing is remembered begin when its resource, or namespace, was created, if that is known. The
// caller holds mu.
func (s *Set) startFromCreation(spec *Spec) {
	spec.Created, spec.CreatedAt = s.extensions.CreatedAt(spec.Scope.Resource)
	if rv, at := s.namespaces.bornAt(spec.Scope.Resource, spec.Scope.Namespace); rv > spec.Created {
		spec.Created, spec.CreatedAt = rv, at
	}
}

// bequeath has those that begin, and have nothing to resume from, begin at the creation that others of their resource were to begin at:
// they have ended before their first list. The caller holds mu.
func bequeath(ended []*running, begin []*Spec) {
	for _, spec := range begin {
		for _, of := range ended {
			if spec.Origin == nil && of.observesOf(spec.Scope.Resource) && (of.selection.Namespace == "" || of.selection.Namespace == spec.Scope.Namespace) && of.born > spec.Created {
				spec.Created, spec.CreatedAt = of.born, of.bornAt
			}
		}
	}
}

// loadBirth reads a resource behind whose birth there was nothing of it.
func (i *informer) loadBirth(ctx context.Context) (uint64, error) {
	from := i.born
	// The bus may have heard of an earlier resource of that name: in which history that was.
	if _, err := i.askBus(ctx, from); err != nil {
		return 0, err
	}
	if h := i.heard; h != nil {
		i.store.RaiseHistory(h.History)
		i.heard = nil
	}
	if !i.store.IsLoaded() {
		i.store.BeginList(store.AtCheckpoint)
		if i.spec.Snapshots == SnapshotNever {
			i.store.EndList(from)
		} else {
			i.store.EndList(from, i.store.NewSnapshot(from))
		}
	}
	i.store.BeginList(store.Relist)
	rv, err := i.pages(ctx, metav1.ListOptions{}, i.store.Compare)
	if err != nil {
		return 0, err
	}
	if rv < from || i.store.WentBack() {
		// Etcd was restored, or there were objects before: whatever it is, it is read as any other resource.
		i.born = 0
		reason := object.Expired
		if rv < from {
			reason = object.Rewound
		}
		i.restart(reason)
		return 0, errRestart
	}
	if rv == from && i.store.Loss() == nil {
		i.store.EndList(rv)
	} else {
		i.store.Lose(store.Loss{From: from, Since: i.bornAt, Reason: object.Expired, SkipIfRecovered: true})
		i.store.EndList(rv, i.store.Gap(rv, func(ctx context.Context) (bool, bool, error) {
			whole, recovered, err := i.find(ctx, rv)
			if err == nil && !whole {
				i.log.Info("a resource was read a while after its birth: objects that came and went in between are not known", "scope", i.scope,
					"from_rv", from, "to_rv", rv, "recovered", recovered)
			}
			return whole, recovered, err
		}))
	}
	i.born = 0
	return rv, nil
}
