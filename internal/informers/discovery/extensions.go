package discovery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

const (
	// DiscoverEvery is how often the API groups should be read if no change is seen.
	DiscoverEvery = 30 * time.Second
	// settleDelay is how long changes are gathered before the API groups are read.
	settleDelay = 100 * time.Millisecond
	// discoverApart is the least time between two discoveries.
	discoverApart = time.Second
	// repeats is how many times the API groups are read again after a change, discoverApart apart: a definition is served with a delay.
	repeats = 3
	// listedWithin is how long WaitListed waits at most.
	listedWithin = 10 * time.Second
	// definedWithin is how long AwaitDefinitions waits at most.
	definedWithin = 5 * time.Second
	// deletedFor is how long a deleted definition is remembered, because an informer of its resource may start after the deletion.
	deletedFor = 10 * time.Minute
)

// Extensions follows CustomResourceDefinitions and APIServices. It is safe for concurrent use, except that only one goroutine may call
// WaitListed and Wait.
type Extensions struct {
	client *apiserver.Client
	log    *slog.Logger

	changed chan struct{} // of one element: the API groups should be read soon

	// Only the goroutine that calls Wait uses these.
	discovered time.Time // when Wait returned last
	again      int       // how many more times it returns after discoverApart

	mu struct {
		broadcast.Mutex
		needed         bool                   // Need was called with true
		listed         bool                   // definitions were listed, or a list has failed
		servicesListed bool                   // the same for APIServices
		definitions    map[string]*definition // by name: plural.group
		deleted        map[string]time.Time   // when definitions were deleted, for deletedFor
		version        uint64                 // the resourceVersion at which definitions are known, 0: they are not
		services       map[string]apiService  // by name: version.group; nil: unknown
	}
}

// NewExtensions returns an Extensions that knows nothing before Run.
func NewExtensions(c *apiserver.Client, log *slog.Logger) *Extensions {
	x := &Extensions{client: c, log: log, changed: make(chan struct{}, 1)}
	x.mu.definitions, x.mu.deleted = map[string]*definition{}, map[string]time.Time{}
	return x
}

// Need makes Run follow, for good, if extensions is true. Otherwise WaitListed returns at once until Need is called with true.
func (x *Extensions) Need(extensions bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.needed = x.mu.needed || extensions; !x.mu.needed {
		x.mu.listed, x.mu.servicesListed = true, true
	}
}

// await waits until is, which is called with mu held, returns true. It returns the cause of ctx if that ended first.
func (x *Extensions) await(ctx context.Context, is func() bool) error {
	return x.mu.Wait(ctx, func() bool {
		x.mu.RLock()
		defer x.mu.RUnlock()
		return is()
	})
}

// set sets a field of mu.
func (x *Extensions) set(field *bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	*field = true
}

// Run waits for Need(true), follows until ctx ends, and calls handle for each change.
func (x *Extensions) Run(ctx context.Context, handle Handler) {
	if x.await(ctx, func() bool { return x.mu.needed }) != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { x.definitionFollower(handle).run(ctx) })
	wg.Go(func() { x.serviceFollower(handle).run(ctx) })
	wg.Wait()
}

// denied logs that a resource may not be read.
func (x *Extensions) denied(r *object.Resource, err error) {
	x.log.Warn("not permitted to watch CRDs or APIServices: new resources are found only by periodic discovery, and their first objects "+
		"are sent as read, not as created; grant list and watch on the resource ('kubecdc rbac' prints the role)",
		"resource", r.String(), "every", DiscoverEvery, "err", err)
}

// WaitListed waits, for at most 10 s, until definitions and APIServices were listed, or a list has failed. Before that, a resource that
// exists cannot be distinguished from one that is created later.
func (x *Extensions) WaitListed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listedWithin)
	defer cancel()
	_ = x.await(ctx, func() bool { return x.mu.listed && x.mu.servicesListed })
	x.discovered = time.Now()
}

// Wait waits until the API groups should be read again: after d, or earlier after a change. It returns false if ctx ended first.
func (x *Extensions) Wait(ctx context.Context, d time.Duration) bool {
	if x.again > 0 {
		d = min(d, discoverApart)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		x.again = max(0, x.again-1)
	case <-x.changed:
		x.again = repeats
		if !retry.Sleep(ctx, max(settleDelay, discoverApart-time.Since(x.discovered))) {
			return false
		}
		select {
		case <-x.changed: // gathered
		default:
		}
	}
	x.discovered = time.Now()
	return true
}

// rediscover makes Wait return soon.
func (x *Extensions) rediscover() { broadcast.Wake(x.changed) }

// AwaitDefinitions waits, for at most 5 s, until the watch has shown the definitions of the resources that were discovered. CreatedAt then
// knows since when objects of them can exist. It waits only for definitions that exist according to the API server.
func (x *Extensions) AwaitDefinitions(ctx context.Context, all []selection.APIResource) {
	var missing []*object.Resource
	x.mu.RLock()
	if x.mu.version != 0 {
		for i := range all {
			r := &all[i].Versions[0]
			if !IsBuiltIn(r.Group) && !x.isAggregatedLocked(r) && x.mu.definitions[r.String()] == nil {
				missing = append(missing, r)
			}
		}
	}
	x.mu.RUnlock()
	if len(missing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, definedWithin)
	defer cancel()
	for _, r := range missing {
		if !x.exists(ctx, r.String()) {
			continue
		}
		err := x.await(ctx, func() bool {
			d := x.mu.definitions[r.String()]
			return d != nil && d.established
		})
		if err != nil {
			return // the resource is listed like one that has always existed
		}
	}
}

// DeletedAt reports whether a resource that is not served came from a definition that no longer exists: from the one with that uid, or
// ("") from one whose deletion was seen within the last 10 minutes. It did not exist at resourceVersion rv. DeletedAt returns false if
// another API server serves the group, because the resource may be served again.
func (x *Extensions) DeletedAt(r *object.Resource, uid string) (rv uint64, deleted bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.mu.version == 0 || x.mu.services == nil || x.mu.definitions[r.String()] != nil {
		return 0, false
	}
	if _, seen := x.mu.deleted[r.String()]; uid == "" && !seen {
		return 0, false
	}
	if x.groupAggregatedLocked(r.Group) {
		return 0, false
	}
	return x.mu.version, true
}
