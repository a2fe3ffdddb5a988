package informer

import (
	"context"
	"log/slog"
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

// Informer observes one resource in one scope. No change of an object may be lost or sent out of
// order, although watches end, history expires and etcd may be restored. So an Informer alternates
// between lists (list.go) and watches (follow.go, watch.go), and its store forms deltas from both.
// Run's goroutine is the owner of this process: see the package comment.
type Informer struct {
	deps       *Deps
	spec       Spec
	resource   *object.Resource // from spec, as are selection and name
	selection  selection.Scope
	name       string
	lastEvents *LastEvents // nil: it does not ask the bus
	log        *slog.Logger
	metrics    *metrics

	store      *store.Store
	state      state
	removal    removal
	generation generation
	definition definition
	dictionary dictionary
	coverage   coverage
	content    content
	retiring   atomic.Pointer[checkpoint.Retiring] // nil: the scope is selected
	kicked     chan struct{}                       // capacity 1: a failed request may succeed now
	done       chan struct{}                       // closed when Run has ended

	runState
}

// runState is the state of Run's goroutine, the owner. No other goroutine may use it, except where
// a field says so.
type runState struct {
	created   uint64       // Spec.Created, until the first list is loaded
	createdAt time.Time    // Spec.CreatedAt
	resume    *Origin      // Spec.Origin, until that is loaded or given up
	resumed   *Origin      // the origin that was loaded
	replayed  uint64       // up to this resourceVersion, the previous run may have sent events that this run repeats
	relist    relistReason // why the watch ended
	// broken: the watches end with an error soon after they were opened. So a watch that opens does
	// not end the failure.
	broken     bool
	stalls     stalls
	buffering  buffering
	listing    listing
	started    *stream    // the watch that has shown the first list, until it is followed; nil: there is none
	otherForms bool       // the API server serves the objects of the checkpoint in another form
	retried    time.Time  // when a failed request was last retried
	asked      bool       // the bus was asked for its last stream event
	lastEvent  *LastEvent // the answer of the bus, until it is used; nil if there is none
}

// relistReset is the time since the last list after which the delay between lists is reset.
const relistReset = 2 * time.Minute

// New returns an Informer that has not started.
func New(d *Deps, spec *Spec) *Informer {
	of := &spec.Scope
	i := &Informer{
		deps:       d,
		spec:       *spec,
		resource:   of.Resource,
		selection:  *of,
		name:       of.Name,
		lastEvents: d.LastEvents,
		log:        d.Log,
		metrics:    d.Metrics.of(of.Name),
		state:      state{scope: of.Name, log: d.Log},
		kicked:     make(chan struct{}, 1),
		done:       make(chan struct{}),
		coverage:   coverage{asks: make(chan struct{}, 1)},
		runState: runState{
			buffering: buffering{
				pause: askAfter,
			},
			created:   spec.Created,
			createdAt: spec.CreatedAt,
			resume:    spec.Origin,
		},
	}
	if spec.Internal {
		i.lastEvents = nil
	}
	o := store.Options{
		Resource:     of.Resource,
		Scope:        of.Name,
		Lane:         spec.Lane,
		Now:          d.Now,
		Pushed:       of.HasServerSelector(),
		Several:      of.HasAgentSelector(),
		Snapshots:    spec.Snapshots != SnapshotNever,
		NoteCaptured: d.NoteCaptured,
		Gate:         i.state.followGate,
		Log:          d.Log,
		Metrics:      i.metrics.store,
		Save:         d.Save,
		MaxVersions:  d.MaxVersions,
	}
	if d.Replaced != nil {
		o.Replaced = func() (uint64, time.Time) { return d.Replaced(of.Resource, of.Namespace) }
	}
	if of.HasSelector() {
		o.Selector = i
	}
	i.store = store.New(o)
	i.state.changed, i.coverage.listsSent = i.store.Notify, i.store.Settled
	i.SetFilter(of)
	i.store.RaiseHistory(spec.History)
	i.state.last = spec.CreatedAt
	if c := spec.Origin; c != nil && !c.Inherited {
		i.store.Continue(&c.Scope)
		i.state.last = c.LastSeen
		i.definition.aggregated, i.definition.uid = c.Aggregated, c.Definition
	}
	return i
}

// Run observes until ctx ends. It first waits until all channels of after are closed, and then
// calls begins. Its goroutine owns the state of history, and makes all writes to the store that a
// list or a watch causes. When it returns, everything that it started has ended.
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
	i.coverage.begin(i.lastObserved(), i.deps.Now())
	var others sync.WaitGroup
	others.Go(func() { i.store.Run(ctx, i.spec.Every) })
	others.Go(func() { i.askForVersions(ctx) })
	defer i.deps.Path.notePassed(i.name)
	defer i.store.Settle() // after the cursor, and the owner, have sent what was pending
	defer others.Wait()
	defer i.dropStarted()
	// Lists and watches retry by themselves. follow returns after a 410: list again at once, but
	// with a delay if every watch ends so.
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

// Selection returns the selected part of the resource.
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

// UnusedStart returns the origin or creation from which an Informer was to start, if it has ended
// before its first list. It is also returned if that list was to announce that the history since
// then is lost.
func (i *Informer) UnusedStart() (origin *Origin, created uint64, at time.Time) {
	if p, ok := i.store.Position(); ok && p.Resource == "" {
		return nil, 0, time.Time{}
	}
	return i.spec.Origin, i.spec.Created, i.spec.CreatedAt
}

// IsContinuable reports whether a successor continues this run of the scope. If not, the successor
// starts like an informer of the next run: this Informer has not begun, or the bus may have later
// events than its position.
func (i *Informer) IsContinuable() bool {
	origin, _, _ := i.UnusedStart()
	v := i.store.View()
	return (origin == nil || origin.Continued) && !v.Replaying && v.Acknowledged >= v.Reached
}

// Drain makes the Informer take no more changes, until it has ended. again: its scope is still
// selected, and another Informer resumes at its position.
func (i *Informer) Drain(again bool) {
	if again {
		i.state.enter(PhaseDraining)
		i.retiring.Store(nil)
	} else if i.state.enter(PhaseRetiring); i.retiring.Load() == nil {
		i.retiring.Store(retiringSince(time.Now()))
	}
	i.store.Stop()
}

func retiringSince(t time.Time) *checkpoint.Retiring {
	return &checkpoint.Retiring{Since: t.UTC().Truncate(time.Second)}
}

// SetDrained records that the Informer has drained, and has ended.
func (i *Informer) SetDrained() { i.state.enterFrom(PhaseDraining, PhaseDrained) }

// SetRemoved records that the manager has dropped the Informer.
func (i *Informer) SetRemoved() { i.state.enter(PhaseRemoved) }

// Phase returns the current phase.
func (i *Informer) Phase() Phase {
	i.state.mu.Lock()
	defer i.state.mu.Unlock()
	return i.state.phase
}

// LastSeen returns the time of the last event, bookmark or list, or of the creation of its
// resource; zero if there was none.
func (i *Informer) LastSeen() time.Time {
	i.state.mu.Lock()
	defer i.state.mu.Unlock()
	return i.state.last
}

// Silence returns the time since the API server's last response, 0 while the watch is not read, or
// false if there was none yet.
func (i *Informer) Silence(now time.Time) (time.Duration, bool) {
	i.state.mu.Lock()
	defer i.state.mu.Unlock()
	return i.state.silence(now), i.state.unread || !i.state.life.IsZero()
}

// IsBlocked reports whether the watch is stopped because the queue is full.
func (i *Informer) IsBlocked() bool {
	i.state.mu.Lock()
	defer i.state.mu.Unlock()
	return i.state.unread
}

// noteSeen records that the watch, or a list, has received something at a time. observed is the
// same moment as a time of the run.
func (i *Informer) noteSeen(at, observed time.Time) {
	s := &i.state
	s.mu.Lock()
	s.last, s.waits = observed, time.Time{}
	if at.After(s.life) {
		s.life = at
	}
	s.mu.Unlock()
}

// Position returns the store's position, with the description of the scope.
func (i *Informer) Position() (checkpoint.Position, bool) {
	p, ok := i.store.Position()
	p.Retiring = i.retiring.Load()
	if !ok || p.Resource != "" { // p is the checkpoint of the start: it may be of another version of the resource
		return p, ok
	}
	i.selection.Describe(&p.Scope)
	p.Aggregated, p.Definition = i.IsAggregated(), i.Definition()
	p.Etcd = i.deps.EtcdOf(i.resource)
	p.Ignored = i.spec.OwnNames
	if last := i.LastSeen(); p.LastSeen.IsZero() || last.Before(p.LastSeen) {
		p.LastSeen = last
	}
	return p, true
}

// SetFilter replaces the filters by those of a scope.
func (i *Informer) SetFilter(scope *selection.Scope) {
	if f := scope.Filters(); f != nil {
		i.store.SetFilter(f, f.Where, scope.Rules())
	} else {
		i.store.SetFilter(nil, "", scope.Rules())
	}
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

// lastObserved returns the last time at which the objects of the scope were observed before this
// run; zero if it is not known.
func (i *Informer) lastObserved() time.Time {
	if c := i.spec.Origin; c != nil {
		return i.store.Past(c.LastSeen)
	}
	return i.spec.CreatedAt
}

// Report returns the progress of the scope, with what was noted at since or later. started: the bus
// has the start of the scope.
func (i *Informer) Report(since time.Time) (r object.ScopeReport, started bool) {
	// The order counts: the store has all changes up to this time.
	to, interruptions := i.coverage.report(since, i.deps.Now())
	r = i.store.Report(since)
	r.Resource = i.resource
	r.Scope = i.name
	r.Interruptions = interruptions
	switch {
	case r.ResourceVersion == 0:
		r.To = time.Time{}
	case r.To.IsZero() || to.Before(r.To):
		r.To = to
	}
	return r, i.store.HasBegun()
}

// ObservesResource reports whether the Informer observes a resource, in any version.
func (i *Informer) ObservesResource(r *object.Resource) bool {
	return i.resource.Group == r.Group && i.resource.Name == r.Name
}

// View is the state of an informer at one moment, for goroutines that wait for a condition.
type View struct {
	store.View
	Ended         bool   // the informer has ended
	Failing       bool   // the last request failed
	Forbidden     bool   // it failed because it is not permitted
	RemovedAt     uint64 // resourceVersion at which the resource was removed; 0 if it exists
	LostNamespace bool   // its namespace was removed, and with it the permission to read it
	EmptyAt       uint64 // resourceVersion at which the informer found that no object exists any more; 0 if it has not
}

// View returns the current view, and a channel that is closed by the next change of the informer.
func (i *Informer) View() (View, <-chan struct{}) {
	changed := i.store.Changed() // must precede all reads
	v := View{Ended: i.HasEnded(), EmptyAt: i.removal.emptyAt.Load(), View: i.store.View()}
	i.removal.mu.Lock()
	v.RemovedAt, v.LostNamespace = i.removal.at, i.removal.namespace
	i.removal.mu.Unlock()
	if err := i.state.lastError(); err != nil {
		v.Failing, v.Forbidden = true, apierrors.IsForbidden(err)
	}
	return v, changed
}

// Spec describes an Informer's scope, and the position at which it starts.
type Spec struct {
	Scope      selection.Scope
	Lane       store.Lane
	Snapshots  SnapshotMode
	Every      time.Duration // between snapshots, 0: never
	BuiltIn    bool          // the resource is built into the API server
	Shared     bool          // other agents observe other parts of the resource, and announce these on the bus
	Internal   bool          // only for the manager: nothing is captured
	History    uint32        // history number of the last observation of the resource
	Remembered bool          // the last run observed the resource
	OwnNames   []string      // names of the agent's own objects (OwnName), sorted; nil if the resource never has any
	Origin     *Origin       // position to resume from, or nil
	Created    uint64        // resourceVersion before which there was no object; 0 if that is not known
	CreatedAt  time.Time     // when Created was seen
}

// Origin is the position from which an Informer resumes.
type Origin struct {
	checkpoint.Scope
	Recalled  bool        // only the bus knows it: the objects are not known
	Inherited bool        // it belongs to another selection of the same resource. Nothing of this scope was sent.
	Continued bool        // an informer of this run left that position, and the bus has nothing later
	Lost      *store.Loss // the unobserved history before it, or nil
}

// SnapshotMode selects which existing objects are sent at the start.
type SnapshotMode string

// The modes of snapshot.mode.
const (
	SnapshotInitial SnapshotMode = "initial" // a read of each, unless there is a checkpoint to resume from
	SnapshotAlways  SnapshotMode = "always"  // a read of each at every start
	SnapshotNever   SnapshotMode = "never"   // nothing
)

// Deps are shared by the Informers of a manager. Functions must not block, except for those that
// take a context.
type Deps struct {
	Client      *apiserver.Client
	Lists       *apiserver.ListSlots // bounds concurrent lists
	MaxVersions int                  // see store.Options
	MaxUnpaged  int                  // the most objects of a list without pages
	Walks       chan struct{}        // bounds concurrent requests for versions
	Lookups     *rate.Limiter        // bounds requests for single revisions
	Proofs      *rate.Limiter        // bounds requests for the version of the API server
	LastEvents  *LastEvents          // nil: the bus cannot be asked
	Questions   *rate.Limiter        // bounds the pages of lists of metadata
	Path        *Path
	Outage      *Outage
	Denials     *Denials
	Metrics     *Vectors
	Log         *slog.Logger
	Now         func() time.Time // time of the run; it never goes back

	Ignored      func(*object.Ref) bool              // reports whether an object is never captured
	DefinitionOf func(*object.Resource) (uid string) // "" if it has none now
	// reports whether another API server serves a resource now
	AnotherHas func(*object.Resource) (another, known bool)
	EtcdOf     func(*object.Resource) int       // the number of the etcd of a resource; 0: not known
	Save       func(ctx context.Context) error  // saves the positions of all scopes
	Denied     func(context.Context, *Informer) // called when a list was forbidden, before NoteCaptured is
	// called when the first snapshot may be complete, or impossible
	NoteCaptured func()

	// Replaced returns the last replacement of the log of a resource's events in a namespace: see
	// store.Options. nil if the bus does not know.
	Replaced func(r *object.Resource, namespace string) (number uint64, since time.Time)
}
