package discovery

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Namespaces follows which namespaces exist. It is safe for concurrent use.
type Namespaces struct {
	client *apiserver.Client
	log    *slog.Logger

	mu struct {
		sync.Mutex
		all     map[string]namespace // by name; nil: unknown
		version uint64               // the resourceVersion at which they are known
	}
}

// namespace has the stored fields of a namespace.
type namespace struct {
	uid         string
	created     uint64    // resourceVersion of its creation; 0 if that was not seen, or after ForgetCreations
	createdSeen time.Time // when that was seen
}

// NewNamespaces returns a Namespaces, which is empty before Run.
func NewNamespaces(c *apiserver.Client, log *slog.Logger) *Namespaces {
	return &Namespaces{client: c, log: log}
}

// Run follows until ctx ends, and calls handle for each change.
func (n *Namespaces) Run(ctx context.Context, handle Handler) {
	f := &follower{
		client: n.client,
		log:    n.log,
		resource: object.Resource{
			Version: "v1",
			Name:    "namespaces",
		},
		accept: apiserver.MetadataOnly,
		replace: func(ctx context.Context, all []item, rv uint64) {
			n.replace(all, rv)
			handle(ctx, NamespacesChanged{})
		},
		apply: func(ctx context.Context, typ watch.EventType, o *item) {
			if n.apply(typ, o) {
				handle(ctx, NamespacesChanged{})
			}
		},
		failed: func(ctx context.Context, _ error) { handle(ctx, NamespacesUnavailable{}) },
		advice: "a resource that may not be read in all namespaces is not captured where it may be read: " +
			"grant get, list and watch on namespaces, or list the namespaces in the configuration",
	}
	f.run(ctx)
}

// replace takes a list. The creation of a new namespace was not seen.
func (n *Namespaces) replace(all []item, rv uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.mu.all
	n.mu.all, n.mu.version = make(map[string]namespace, len(all)), rv
	for i := range all {
		m := &all[i].Metadata
		ns := was[m.Name]
		if ns.uid != m.UID {
			ns = namespace{uid: m.UID}
		}
		n.mu.all[m.Name] = ns
	}
}

// apply applies an event of the watch, and reports whether a namespace was created or deleted.
func (n *Namespaces) apply(typ watch.EventType, o *item) bool {
	m := &o.Metadata
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.version = max(n.mu.version, m.ResourceVersion)
	was, known := n.mu.all[m.Name]
	now := namespace{uid: m.UID}
	switch {
	case typ == watch.Deleted:
		delete(n.mu.all, m.Name)
		return true
	case known && was.uid == m.UID:
		return false
	case typ == watch.Added:
		now.created, now.createdSeen = m.ResourceVersion, time.Now()
	}
	n.mu.all[m.Name] = now
	return true
}

// Names returns the namespaces that exist, sorted. known is false if they were not listed yet.
func (n *Namespaces) Names() (names []string, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.mu.all)), n.mu.all != nil
}

// AbsentAt reports whether a namespace did not exist at resourceVersion rv. Unless a namespace of
// that name is created later, no object in it is newer than rv.
func (n *Namespaces) AbsentAt(name string) (rv uint64, absent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, exists := n.mu.all[name]; exists || n.mu.all == nil {
		return 0, false
	}
	return n.mu.version, true
}

// CreatedAt returns the resourceVersion of a namespace's creation, and when that was seen. All
// objects in it are newer. rv is 0 if the creation was not seen, or after ForgetCreations.
func (n *Namespaces) CreatedAt(name string) (rv uint64, seen time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ns := n.mu.all[name]
	return ns.created, ns.createdSeen
}

// ForgetCreations makes CreatedAt 0 for all namespaces: after a change of the rules, their objects
// are listed, even in a new namespace.
func (n *Namespaces) ForgetCreations() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, ns := range n.mu.all {
		n.mu.all[name] = namespace{uid: ns.uid}
	}
}
