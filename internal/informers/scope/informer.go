package scope

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// Informer observes one resource in one scope: it lists (list.go), and follows from there (follow.go, watch.go).
type Informer struct {
	deps       *Deps
	spec       Spec
	resource   *object.Resource // of spec, as are selection and name
	selection  selection.Scope
	name       string
	lastEvents *LastEvents // nil: the bus is not asked
	log        *slog.Logger
	metrics    *metrics

	store      *store.Store
	state      state
	removal    removal
	generation generation
	definition definition
	dictionary dictionary
	retiring   atomic.Pointer[checkpoint.Retiring] // nil: the scope is selected
	kicked     chan struct{}                       // of one element: a request that failed may succeed now
	done       chan struct{}                       // closed when Run has ended

	owner
}

// owner is the state of the goroutine of Run.
type owner struct {
	created   uint64     // Spec.Created, until the first list is loaded
	createdAt time.Time  // Spec.CreatedAt
	resume    *Origin    // Spec.Origin, until that is loaded, or given up
	resumed   *Origin    // the origin that was loaded
	replayed  uint64     // resourceVersion up to which the previous run may have sent events that are sent again
	rewound   bool       // a watch found that etcd was restored
	retried   time.Time  // when a failed request was last retried
	asked     bool       // the bus was asked for its last stream event
	lastEvent *LastEvent // its answer, until that is used; nil: none
}

// relistReset is after how long without another list the delay between lists begins anew.
const relistReset = 2 * time.Minute

// New returns an Informer that has not begun.
func New(d *Deps, spec *Spec) *Informer {
	of := &spec.Scope
	i := &Informer{
		deps: d, spec: *spec, resource: of.Resource, selection: *of, name: of.Name, lastEvents: d.LastEvents, log: d.Log, metrics: d.Metrics.of(of.Name),
		state:      state{scope: of.Name, log: d.Log},
		definition: definition{current: func() string { return d.DefinitionOf(of.Resource) }, another: func() (bool, bool) { return d.AnotherHas(of.Resource) }},
		kicked:     make(chan struct{}, 1), done: make(chan struct{}),
		owner: owner{created: spec.Created, createdAt: spec.CreatedAt, resume: spec.Origin},
	}
	if spec.Internal {
		i.lastEvents = nil
	}
	o := store.Options{
		Resource: of.Resource, Scope: of.Name, Lane: spec.Lane, Pushed: of.HasServerSelector(), Several: of.HasAgentSelector(),
		Snapshots: spec.Snapshots != SnapshotNever, Progressed: d.Progressed, Gate: i.state.gate, Log: d.Log, Metrics: i.metrics.store, Save: d.Save,
	}
	if d.Replaced != nil {
		o.Replaced = func() (uint64, time.Time) { return d.Replaced(of) }
	}
	if of.HasSelector() {
		o.Selector = i
	}
	i.metrics.blocked.Set(0) // another informer may have had the scope
	i.store = store.New(o)
	i.state.changed = i.store.Notify
	i.SetFilter(of)
	i.store.RaiseHistory(spec.History)
	if c := spec.Origin; c != nil && !c.Inherited {
		i.store.Continue(&c.Scope)
		i.state.last = c.LastSeen
		i.definition.aggregated, i.definition.uid = c.Aggregated, c.Definition
	}
	return i
}

// Run observes until ctx ends, after all channels of after are closed; it calls begins then. Its goroutine owns what is known of history, and
// makes all writes to the store that a list or a watch causes. Everything that it started has ended when it returns.
func (i *Informer) Run(ctx context.Context, after []<-chan struct{}, begins func()) {
	defer i.store.Notify()
	defer close(i.done)
	for _, c := range after {
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
	begins()
	var others sync.WaitGroup
	others.Go(func() { i.store.Run(ctx, i.spec.Every) })
	others.Go(func() { i.sendProgress(ctx) })
	defer others.Wait()
	// Lists and watches retry by themselves. follow returns after a 410: list again at once, but with a delay if every watch ends with
	// one.
	for b := retry.New(); ; {
		began := time.Now()
		rv, err := i.list(ctx)
		if err != nil {
			return
		}
		i.follow(ctx, rv)
		if time.Since(began) > relistReset {
			b = retry.New()
		}
		if !b.Wait(ctx, nil) {
			return
		}
	}
}

// Name returns the name of the scope in events.
func (i *Informer) Name() string { return i.name }

// Spec returns what New was called with. It must not be changed.
func (i *Informer) Spec() *Spec { return &i.spec }

// Resource returns the resource that is observed.
func (i *Informer) Resource() *object.Resource { return i.resource }

// Selection returns what is selected of the resource.
func (i *Informer) Selection() *selection.Scope { return &i.selection }

// Store returns the store of the scope.
func (i *Informer) Store() *store.Store { return i.store }

// Done returns a channel that is closed when Run has ended.
func (i *Informer) Done() <-chan struct{} { return i.done }

// HasEnded reports whether Run has ended.
func (i *Informer) HasEnded() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}

// NotBegun returns the origin or creation at which an Informer was to begin, if it has ended before it did.
func (i *Informer) NotBegun() (origin *Origin, created uint64, at time.Time) {
	return i.resume, i.created, i.createdAt
}

// Rebase has the scope sent again if the log of the bus that takes its events was replaced: a gap (checkpoint-lost) and a snapshot. It does not
// wait.
func (i *Informer) Rebase() { i.store.Rebase() }

// Drain stops the Informer from taking changes, until it is ended. again: its scope is still selected, and another Informer resumes at its
// position.
func (i *Informer) Drain(again bool) {
	if again {
		i.state.to(PhaseDraining)
		i.retiring.Store(nil)
	} else if i.state.to(PhaseRetiring); i.retiring.Load() == nil {
		i.retiring.Store(retiringSince(time.Now()))
	}
	i.store.Stop()
}

func retiringSince(t time.Time) *checkpoint.Retiring {
	return &checkpoint.Retiring{Since: t.UTC().Truncate(time.Second)}
}

// SetDrained notes that the Informer has drained, and has ended.
func (i *Informer) SetDrained() { i.state.move(PhaseDraining, PhaseDrained) }

// SetRemoved notes that the manager has forgotten the Informer.
func (i *Informer) SetRemoved() { i.state.to(PhaseRemoved) }

// Phase returns the present phase.
func (i *Informer) Phase() Phase { return i.state.now() }

// IsAggregated reports whether another API server serves the resource, as far as that is known.
func (i *Informer) IsAggregated() bool { return i.definition.IsAggregated() }

// Definition returns the uid of the definition that the resource has, or had when it was known last. "": it is not known to have one.
func (i *Informer) Definition() string { return i.definition.UID() }

// IsInError reports whether the last request failed.
func (i *Informer) IsInError() bool { return i.state.lastError() != nil }

// LastSeen returns when the last event, bookmark or list came, zero: none has.
func (i *Informer) LastSeen() time.Time { return i.state.lastSeen() }

// Silence returns the age of the API server's last sign of life, 0 while the watch is not read; false: there was none yet.
func (i *Informer) Silence(now time.Time) (time.Duration, bool) { return i.state.silence(now) }

// seen notes a sign of life of the watch.
func (i *Informer) seen(at time.Time) {
	i.state.seen(at)
	i.metrics.lastSeen.Set(float64(at.UnixMilli()) / 1e3)
}

// Position returns that of the store with what the informer observes.
func (i *Informer) Position() (checkpoint.Position, bool) {
	p, ok := i.store.Position()
	p.Retiring = i.retiring.Load()
	if !ok || p.Resource != "" { // the checkpoint that it began with: it may be of another version of the resource
		return p, ok
	}
	i.selection.Record(&p.Scope)
	p.Aggregated, p.Definition = i.IsAggregated(), i.Definition()
	p.Ignored = i.spec.OwnNames
	p.LastSeen = i.state.lastSeen()
	return p, true
}

// SetFilter replaces the filters by those of a scope.
func (i *Informer) SetFilter(scope *selection.Scope) {
	if f := scope.Filters(); f != nil {
		i.store.SetFilter(f, f.Where)
	} else {
		i.store.SetFilter(nil, "")
	}
}

// Observes reports whether the scope has, or may have, objects in a namespace ("": any).
func (i *Informer) Observes(namespace string) bool {
	return namespace == "" || i.selection.Takes(namespace)
}

// TakeSnapshot begins a snapshot of a namespace ("": of all). See store.Store.TakeSnapshot.
func (i *Informer) TakeSnapshot(ctx context.Context, namespace string) (store.Started, error) {
	if i.selection.Namespace == namespace {
		namespace = "" // the scope has no other
	}
	scope := i.name
	if namespace != "" {
		scope = i.selection.NameIn(namespace)
	}
	return i.store.TakeSnapshot(ctx, scope, namespace)
}

// progressEvery is how often a scope sends a progress event.
const progressEvery = time.Minute

// sendProgress sends a progress event each minute, as long as the scope is alive: consumers distinguish an idle cluster from a dead agent by it.
// It waits for each acknowledgement, so that at most one is in flight while the bus is unreachable.
func (i *Informer) sendProgress(ctx context.Context) {
	wait := progressEvery/2 + rand.N(progressEvery/2) // scopes that began together do not send at the same time
	for retry.Sleep(ctx, wait) {
		wait = progressEvery
		if i.alive(time.Now()) && i.store.SendProgress(ctx) != nil {
			return
		}
	}
}

// ObservesResource reports whether the Informer is of a resource, in whatever version.
func (i *Informer) ObservesResource(r *object.Resource) bool {
	return i.resource.Group == r.Group && i.resource.Name == r.Name
}

// View is the state of an informer at one moment, for goroutines that wait for a condition.
type View struct {
	store.View
	Phase     Phase
	Ended     bool   // the informer has ended
	Failing   bool   // the last request failed
	Forbidden bool   // it failed because it is not permitted
	RemovedAt uint64 // resourceVersion at which the resource was removed, 0: it exists
	EmptyAt   uint64 // resourceVersion up to which the informer has found that no object exists any more, 0: it has not
}

// View returns the present view, and a channel that is closed by the next change of the informer.
func (i *Informer) View() (View, <-chan struct{}) {
	changed := i.store.Changed() // before anything is read
	v := View{Ended: i.HasEnded(), RemovedAt: i.RemovedAt(), EmptyAt: i.emptyAt(), Phase: i.state.now(), View: i.store.View()}
	if err := i.state.lastError(); err != nil {
		v.Failing, v.Forbidden = true, apierrors.IsForbidden(err)
	}
	return v, changed
}

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
