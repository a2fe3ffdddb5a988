package informers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A resource that a rule takes in namespaces which it does not name one by one is read by one informer for all of them. Where the
// API server forbids that, the set follows which namespaces there are, asks in which of them it may list and watch the resource
// (access.go), and observes each of these by an informer of its own, as if the rule had named it. The others show as forbidden.
// It stays so until the agent starts again, or takes another configuration, and may read the whole resource then.
//
// A namespace that comes is observed from its birth (births.go): behind its resourceVersion there was nothing in it. One that goes
// was emptied before; its scopes end when their watches have come so far, and all is told (orphans.go).

const (
	// youngFor is for how long a namespace is young: who may read it is told a moment after it is made, so that is asked every
	// reviewSoon.
	youngFor   = time.Minute
	reviewSoon = time.Second
	// bornFor is for how long history surely goes back to the birth of a namespace.
	bornFor = 2 * time.Minute
)

// namespaces are those that there are, and the resources that are observed in each by itself.
type namespaces struct {
	set    *Set
	needed chan struct{} // closed once there is a resource that may not be read as a whole
	once   sync.Once     // closes needed
	woken  chan struct{} // of one element: access is to be looked at
	left   chan struct{} // of one element: a namespace has gone

	// Under the set's mu.
	there     map[string]*namespace // nil: it is not known
	listed    uint64                // resourceVersion of the last list
	gone      map[string]uint64     // at which resourceVersion
	resources map[schema.GroupResource]*tenancy
	undecided map[schema.GroupResource]bool // may not be read, and nothing more is known
	again     time.Time                     // when those that were denied were asked about again

	listing map[string]string // of the lookout's goroutine: uids by name
}

// namespace is one.
type namespace struct {
	uid   string
	born  uint64    // its resourceVersion when it was made, 0: that was not seen, or is of no use any more
	since time.Time // when that was seen
}

// tenancy is how a resource may be read that may not be read as a whole.
type tenancy struct {
	resource object.Resource
	split    bool // it is observed in each namespace by itself
	access   map[string]*access
}

func newNamespaces(s *Set) *namespaces {
	return &namespaces{
		set: s, needed: make(chan struct{}), woken: make(chan struct{}, 1), left: make(chan struct{}, 1), gone: map[string]uint64{},
		resources: map[schema.GroupResource]*tenancy{}, undecided: map[schema.GroupResource]bool{},
	}
}

func groupResource(r *object.Resource) schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

// run follows namespaces until ctx ends, once they matter. begin begins informers and farewells.
func (n *namespaces) run(ctx context.Context, begin func([]*running, []*farewell)) {
	select {
	case <-n.needed:
	case <-ctx.Done():
		return
	}
	l := &lookout{
		client: n.set.client, log: n.set.o.Log, resource: object.Resource{Version: "v1", Name: "namespaces"},
		accept: apiserver.MetadataOnly,
		refused: func(err error) {
			n.set.o.Log.Warn("not permitted to watch namespaces: resources that may not be read in all namespaces are not observed in those "+
				"where that is allowed; grant get, list and watch on namespaces, or name the namespaces one by one in the configuration", "err", err)
		},
		begin: func() { n.listing = map[string]string{} }, item: n.item, end: n.endList, failed: n.decided, event: n.event,
	}
	var wg sync.WaitGroup
	wg.Go(func() { n.review(ctx, begin) })
	wg.Go(func() { n.endOrphans(ctx) })
	l.run(ctx)
	wg.Wait()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will look
	}
}

// item takes one namespace of a list.
func (n *namespaces) item(raw []byte) error {
	var m metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	n.listing[m.Name] = string(m.UID)
	return nil
}

// endList takes a list at resourceVersion rv. Of what is new nobody has seen the birth.
func (n *namespaces) endList(rv uint64) {
	n.set.mu.Lock()
	was := n.there
	n.there, n.listed = map[string]*namespace{}, rv
	for name, uid := range n.listing {
		if n.there[name] = was[name]; was[name] == nil || was[name].uid != uid {
			n.there[name] = &namespace{uid: uid}
		}
		delete(n.gone, name)
	}
	for name := range was {
		if n.there[name] == nil && n.set.observesNamespace(name) {
			n.gone[name] = rv
		}
	}
	n.set.mu.Unlock()
	signal(n.woken)
	signal(n.left)
}

// event takes one event of a namespace.
func (n *namespaces) event(typ watch.EventType, raw []byte) error {
	var m struct {
		Metadata struct {
			Name            string `json:"name"`
			UID             string `json:"uid"`
			ResourceVersion uint64 `json:"resourceVersion,string"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	name, rv := m.Metadata.Name, m.Metadata.ResourceVersion
	n.set.mu.Lock()
	defer n.set.mu.Unlock()
	switch was := n.there[name]; {
	case typ == watch.Deleted:
		delete(n.there, name)
		if n.set.observesNamespace(name) {
			n.gone[name] = rv
			signal(n.left)
		}
	case was == nil || was.uid != m.Metadata.UID:
		now := &namespace{uid: m.Metadata.UID}
		if typ == watch.Added {
			now.born, now.since = rv, time.Now()
		}
		n.there[name] = now
		delete(n.gone, name)
		signal(n.woken)
	}
	return nil
}

// observesNamespace tells that there is an informer of that namespace alone. The caller holds mu.
func (s *Set) observesNamespace(name string) bool {
	for _, i := range s.informers {
		if i.selection.Namespace == name {
			return true
		}
	}
	return false
}

// deny takes it that the list of an informer was forbidden.
func (n *namespaces) deny(i *informer) {
	s := n.set
	s.mu.Lock()
	defer s.mu.Unlock()
	r, gr := s.informers[i.scope], groupResource(i.resource)
	if r == nil || r.informer != i || i.selection.Namespace != "" || !i.resource.Namespaced || i.silent || s.partOf(i.resource) != (selection.Part{}) ||
		n.resources[gr] != nil || i.store.isLoaded() {
		return
	}
	n.resources[gr] = &tenancy{resource: *i.resource, access: map[string]*access{}}
	n.undecided[gr] = true
	n.once.Do(func() { close(n.needed) })
	signal(n.woken)
}

// decided notes that all is known of what may be read that will be for now.
func (n *namespaces) decided() {
	n.set.mu.Lock()
	defer n.set.mu.Unlock()
	clear(n.undecided)
}

// deciding are resources of which it is not known yet where they may be read.
func (n *namespaces) deciding() (out []string) {
	n.set.mu.Lock()
	defer n.set.mu.Unlock()
	for gr := range n.undecided {
		out = append(out, gr.String())
	}
	slices.Sort(out)
	return out
}

// rulesChanged notes that the rules are others: what they take now is read, also in a namespace that was made just now.
func (n *namespaces) rulesChanged() {
	n.set.mu.Lock()
	defer n.set.mu.Unlock()
	for _, ns := range n.there {
		ns.born = 0
	}
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
	ns := n.there[name]
	if ns == nil || ns.born == 0 || time.Since(ns.since) > bornFor || !n.isComparable(r) {
		return 0, time.Time{}
	}
	return ns.born, ns.since
}

// isComparable tells that the resourceVersions of a resource and those of namespaces are surely of one etcd. Events may have one of
// their own, and whatever another server serves.
func (n *namespaces) isComparable(r *object.Resource) bool {
	if ownGroup(r.Group) {
		return r.Name != "events"
	}
	return n.set.definitions.isEstablished(r.String())
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
func (n *namespaces) statuses() (out []Status) {
	for _, t := range n.resources {
		for name, a := range t.access {
			if t.split && !a.allowed && a.scope != "" {
				out = append(out, Status{
					Scope: a.scope, Resource: t.resource.String(), Phase: PhaseFailing, Reason: "forbidden",
					Error: fmt.Sprintf("not permitted to list and watch %s in the namespace %s", t.resource.String(), name),
				})
			}
		}
	}
	return out
}

// spansNamespaces reports whether one informer would observe the resource in several namespaces.
func (s *Set) spansNamespaces(c *selection.Choice) bool {
	return c.SpansNamespaces() && s.partOf(&c.Resource) == (selection.Part{})
}

// chosenOf is what the rules take of what is served, of the resources that keep wants. The caller holds mu.
func (s *Set) chosenOf(all []selection.APIResource, unknown []string, keep func(gr schema.GroupResource) bool) []selection.Choice {
	out, _ := s.sel.Choose(s.withObserved(all), unknown, s.taken())
	return slices.DeleteFunc(s.observed(out), func(c selection.Choice) bool { return !keep(groupResource(&c.Resource)) })
}
