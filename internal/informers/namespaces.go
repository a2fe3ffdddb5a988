package informers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A resource that a rule takes in namespaces which it does not name one by one is read by one informer for all of them. Where the
// API server forbids that, the set follows which namespaces there are, asks in which of them it may list and watch the resource
// (access.go), and observes each of these by an informer of its own, as if the rule had named it. The others show as forbidden.
// It stays so until the agent starts again, or takes another configuration, and may read the whole resource then.
//
// A namespace that comes is observed from its creation (creation.go): behind its resourceVersion there was nothing in it. One that goes
// was emptied before; its scopes end when their watches have come so far, and all is told (retire.go).

const (
	// youngFor is for how long a namespace is young: who may read it is told a moment after it is made, so that is asked every
	// reviewSoon.
	youngFor   = time.Minute
	reviewSoon = time.Second
	// reviewDelay is for how long changes are gathered before it is asked what may be read.
	reviewDelay = 100 * time.Millisecond
	// bornFor is for how long history surely goes back to the birth of a namespace.
	bornFor = 2 * time.Minute
)

// namespaces are the resources that are observed in each namespace by itself.
type namespaces struct {
	set    *Manager
	there  *discovery.Namespaces
	needed chan struct{} // closed once there is a resource that may not be read as a whole
	once   sync.Once     // closes needed
	woken  chan struct{} // of one element: access is to be looked at

	// Under the set's mu.
	resources map[schema.GroupResource]*tenancy
	undecided map[schema.GroupResource]bool // may not be read, and nothing more is known
	again     time.Time                     // when those that were denied were asked about again
}

// tenancy is how a resource may be read that may not be read as a whole.
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
		_ = n.set.decide(ctx, func(ctx context.Context) { n.apply(ctx, ev) }) // or the set ends
	})
}

// apply applies a change of the namespaces that there are. The caller holds mu.
func (n *namespaces) apply(ctx context.Context, ev discovery.Event) {
	switch ev.(type) {
	case discovery.NamespacesListed:
		signal(n.woken)
		n.endOrphans(ctx)
	case discovery.NamespacesUnavailable:
		clear(n.undecided)
	case discovery.NamespaceCreated:
		signal(n.woken)
	case discovery.NamespaceDeleted:
		n.endOrphans(ctx)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will look
	}
}

// deny takes it that the list of an informer was forbidden. ctx is that of the informer.
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
		signal(n.woken)
	})
}

// deciding returns the resources of which it is not known yet where they may be read.
func (n *namespaces) deciding() (out []string) {
	n.set.mu.RLock()
	defer n.set.mu.RUnlock()
	for gr := range n.undecided {
		out = append(out, gr.String())
	}
	slices.Sort(out)
	return out
}

// rulesChanged notes that the rules are others: what they take now is read, also in a namespace that was made just now. The caller holds mu.
func (n *namespaces) rulesChanged() {
	n.there.ForgetCreations()
	for _, t := range n.resources {
		for _, a := range t.access {
			a.scope = ""
		}
	}
	signal(n.woken)
}

// bornAt is the resourceVersion behind which the first object of a resource in a namespace can be, and when that was seen; 0: it is
// not known. The caller holds mu.
func (n *namespaces) bornAt(r *object.Resource, name string) (uint64, time.Time) {
	rv, seen := n.there.CreatedAt(name)
	if rv == 0 || time.Since(seen) > bornFor || !n.isComparable(r) {
		return 0, time.Time{}
	}
	return rv, seen
}

// isComparable tells that the resourceVersions of a resource and those of namespaces are surely of one etcd. Events may have one of
// their own, and whatever another server serves.
func (n *namespaces) isComparable(r *object.Resource) bool {
	if discovery.IsBuiltIn(r.Group) {
		return r.Name != "events"
	}
	return n.set.extensions.IsEstablished(r.String())
}

// of are the namespaces in each of which a resource is observed by itself; false: it is observed as a whole. The caller holds mu.
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

// statuses are those of what may not be read. The caller holds mu.
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

// chosenOf returns what the rules take of what is served, of the resources that keep wants. The caller holds mu.
func (s *Manager) chosenOf(now *served, keep func(gr schema.GroupResource) bool) []selection.Choice {
	out, _ := s.sel.Choose(s.withObserved(now.all), now.unknown, s.taken())
	return slices.DeleteFunc(out, func(c selection.Choice) bool { return !keep(groupResource(&c.Resource)) })
}
