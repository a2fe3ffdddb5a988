package informer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Previous asks the bus, once, for the last reports of this agent about its scopes. It must
// have the answer before this run sends its own progress.
type Previous struct {
	ask    func(ctx context.Context) ([]PreviousScope, error)
	asking chan struct{} // held during the request; never closed
	known  bool          // guarded by asking, as is the next field
	scopes []PreviousScope
}

// PreviousScope is the progress of one scope, or of several of one resource.
type PreviousScope struct {
	Resource        string // as object.Resource.String: "deployments.apps"
	Scope           string // name; "": all scopes of the resource that have no entry. Count is their number.
	Count           int
	ResourceVersion uint64 // up to which the bus has everything; 0: not known
	History         uint32
	To              time.Time // up to which the bus has everything; zero: not known
	Run             string    // the run that has said it
	Recalled        bool      // this run has no checkpoint of any scope, and the bus has named this one
}

// StartedScope is a scope that a run has started on the bus, and not ended.
type StartedScope struct {
	Name string
	// BySnapshot: only the start of a snapshot shows it, which may be one of a part of a scope.
	BySnapshot bool
}

// NewPrevious returns a Previous that calls ask. ask retries after temporary errors until ctx ends,
// which is its only error.
func NewPrevious(ask func(ctx context.Context) ([]PreviousScope, error)) *Previous {
	return &Previous{ask: ask, asking: make(chan struct{}, 1)}
}

// Scopes returns what the last run has said. Its error is the cause of ctx. nil has no scopes.
func (p *Previous) Scopes(ctx context.Context) ([]PreviousScope, error) {
	if p == nil {
		return nil, nil
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.known {
		return p.scopes, nil
	}
	all, err := p.ask(ctx)
	if err != nil {
		return nil, err
	}
	p.scopes, p.known = all, true
	return all, nil
}

// Add adds scopes whose names were not known. ctx is one in which Scopes has returned some.
func (p *Previous) Add(ctx context.Context, named []PreviousScope) {
	select {
	case p.asking <- struct{}{}:
		p.scopes = append(slices.Clone(p.scopes), named...) // Scopes may have returned the former ones
		<-p.asking
	case <-ctx.Done(): // another request is under way, which nobody waits for any more
	}
}

// of returns the last report about a scope, or about several scopes of the resource together.
// ok is false if there is none.
func (p *Previous) of(ctx context.Context, r *object.Resource, scope string) (said PreviousScope, ok bool, err error) {
	all, err := p.Scopes(ctx)
	if err != nil {
		return PreviousScope{}, false, err
	}
	for _, s := range all {
		switch {
		case s.Resource != r.String() || s.ResourceVersion == 0:
		case s.Scope == scope:
			return s, true, nil
		case s.Scope == "":
			said, ok = s, true
		}
	}
	return said, ok, nil
}

// withPrevious returns the later one of two: the last stream event of a resource (nil if there is
// none), and the last report about a scope.
func withPrevious(e *LastEvent, said PreviousScope, scope string) *LastEvent {
	if e != nil &&
		cmp.Or(cmp.Compare(said.History, e.History), cmp.Compare(said.ResourceVersion, e.ResourceVersion)) < 0 {
		return e
	}
	later := LastEvent{
		Scope:           scope,
		ResourceVersion: said.ResourceVersion,
		History:         said.History,
		At:              said.To,
	}
	if e == nil {
		return &later
	}
	later.Object = e.Object
	if said.Scope == "" && said.Count > 1 {
		later.Scope = e.Scope // the entry stands for several scopes, and this one may not be among them
	}
	if later.At.Before(e.At) {
		later.At = e.At
	}
	return &later
}
