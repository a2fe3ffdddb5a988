package informer

import (
	"context"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// LastEvents asks the bus for the last stream event of a resource, once for all scopes of the
// resource that start in this run. A scope that asked a moment later would get an event of another
// scope of this run, and mistake it for one of the previous run. No scope sends anything before it
// has the answer. If a scope asks again, because its resource was removed and created again, the
// bus is asked again.
//
// The progress of the last run is later than its stream events, and says how far each scope was.
type LastEvents struct {
	ask      func(ctx context.Context, r *object.Resource) (LastEvent, bool, error)
	previous *Previous // nil: the bus cannot be asked for it

	mu        sync.Mutex
	resources map[string]*answer
}

// answer is the answer of the bus for a resource. The mu of LastEvents guards all fields but
// asking.
type answer struct {
	asking  chan struct{}   // held during the request to the bus; never closed
	scopes  map[string]bool // that have asked
	event   LastEvent
	ok      bool
	retired bool // this run has sent a tombstone of a scope of the resource
}

// NewLastEvents returns LastEvents that call ask. ask returns the last stream event of a resource,
// false if there is none. It retries after temporary errors until ctx ends, which is its only
// error. nil: the bus cannot be asked for stream events. previous may be nil.
func NewLastEvents(
	ask func(ctx context.Context, r *object.Resource) (LastEvent, bool, error), previous *Previous,
) *LastEvents {
	return &LastEvents{ask: ask, previous: previous, resources: map[string]*answer{}}
}

// of returns the answer for a resource. It must be called with mu held.
func (l *LastEvents) of(r *object.Resource) *answer {
	o := l.resources[r.String()]
	if o == nil {
		o = &answer{asking: make(chan struct{}, 1), scopes: map[string]bool{}}
		l.resources[r.String()] = o
	}
	return o
}

// AddTombstone records that this run sends a tombstone of the resource: the last event after that
// is not from the previous run.
func (l *LastEvents) AddTombstone(r *object.Resource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(r).retired = true
}

func (l *LastEvents) hadTombstone(r *object.Resource) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of(r).retired
}

// Forget drops a removed scope. It does not block, even during a request to the bus.
func (l *LastEvents) Forget(r *object.Resource, scope string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of(r).scopes, scope)
}

// Of returns the answer for a scope. Its error is that of the bus, or the cause of ctx.
func (l *LastEvents) Of(ctx context.Context, r *object.Resource, scope string) (LastEvent, bool, error) {
	l.mu.Lock()
	again := l.of(r).scopes[scope]
	l.mu.Unlock()
	event, ok, err := l.onStream(ctx, r, scope)
	if err != nil {
		return LastEvent{}, false, err
	}
	said, hasSaid, err := l.previous.of(ctx, r, scope)
	if err != nil || !hasSaid {
		return event, ok, err
	}
	last := &event
	if !ok {
		last = nil
	}
	later := *withPrevious(last, said, scope)
	later.Recalled = said.Recalled && !again
	return later, true, nil
}

// isComplete reports whether the bus has nothing of a scope if there is no answer.
func (l *LastEvents) isComplete() bool { return l.ask != nil }

// onStream returns the last stream event of a resource, for a scope.
func (l *LastEvents) onStream(ctx context.Context, r *object.Resource, scope string) (LastEvent, bool, error) {
	if l.ask == nil {
		return LastEvent{}, false, nil
	}
	l.mu.Lock()
	o := l.of(r)
	l.mu.Unlock()
	select {
	case o.asking <- struct{}{}:
		defer func() { <-o.asking }()
	case <-ctx.Done():
		return LastEvent{}, false, context.Cause(ctx)
	}
	l.mu.Lock()
	again := o.scopes[scope]
	if len(o.scopes) > 0 && !again {
		defer l.mu.Unlock()
		o.scopes[scope] = true
		return o.event, o.ok, nil
	}
	l.mu.Unlock()
	last, ok, err := l.ask(ctx, r)
	if err != nil {
		return LastEvent{}, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !again {
		o.event, o.ok = last, ok
	}
	o.scopes[scope] = true
	return last, ok, nil
}

// LastEvent is a stream event on the bus.
type LastEvent struct {
	Scope           string
	ResourceVersion uint64 // end of the history that it covers; end of a gap
	History         uint32
	At              time.Time
	Object          *LastObject // the newest event of an object of the resource; nil if none shows an observed version
	Recalled        bool        // the last run observed the scope, and its checkpoint is lost
}

// newest returns the highest resourceVersion that the events show.
func (e *LastEvent) newest() uint64 {
	if e.Object == nil {
		return e.ResourceVersion
	}
	return max(e.ResourceVersion, e.Object.ResourceVersion)
}

// LastObject identifies the version of an object's event on the bus.
type LastObject struct {
	Namespace, Name, UID string
	ResourceVersion      uint64
	History              uint32
	Gone                 bool   // the version is the deletion
	ChangedBy            []byte // JSON of its changedBy; nil: none
}
