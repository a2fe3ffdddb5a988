package discovery

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// definition has the stored fields of a CustomResourceDefinition.
type definition struct {
	uid         string
	generation  int64
	storage     string // the version in which objects are stored, "" if unknown
	deleting    bool
	established bool
	added       uint64 // resourceVersion of its creation, 0 if that was not seen
	// added, or else its establishment, once established and until NoteStarted is called; else 0
	created     uint64
	createdSeen time.Time              // when created was set
	served      *selection.APIResource // the resource that it serves, while created is not 0
}

// deletion has the uid of a deleted definition, and when its deletion was seen.
type deletion struct {
	uid  string
	seen time.Time
}

func (d *definition) isEstablished() bool { return d != nil && d.established }

func (i *item) definition() definition {
	d := definition{
		uid:        i.Metadata.UID,
		generation: i.Metadata.Generation,
		deleting:   i.Metadata.DeletionTimestamp != nil,
	}
	for _, v := range i.Spec.Versions {
		if v.Storage {
			d.storage = v.Name
		}
	}
	return d
}

// served returns the resource that o defines, with the served versions, preferred first. Discover
// returns the same soon after.
func (i *item) served() *selection.APIResource {
	out := &selection.APIResource{Group: i.Spec.Group, Name: i.Spec.Names.Plural}
	for _, v := range i.Spec.Versions {
		if v.Served {
			out.Versions = append(out.Versions, object.Resource{
				Group:      i.Spec.Group,
				Version:    v.Name,
				Name:       i.Spec.Names.Plural,
				Kind:       i.Spec.Names.Kind,
				Namespaced: i.Spec.Scope == "Namespaced",
			})
		}
	}
	slices.SortStableFunc(out.Versions, func(a, b object.Resource) int {
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	return out
}

// update replaces the stored fields of a definition, and returns the changes. The request to delete
// a definition also increases its generation by one, without a change of the spec. If a version of
// storage is unknown, a watch may be reopened needlessly.
func (d *definition) update(name string, now definition) DefinitionUpdated {
	same := d.generation
	if now.deleting && !d.deleting {
		same++
	}
	changed := now.generation > same
	stored := changed && (now.storage != d.storage || now.storage == "")
	d.generation = now.generation
	d.deleting = now.deleting
	d.storage = now.storage
	return DefinitionUpdated{Name: name, SchemaChanged: changed, StorageChanged: stored}
}

func definitions() object.Resource {
	return object.Resource{Group: "apiextensions.k8s.io", Version: "v1", Name: "customresourcedefinitions"}
}

func (e *Extensions) definitionFollower(handle Handler) *follower {
	f := &follower{
		client:   e.client,
		log:      e.log,
		advice:   unwatched,
		resource: definitions(),
		// With their schemas, a thousand definitions are many megabytes. So the list has metadata
		// only, which is enough. The watch has complete objects.
		accept: apiserver.MetadataOnly,
		failed: func(context.Context, error) { e.set(&e.mu.listed) },
		seen: func(at time.Time) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.mu.seen = at
		},
	}
	f.replace = func(ctx context.Context, all []item, rv uint64) {
		events, first := e.replaceDefinitions(all, rv)
		e.set(&e.mu.listed)
		for _, ev := range events {
			handle(ctx, ev)
		}
		if !first {
			broadcast.Wake(e.changed)
		}
	}
	f.apply = func(ctx context.Context, typ watch.EventType, o *item) {
		handle(ctx, e.applyDefinition(typ, o))
		broadcast.Wake(e.changed)
	}
	return f
}

// replaceDefinitions takes a list at resourceVersion rv, and returns the changes since the previous
// one. first: there was none, and no event is needed. The creation of a new definition was not
// seen.
func (e *Extensions) replaceDefinitions(all []item, rv uint64) (events []Event, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	uids := make(map[string]string, len(all))
	for i := range all {
		uids[all[i].Metadata.Name] = all[i].Metadata.UID
	}
	for name, was := range e.mu.definitions {
		if uids[name] != was.uid {
			e.deleteLocked(name, was.uid)
			events = append(events, DefinitionDeleted{Name: name, ResourceVersion: rv})
		}
	}
	for i := range all {
		name, now := all[i].Metadata.Name, all[i].definition()
		was, known := e.mu.definitions[name]
		if !known {
			was = &now
			e.mu.definitions[name] = was
		}
		was.established = true // a list does not show whether it is
		if ev := was.update(name, now); !known || ev.SchemaChanged {
			events = append(events, ev)
		}
	}
	first = e.mu.version == 0
	if first {
		events = nil
	}
	e.mu.version = rv
	return events, first
}

// applyDefinition applies an event of the watch.
func (e *Extensions) applyDefinition(typ watch.EventType, o *item) Event {
	name, rv := o.Metadata.Name, o.Metadata.ResourceVersion
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.version = max(e.mu.version, rv)
	if typ == watch.Deleted {
		e.deleteLocked(name, o.Metadata.UID)
		return DefinitionDeleted{Name: name, ResourceVersion: rv}
	}
	now := o.definition()
	was := e.mu.definitions[name]
	if was == nil || was.uid != now.uid {
		was = &now
		e.mu.definitions[name] = was
		if typ == watch.Added {
			was.added = rv
		}
	}
	ev := was.update(name, now)
	if !was.established && o.hasCondition("Established") {
		was.established = true
		was.created = cmp.Or(was.added, rv)
		was.createdSeen = time.Now()
	}
	if was.created != 0 {
		was.served = o.served()
	}
	return ev
}

func (e *Extensions) deleteLocked(name, uid string) {
	delete(e.mu.definitions, name)
	maps.DeleteFunc(e.mu.deleted, func(_ string, d deletion) bool { return time.Since(d.seen) > deletedFor })
	e.mu.deleted[name] = deletion{uid: uid, seen: time.Now()}
}

// findDefinition asks the API server whether a definition exists.
func (e *Extensions) findDefinition(ctx context.Context, name string) bool {
	r := definitions()
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	found := false
	_, err := e.client.List(ctx, &r, "", apiserver.MetadataOnly, only, func([]byte) error {
		found = true
		return nil
	})
	return err == nil && found
}

// UID returns the uid of the definition of a resource, or of its last one if that was deleted
// within the last 10 minutes. It returns "" if none is known.
func (e *Extensions) UID(r *object.Resource) string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	switch d := e.mu.definitions[r.String()]; {
	case e.isAggregatedLocked(r):
		return ""
	case d != nil:
		return d.uid
	}
	return e.mu.deleted[r.String()].uid
}

// IsEstablished reports whether a definition of that name (plural.group) exists and is established.
func (e *Extensions) IsEstablished(name string) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.mu.definitions[name].isEstablished()
}

// CreatedAt returns the resourceVersion of the creation of a resource's definition, and when that
// was seen. All objects of the resource are newer. rv is 0 if the creation was not seen, or after
// NoteStarted.
func (e *Extensions) CreatedAt(r *object.Resource) (rv uint64, seen time.Time) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if d := e.mu.definitions[r.String()]; d != nil {
		return d.created, d.createdSeen
	}
	return 0, time.Time{}
}

// Created returns the resources whose CreatedAt is not 0, without those of except, sorted by group
// and name.
func (e *Extensions) Created(except map[schema.GroupResource]bool) (out []selection.APIResource) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, d := range e.mu.definitions {
		if d.created != 0 && len(d.served.Versions) > 0 &&
			!except[schema.GroupResource{Group: d.served.Group, Resource: d.served.Name}] {
			out = append(out, *d.served)
		}
	}
	slices.SortFunc(out, func(a, b selection.APIResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// NoteStarted makes CreatedAt 0 for resources that are now captured from their creation. A rule
// that is added later lists existing objects.
func (e *Extensions) NoteStarted(all []selection.APIResource) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range all {
		if d := e.mu.definitions[all[i].Name+"."+all[i].Group]; d != nil {
			d.created, d.served = 0, nil
		}
	}
}
