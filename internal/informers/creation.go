package informers

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/scope"
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
func (s *Manager) startCreated(ctx context.Context) {
	if s.served.discovery == 0 {
		return // the first discovery starts them
	}
	retiring := map[schema.GroupResource]bool{}
	for _, i := range s.active.informers {
		gr := groupResource(i.Resource())
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
func (s *Manager) startFromCreation(spec *scope.Spec) {
	spec.Created, spec.CreatedAt = s.extensions.CreatedAt(spec.Scope.Resource)
	if rv, at := s.namespaces.bornAt(spec.Scope.Resource, spec.Scope.Namespace); rv > spec.Created {
		spec.Created, spec.CreatedAt = rv, at
	}
}

// bequeath has those that begin, and have nothing to resume from, begin at the creation that others of their resource were to begin at:
// they have ended before their first list. The caller holds mu.
func bequeath(ended []*running, begin []*scope.Spec) {
	for _, spec := range begin {
		for _, of := range ended {
			if spec.Origin == nil && of.ObservesResource(spec.Scope.Resource) && (of.Selection().Namespace == "" || of.Selection().Namespace == spec.Scope.Namespace) {
				if _, created, at := of.NotBegun(); created > spec.Created {
					spec.Created, spec.CreatedAt = created, at
				}
			}
		}
	}
}
