package scope

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/object"
)

// LastEvents asks the bus for the last stream event of a resource, once for all scopes of the resource that begin in this run. A scope that
// asked a moment later would get an event of another scope of this run, and mistake it for one of the previous run. No scope sends
// anything before it has the answer. If a scope asks again, because its resource was removed and created again, the bus is asked again.
type LastEvents struct {
	ask func(ctx context.Context, r *object.Resource) (LastEvent, bool, error)

	mu        sync.Mutex
	resources map[schema.GroupResource]*answer
	retired   map[schema.GroupResource]bool // this run has sent a tombstone of a scope
}

// answer is that of the bus for a resource.
type answer struct {
	asking chan struct{}   // held while the bus is asked. Never closed.
	scopes map[string]bool // that have asked; under the mu of LastEvents, as are event and ok
	event  LastEvent
	ok     bool
}

// NewLastEvents returns LastEvents that call ask. ask returns the last stream event of a resource, false: there is none. It retries after
// temporary errors until ctx ends, which is its only error.
func NewLastEvents(ask func(ctx context.Context, r *object.Resource) (LastEvent, bool, error)) *LastEvents {
	return &LastEvents{ask: ask, resources: map[schema.GroupResource]*answer{}, retired: map[schema.GroupResource]bool{}}
}

// AddTombstone notes that this run sends a tombstone of the resource: the last event after that is not of the run before.
func (h *LastEvents) AddTombstone(r *object.Resource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retired[schema.GroupResource{Group: r.Group, Resource: r.Name}] = true
}

func (h *LastEvents) hadTombstone(r *object.Resource) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.retired[schema.GroupResource{Group: r.Group, Resource: r.Name}]
}

// Forget drops a scope that was removed. It does not block: the bus may be asked meanwhile.
func (h *LastEvents) Forget(r *object.Resource, scope string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.resources[schema.GroupResource{Group: r.Group, Resource: r.Name}]; o != nil {
		delete(o.scopes, scope)
	}
}

// Of returns the answer for a scope. Its error is that of the bus, or the cause of ctx.
func (h *LastEvents) Of(ctx context.Context, r *object.Resource, scope string) (LastEvent, bool, error) {
	name := schema.GroupResource{Group: r.Group, Resource: r.Name}
	h.mu.Lock()
	o := h.resources[name]
	if o == nil {
		o = &answer{asking: make(chan struct{}, 1), scopes: map[string]bool{}}
		h.resources[name] = o
	}
	h.mu.Unlock()
	select {
	case o.asking <- struct{}{}:
		defer func() { <-o.asking }()
	case <-ctx.Done():
		return LastEvent{}, false, context.Cause(ctx)
	}
	h.mu.Lock()
	again := o.scopes[scope]
	if len(o.scopes) > 0 && !again {
		defer h.mu.Unlock()
		o.scopes[scope] = true
		return o.event, o.ok, nil
	}
	h.mu.Unlock()
	last, ok, err := h.ask(ctx, r)
	if err != nil {
		return LastEvent{}, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !again {
		o.event, o.ok = last, ok
	}
	o.scopes[scope] = true
	return last, ok, nil
}

// LastEvent is a stream event that the bus has.
type LastEvent struct {
	Scope           string
	ResourceVersion uint64 // up to which it covers history; of a gap: its end
	History         uint32
	At              time.Time
}
