package informers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/store"

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
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// SnapshotMode says what is sent of objects that exist at the start.
type SnapshotMode string

// The modes of snapshot.mode.
const (
	SnapshotInitial SnapshotMode = "initial" // a read of each, unless a checkpoint is there to resume from
	SnapshotAlways  SnapshotMode = "always"  // a read of each at every start
	SnapshotNever   SnapshotMode = "never"   // nothing
)

// concurrentWalks bounds how many versions are asked for at a time while history is looked for by lists.
const concurrentWalks = 8

// rediscoverUnserved is how often the API groups are discovered while a resource that the selection names is not served.
const rediscoverUnserved = 5 * time.Second

// Options are what a Set needs.
type Options struct {
	Config *rest.Config
	// Spec is what is captured from the start until Reload.
	selection.Spec
	Snapshot SnapshotMode
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
	Heard func(ctx context.Context, r *object.Resource) (Heard, bool, error)
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

// Heard is a stream event that the bus has.
type Heard struct {
	Scope           string
	ResourceVersion uint64 // up to which it speaks; of a gap: its end
	History         uint32
	At              time.Time
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

// Set runs the informers of a selection.
type Set struct {
	o       Options
	client  *apiserver.Client
	vectors *vectors
	slots   *apiserver.ListSlots
	walks   chan struct{}
	lookups *rate.Limiter
	outage  *outage
	denials *denials
	hearing *hearing
	// extensions follows what is not built into the API server. undefined is what has an informer although its definition does not
	// exist; what finds no room is found again.
	extensions *discovery.Extensions
	undefined  chan vanished
	// namespaces are followed where a resource may be read in some of them only.
	namespaces *namespaces
	// departures looks after nodes that are gone, nil: nobody does.
	departures *departures
	patience   time.Duration // of farewells
	restWithin time.Duration // see there

	captured chan struct{} // closed when the first snapshot of every resource is on the bus

	reloads chan *reload  // not buffered: Run takes them
	ended   chan struct{} // closed when Run has
	looking sync.Mutex    // held while it is decided what is observed; before mu

	mu         broadcast.Mutex
	sel        *selection.Selection
	ran        bool                            // Run was called
	informers  map[string]*running             // by scope
	origins    map[string]checkpoint.Scope     // where scopes without an informer were left, by this run or the last one
	continued  map[string]bool                 // of origins, those that this run left with nothing on its way: nothing is said again
	remembered map[schema.GroupResource]uint32 // of what the last run observed: the history number
	// saidUnserved are scopes of the last run of which it was logged that their resource is not served.
	saidUnserved map[string]bool
	farewells    []*farewell // some may be said
	// drains are informers that come to rest, by the objects that they observe.
	drains     map[schema.GroupResource]*drain
	served     []selection.APIResource // by the last discovery
	unserved   []string
	unknown    []string // group versions that the last discovery could not tell
	discovered bool
	failure    error // of the last discovery
}

// running is an informer with what ends it.
type running struct {
	*informer
	set    *broadcast.Signal // of the set
	cancel context.CancelFunc
	done   chan struct{}     // closed when it has ended
	after  []<-chan struct{} // closed when it may begin
	heir   bool              // it goes on from where another scope was left
	// leaving is PhaseDraining or PhaseRetiring once the informer is to end because of a new selection, else "". Under the set's mu.
	leaving Phase
	// orphan: endOrphan waits for the end of it. Under the set's mu.
	orphan bool
}

// New checks the options. It starts nothing and asks nothing.
func New(o Options) (*Set, error) {
	c, err := apiserver.New(o.Config)
	if err != nil {
		return nil, err
	}
	sel, err := selection.Compile(o.Spec)
	if err != nil {
		return nil, err
	}
	if o.Match == nil {
		o.Match = func([]string) func(string) bool { return func(string) bool { return true } }
	}
	s := &Set{
		o: o, walks: make(chan struct{}, concurrentWalks), lookups: backfill.NewLimiter(), client: c, sel: sel, vectors: newVectors(o.Registerer),
		slots: apiserver.NewListSlots(), outage: &outage{log: o.Log}, denials: newDenials(o.Log), informers: map[string]*running{}, saidUnserved: map[string]bool{},
		captured: make(chan struct{}), reloads: make(chan *reload), ended: make(chan struct{}),
		patience: farewellPatience, restWithin: restWithin, drains: map[schema.GroupResource]*drain{},
	}
	if o.Heard != nil {
		s.hearing = newHearing(o.Heard)
	}
	s.extensions, s.undefined = discovery.NewExtensions(c, o.Log), make(chan vanished, 16)
	s.namespaces = newNamespaces(s)
	if o.Departed {
		s.departures = newDepartures(s)
	}
	o.Registerer.MustRegister(newConditions(s))
	return s, nil
}

// ClusterUID reads the uid of namespace kube-system. What may pass it retries, and tells failed of each time; it returns
// an error when the API server refuses, or ctx ends.
func (s *Set) ClusterUID(ctx context.Context, failed func(err error, retryIn time.Duration)) (uid string, err error) {
	err = retry.Do(ctx, func() error {
		uid, err = s.client.ClusterUID(ctx)
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

// Run discovers and observes until ctx ends. Everything it started has ended when it returns. It is called once.
func (s *Set) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	defer close(s.ended)
	began := time.Now()
	s.mu.Lock()
	s.ran = true
	s.origins, s.continued = map[string]checkpoint.Scope{}, map[string]bool{}
	if s.o.Memory != nil {
		maps.Copy(s.origins, s.o.Memory.Scopes())
	}
	s.remembered = map[schema.GroupResource]uint32{}
	for _, c := range s.origins {
		gr := schema.GroupResource{Group: c.Group, Resource: c.Resource}
		s.remembered[gr] = max(s.remembered[gr], c.History)
	}
	s.mu.Unlock()
	awaitCapture := sync.OnceFunc(func() {
		g.Go(func() error {
			s.awaitCapture(ctx, began)
			return nil
		})
	})
	g.Go(func() error {
		s.denials.run(ctx)
		return nil
	})
	if s.departures != nil {
		g.Go(func() error { return s.departures.run(ctx) })
	}
	g.Go(func() error {
		s.followExtensions(ctx, func(begin []*running) { s.launch(ctx, g, begin) })
		return nil
	})
	g.Go(func() error {
		s.takeReloads(ctx, func(begin []*running, parting []*farewell) {
			s.launch(ctx, g, begin)
			s.bid(ctx, g, parting)
			s.extensions.Need(s.takesExtensions())
			s.namespaces.rulesChanged()
		})
		return nil
	})
	g.Go(func() error {
		s.namespaces.run(ctx, func(begin []*running, parting []*farewell) {
			s.launch(ctx, g, begin)
			s.bid(ctx, g, parting)
		})
		return nil
	})
	g.Go(func() error {
		s.extensions.WaitListed(ctx)
		b := retry.New()
		for {
			wait := discovery.DiscoverEvery
			chosen, parting, err := s.discover(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				wait = b.Next(err)
				if r := apiserver.Reason(err); !apiserver.IsShared(r) || s.outage.begin(r, time.Now()) {
					s.o.Log.Warn("cannot discover resources, retrying", "err", err, "retry_in", wait)
				}
			default:
				b = retry.New()
				s.outage.end(time.Now())
				s.launch(ctx, g, append(chosen, s.bear()...))
				s.bid(ctx, g, parting)
				awaitCapture()
				if s.anyUnserved() {
					wait = rediscoverUnserved
				}
			}
			if !s.extensions.Wait(ctx, wait) {
				return nil
			}
		}
	})
	return g.Wait()
}

// launch runs informers in g until ctx ends, or they are cancelled.
func (s *Set) launch(ctx context.Context, g *errgroup.Group, begin []*running) {
	for _, i := range begin {
		ictx, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		i.cancel = cancel
		s.mu.Unlock()
		g.Go(func() error {
			defer cancel()
			s.observe(ictx, i)
			return nil
		})
	}
}

// observe runs an informer, after the farewells that come first, until ctx ends.
func (s *Set) observe(ctx context.Context, i *running) {
	defer i.store.Notify()
	defer close(i.done)
	if i.mayBegin(ctx) {
		s.track(i.informer)
		i.run(ctx)
	}
}

// bid says farewells in g.
func (s *Set) bid(ctx context.Context, g *errgroup.Group, parting []*farewell) {
	for _, f := range parting {
		g.Go(func() error {
			f.run(ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.farewells = slices.DeleteFunc(s.farewells, (*farewell).isSaid)
			s.release(f.scope)
			return nil
		})
	}
}

// release gives up what is kept of a scope beside its place in the checkpoint: metrics, what is logged later, its lane. It does nothing if an
// informer has the scope, or it is retiring. The caller holds mu.
func (s *Set) release(scope string) {
	if s.informers[scope] != nil || s.isParting(scope) {
		return
	}
	s.vectors.forget(scope)
	s.denials.drop(scope)
	if s.o.ReleaseLane != nil {
		s.o.ReleaseLane(scope)
	}
}

// Captured is closed once the first snapshot of every resource is on the bus (snapshot.mode never: once every resource
// is loaded). As in Ready, a resource that is forbidden, not served or cannot be captured does not hold it back; neither
// does one whose list has failed again and again while the API server answers others.
func (s *Set) Captured() <-chan struct{} { return s.captured }

// awaitCapture closes captured when it is time to, and returns then. Resources were discovered.
func (s *Set) awaitCapture(ctx context.Context, began time.Time) {
	var waiting *running
	if s.mu.Wait(ctx, func() bool { return !s.heldBack(&waiting) }) != nil {
		return
	}
	objects, missing, resumed := 0, 0, 0
	resources := map[string]bool{}
	for _, st := range s.Status() {
		if st.Phase == PhaseRetiring {
			continue
		}
		if !st.Captured {
			missing++
			continue
		}
		objects += st.Objects
		resources[st.Resource] = true
		if st.Resumed {
			resumed++
		}
	}
	attrs := []any{"resources", len(resources), "objects", objects, "took", time.Since(began)}
	if missing > 0 {
		attrs = append(attrs, "not_captured", missing)
	}
	s.denials.flush() // what is missing is said before that the rest is complete
	switch {
	case resumed > 0:
		s.o.Log.Info("resumed where the last run ended, waiting for changes", append(attrs, "scopes_resumed", resumed)...)
	case s.o.Snapshot == SnapshotNever:
		s.o.Log.Info("all resources are loaded, waiting for changes", attrs...)
	default:
		s.o.Log.Info("first snapshot complete, waiting for changes", attrs...)
	}
	close(s.captured)
}

// discover asks what is served, ends informers of versions that are no longer, and makes informers for what has none yet.
// parting are scopes that the last run had and this one has not.
func (s *Set) discover(ctx context.Context) (begin []*running, parting []*farewell, err error) {
	s.looking.Lock() // a new selection waits
	defer s.looking.Unlock()
	all, unknown, err := discovery.Discover(ctx, s.client)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failure = err
		return nil, nil, err
	}
	s.extensions.AwaitDefinitions(ctx, all)
	s.nudgeServed(all)
	if err := s.namespaces.recall(ctx, all, unknown); err != nil {
		return nil, nil, err
	}
	outdated := s.outdated(all, unknown)
	if err := s.conclusions(ctx, outdated); err != nil {
		return nil, nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range outdated {
		if p, ok := i.position(); ok {
			s.origins[i.scope] = p.Scope
		} else {
			s.forget(i.scope)
		}
	}
	out, unserved := s.sel.Choose(all, unknown, s.taken())
	for _, u := range unserved {
		if !slices.Contains(s.unserved, u) {
			s.o.Log.Warn("a resource of the selection is not served, looking for it again", "resource", u, "every", rediscoverUnserved)
		}
	}
	if len(unknown) > 0 && !slices.Equal(unknown, s.unknown) {
		s.o.Log.Warn("some API groups cannot be discovered now", "groups", unknown)
	}
	s.discovered, s.failure, s.unserved, s.unknown, s.served = true, nil, unserved, unknown, all
	begin = s.add(out)
	s.inherit(begin)
	bequeath(outdated, begin)
	begin = append(begin, s.follow(all)...)
	s.unheard(all, unknown)
	parting = append(s.part(all, unknown, begin), s.partGone(all, unknown)...)
	for _, i := range outdated {
		s.release(i.scope)
	}
	return begin, parting, nil
}

// outdated takes those informers out of the set whose resource is served, but no longer in their version or as their
// kind. What discovery could not tell is not gone.
func (s *Set) outdated(all []selection.APIResource, unknown []string) []*running {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*running
	for scope, i := range s.informers {
		if now, ok := selection.Current(all, i.resource); ok && *now != *i.resource && i.vanished.Load() == 0 && !slices.Contains(unknown, i.resource.APIVersion()) {
			out = append(out, i)
			delete(s.informers, scope)
		}
	}
	return out
}

func (s *Set) anyUnserved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unserved) > 0
}

func (s *Set) newInformer(of selection.Scope, lane store.Lane) *informer {
	resource, scope := of.Resource, of.Name
	i := &informer{
		client: s.client, resource: resource, selection: of, scope: scope, ignored: s.ignored, ignores: s.ignores(resource),
		snapshots: s.o.Snapshot, every: s.o.Every, lane: lane, listSlots: s.slots, walkSlots: s.walks, lookups: s.lookups, log: s.o.Log,
		metrics: s.vectors.of(scope), outage: s.outage, denials: s.denials, progressed: s.mu.Notify, hearing: s.hearing,
		denied: s.namespaces.deny, progressEvery: progressEvery, ended: make(chan struct{}), life: life{prodded: make(chan struct{}, 1)},
	}
	i.definedBy = func() string { return s.extensions.UID(resource) }
	i.servedBy = func() (bool, bool) { return s.extensions.IsAggregated(resource) }
	o := store.Options{
		Resource: resource, Scope: scope, Lane: lane, Pushed: of.HasServerSelector(), Several: of.HasAgentSelector(), Replaced: s.logOf(&of),
		Snapshots: s.o.Snapshot != SnapshotNever, Progressed: s.mu.Notify, Log: s.o.Log, Metrics: i.metrics.store,
	}
	if of.HasSelector() {
		o.Selector = i
	}
	if s.o.Memory != nil {
		o.Save = s.o.Memory.Flush
	}
	i.store = store.New(o)
	i.filter(&of)
	return i
}

// discoveredAll is nil once it is known what there is to observe.
func (s *Set) discoveredAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.discovered:
		return nil
	case s.failure != nil:
		return s.failure
	default:
		return errors.New("resources are not discovered yet")
	}
}

// observing are the informers that there are.
func (s *Set) observing() []*running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.informers))
}

// Status is how each informer is doing, sorted by scope.
func (s *Set) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Status, 0, len(s.informers)+len(s.unserved))
	for _, i := range s.informers {
		st := i.status()
		if i.leaving != "" {
			st.Phase, st.Stale = i.leaving, false
		}
		out = append(out, st)
	}
	out = append(out, s.retiring()...)
	out = append(out, s.namespaces.statuses()...)
	for _, u := range s.unserved {
		out = append(out, Status{Scope: u, Resource: u, Phase: PhaseUnserved})
	}
	slices.SortFunc(out, func(a, b Status) int {
		if a.Scope < b.Scope {
			return -1
		}
		return 1
	})
	return out
}

// Ready is nil once resources are discovered and every informer that can has loaded its first list. A resource that is
// forbidden, not served, cannot be captured or keeps failing in a way of its own does not hold back the others: it shows
// in Status. It is not nil while one is stale.
func (s *Set) Ready() error {
	if err := s.discoveredAll(); err != nil {
		return err
	}
	var waiting []string
	all := s.Status()
	if err := noneStale(all); err != nil {
		return err
	}
	for _, st := range all {
		if !st.Synced && st.holdsBack() {
			waiting = append(waiting, st.Scope)
		}
	}
	if waiting = append(waiting, s.namespaces.deciding()...); len(waiting) > 0 {
		return fmt.Errorf("first list not loaded yet: %s", few(waiting))
	}
	return nil
}
