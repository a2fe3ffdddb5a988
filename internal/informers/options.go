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
	// Spec is what is captured from the start until Reload.
	selection.Spec
	Snapshot scope.SnapshotMode
	Every    time.Duration // how often a snapshot is taken again, 0: never
	// Match makes patterns of namespaces, as a checkpoint has kept them, tell which namespaces are taken. nil: all are.
	Match func(patterns []string) func(namespace string) bool
	// Departed has the set look after what nodes that are gone have left. Its Part is that of the companion.
	Departed bool
	Ignore   []Name                       // objects that are never captured: the agent's own
	Memory   Memory                       // nil: nothing is remembered from one run to the next
	Lane     func(name string) store.Lane // an informer's end of the queue; name is its scope
	// ReleaseLane is told that no informer has the lane of that name any more. nil: nobody has to know.
	ReleaseLane func(name string)
	// Heard is the last stream event of a resource that the bus has; false: it has none. What may pass it retries until ctx
	// ends, which is its only error. nil: the bus cannot be asked.
	Heard func(ctx context.Context, r *object.Resource) (scope.LastEvent, bool, error)
	// Replaced is the number of the last replacement of a log that takes events of a resource in a namespace ("": any), 0: there was
	// none; and when the log before it was last known to be whole, zero: not known. It does not block; Rebase has to be called when
	// the number has changed. nil: the bus cannot tell one log from another.
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
	// Scopes is what the last run left, by scope.
	Scopes() map[string]checkpoint.Scope
	// Track has position asked whenever something is saved; ok is false as long as there is nothing to resume from. It must
	// not block. A later Track of the same scope takes the place of an earlier one.
	Track(scope string, position func() (p checkpoint.Position, ok bool))
	// Forget drops a scope.
	Forget(scope string)
	// Flush returns nil once what was tracked at the time of the call is saved. What may pass it retries until ctx ends.
	Flush(ctx context.Context) error
}
