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
// them. If the API server forbids that, the manager follows which namespaces exist, and asks in
// which of them it may list and watch the resource (access.go). It observes each of these by its
// own informer, from its creation (begin.go) to its deletion (retire.go). Status shows the others
// as forbidden. This ends if the agent may read the whole resource when it restarts or gets another
// configuration.

const (
	// permissions in a namespace are often granted after its creation: until then they are reviewed
	// every reviewSoon
	youngFor    = time.Minute
	reviewSoon  = time.Second
	reviewDelay = 100 * time.Millisecond // changes are collected before permissions are reviewed
	createdFor  = 2 * time.Minute        // history certainly reaches back to the creation of a namespace
)

// namespaces has the resources that are observed separately in each namespace.
type namespaces struct {
	set   *Manager
	there *discovery.Namespaces
	woken chan struct{} // capacity 1: permissions need a review

	// Guarded by the manager's mu.
	resources map[schema.GroupResource]*tenancy
	undecided map[schema.GroupResource]bool // may not be read as a whole, and nothing more is known
	again     time.Time                     // time of the last repeated review of denied namespaces
}

// tenancy has the namespaces in which a resource may be read that may not be read as a whole.
type tenancy struct {
	resource object.Resource
	split    bool // it is observed separately in each namespace
	access   map[string]*access
}

func newNamespaces(s *Manager) *namespaces {
	return &namespaces{
		set:       s,
		there:     discovery.NewNamespaces(s.client, s.o.Log),
		woken:     make(chan struct{}, 1),
		resources: map[schema.GroupResource]*tenancy{},
		undecided: map[schema.GroupResource]bool{},
	}
}

func groupResource(r *object.Resource) schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

// run follows namespaces until ctx ends, once there is a resource that may not be read as a whole.
func (n *namespaces) run(ctx context.Context) {
	err := n.set.mu.Wait(ctx, func() bool {
		n.set.mu.RLock()
		defer n.set.mu.RUnlock()
		return len(n.resources) > 0
	})
	if err != nil {
		return
	}
	n.set.goRun(ctx, n.review)
	n.there.Run(ctx, func(_ context.Context, ev discovery.Event) {
		_ = n.set.decide(ctx, func(ctx context.Context) { n.apply(ctx, ev) }) // or the manager ends
	})
}

// apply applies a change of the existing namespaces. It must be called with mu held.
func (n *namespaces) apply(ctx context.Context, ev discovery.Event) {
	if (ev == discovery.NamespacesUnavailable{}) {
		clear(n.undecided)
		return
	}
	broadcast.Wake(n.woken)
	n.endInGone(ctx)
}

// deny records that the list of an informer was forbidden. ctx is that of the informer.
func (n *namespaces) deny(ctx context.Context, i *informer.Informer) {
	s := n.set
	gr := groupResource(i.Resource())
	spec := i.Spec()
	if spec.Scope.Namespace != "" || !i.Resource().Namespaced || spec.Internal {
		return
	}
	_ = s.decide(ctx, func(context.Context) { // or the informer ends
		r := s.active.informers[i.Name()]
		if r == nil || r.Informer != i || s.sel.PartOf(i.Resource()) != (selection.Part{}) || n.resources[gr] != nil ||
			i.Status().Synced {
			return
		}
		n.resources[gr] = &tenancy{resource: *i.Resource(), access: map[string]*access{}}
		n.undecided[gr] = true
		broadcast.Wake(n.woken)
	})
}

// deciding returns the resources whose readable namespaces are not known yet.
func (n *namespaces) deciding() (out []string) {
	n.set.mu.RLock()
	defer n.set.mu.RUnlock()
	for gr := range n.undecided {
		out = append(out, gr.String())
	}
	slices.Sort(out)
	return out
}

// rulesChanged records a change of the rules: their objects are read, not created, even in a new
// namespace. It must be called with mu held.
func (n *namespaces) rulesChanged() {
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
	s := n.set
	known := selection.NewIndex(s.withObserved(&s.served))
	for gr, t := range n.resources {
		if _, ok := known.Current(&t.resource); !ok && selection.GroupKnown(s.served.unknown, gr.Group) {
			delete(n.resources, gr)
			delete(n.undecided, gr)
		}
	}
}

// createdAt returns the resourceVersion of a namespace's creation, before which it had no object of
// a resource, and when that was seen. rv is 0 if that is not known. It must be called with mu held.
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
	return etcdOf(r, false) == "" && (discovery.IsBuiltIn(r.Group) || n.set.extensions.IsEstablished(r.String()))
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
