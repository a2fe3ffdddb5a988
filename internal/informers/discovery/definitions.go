package discovery

import (
	"cmp"
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// definition is a CustomResourceDefinition, as far as it matters here.
type definition struct {
	uid         string
	generation  int64
	storage     string // the version in which objects are stored, "": not known
	deleting    bool
	established bool
	added       uint64                 // its first resourceVersion, 0: it existed before
	created     uint64                 // the same once it is established, 0 also once that is done with (Started)
	createdSeen time.Time              // when that was seen
	served      *selection.APIResource // what it serves, while created is not 0
}

// customResource is what a CustomResourceDefinition says of what it defines. A list has the metadata alone.
type customResource struct {
	Metadata objectMeta `json:"metadata"`
	Spec     struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Plural string `json:"plural"`
			Kind   string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Served  bool   `json:"served"`
			Storage bool   `json:"storage"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions conditions `json:"conditions"`
	} `json:"status"`
}

// conditions are those of an object's status.
type conditions []struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

func (c conditions) isTrue(typ string) bool {
	for i := range c {
		if c[i].Type == typ && c[i].Status == "True" {
			return true
		}
	}
	return false
}

// definition is what is kept of it.
func (c *customResource) definition() definition {
	d := definition{uid: c.Metadata.UID, generation: c.Metadata.Generation, deleting: c.Metadata.DeletionTimestamp != nil}
	for _, v := range c.Spec.Versions {
		if v.Storage {
			d.storage = v.Name
		}
	}
	return d
}

// served is what the API server serves of it, the preferred version first: as discovery will say a moment later.
func (c *customResource) served() *selection.APIResource {
	out := &selection.APIResource{Group: c.Spec.Group, Name: c.Spec.Names.Plural}
	for _, v := range c.Spec.Versions {
		if v.Served {
			out.Versions = append(out.Versions, object.Resource{
				Group: c.Spec.Group, Version: v.Name, Name: c.Spec.Names.Plural, Kind: c.Spec.Names.Kind, Namespaced: c.Spec.Scope == "Namespaced",
			})
		}
	}
	slices.SortStableFunc(out.Versions, func(a, b object.Resource) int { return version.CompareKubeAwareVersionStrings(b.Version, a.Version) })
	return out
}

// update takes what is known of a definition now, and reports whether what it defines has changed. The request to delete it is a
// generation, too. If that and another change are seen at once, it has changed.
func (d *definition) update(now *definition) (changed bool) {
	same := d.generation
	if now.deleting && !d.deleting {
		same++
	}
	changed = now.generation > same
	d.established = d.established || now.established // while nobody watched
	d.generation, d.deleting, d.storage = now.generation, now.deleting, now.storage
	return changed
}

func (x *Extensions) definitionFollower(handle Handler) *follower[customResource] {
	f := &follower[customResource]{
		client: x.client, log: x.log,
		resource: object.Resource{Group: "apiextensions.k8s.io", Version: "v1", Name: "customresourcedefinitions"},
		// Schemas may make megabytes of a list of a thousand: metadata will do. The watch is of whole objects.
		accept: apiserver.MetadataOnly,
		failed: func(context.Context, error) { x.listed.open() },
	}
	f.denied = func(err error) { x.denied(&f.resource, err) }
	f.replace = func(ctx context.Context, all []customResource, rv uint64) {
		events, first := x.replaceDefinitions(all, rv)
		x.listed.open()
		for _, ev := range events {
			handle(ctx, ev)
		}
		if !first {
			x.rediscover()
		}
	}
	f.apply = func(ctx context.Context, typ watch.EventType, c *customResource) {
		handle(ctx, x.applyDefinition(typ, c))
		x.rediscover()
	}
	return f
}

// replaceDefinitions takes a list at resourceVersion rv, and returns what has changed since the one before; first: there was none. The
// creation of a definition that is new was not seen.
func (x *Extensions) replaceDefinitions(all []customResource, rv uint64) (events []Event, first bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.movedLocked()
	uids := make(map[string]string, len(all))
	for i := range all {
		uids[all[i].Metadata.Name] = all[i].Metadata.UID
	}
	for name, was := range x.mu.definitions {
		if uids[name] != was.uid {
			x.deleteLocked(name)
			events = append(events, DefinitionDeleted{Name: name, ResourceVersion: rv})
		}
	}
	for i := range all {
		name, now := all[i].Metadata.Name, all[i].definition()
		now.established = true
		if was := x.mu.definitions[name]; was == nil {
			x.mu.definitions[name] = &now
			events = append(events, DefinitionUpdated{Name: name})
		} else if was.update(&now) {
			events = append(events, DefinitionUpdated{Name: name, SchemaChanged: true, StorageChanged: true})
		}
	}
	if first = x.mu.version == 0; first {
		events = nil
	}
	x.mu.version = rv
	return events, first
}

// applyDefinition takes an event of the watch.
func (x *Extensions) applyDefinition(typ watch.EventType, c *customResource) Event {
	name, rv := c.Metadata.Name, c.Metadata.ResourceVersion
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.movedLocked()
	x.mu.version = max(x.mu.version, rv)
	if typ == watch.Deleted {
		x.deleteLocked(name)
		return DefinitionDeleted{Name: name, ResourceVersion: rv}
	}
	now := c.definition()
	was := x.mu.definitions[name]
	ev := DefinitionUpdated{Name: name}
	if was == nil || was.uid != now.uid {
		if typ == watch.Added {
			now.added = rv
		}
		was = &now
		x.mu.definitions[name] = was
	} else {
		storage := was.storage
		ev.SchemaChanged = was.update(&now)
		ev.StorageChanged = ev.SchemaChanged && storage != now.storage // where that was not known, a watch is opened once too often
	}
	if !was.established && c.Status.Conditions.isTrue("Established") {
		was.established, was.created, was.createdSeen = true, cmp.Or(was.added, rv), time.Now()
	}
	if was.created != 0 {
		was.served = c.served()
	}
	return ev
}

func (x *Extensions) deleteLocked(name string) {
	delete(x.mu.definitions, name)
	now := time.Now()
	for of, at := range x.mu.deleted {
		if now.Sub(at) > deletedFor {
			delete(x.mu.deleted, of)
		}
	}
	x.mu.deleted[name] = now
}

// exists asks the API server for a definition.
func (x *Extensions) exists(ctx context.Context, name string) bool {
	f := x.definitionFollower(nil)
	found := false
	_, err := f.page(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}, func([]byte) error {
		found = true
		return nil
	})
	return err == nil && found
}

// UID is the uid of the definition of a resource, "": there is none, or none is known.
func (x *Extensions) UID(r *object.Resource) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d := x.mu.definitions[r.String()]; d != nil && !x.isAggregatedLocked(r) {
		return d.uid
	}
	return ""
}

// IsEstablished reports whether there is a definition of that name (plural.group), which is served.
func (x *Extensions) IsEstablished(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.mu.definitions[name]
	return d != nil && d.established
}

// CreatedAt is the resourceVersion at which the definition of a resource was created, and when that was seen; 0: it was not, or it
// is done with. Objects of the resource are later.
func (x *Extensions) CreatedAt(r *object.Resource) (rv uint64, seen time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d := x.mu.definitions[r.String()]; d != nil {
		return d.created, d.createdSeen
	}
	return 0, time.Time{}
}

// Created are the resources whose creation was seen and is not done with, less those of except, by name.
func (x *Extensions) Created(except map[schema.GroupResource]bool) (out []selection.APIResource) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range x.mu.definitions {
		if d.created != 0 && len(d.served.Versions) > 0 && !except[schema.GroupResource{Group: d.served.Group, Resource: d.served.Name}] {
			out = append(out, *d.served)
		}
	}
	slices.SortFunc(out, func(a, b selection.APIResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Started notes that the creation of resources is done with: a rule that is added later reads what exists.
func (x *Extensions) Started(all []selection.APIResource) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range all {
		if d := x.mu.definitions[all[i].Name+"."+all[i].Group]; d != nil {
			d.created, d.served = 0, nil
		}
	}
}
