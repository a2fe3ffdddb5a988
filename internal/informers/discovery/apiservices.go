package discovery

import (
	"context"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A resource that another API server serves is not served while that server is unavailable, or after its APIService was deleted. Its
// objects may still exist. So they do not count as deleted, and are read once they are served again. A scope remembers that its
// resource is aggregated.

// apiService is what is kept of an APIService.
type apiService struct {
	aggregated bool // another API server serves it
	available  bool
	generation int64
}

func (x *Extensions) serviceFollower(handle Handler) *follower {
	f := &follower{
		client: x.client, log: x.log, accept: apiserver.JSON,
		resource: object.Resource{Group: "apiregistration.k8s.io", Version: "v1", Name: "apiservices"},
	}
	f.denied = func(err error) { x.denied(&f.resource, err) }
	f.failed = func(ctx context.Context, err error) {
		if apierrors.IsNotFound(err) { // there is no aggregation layer
			f.replace(ctx, nil, 0)
		}
		x.set(&x.mu.servicesListed)
	}
	f.replace = func(ctx context.Context, all []item, _ uint64) {
		x.changeServices(ctx, handle, func(services map[string]apiService) {
			clear(services)
			for i := range all {
				services[all[i].Metadata.Name] = all[i].service()
			}
		})
		x.set(&x.mu.servicesListed)
	}
	f.apply = func(ctx context.Context, typ watch.EventType, o *item) {
		x.changeServices(ctx, handle, func(services map[string]apiService) {
			if services[o.Metadata.Name] = o.service(); typ == watch.Deleted {
				delete(services, o.Metadata.Name)
			}
		})
	}
	return f
}

// service returns what is kept of o.
func (o *item) service() apiService {
	return apiService{
		aggregated: o.Spec.Service != nil, available: o.is("Available"), generation: o.Metadata.Generation,
	}
}

// changeServices applies change to a copy of the known APIServices, and calls handle for those that are newly available. Before definitions
// are known, no list can have failed because of an APIService, so no event is needed.
func (x *Extensions) changeServices(ctx context.Context, handle Handler, change func(services map[string]apiService)) {
	x.mu.Lock()
	was, now := x.mu.services, map[string]apiService{}
	maps.Copy(now, was)
	change(now)
	x.mu.services = now
	known := x.mu.version != 0
	x.mu.Unlock()
	if !known || maps.Equal(was, now) {
		return
	}
	for name, s := range now {
		if before, ok := was[name]; s.aggregated && s.available && (!ok || before != s) {
			handle(ctx, APIServiceAvailable{Name: name})
		}
	}
	x.rediscover()
}

// IsAggregated reports whether another API server serves a resource. known is false if neither an APIService nor a definition of the
// resource is known.
func (x *Extensions) IsAggregated(r *object.Resource) (aggregated, known bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	aggregated = x.isAggregatedLocked(r)
	return aggregated, aggregated || x.mu.definitions[r.String()] != nil
}

// isAggregatedLocked reports whether another API server serves a group version.
func (x *Extensions) isAggregatedLocked(r *object.Resource) bool {
	return x.mu.services[r.Version+"."+r.Group].aggregated
}

// groupAggregatedLocked reports whether another API server serves any version of a group.
func (x *Extensions) groupAggregatedLocked(of string) bool {
	for name, s := range x.mu.services {
		if _, group, _ := strings.Cut(name, "."); group == of && s.aggregated {
			return true
		}
	}
	return false
}
