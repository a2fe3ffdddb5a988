package discovery

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
)

const (
	// DiscoverEvery is the interval of reads of the API groups if no change is seen.
	DiscoverEvery = 30 * time.Second

	gatherDelay   = 100 * time.Millisecond // changes are gathered before the API groups are read
	discoverApart = time.Second            // the least time between two discoveries
	// discoveries after a change, discoverApart apart: a definition is served with a delay
	repeats       = 3
	listedWithin  = 10 * time.Second // of WaitListed
	definedWithin = 5 * time.Second  // of AwaitDefinitions
	// deletions are stored for this time: an informer of the resource may start after the deletion
	deletedFor = 10 * time.Minute
)

// Extensions follows CustomResourceDefinitions and APIServices. Discovery reads the API groups only
// at intervals. It cannot distinguish a removed resource from one that is not served for a while.
// The watches of Extensions show both at once. Only one goroutine may call WaitListed and Wait; all
// goroutines may call the other methods.
type Extensions struct {
	client *apiserver.Client
	log    *slog.Logger

	changed chan struct{} // capacity 1: the API groups should be read soon

	// Only the goroutine that calls Wait uses these.
	discovered time.Time // time of Wait's last return
	again      int       // how many more times it returns after discoverApart

	mu struct {
		broadcast.Mutex
		needed         bool                   // Need was called with true
		listed         bool                   // definitions were listed, or a list has failed
		servicesListed bool                   // the same for APIServices
		definitions    map[string]*definition // by name: plural.group
		deleted        map[string]deletion    // by name, for deletedFor
		version        uint64                 // the resourceVersion of the known definitions, 0 if there was no list
		seen           time.Time              // time of the last list, frame or bookmark of definitions
		services       map[string]apiService  // by name: version.group; nil: unknown
	}
}

// NewExtensions returns an Extensions, which is empty before Run.
func NewExtensions(c *apiserver.Client, log *slog.Logger) *Extensions {
	x := &Extensions{client: c, log: log, changed: make(chan struct{}, 1)}
	x.mu.definitions, x.mu.deleted = map[string]*definition{}, map[string]deletion{}
	return x
}

// Need permanently makes Run follow if extensions is true. Otherwise WaitListed returns at once
// until Need is called with true.
func (e *Extensions) Need(extensions bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.needed = e.mu.needed || extensions
	if !e.mu.needed {
		e.mu.listed, e.mu.servicesListed = true, true
	}
}

// awaitCondition waits until is, which is called with mu held, returns true. It returns the cause
// of ctx if that ended first.
func (e *Extensions) awaitCondition(ctx context.Context, is func() bool) error {
	return e.mu.Wait(ctx, func() bool {
		e.mu.RLock()
		defer e.mu.RUnlock()
		return is()
	})
}

// set sets a field of mu.
func (e *Extensions) set(field *bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*field = true
}

// SeenAt returns the time up to which the changes of definitions are known; zero if they never
// were.
func (e *Extensions) SeenAt() time.Time {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.mu.seen
}

// Run waits for Need(true), follows until ctx ends, and calls handle for each change.
func (e *Extensions) Run(ctx context.Context, handle Handler) {
	if e.awaitCondition(ctx, func() bool { return e.mu.needed }) != nil {
		return
	}
	var services sync.WaitGroup
	services.Go(func() { e.serviceFollower(handle).run(ctx) })
	e.definitionFollower(handle).run(ctx)
	services.Wait()
}

// unwatched is logged if CustomResourceDefinitions or APIServices may not be read.
const unwatched = "new resources are found only by periodic discovery, and their first objects are sent as read, not as created: " +
	"grant list and watch on the resource ('kubecdc rbac' prints the role)"

// WaitListed waits, for at most 10 s, until definitions and APIServices were listed, or a list has
// failed. Before that, a resource that exists cannot be distinguished from one that is created
// later.
func (e *Extensions) WaitListed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listedWithin)
	defer cancel()
	_ = e.awaitCondition(ctx, func() bool { return e.mu.listed && e.mu.servicesListed })
	e.discovered = time.Now()
}

// Wait waits until the API groups should be read again: after d, or earlier after a change. It
// returns false if ctx ended first.
func (e *Extensions) Wait(ctx context.Context, d time.Duration) bool {
	if e.again > 0 {
		d = min(d, discoverApart)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		e.again = max(0, e.again-1)
	case <-e.changed:
		e.again = repeats
		if pause.For(ctx, max(gatherDelay, discoverApart-time.Since(e.discovered))) != nil {
			return false
		}
		select {
		case <-e.changed: // gathered
		default:
		}
	}
	e.discovered = time.Now()
	return true
}

// AwaitDefinitions waits, for at most 5 s, until the watch has shown that the definitions of the
// discovered resources are established. CreatedAt then returns since when their objects can exist.
// It waits only for definitions that exist according to the API server.
func (e *Extensions) AwaitDefinitions(ctx context.Context, all []selection.APIResource) {
	var missing []*object.Resource
	e.mu.RLock()
	if e.mu.version != 0 {
		for i := range all {
			r := &all[i].Versions[0]
			if !IsBuiltIn(r.Group) && !e.isAggregatedLocked(r) && !e.mu.definitions[r.String()].isEstablished() {
				missing = append(missing, r)
			}
		}
	}
	e.mu.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, definedWithin)
	defer cancel()
	for _, r := range missing {
		if e.findDefinition(ctx, r.String()) &&
			e.awaitCondition(ctx, func() bool { return e.mu.definitions[r.String()].isEstablished() }) != nil {
			return // the resource is listed like one that has always existed
		}
	}
}

// DeletedAt reports whether an unserved resource came from a definition that no longer exists. That
// is the one with uid, or, if uid is "", one whose deletion was seen within the last 10 minutes. It
// did not exist at resourceVersion rv. DeletedAt returns false if another API server serves the
// group, because the resource may be served again.
func (e *Extensions) DeletedAt(r *object.Resource, uid string) (rv uint64, deleted bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.mu.version == 0 || e.mu.services == nil || e.mu.definitions[r.String()] != nil {
		return 0, false
	}
	if _, seen := e.mu.deleted[r.String()]; uid == "" && !seen {
		return 0, false
	}
	if e.groupAggregatedLocked(r.Group) {
		return 0, false
	}
	return e.mu.version, true
}

// A resource of another API server is not served while that is unavailable, or after its APIService
// was deleted. Its objects may still exist. So they do not count as deleted, and are read once they
// are served again. A scope records that its resource is aggregated.

// apiService has the stored fields of an APIService.
type apiService struct {
	aggregated bool // another API server serves it
	available  bool
	generation int64
}

func (e *Extensions) serviceFollower(handle Handler) *follower {
	f := &follower{
		client:   e.client,
		log:      e.log,
		accept:   apiserver.JSON,
		advice:   unwatched,
		resource: object.Resource{Group: "apiregistration.k8s.io", Version: "v1", Name: "apiservices"},
	}
	f.failed = func(ctx context.Context, err error) {
		if apierrors.IsNotFound(err) { // there is no aggregation layer
			f.replace(ctx, nil, 0)
		}
		e.set(&e.mu.servicesListed)
	}
	f.replace = func(ctx context.Context, all []item, _ uint64) {
		e.changeServices(ctx, handle, func(services map[string]apiService) {
			clear(services)
			for i := range all {
				services[all[i].Metadata.Name] = all[i].service()
			}
		})
		e.set(&e.mu.servicesListed)
	}
	f.apply = func(ctx context.Context, typ watch.EventType, o *item) {
		e.changeServices(ctx, handle, func(services map[string]apiService) {
			services[o.Metadata.Name] = o.service()
			if typ == watch.Deleted {
				delete(services, o.Metadata.Name)
			}
		})
	}
	return f
}

func (i *item) service() apiService {
	return apiService{
		aggregated: i.Spec.Service != nil,
		available:  i.hasCondition("Available"),
		generation: i.Metadata.Generation,
	}
}

// changeServices applies change to a copy of the known APIServices, and calls handle for newly
// available ones. Before definitions are known, no list can have failed because of an APIService,
// so no event is needed.
func (e *Extensions) changeServices(ctx context.Context, handle Handler, change func(services map[string]apiService)) {
	e.mu.Lock()
	was, now := e.mu.services, map[string]apiService{}
	maps.Copy(now, was)
	change(now)
	e.mu.services = now
	known := e.mu.version != 0
	e.mu.Unlock()
	if !known || maps.Equal(was, now) {
		return
	}
	for name, s := range now {
		if before, ok := was[name]; s.aggregated && s.available && (!ok || before != s) {
			handle(ctx, APIServiceAvailable{Name: name})
		}
	}
	broadcast.Wake(e.changed)
}

// IsAggregated reports whether another API server serves a resource. known: there is an APIService
// or a definition of the resource.
func (e *Extensions) IsAggregated(r *object.Resource) (aggregated, known bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	aggregated = e.isAggregatedLocked(r)
	return aggregated, aggregated || e.mu.definitions[r.String()] != nil
}

// isAggregatedLocked reports whether another API server serves a group version.
func (e *Extensions) isAggregatedLocked(r *object.Resource) bool {
	return e.mu.services[r.Version+"."+r.Group].aggregated
}

// groupAggregatedLocked reports whether another API server serves any version of a group.
func (e *Extensions) groupAggregatedLocked(of string) bool {
	for name, s := range e.mu.services {
		if _, group, _ := strings.Cut(name, "."); group == of && s.aggregated {
			return true
		}
	}
	return false
}
