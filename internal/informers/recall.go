package informers

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// recallWithin is how long the start waits for the bus to recall the scopes of the last run.
const recallWithin = 10 * time.Second

// recallScopes takes the scopes of the last run from the bus, if the checkpoint has none: it may be
// lost. Those that are no longer selected get a tombstone, which ends them. The others ask the bus
// for their position themselves. Its error is the cause of ctx.
//
// A progress does not name the scopes that do not differ. If a resource has only one such scope,
// its last stream event has the name. If it has several, the start of each has its name. The start
// of the agent does not wait for a bus that is unreachable: then no scope ends.
func (m *Manager) recallScopes(ctx context.Context) error {
	if m.previous == nil || m.o.Memory == nil || len(m.o.Memory.Scopes()) > 0 {
		return nil
	}
	recalled := m.askForScopes(ctx)
	if err := context.Cause(ctx); err != nil || len(recalled) == 0 {
		return err
	}
	m.previous.Add(ctx, recalled)
	return m.decide(ctx, func(context.Context) {
		for i := range recalled {
			said := &recalled[i]
			resource := resourceOf(said.Resource)
			m.active.raiseHistory(resource, false, said.History)
			if m.sel.PartOf(resource).FieldSelector != "" {
				continue // it is not known which part it was
			}
			m.active.origins[said.Scope] = informer.Origin{Recalled: true, Scope: checkpoint.Scope{
				Group:           resource.Group,
				Resource:        resource.Name,
				Namespaces:      namespacesIn(said.Resource, said.Scope),
				ResourceVersion: said.ResourceVersion,
				History:         said.History,
				LastSeen:        said.To,
				Sweep:           true,
			}}
		}
	})
}

// askForScopes returns what the last run has said of each scope that the bus names in time.
func (m *Manager) askForScopes(ctx context.Context) (recalled []informer.PreviousScope) {
	ctx, cancel := context.WithTimeout(ctx, recallWithin)
	defer cancel()
	all, err := m.previous.Scopes(ctx)
	if err != nil {
		return nil
	}
	named := map[string]bool{}
	for i := range all {
		named[all[i].Scope] = true
	}
	// The names of several scopes come last: they take many requests.
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b informer.PreviousScope) int { return cmp.Compare(a.Count, b.Count) })
	for _, said := range all {
		if said.ResourceVersion == 0 {
			continue
		}
		names, err := m.namesOf(ctx, &said, named)
		if err != nil {
			m.o.Log.Warn(
				"the bus did not name all scopes of the last run in time: those that are no longer selected do not end",
				"resource", said.Resource, "scopes", said.Count, "err", err)
			return recalled
		}
		for _, name := range names {
			of := said
			of.Scope = name
			of.Count = 1
			of.Recalled = true
			recalled = append(recalled, of)
		}
	}
	return recalled
}

// namespacesIn returns the namespaces in the name of a scope of a resource, none if it may have
// objects in any.
func namespacesIn(resource, scope string) []string {
	rest, ok := strings.CutPrefix(scope, resource+"/")
	if !ok {
		return nil
	}
	patterns, _, _ := strings.Cut(rest, "?")
	all := strings.Split(patterns, ",")
	for _, pattern := range all {
		_, isLiteral := selection.SingleNamespace([]string{pattern})
		if !isLiteral {
			return nil
		}
	}
	return all
}

// namesOf returns the names of the scopes that an entry stands for, none if they are not known.
// named has those with entries of their own. Its error is the cause of ctx.
func (m *Manager) namesOf(ctx context.Context, said *informer.PreviousScope, named map[string]bool) ([]string, error) {
	resource := resourceOf(said.Resource)
	switch {
	case said.Scope != "":
		return []string{said.Scope}, nil
	case said.Count <= 1 && m.o.LastEvent != nil:
		event, ok, err := m.o.LastEvent(ctx, resource)
		if !ok || event.Scope == "" {
			return nil, err
		}
		return []string{event.Scope}, err
	case said.Count > 1 && m.o.StartedScopes != nil:
		started, err := m.o.StartedScopes(ctx, resource, said.Run)
		return unnamed(started, named, said.Count), err
	}
	return nil, nil
}

// unnamed returns the names of the started scopes that have no entry of their own. The entry for
// several scopes stands for count of them. If the bus no longer has the start of a scope, its
// snapshot names it. If there are more names than count, a snapshot may be one of a part of a
// scope: then none of these names counts.
func unnamed(started []informer.StartedScope, named map[string]bool, count int) []string {
	var certain, all []string
	for _, s := range started {
		if named[s.Name] {
			continue
		}
		all = append(all, s.Name)
		if !s.BySnapshot {
			certain = append(certain, s.Name)
		}
	}
	if len(all) <= count {
		return all
	}
	return certain
}

// resourceOf returns the resource that object.Resource.String names, without its version.
func resourceOf(text string) *object.Resource {
	name, group, _ := strings.Cut(text, ".")
	return &object.Resource{Group: group, Name: name}
}
