package informers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// If a rule does not list its namespaces one by one, one informer reads the resource in all of
// them. The API server may forbid that. Then the manager follows which namespaces exist, and asks
// in which of them it may list and watch the resource (access.go). Each of these gets its own
// informer, from its creation (begin.go) to its deletion (retire.go). Status shows the others as
// forbidden. This ends if the agent may read all namespaces when it restarts or gets another
// configuration.

const (
	// Permissions in a namespace are often granted after its creation. While it is younger than
	// youngFor, they are reviewed every reviewSoon.
	youngFor    = time.Minute
	reviewSoon  = time.Second
	reviewDelay = 100 * time.Millisecond // changes are collected before permissions are reviewed
	createdFor  = 2 * time.Minute        // history certainly reaches back to the creation of a namespace
)

// namespaces has the resources that are observed separately in each namespace.
type namespaces struct {
	manager *Manager
	there   *discovery.Namespaces
	woken   chan struct{} // capacity 1: permissions need a review

	// Guarded by the manager's mu.
	resources map[schema.GroupResource]*tenancy
	undecided map[schema.GroupResource]bool // may not be read in all namespaces, and nothing more is known
	again     time.Time                     // time of the last repeated review of denied namespaces
}

// tenancy has the namespaces in which a resource may be read, if it may not be read in all of them.
type tenancy struct {
	resource object.Resource
	split    bool // it is observed separately in each namespace
	access   map[string]*access
}

func newNamespaces(m *Manager) *namespaces {
	return &namespaces{
		manager:   m,
		there:     discovery.NewNamespaces(m.client, m.o.Log),
		woken:     make(chan struct{}, 1),
		resources: map[schema.GroupResource]*tenancy{},
		undecided: map[schema.GroupResource]bool{},
	}
}

func groupResource(r *object.Resource) schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

// run follows namespaces until ctx ends, once there is a resource that may not be read in all of
// them.
func (n *namespaces) run(ctx context.Context) {
	err := n.manager.mu.Wait(ctx, func() bool {
		n.manager.mu.RLock()
		defer n.manager.mu.RUnlock()
		return len(n.resources) > 0
	})
	if err != nil {
		return
	}
	n.manager.goRun(ctx, n.reviewAccess)
	n.there.Run(ctx, func(_ context.Context, ev discovery.Event) {
		_ = n.manager.decide(ctx, func(ctx context.Context) { n.applyChange(ctx, ev) }) // or the manager ends
	})
}

// applyChange applies a change of the existing namespaces. It must be called with mu held.
func (n *namespaces) applyChange(ctx context.Context, ev discovery.Event) {
	if (ev == discovery.NamespacesUnavailable{}) {
		clear(n.undecided)
		return
	}
	broadcast.Wake(n.woken)
	n.endInGone(ctx)
}

// noteDenied records that the list of an informer was forbidden. ctx is that of the informer.
func (n *namespaces) noteDenied(ctx context.Context, i *informer.Informer) {
	m := n.manager
	gr := groupResource(i.Resource())
	spec := i.Spec()
	if spec.Scope.Namespace != "" || !i.Resource().Namespaced || spec.Internal {
		return
	}
	_ = m.decide(ctx, func(context.Context) { // or the informer ends
		r := m.active.informers[i.Name()]
		if r == nil || r.Informer != i || m.sel.PartOf(i.Resource()) != (selection.Part{}) || n.resources[gr] != nil ||
			i.Status().Synced {
			return
		}
		n.resources[gr] = &tenancy{resource: *i.Resource(), access: map[string]*access{}}
		n.undecided[gr] = true
		broadcast.Wake(n.woken)
	})
}

// undecidedNames returns the resources whose readable namespaces are not known yet.
func (n *namespaces) undecidedNames() (out []string) {
	n.manager.mu.RLock()
	defer n.manager.mu.RUnlock()
	for gr := range n.undecided {
		out = append(out, gr.String())
	}
	slices.Sort(out)
	return out
}

// noteChangedRules records a change of the rules: their objects are read, not created, even in a
// new namespace. It must be called with mu held.
func (n *namespaces) noteChangedRules() {
	n.there.ForgetCreations()
	for _, t := range n.resources {
		for _, a := range t.access {
			a.scope = ""
		}
	}
	broadcast.Wake(n.woken)
}

// forgetUnserved drops resources that are not served and have no informer. It must be called with
// mu held.
func (n *namespaces) forgetUnserved() {
	m := n.manager
	known := selection.NewIndex(m.withObserved(&m.served))
	for gr, t := range n.resources {
		if _, ok := known.Current(&t.resource); !ok && selection.GroupKnown(m.served.unknown, gr.Group) {
			delete(n.resources, gr)
			delete(n.undecided, gr)
		}
	}
}

// createdAt returns the resourceVersion at which a namespace was created, and when that was seen.
// The namespace had no object of the resource before. rv is 0 if it is not known. It must be called
// with mu held.
func (n *namespaces) createdAt(r *object.Resource, name string) (uint64, time.Time) {
	rv, seen := n.there.CreatedAt(name)
	if rv == 0 || time.Since(seen) > createdFor || !n.isComparable(r) {
		return 0, time.Time{}
	}
	return rv, seen
}

// isComparable reports whether the resourceVersions of a resource and of namespaces are certainly
// of one etcd. Events, and resources of another server, may have their own etcd.
func (n *namespaces) isComparable(r *object.Resource) bool {
	return etcdOf(r, false) == "" && (discovery.IsBuiltIn(r.Group) || n.manager.extensions.IsEstablished(r.String()))
}

// of returns the namespaces with separate informers of a resource, or false if one observes all of
// it. It must be called with mu held.
func (n *namespaces) of(r *object.Resource) (names []string, split bool) {
	if t := n.resources[groupResource(r)]; t != nil && t.split {
		return t.allowed(), true
	}
	return nil, false
}

// allowed returns the namespaces in which the resource may be read, sorted. It must be called with
// mu held.
func (t *tenancy) allowed() (names []string) {
	for name, a := range t.access {
		if a.allowed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// statuses returns the status of scopes that may not be read. It must be called with mu held.
func (n *namespaces) statuses() (out []informer.Status) {
	for _, t := range n.resources {
		for name, a := range t.access {
			if t.split && !a.allowed && a.scope != "" {
				out = append(out, informer.Status{
					Scope:    a.scope,
					Resource: t.resource.String(),
					Phase:    informer.PhaseWaiting,
					Health:   informer.HealthForbidden,
					Reason:   "forbidden",
					Error: fmt.Sprintf("not permitted to list and watch %s in the namespace %s", t.resource.String(),
						name),
				})
			}
		}
	}
	return out
}

// chosenOf returns the served resources that the rules take and for which keep returns true. It
// must be called with mu held.
func (m *Manager) chosenOf(now *served, keep func(gr schema.GroupResource) bool) []selection.Choice {
	out, _ := m.sel.Choose(m.withObserved(now), now.unknown, m.resourcesTakenBy(m.sel))
	return slices.DeleteFunc(out, func(c selection.Choice) bool { return !keep(groupResource(&c.Resource)) })
}
