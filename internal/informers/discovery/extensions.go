package discovery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

const (
	// DiscoverEvery is how often the API groups should be discovered although nothing is known to have changed.
	DiscoverEvery = 30 * time.Second
	// settleDelay is for how long changes are gathered before the API groups are discovered.
	settleDelay = 100 * time.Millisecond
	// discoverApart is how far discoveries are apart at least, however much changes.
	discoverApart = time.Second
	// repeats is how many times the API groups are discovered again, discoverApart apart, after a change: what is served follows what
	// is defined after a moment.
	repeats = 3
	// listedWithin is how long WaitListed waits.
	listedWithin = 10 * time.Second
	// definedWithin is how long AwaitDefinitions waits.
	definedWithin = 5 * time.Second
	// deletedFor is for how long it is remembered that a definition was deleted: an informer of it may begin after that.
	deletedFor = 10 * time.Minute
)

// Extensions follows CustomResourceDefinitions and APIServices. It is safe for concurrent use, but for Wait, which one goroutine calls.
type Extensions struct {
	client *apiserver.Client
	log    *slog.Logger

	needed         gate          // open once extensions matter
	listed         gate          // of definitions: open once they were listed, or cannot be
	servicesListed gate          // the same of APIServices
	changed        chan struct{} // of one element: the API groups should be discovered soon

	discovered time.Time // of who calls Wait: when it returned last
	again      int       // and how many more times it returns after discoverApart

	mu struct {
		sync.Mutex
		definitions map[string]*definition // by name: plural.group
		deleted     map[string]time.Time   // when definitions were deleted last while this ran; see deletedFor
		version     uint64                 // the resourceVersion as of which definitions are known, 0: they are not
		services    map[string]apiService  // by name: version.group; nil: they are not known
		moved       chan struct{}          // closed and replaced when any of these changes
	}
}

// gate is a channel that is closed once.
type gate struct {
	once sync.Once
	c    chan struct{}
}

func (g *gate) open() { g.once.Do(func() { close(g.c) }) }

// NewExtensions starts nothing.
func NewExtensions(c *apiserver.Client, log *slog.Logger) *Extensions {
	x := &Extensions{
		client: c, log: log, changed: make(chan struct{}, 1),
		needed: gate{c: make(chan struct{})}, listed: gate{c: make(chan struct{})}, servicesListed: gate{c: make(chan struct{})},
	}
	x.mu.definitions, x.mu.deleted, x.mu.moved = map[string]*definition{}, map[string]time.Time{}, make(chan struct{})
	return x
}

// Need has Run follow from now on, for good. With false, nothing waits for a list until it does.
func (x *Extensions) Need(extensions bool) {
	if extensions {
		x.needed.open()
		return
	}
	select {
	case <-x.needed.c:
	default:
		x.listed.open()
		x.servicesListed.open()
	}
}

// Run follows until ctx ends, once that is needed.
func (x *Extensions) Run(ctx context.Context, handle Handler) {
	select {
	case <-x.needed.c:
	case <-ctx.Done():
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { x.definitionFollower(handle).run(ctx) })
	wg.Go(func() { x.serviceFollower(handle).run(ctx) })
	wg.Wait()
}

// denied logs that a resource may not be read.
func (x *Extensions) denied(r *object.Resource, err error) {
	x.log.Warn("not permitted to watch what is defined: new resources are found by discovery alone, and their first objects are "+
		"read rather than told of as created; grant list and watch on the resource ('kubecdc rbac' prints the role that is needed)",
		"resource", r.String(), "every", DiscoverEvery, "err", err)
}

// WaitListed waits, for at most 10 s, until it is known which definitions and APIServices there are, or that this cannot be known: what
// is discovered before could not be told from what is created later.
func (x *Extensions) WaitListed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listedWithin)
	defer cancel()
	for _, g := range []*gate{&x.listed, &x.servicesListed} {
		select {
		case <-g.c:
		case <-ctx.Done():
		}
	}
	x.discovered = time.Now()
}

// Wait waits until the API groups should be discovered again: after d, or sooner if something has changed; false: ctx ended first.
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

// rediscover has Wait return soon.
func (x *Extensions) rediscover() {
	select {
	case x.changed <- struct{}{}:
	default: // it will
	}
}

// movedLocked wakes AwaitDefinitions.
func (x *Extensions) movedLocked() {
	close(x.mu.moved)
	x.mu.moved = make(chan struct{})
}

// AwaitDefinitions waits, for at most 5 s, until the definitions of discovered resources have come on the watch, too: then it is known
// since when their objects can exist. The API server is asked for definitions that are not known.
func (x *Extensions) AwaitDefinitions(ctx context.Context, all []selection.APIResource) {
	var missing []*object.Resource
	x.mu.Lock()
	if x.mu.version != 0 {
		for i := range all {
			r := &all[i].Versions[0]
			if !IsBuiltIn(r.Group) && !x.isAggregatedLocked(r) && x.mu.definitions[r.String()] == nil {
				missing = append(missing, r)
			}
		}
	}
	x.mu.Unlock()
	if len(missing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, definedWithin)
	defer cancel()
	for _, r := range missing {
		if !x.exists(ctx, r.String()) {
			continue
		}
		for {
			x.mu.Lock()
			d, moved := x.mu.definitions[r.String()], x.mu.moved
			known := d != nil && d.established
			x.mu.Unlock()
			if known {
				break
			}
			select {
			case <-moved:
			case <-ctx.Done():
				return // it is read as if it had always been there
			}
		}
	}
}

// DeletedAt reports, of a resource that is not served, whether it came from a definition that does not exist any more: from the one
// with that uid, or from one that was deleted while this ran. rv is the resourceVersion for which that is known. A resource that
// another API server serves may come back.
func (x *Extensions) DeletedAt(r *object.Resource, uid string) (rv uint64, deleted bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
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
