package driver

import (
	"context"
	"maps"
	"slices"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// ScopeLister is a Bus that can return the scopes of a resource that a run of a writer has started
// and not ended, sorted by name. StartedScopes waits until Run has connected. Its errors are the
// cause of ctx and publish.ErrClosed.
type ScopeLister interface {
	StartedScopes(ctx context.Context, r *object.Resource, writer, run string) ([]publish.StartedScope, error)
}

// Starts collects the scopes of a resource that a run has started. The zero value has none.
type Starts struct{ bySnapshot map[string]bool }

// Add takes a stream event of the resource. The starts and ends of a scope come in the order of the
// log, and none of its snapshots after its end. Events of other writers and runs change nothing.
func (s *Starts) Add(e *consume.Event, writer, run string) {
	if e.Stream == nil || e.Stream.Writer != writer || e.Stream.Run != run || e.Scope == "" {
		return
	}
	if s.bySnapshot == nil {
		s.bySnapshot = map[string]bool{}
	}
	switch e.Type {
	case consume.TypeScopeStarted:
		s.bySnapshot[e.Scope] = false
	case consume.TypeScopeEnded:
		delete(s.bySnapshot, e.Scope)
	case consume.TypeSnapshotStarted:
		if _, known := s.bySnapshot[e.Scope]; !known {
			s.bySnapshot[e.Scope] = true
		}
	case consume.TypeSnapshotCompleted, consume.TypeGap, consume.TypeProgress:
	}
}

// Scopes returns the scopes that were started and not ended, sorted by name.
func (s *Starts) Scopes() (all []publish.StartedScope) {
	for _, name := range slices.Sorted(maps.Keys(s.bySnapshot)) {
		all = append(all, publish.StartedScope{Name: name, BySnapshot: s.bySnapshot[name]})
	}
	return all
}
