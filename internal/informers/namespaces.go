package informers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// If a rule does not name its namespaces one by one, one informer reads the resource in all of them. If the API server forbids that, the
// manager follows which namespaces exist and asks in which of them it may list and watch the resource (access.go). It observes each of
// these by an informer of its own, as if the rule had named it. Status shows the others as forbidden. That stays so until the agent
// starts again, or gets another configuration, and may read the whole resource then.
//
// A created namespace is observed from its creation (begin.go): nothing was in it before. A deleted namespace was emptied first. Its
// scopes end when their watches have reached that resourceVersion, and the bus has everything (retire.go).

const (
	// youngFor is for how long a namespace is young: its permissions are often granted a moment after it is created, so they are reviewed
	// every reviewSoon.
	youngFor   = time.Minute
	reviewSoon = time.Second
	// reviewDelay is for how long changes are collected before permissions are reviewed.
	reviewDelay = 100 * time.Millisecond
	// createdFor is for how long history is certain to reach back to the creation of a namespace.
	createdFor = 2 * time.Minute
)

// namespaces are the resources that are observed in each namespace by itself.
type namespaces struct {
	set    *Manager
	there  *discovery.Namespaces
	needed chan struct{} // closed once there is a resource that may not be read as a whole
	once   sync.Once     // closes needed
	woken  chan struct{} // of one element: permissions are to be reviewed

	// Guarded by the manager's mu.
	resources map[schema.GroupResource]*tenancy
	undecided map[schema.GroupResource]bool // may not be read as a whole, and nothing more is known
	again     time.Time                     // when denied namespaces were reviewed again
}

// tenancy is where a resource may be read that may not be read as a whole.
type tenancy struct {
	resource object.Resource
	split    bool // it is observed in each namespace by itself
	access   map[string]*access
}

func newNamespaces(s *Manager) *namespaces {
	return &namespaces{
		set: s, needed: make(chan struct{}), woken: make(chan struct{}, 1),
		there:     discovery.NewNamespaces(s.client, s.o.Log),
		resources: map[schema.GroupResource]*tenancy{}, undecided: map[schema.GroupResource]bool{},
	}
}

func groupResource(r *object.Resource) schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

// run follows namespaces until ctx ends, once they matter.
func (n *namespaces) run(ctx context.Context) {
	select {
	case <-n.needed:
	case <-ctx.Done():
		return
	}
	n.set.goRun(ctx, n.review)
	n.there.Run(ctx, func(_ context.Context, ev discovery.Event) {
		_ = n.set.decide(ctx, func(ctx context.Context) { n.apply(ctx, ev) }) // or the manager ends
	})
}

// apply applies a change of the namespaces that there are. The caller holds mu.
func (n *namespaces) apply(ctx context.Context, ev discovery.Event) {
	if (ev == discovery.NamespacesUnavailable{}) {
		clear(n.undecided)
		return
	}
	broadcast.Wake(n.woken)
	n.endInGone(ctx)
}

// deny notes that the list of an informer was forbidden. ctx is that of the informer.
func (n *namespaces) deny(ctx context.Context, i *scope.Informer) {
	_ = n.set.decide(ctx, func(context.Context) { // or the informer ends
		s := n.set
		r, gr := s.active.informers[i.Name()], groupResource(i.Resource())
		if r == nil || r.Informer != i || i.Selection().Namespace != "" || !i.Resource().Namespaced || i.Spec().Internal || s.sel.PartOf(i.Resource()) != (selection.Part{}) ||
			n.resources[gr] != nil || i.Store().IsLoaded() {
			return
		}
		n.resources[gr] = &tenancy{resource: *i.Resource(), access: map[string]*access{}}
		n.undecided[gr] = true
		n.once.Do(func() { close(n.needed) })
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

// rulesChanged notes that the rules have changed: their objects are read, not created, also in a namespace that was created just before. The
// caller holds mu.
func (n *namespaces) rulesChanged() {
	n.there.ForgetCreations()
	for _, t := range n.resources {
		for _, a := range t.access {
			a.scope = ""
		}
	}
	broadcast.Wake(n.woken)
}

// createdAt returns the resourceVersion of a namespace's creation, before which no object of a resource was in it, and when that was seen. 0:
// it is not known. The caller holds mu.
func (n *namespaces) createdAt(r *object.Resource, name string) (uint64, time.Time) {
	rv, seen := n.there.CreatedAt(name)
	if rv == 0 || time.Since(seen) > createdFor || !n.isComparable(r) {
		return 0, time.Time{}
	}
	return rv, seen
}

// isComparable reports whether the resourceVersions of a resource and of namespaces are certain to be of one etcd. Events, and resources of
// another server, may have an etcd of their own.
func (n *namespaces) isComparable(r *object.Resource) bool {
	if discovery.IsBuiltIn(r.Group) {
		return r.Name != "events"
	}
	return n.set.extensions.IsEstablished(r.String())
}

// of returns the namespaces in each of which a resource is observed by itself; false: it is observed as a whole. The caller holds mu.
func (n *namespaces) of(r *object.Resource) (names []string, split bool) {
	t := n.resources[groupResource(r)]
	if t == nil || !t.split {
		return nil, false
	}
	for name, a := range t.access {
		if a.allowed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, true
}

// statuses returns the status of scopes that may not be read. The caller holds mu.
func (n *namespaces) statuses() (out []scope.Status) {
	for _, t := range n.resources {
		for name, a := range t.access {
			if t.split && !a.allowed && a.scope != "" {
				out = append(out, scope.Status{
					Scope: a.scope, Resource: t.resource.String(), Phase: scope.PhaseWaiting, Health: scope.HealthForbidden, Reason: "forbidden",
					Error: fmt.Sprintf("not permitted to list and watch %s in the namespace %s", t.resource.String(), name),
				})
			}
		}
	}
	return out
}

// chosenOf returns the served resources that the rules take and for which keep returns true. The caller holds mu.
func (s *Manager) chosenOf(now *served, keep func(gr schema.GroupResource) bool) []selection.Choice {
	out, _ := s.sel.Choose(s.withObserved(now.all), now.unknown, s.taken(nil))
	return slices.DeleteFunc(out, func(c selection.Choice) bool { return !keep(groupResource(&c.Resource)) })
}
