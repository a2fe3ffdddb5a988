package informers

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/object"
)

// What another server serves is no more served when that server is away, or its APIService deleted, but its objects may live on: nothing
// is said of them, and they are read again once they are served again. So a scope remembers that its resource is aggregated.

// apiService is an APIService.
type apiService struct {
	aggregated bool // another server serves it
	available  bool
	generation int64
}

// servicesLookout follows APIServices.
func (d *definitions) servicesLookout() *lookout {
	return &lookout{
		client: d.set.client, log: d.set.o.Log,
		resource: object.Resource{Group: "apiregistration.k8s.io", Version: "v1", Name: "apiservices"},
		accept:   "application/json",
		begin:    d.beginServices,
		item:     func(raw []byte) error { return d.service(watch.Added, raw) },
		end:      func(uint64) { d.endServices() },
		event:    d.service,
		failed:   func() { d.tells(&d.servicesTold) },
		absent: func() { // A server that aggregates no others.
			d.beginServices()
			d.endServices()
		},
	}
}

func (d *definitions) beginServices() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registry = map[string]bool{}
}

// endServices takes a list of APIServices.
func (d *definitions) endServices() {
	d.mu.Lock()
	for name := range d.services {
		if !d.registry[name] {
			delete(d.services, name)
		}
	}
	d.registry, d.servicesKnown = nil, true
	d.touch()
	d.mu.Unlock()
	d.tells(&d.servicesTold)
}

// service takes one event, or item of a list, of APIServices.
func (d *definitions) service(typ watch.EventType, raw []byte) error {
	var a struct {
		Metadata struct {
			Name       string `json:"name"`
			Generation int64  `json:"generation"`
		} `json:"metadata"`
		Spec struct {
			Service *struct{} `json:"service"`
		} `json:"spec"`
		Status struct {
			Conditions []struct {
				Type   string `json:"type"`
				Status string `json:"status"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return fmt.Errorf("APIService: %w", err)
	}
	now := apiService{aggregated: a.Spec.Service != nil, generation: a.Metadata.Generation}
	for _, c := range a.Status.Conditions {
		now.available = now.available || c.Type == "Available" && c.Status == "True"
	}
	d.mu.Lock()
	if d.registry != nil {
		d.registry[a.Metadata.Name] = true
	}
	was, known := d.services[a.Metadata.Name]
	if typ == watch.Deleted {
		delete(d.services, a.Metadata.Name)
	} else {
		d.services[a.Metadata.Name] = now
	}
	different := typ == watch.Deleted || !known || was != now
	if different {
		d.touch()
	}
	begun := d.at != 0
	d.mu.Unlock()
	if different && begun {
		d.wake()
		if now.aggregated && now.available {
			d.set.nudgeGroup(a.Metadata.Name)
		}
	}
	return nil
}

// aggregates tells if another server serves a resource; known is false where nobody is known to serve it.
func (d *definitions) aggregates(r *object.Resource) (aggregated, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	aggregated = d.isAggregated(r)
	return aggregated, aggregated || d.crds[r.String()] != nil
}

// isAggregated tells if another server serves a group version. The caller holds mu.
func (d *definitions) isAggregated(r *object.Resource) bool {
	return d.services[r.Version+"."+r.Group].aggregated
}
