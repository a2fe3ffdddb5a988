package informers

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/object"
)

// hearing asks the bus what it has heard of a resource, once for all scopes of the resource that begin in this run: one that
// asked a moment later would hear what its sibling has said meanwhile, and take it for the word of a run before. No scope
// says anything before it has the answer. A scope that asks again, because its resource went and came back, asks anew.
type hearing struct {
	hear func(ctx context.Context, r *object.Resource) (Heard, bool, error)

	mu        sync.Mutex
	resources map[schema.GroupResource]*heardOf
	parted    map[schema.GroupResource]bool // of which this run has said a farewell
}

type heardOf struct {
	asking chan struct{}   // held by whoever asks. Never closed.
	scopes map[string]bool // that have asked; under hearing's mu, as are heard and ok
	heard  Heard
	ok     bool
}

func newHearing(hear func(ctx context.Context, r *object.Resource) (Heard, bool, error)) *hearing {
	return &hearing{hear: hear, resources: map[schema.GroupResource]*heardOf{}, parted: map[schema.GroupResource]bool{}}
}

// part tells that this run says a farewell of the resource: what the bus has heard of it then is no word of a run before.
func (h *hearing) part(r *object.Resource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parted[schema.GroupResource{Group: r.Group, Resource: r.Name}] = true
}

func (h *hearing) hasParted(r *object.Resource) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parted[schema.GroupResource{Group: r.Group, Resource: r.Name}]
}

// forget drops a scope that has ended for good. It does not block: the bus may be asked meanwhile.
func (h *hearing) forget(r *object.Resource, scope string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.resources[schema.GroupResource{Group: r.Group, Resource: r.Name}]; o != nil {
		delete(o.scopes, scope)
	}
}

// of is the answer for a scope. Its error is that of the bus, or the cause of ctx.
func (h *hearing) of(ctx context.Context, r *object.Resource, scope string) (Heard, bool, error) {
	name := schema.GroupResource{Group: r.Group, Resource: r.Name}
	h.mu.Lock()
	o := h.resources[name]
	if o == nil {
		o = &heardOf{asking: make(chan struct{}, 1), scopes: map[string]bool{}}
		h.resources[name] = o
	}
	h.mu.Unlock()
	select {
	case o.asking <- struct{}{}:
		defer func() { <-o.asking }()
	case <-ctx.Done():
		return Heard{}, false, context.Cause(ctx)
	}
	h.mu.Lock()
	again := o.scopes[scope]
	if len(o.scopes) > 0 && !again {
		defer h.mu.Unlock()
		o.scopes[scope] = true
		return o.heard, o.ok, nil
	}
	h.mu.Unlock()
	heard, ok, err := h.hear(ctx, r)
	if err != nil {
		return Heard{}, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !again {
		o.heard, o.ok = heard, ok
	}
	o.scopes[scope] = true
	return heard, ok, nil
}
