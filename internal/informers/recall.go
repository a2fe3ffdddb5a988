package informers

import (
	"context"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/object"
)

// recallWithin is how long the start waits for the bus to recall the scopes of the last run.
const recallWithin = 10 * time.Second

// recallScopes takes the scopes of the last run from the bus, if the checkpoint has none: it may be
// lost. Those that are no longer selected get a tombstone, which ends them. The others ask the bus
// for their position themselves. Its error is the cause of ctx.
//
// A progress does not name the scopes that do not differ. If there is only one of a resource, its
// last stream event has its name. The names of several are not known: they do not end. The start
// does not wait for a bus that is away: then no scope ends.
func (s *Manager) recallScopes(ctx context.Context) error {
	if s.o.Memory == nil || len(s.o.Memory.Scopes()) > 0 {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, recallWithin)
	defer cancel()
	recalled, err := s.askForScopes(within)
	if err != nil {
		return context.Cause(ctx)
	}
	return s.decide(ctx, func(context.Context) {
		for name, origin := range recalled {
			resource := &object.Resource{Group: origin.Group, Name: origin.Resource}
			s.active.raiseHistory(resource, false, origin.History)
			if s.sel.PartOf(resource).FieldSelector == "" { // otherwise it is not known which part it was
				s.active.origins[name] = origin
			}
		}
	})
}

// askForScopes returns the scopes of the last run, as the bus has them. Its error is the cause of
// ctx.
func (s *Manager) askForScopes(ctx context.Context) (map[string]scope.Origin, error) {
	all, err := s.previous.Scopes(ctx)
	if err != nil {
		return nil, err
	}
	recalled := map[string]scope.Origin{}
	for _, said := range all {
		name, group, _ := strings.Cut(said.Resource, ".")
		resource := &object.Resource{Group: group, Name: name}
		of := said.Scope
		if of == "" && said.Count <= 1 && s.o.LastEvent != nil {
			event, ok, err := s.o.LastEvent(ctx, resource)
			if err != nil {
				return nil, err
			}
			if ok {
				of = event.Scope
			}
		}
		if of == "" || said.ResourceVersion == 0 {
			continue
		}
		recalled[of] = scope.Origin{Recalled: true, Scope: checkpoint.Scope{
			Group: group, Resource: name, ResourceVersion: said.ResourceVersion, History: said.History, LastSeen: said.To, Sweep: true,
		}}
	}
	return recalled, nil
}
