package scope

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Spec is what an Informer observes, and the position at which it begins.
type Spec struct {
	Scope      selection.Scope
	Lane       store.Lane
	Snapshots  SnapshotMode
	Every      time.Duration // between snapshots, 0: never
	BuiltIn    bool          // the resource is built into the API server
	Shared     bool          // other agents observe other parts of the resource, and announce them on the bus
	Internal   bool          // it is for the manager itself: nothing of it is captured
	History    uint32        // number of the history that the resource was observed in
	Remembered bool          // the last run observed the resource
	OwnNames   []string      // of the agent's own objects (OwnName), sorted; nil: it never has any of the resource
	Origin     *Origin       // position to resume from, nil: none
	Created    uint64        // resourceVersion before which there was no object, 0: that is not known
	CreatedAt  time.Time     // when Created was seen
}

// Origin is the position from which an Informer resumes.
type Origin struct {
	checkpoint.Scope
	// Inherited: it is of another selection of the same resource. Nothing of this scope was sent.
	Inherited bool
	// Continued: an informer of this run left that position, and the bus has everything that was sent before.
	Continued bool
	// Lost is the history before it that was not observed, nil: none.
	Lost *store.Loss
}

// SnapshotMode is which existing objects are sent at the start.
type SnapshotMode string

// The modes of snapshot.mode.
const (
	SnapshotInitial SnapshotMode = "initial" // a read of each, unless a checkpoint is there to resume from
	SnapshotAlways  SnapshotMode = "always"  // a read of each at every start
	SnapshotNever   SnapshotMode = "never"   // nothing
)

// Deps is what the Informers of a manager share. Functions must not block, except for those that take a context.
type Deps struct {
	Client     *apiserver.Client
	Lists      *apiserver.ListSlots // bounds how many lists run at a time
	Walks      chan struct{}        // bounds how many versions are asked for at a time
	Lookups    *rate.Limiter        // bounds how many revisions are looked at one by one
	LastEvents *LastEvents          // nil: the bus cannot be asked
	Outage     *Outage
	Denials    *Denials
	Metrics    *Vectors
	Log        *slog.Logger

	Ignored      func(*object.Ref) bool                             // reports whether an object is never captured
	DefinitionOf func(*object.Resource) (uid string)                // "": it has none now
	AnotherHas   func(*object.Resource) (another, known bool)       // reports whether another API server serves a resource now
	Replaced     func(*selection.Scope) (n uint64, since time.Time) // see store.Options; nil: the bus does not know
	Save         func(ctx context.Context) error                    // saves the positions of all scopes, nil: none is saved
	Denied       func(context.Context, *Informer)                   // called when a list was forbidden, before Progressed is
	Progressed   func()                                             // called when the first snapshot may be complete, or impossible
}
