package informers

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Options are what a Manager needs.
type Options struct {
	Config *rest.Config
	// Spec is the selection from the start until Reload.
	selection.Spec
	Snapshot scope.SnapshotMode
	Every    time.Duration // how often a snapshot is taken again, 0: never
	// Match compiles the patterns of namespaces that a checkpoint stores into a function that reports whether a namespace is taken. nil:
	// all are.
	Match func(patterns []string) func(namespace string) bool
	// Departed makes the manager observe what nodes that are gone have left. Its Part is that of the companion.
	Departed bool
	Ignore   []Name                       // objects that are never captured: the agent's own
	Memory   Memory                       // nil: no position is stored from one run to the next
	Lane     func(name string) store.Lane // an informer's end of the queue; name is its scope
	// ReleaseLane is called when no informer has the lane of that name any more. May be nil.
	ReleaseLane func(name string)
	// Heard returns the last stream event of a resource that the bus has; false: it has none. It retries after temporary errors until ctx
	// ends, which is its only error. nil: the bus cannot be asked.
	Heard func(ctx context.Context, r *object.Resource) (scope.LastEvent, bool, error)
	// Replaced returns the number of the last replacement of a log that takes events of a resource in a namespace ("": any), 0: there was
	// none. It also returns when the log before it was last known to be whole, zero: not known. It does not block; Rebase has to be called
	// when the number has changed. nil: the bus cannot distinguish one log from another.
	Replaced   func(r *object.Resource, namespace string) (number uint64, since time.Time)
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Name names an object.
type Name struct {
	Group, Resource, Namespace, Name string
}

// Memory remembers where each scope is, from one run to the next.
type Memory interface {
	// Scopes returns the positions of the last run, by scope.
	Scopes() map[string]checkpoint.Scope
	// Track registers position, which each save calls; ok is false as long as there is nothing to resume from. position must not block. A later
	// Track of the same scope replaces an earlier one.
	Track(scope string, position func() (p checkpoint.Position, ok bool))
	// Forget drops a scope.
	Forget(scope string)
	// Flush returns nil once the positions at the time of the call are saved. It retries after temporary errors until ctx ends.
	Flush(ctx context.Context) error
}
