package selection

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/object"
)

// APIResource is a resource that can be listed and watched, with the versions that serve it, the preferred one first.
type APIResource struct {
	Group, Name string
	Versions    []object.Resource
}

// groupResource names the resource in all of its versions.
func (a *APIResource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: a.Group, Resource: a.Name}
}

// Current returns r if its version and kind are served, otherwise the preferred version of the resource. It
// returns false if r is not served at all.
func Current(served []APIResource, r *object.Resource) (*object.Resource, bool) {
	for n := range served {
		if a := &served[n]; a.Group == r.Group && a.Name == r.Name {
			if slices.Contains(a.Versions, *r) {
				return r, true
			}
			return &a.Versions[0], true
		}
	}
	return nil, false
}

// aliases maps resources to the canonical name of the same objects, if the API server serves them under two groups.
func aliases() map[schema.GroupResource]schema.GroupResource {
	return map[schema.GroupResource]schema.GroupResource{
		{Group: "events.k8s.io", Resource: "events"}: {Resource: "events"},
		{Group: "extensions", Resource: "ingresses"}: {Group: "networking.k8s.io", Resource: "ingresses"},
	}
}

// Canonical returns the name of the objects of a resource, which is the same for both of their names if they have two.
func Canonical(gr schema.GroupResource) schema.GroupResource {
	if canonical, ok := aliases()[gr]; ok {
		return canonical
	}
	return gr
}

// names returns all names under which the objects of a resource can be served.
func names(gr schema.GroupResource) []schema.GroupResource {
	for alias, canonical := range aliases() {
		if gr == alias || gr == canonical {
			return []schema.GroupResource{alias, canonical}
		}
	}
	return []schema.GroupResource{gr}
}

// GroupKnown reports whether discovery could read all resources of a group. unknown are the group versions that it could not
// read. An aggregated API may be unavailable for weeks. Other groups do not wait for it.
func GroupKnown(unknown []string, group string) bool {
	return !slices.ContainsFunc(unknown, func(gv string) bool {
		parsed, err := schema.ParseGroupVersion(gv)
		return err != nil || parsed.Group == group
	})
}

// AliasesKnown reports whether discovery could read all groups that serve objects under two names.
func AliasesKnown(unknown []string) bool {
	for alias, canonical := range aliases() {
		if !GroupKnown(unknown, alias.Group) || !GroupKnown(unknown, canonical.Group) {
			return false
		}
	}
	return true
}
