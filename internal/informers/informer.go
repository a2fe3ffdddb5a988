package informers

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// informer observes one resource in one scope. It is the reflector's ListerWatcher (list.go, watch.go).
type informer struct {
	client        *apiserver.Client
	resource      *object.Resource
	selection     selection.Scope
	scope         string
	ignored       func(*object.Ref) bool // what is never captured
	ignores       []string               // the same as namespace/name, for the checkpoint; nil: nothing of the resource ever is
	snapshots     SnapshotMode
	lane          Lane
	every         time.Duration // between snapshots, 0: never
	progressEvery time.Duration
	listSlots     *apiserver.ListSlots // shared: bounds how many lists run at a time
	walkSlots     chan struct{}        // shared: bounds how many versions are asked for at a time
	lookups       *rate.Limiter        // shared: bounds how many revisions are looked at one by one
	hearing       *hearing             // nil: the bus cannot be asked
	outage        *outage              // shared
	denials       *denials             // shared
	denied        func(*informer)      // told when a list was forbidden, before progressed is
	progressed    func()               // told when the first snapshot may be complete, or impossible
	log           *slog.Logger
	metrics       *metrics

	store      *store
	state      state
	dictionary dictionary
	readers    crew        // watch readers and lists, which the reflector starts and does not wait for
	rewound    atomic.Bool // the watch found that etcd was restored
	ended      chan struct{}

	life

	// retiring is set once the scope is no longer selected.
	retiring atomic.Pointer[checkpoint.Retiring]

	// Of the goroutine that lists.
	resume  *origin // where to begin, nil: no (more)
	resumed *origin // where it began
	// shared tells that other agents observe other parts of the resource, and speak of it on the bus.
	shared bool
	// silent tells that what is observed is for the set itself: nothing of it is captured.
	silent bool
	// forgotten tells that nothing of the resource was remembered.
	forgotten bool
	// replayed is the resourceVersion up to which the run before may have told what is told again.
	replayed uint64
	asked    bool   // the bus was asked what it has heard
	heard    *Heard // and has
}

// run observes until ctx ends. Everything it started has ended when it returns.
func (i *informer) run(ctx context.Context) {
	defer close(i.ended)
	var others sync.WaitGroup
	others.Go(func() { i.store.catchUp(ctx) })
	others.Go(func() { i.store.takeSnapshots(ctx, i.every) })
	others.Go(func() { i.tellProgress(ctx) })
	logger := klog.FromContext(ctx)
	reflector := cache.NewReflectorWithOptions(i, nil, &reflectorStore{ctx: ctx, store: i.store, informer: i}, cache.ReflectorOptions{
		Name: i.scope, TypeDescription: i.resource.String(), Logger: &logger,
		// Lists and watches retry by themselves. What comes here is a 410: list again at once, but not in a tight loop
		// should every watch end with one.
		Backoff: &wait.Backoff{Duration: retry.First, Factor: 2, Jitter: 0.5, Steps: 10, Cap: retry.Max},
	})
	reflector.RunWithContext(ctx)
	i.readers.wait()
	others.Wait()
}

// errEnded is for those that the reflector starts after it has ended.
var errEnded = errors.New("informer has ended")

// crew counts goroutines that begin at any time, also while it is waited for: then they are turned away.
type crew struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func (c *crew) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Add(1)
	return true
}

func (c *crew) leave() { c.wg.Done() }

func (c *crew) wait() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
}

// IsWatchListSemanticsUnSupported keeps the reflector from streaming its first list: it is read page by page.
func (*informer) IsWatchListSemanticsUnSupported() bool { return true }

// reflectorStore is the store as the reflector wants it: without contexts and with errors that are never returned.
type reflectorStore struct {
	ctx      context.Context //nolint:containedctx // cache.ReflectorStore's methods take none, and a blocked one must end
	store    *store
	informer *informer
}

// Add implements cache.ReflectorStore.
func (r *reflectorStore) Add(obj any) error { return r.apply(watch.Added, obj) }

// Update implements cache.ReflectorStore.
func (r *reflectorStore) Update(obj any) error { return r.apply(watch.Modified, obj) }

// Delete implements cache.ReflectorStore.
func (r *reflectorStore) Delete(obj any) error { return r.apply(watch.Deleted, obj) }

// Bookmark implements cache.ReflectorBookmarkStore.
func (r *reflectorStore) Bookmark(resourceVersion string) error {
	if rv, err := strconv.ParseUint(resourceVersion, 10, 64); err == nil { // the watch has seen to it
		r.store.advance(rv)
	}
	return nil
}

// Replace implements cache.ReflectorStore. The list is in the store already (ListWithContext).
func (*reflectorStore) Replace([]any, string) error { return nil }

// Resync implements cache.ReflectorStore. There is none.
func (*reflectorStore) Resync() error { return nil }

func (r *reflectorStore) apply(typ watch.EventType, obj any) error {
	// The reflector hands over what the informer's own watch gave it.
	if o, ok := obj.(*observed); ok {
		r.store.apply(r.ctx, typ, o)
	}
	return nil
}

// seen notes a sign of life of the watch.
func (i *informer) seen(at time.Time) {
	i.state.seen(at)
	i.metrics.lastSeen.Set(float64(at.UnixMilli()) / 1e3)
}
