package informers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// proofs bounds the requests a second for the version of the API server, after watches have ended.
const proofs = 25

// concurrentWalks bounds concurrent requests for versions while history is searched by lists.
const concurrentWalks = 8

// Manager runs the informers of a selection. The selection, the served resources, namespaces and
// permissions change at any time, and two informers must never send deltas of the same objects. So
// one loop (loop.go) makes all decisions about informers, with mu held. Other goroutines pass their
// results to it: see the package comment.
type Manager struct {
	o      Options
	client *apiserver.Client
	deps   informer.Deps // of all informers
	limits limits

	finder       *discovery.Finder
	extensions   *discovery.Extensions // CustomResourceDefinitions and APIServices
	namespaces   *namespaces           // resources that may be read in some namespaces only
	deletedNodes *deletedNodes         // nil if another agent observes their objects

	inputs      chan func(ctx context.Context) // not buffered: the loop calls them with mu held
	group       *errgroup.Group                // of everything that Run starts; set before the loop starts
	discoveries atomic.Uint64                  // number of those begun
	previous    *informer.Previous             // nil: the bus cannot be asked
	progress    progress
	sharing     sharing
	interrupted interrupted
	forms       chan struct{} // capacity 1: compareForms checks which scopes are due
	captured    chan struct{} // closed when the bus has the first snapshot of every resource
	ended       chan struct{} // closed when Run has ended

	mu     broadcast.Mutex // guards the fields below. Only the loop changes them after Run has started.
	ran    bool            // Run was called
	sel    *selection.Selection
	active active
	served served
	scopes scopes
}

// limits are the manager's time limits. Tests shorten them.
type limits struct {
	unreadable time.Duration // see informer.UnreadableFor
	reload     time.Duration // see reloadWait
}

// active has the running informers, and the state that earlier ones left.
type active struct {
	informers  map[string]*running             // by scope
	drains     map[schema.GroupResource]*drain // by the objects that their informers observe
	tombstones map[string]*informer.Tombstone  // by scope
	endings    map[string]*ending              // by scope
	// last reports of scopes whose informer is removed, and whose end may not be on the bus
	lingering  map[string]scopeReport
	origins    map[string]informer.Origin    // of scopes without an informer, by scope
	remembered map[schema.GroupResource]bool // resources that the last run observed
	// the highest history number of scopes without an informer, by etcd (etcdOf)
	history  map[string]uint32
	unserved map[string]bool // scopes of the last run that were logged as unserved
}

// served is the result of the last discovery.
type served struct {
	discovery    uint64 // its number, 0 if there was none
	all          []selection.APIResource
	index        selection.Index // of all
	unwatchable  []selection.Unwatchable
	unknown      []string                 // group versions that could not be discovered
	missing      []string                 // patterns of the selection that match no served resource
	uncapturable []selection.Uncapturable // patterns of the selection that match only unwatchable ones
	failure      error                    // of a later discovery
	failing      time.Time                // when the first of the failures in a row was seen
}

// running is an informer with the means to end it.
type running struct {
	*informer.Informer
	signal        *broadcast.Signal // of the manager
	cancel        context.CancelFunc
	after         []<-chan struct{} // closed when it may start
	namespaceGone bool              // a goroutine waits for the informer's end. Guarded by the manager's mu.
}

// New checks the options. It starts no goroutine and sends no request.
func New(o Options) (*Manager, error) {
	c, err := apiserver.New(o.Config)
	if err != nil {
		return nil, err
	}
	sel, err := selection.Compile(o.Spec)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Match == nil {
		o.Match = func([]string) func(string) bool { return func(string) bool { return true } }
	}
	m := &Manager{
		o:           o,
		client:      c,
		sel:         sel,
		limits:      limits{informer.UnreadableFor, reloadWait},
		finder:      discovery.NewFinder(c),
		extensions:  discovery.NewExtensions(c, o.Log),
		inputs:      make(chan func(context.Context)),
		captured:    make(chan struct{}),
		ended:       make(chan struct{}),
		interrupted: interrupted{added: make(chan struct{}, 1)},
		forms:       make(chan struct{}, 1),
		progress: progress{
			asks: make(chan chan struct{}),
		},
		active: active{
			informers:  map[string]*running{},
			drains:     map[schema.GroupResource]*drain{},
			tombstones: map[string]*informer.Tombstone{},
			unserved:   map[string]bool{},
			endings:    map[string]*ending{},
			lingering:  map[string]scopeReport{},
			origins:    map[string]informer.Origin{},
			remembered: map[schema.GroupResource]bool{},
			history:    map[string]uint32{},
		},
	}
	m.namespaces = newNamespaces(m)
	m.deps = informer.Deps{
		Client:       c,
		Now:          o.Now,
		Lists:        apiserver.NewListSlots(),
		Walks:        make(chan struct{}, concurrentWalks),
		Lookups:      backfill.NewLimiter(),
		Proofs:       rate.NewLimiter(proofs, proofs),
		Questions:    rate.NewLimiter(informer.AskPages, informer.AskBurst),
		Path:         informer.NewPath(o.Log),
		Outage:       informer.NewOutage(o.Log),
		Denials:      informer.NewDenials(o.Log),
		Metrics:      informer.NewVectors(o.Registerer),
		Log:          o.Log,
		Ignored:      m.ignored,
		DefinitionOf: m.extensions.UID,
		AnotherHas:   m.extensions.IsAggregated,
		EtcdOf:       m.sharing.etcdOf,
		Denied:       m.namespaces.noteDenied,
		NoteCaptured: m.mu.Notify,
		Save:         func(context.Context) error { return nil },
		MaxVersions:  o.maxVersions,
		MaxUnpaged:   o.MaxUnpaged,
		Replaced:     o.Replaced,
	}
	if o.LastProgress != nil {
		m.previous = informer.NewPrevious(o.LastProgress)
	}
	if o.LastEvent != nil || m.previous != nil {
		m.deps.LastEvents = informer.NewLastEvents(o.LastEvent, m.previous)
	}
	if o.Memory != nil {
		m.deps.Save = o.Memory.Flush
	}
	if o.DeletedNodes {
		m.deletedNodes = &deletedNodes{
			manager:    m,
			observeFor: observeDeletedFor,
			events:     make(chan *nodeEvent, nodeEvents),
			nodes:      map[string]*deletedNode{},
		}
	}
	o.Registerer.MustRegister(newConditions(m))
	return m, nil
}

// ClusterUID reads the uid of namespace kube-system. It retries after temporary errors, and calls
// failed with each of them. It returns an error if the API server refuses the request, or ctx ends.
func (m *Manager) ClusterUID(
	ctx context.Context, failed func(err error, retryIn time.Duration),
) (uid string, err error) {
	err = retry.Do(ctx, func() error {
		uid, err = m.client.ClusterUID(ctx)
		return err
	}, func(err error, delay time.Duration) (again bool) {
		if r := apiserver.Reason(err); r == "forbidden" || r == "unauthorized" || r == "not_found" {
			return false
		}
		failed(err, delay)
		return true
	})
	return uid, err
}

// Captured returns a channel that is closed once the bus has the first snapshot of every resource
// (snapshot.mode never: once every resource is loaded). It does not wait for resources that Ready
// does not wait for.
func (m *Manager) Captured() <-chan struct{} { return m.captured }

// awaitCapture waits until no informer holds the first snapshot back, and closes captured. It must
// be called after the first discovery.
func (m *Manager) awaitCapture(ctx context.Context, began time.Time) {
	var waiting *running
	if m.mu.Wait(ctx, func() bool { return !m.noteHeldBack(&waiting) }) != nil {
		return
	}
	objects := 0
	missing := 0
	resumed := 0
	resources := map[string]bool{}
	for _, st := range m.Status() {
		switch {
		case st.Phase == informer.PhaseRetiring:
			continue
		case !st.Captured:
			missing++
			continue
		case st.Resumed:
			resumed++
		}
		objects += st.Objects
		resources[st.Resource] = true
	}
	attrs := []any{"resources", len(resources), "objects", objects, "took", time.Since(began)}
	if missing > 0 {
		attrs = append(attrs, "not_captured", missing)
	}
	m.deps.Denials.Flush() // log missing resources before the line that the others are complete
	switch {
	case resumed > 0:
		m.o.Log.Info("resumed where the last run ended, waiting for changes",
			append(attrs, "scopes_resumed", resumed)...)
	case m.o.Snapshot == informer.SnapshotNever:
		m.o.Log.Info("all resources are loaded, waiting for changes", attrs...)
	default:
		m.o.Log.Info("first snapshot complete, waiting for changes", attrs...)
	}
	close(m.captured)
}

func (m *Manager) observing() []*running {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Values(m.active.informers))
}

// Status returns the status of each scope, sorted by name.
func (m *Manager) Status() []informer.Status { return m.statusOf(func(*running) bool { return true }) }

// troubled returns the status of each scope that is not known to be well, sorted by name. It costs
// little if all of them are.
func (m *Manager) troubled() []informer.Status {
	now := time.Now()
	return m.statusOf(func(r *running) bool { return !r.IsWell(now) })
}

// statusOf returns the status of the informers that is selects, and of each scope without an
// informer, sorted by name.
func (m *Manager) statusOf(is func(*running) bool) (out []informer.Status) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, i := range m.active.informers {
		if is(i) {
			out = append(out, i.Status())
		}
	}
	for name, t := range m.active.tombstones {
		if !t.HasEnded() && m.active.informers[name] == nil { // otherwise the informer that waits for it shows
			out = append(out, t.Status())
		}
	}
	out = append(out, m.namespaces.statuses()...)
	for _, u := range m.served.missing {
		out = append(out, informer.Status{
			Scope:    u,
			Resource: u,
			Phase:    informer.PhaseWaiting,
			Health:   informer.HealthNotServed,
		})
	}
	for _, u := range m.served.uncapturable {
		out = append(out, informer.Status{
			Scope:    u.Pattern,
			Resource: u.Pattern,
			Phase:    informer.PhaseWaiting,
			Health:   informer.HealthOf(apiserver.ReasonUnsupported),
			Reason:   apiserver.ReasonUnsupported,
			Error:    whyUncapturable(u).Error(),
		})
	}
	slices.SortFunc(out, func(a, b informer.Status) int { return cmp.Compare(a.Scope, b.Scope) })
	return out
}

// undiscoveredFor is how long discovery may fail before the agent is not ready. Failing scopes are
// stale after the same time.
const undiscoveredFor = 3 * time.Minute

// Ready returns nil once resources are discovered and every informer that can has loaded its first
// list, except while a scope is stale or discovery fails for minutes. It does not wait for a
// resource that is forbidden, not served, cannot be captured or keeps failing while others do not:
// Status shows it.
func (m *Manager) Ready() error {
	m.mu.RLock()
	discovered := m.served.discovery != 0
	err := m.served.failure
	failing := m.served.failing
	m.mu.RUnlock()
	switch {
	case !discovered:
		return cmp.Or(err, errors.New("resources are not discovered yet"))
	case err != nil && time.Since(failing) > undiscoveredFor && !apiserver.NeedsOperator(apiserver.Reason(err)):
		return fmt.Errorf("new resources are not captured: %w", err)
	}
	var waiting, stale []string
	for _, st := range m.troubled() {
		if st.Health == informer.HealthStale {
			stale = append(stale, st.Scope)
		}
		if !st.Synced && st.HoldsBack() {
			waiting = append(waiting, st.Scope)
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("the API server, or the path to it, has been silent for too long: %s", informer.Few(stale))
	}
	waiting = append(waiting, m.namespaces.undecidedNames()...)
	if len(waiting) > 0 {
		return fmt.Errorf("first list not loaded yet: %s", informer.Few(waiting))
	}
	return nil
}

// AcquireLocks acquires and releases the locks of the manager and of its informers.
func (m *Manager) AcquireLocks() {
	for _, i := range m.observing() {
		i.AcquireLocks()
	}
}

// Options are the parameters of New.
type Options struct {
	Config         *rest.Config
	selection.Spec // in force until Reload
	Snapshot       informer.SnapshotMode
	Every          time.Duration // interval of snapshots, 0: never
	// Match compiles a checkpoint's patterns of namespaces into a function that reports whether
	// they take a namespace. nil: all are taken.
	Match        func(patterns []string) func(namespace string) bool
	DeletedNodes bool // it observes the objects of deleted nodes. Its Part is that of the central agent.
	// the most objects of a list without pages, which is made if the pages of a list always expire
	MaxUnpaged  int
	Ignore      []Name                       // objects that are never captured: the agent's own
	Memory      Memory                       // nil: no position is stored for the next run
	Lane        func(name string) store.Lane // the queue's input for an informer; name is its scope
	ReleaseLane func(name string)            // called when no informer uses the lane any more. May be nil.
	// LastEvent returns the last stream event of a resource on the bus, false if there is none. It
	// retries after temporary errors until ctx ends, which is its only error. nil: the bus cannot
	// be asked.
	LastEvent func(ctx context.Context, r *object.Resource) (informer.LastEvent, bool, error)
	// LastProgress returns what the last run of this agent has said of its scopes on the bus. It
	// retries as LastEvent does. nil: the bus cannot be asked.
	LastProgress func(ctx context.Context) ([]informer.PreviousScope, error)
	// StartedScopes returns the scopes of a resource that a run of this agent has started and not
	// ended, as far as the bus has its stream events. It retries as LastEvent does. nil: the bus
	// cannot be asked.
	StartedScopes func(ctx context.Context, r *object.Resource, run string) ([]informer.StartedScope, error)
	// Replaced returns the number of the last replacement of a log with events of a resource in a
	// namespace ("": any), 0 if there was none. It also returns when the previous log was last
	// known to be whole, zero if unknown. It does not block; Rebase must be called when the number
	// has changed. nil: the bus cannot distinguish one log from another.
	Replaced func(r *object.Resource, namespace string) (number uint64, since time.Time)
	// ReportBytes returns the limit of a progress event, 0: not known. nil: it is not known.
	ReportBytes func() int
	// time of the run, which events carry and which never goes back; nil: that of the wall clock
	Now         func() time.Time
	Log         *slog.Logger
	Registerer  prometheus.Registerer
	maxVersions int // see store.Options; 0 except in tests
}

// Name names an object.
type Name struct {
	Group, Resource, Namespace, Name string
}

// Memory stores the positions of scopes from one run to the next.
type Memory interface {
	// Scopes returns the positions of the last run, by scope.
	Scopes() map[string]checkpoint.Scope
	// Track registers or replaces position, which each save calls, and which must not block. ok:
	// there is a position to resume from. changes counts what may have changed the position; nil:
	// nobody counts.
	Track(scope string, position func() (p checkpoint.Position, ok bool), changes func() uint64)
	// Forget drops a scope.
	Forget(scope string)
	// Flush returns nil once the positions at the time of the call are saved. It retries after
	// temporary errors until ctx ends.
	Flush(ctx context.Context) error
}

// Plan has the resources that a Manager would observe if it ran now.
type Plan struct {
	Resources []Planned
	// Unserved and Uncapturable are the patterns without a wildcard that match no served resource,
	// or only such that cannot be watched.
	Unserved     []string
	Uncapturable []selection.Uncapturable
	Unknown      []string // group versions that could not be discovered
}

// Planned is a resource and the indices of the rules that can take its objects, in order.
type Planned struct {
	Resource object.Resource
	Rules    []int
}

// Plan asks the API server once for the served resources, and applies the rules as Run does. It
// starts nothing.
func (m *Manager) Plan(ctx context.Context) (*Plan, error) {
	served, err := discovery.Discover(ctx, m.client)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	sel := m.sel
	m.mu.Unlock()
	out, unserved := sel.Choose(served.Resources, served.Unknown, nil)
	p := &Plan{Unknown: served.Unknown}
	p.Unserved, p.Uncapturable = sel.Uncapturable(unserved, served.Unwatchable)
	for _, c := range out {
		planned := Planned{Resource: c.Resource}
		for i := range sel.Rules {
			if slices.Contains(c.Rules, &sel.Rules[i]) {
				planned.Rules = append(planned.Rules, i)
			}
		}
		p.Resources = append(p.Resources, planned)
	}
	return p, nil
}
