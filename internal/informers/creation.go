package informers

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/scope"
)

// A resource that is defined while the manager watches definitions is observed from its creation: the resourceVersion at which its
// CustomResourceDefinition was created. No object existed before, so the objects that are found are created, not read:
//
//	E (definition) ────────────── R (list) ──▶ watch
//	 nothing      E+1  E+2  …  R
//
// The API server usually refuses a watch from E: it begins to keep history of a resource when it is first asked for it. So the objects
// are listed at once, and the few revisions in between are listed one by one (package backfill). If there are too many, the names in
// the list are walked back, and a gap is announced.
//
// E is not when the definition was established: the API server accepts objects a moment before it reports that. A snapshot of no objects,
// at E, comes first. The stream is complete from there, and consumers delete what they have of an earlier resource of that name.

// startCreated starts informers of resources that were defined while the manager watched, and have none yet. A resource whose name is
// still being retired waits for that. The caller holds mu.
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
		s.o.Log.Info("a resource was defined: it is observed from its creation", "scope", spec.Scope.Name, "rv", spec.Created)
		begin = append(begin, s.enroll(spec))
	}
	s.start(ctx, begin, nil)
}

// startFromCreation lets an informer without a checkpoint begin at the creation of its resource or namespace, if that is known. The
// caller holds mu.
func (s *Manager) startFromCreation(spec *scope.Spec) {
	spec.Created, spec.CreatedAt = s.extensions.CreatedAt(spec.Scope.Resource)
	if rv, at := s.namespaces.createdAt(spec.Scope.Resource, spec.Scope.Namespace); rv > spec.Created {
		spec.Created, spec.CreatedAt = rv, at
	}
}

// bequeath passes on the creation at which informers were to begin that ended before their first list. Specs of the same resource that
// have no origin begin there. The caller holds mu.
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
