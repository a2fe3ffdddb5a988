package informers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Pattern names resources as kubectl does.
type Pattern interface {
	Match(group, version, resource string) bool
	String() string
}

// Rule takes the resources that match one of Resources and none of Except.
type Rule struct {
	Resources []Pattern
	Except    []Pattern
	// Namespaces tells which namespaces are taken. Names lists them where they are known literally: then each has an
	// informer of its own, which also works where RBAC allows no more. AllNamespaces: the rule takes cluster-scoped
	// resources too.
	Namespaces    func(namespace string) bool
	Names         []string
	Patterns      []string // as configured, for the scope's name; empty: all
	AllNamespaces bool
	LabelSelector string
	FieldSelector string
	// Redact are paths whose values go no further than the buffer that they are read into, see object.Cutter.Redact.
	Redact []string
	// Filter tells what is withheld of a resource. nil, or where it returns nil: nothing.
	Filter func(r *object.Resource) Filter
	// Where names what of Filter withholds objects as a whole, reads included; "": it tells of each object that there is.
	Where string
}

func (r *Rule) match(group, version, resource string) bool {
	hit := func(p Pattern) bool { return p.Match(group, version, resource) }
	return slices.ContainsFunc(r.Resources, hit) && !slices.ContainsFunc(r.Except, hit)
}

// aliases are resources that the API server serves under two groups, with the same objects behind both.
func aliases() map[schema.GroupResource]schema.GroupResource {
	return map[schema.GroupResource]schema.GroupResource{
		{Group: "events.k8s.io", Resource: "events"}: {Resource: "events"},
		{Group: "extensions", Resource: "ingresses"}: {Group: "networking.k8s.io", Resource: "ingresses"},
	}
}

// told tells if discovery has told of a group; unknown are the group versions of which it has not. An aggregated API that is away,
// for weeks perhaps, is no reason to wait with all others.
func told(unknown []string, group string) bool {
	return !slices.ContainsFunc(unknown, func(gv string) bool {
		parsed, err := schema.ParseGroupVersion(gv)
		return err != nil || parsed.Group == group
	})
}

// aliasesTold tells if discovery has told of all groups that serve objects under two names.
func aliasesTold(unknown []string) bool {
	for alias, canonical := range aliases() {
		if !told(unknown, alias.Group) || !told(unknown, canonical.Group) {
			return false
		}
	}
	return true
}

// served is a resource that can be listed and watched, with the versions that serve it, the preferred one first.
type served struct {
	group, name string
	versions    []object.Resource
}

// chosen is a resource and the rules that can take its objects, in order.
type chosen struct {
	resource object.Resource
	rules    []*Rule
}

// discover asks what the API server serves. failed names group versions that could not be told: unknown, not gone.
func discover(ctx context.Context, d *discovery.DiscoveryClient) (out []served, failed []string, err error) {
	groups, lists, err := d.ServerGroupsAndResourcesWithContext(ctx)
	var partial *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &partial) {
		for gv := range partial.Groups {
			failed = append(failed, gv.String())
		}
		slices.Sort(failed)
	} else if err != nil {
		return nil, nil, fmt.Errorf("discover resources: %w", err)
	}
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	index := map[schema.GroupResource]int{}
	for _, g := range groups {
		versions := []string{g.PreferredVersion.GroupVersion}
		for _, v := range g.Versions {
			if v.GroupVersion != g.PreferredVersion.GroupVersion {
				versions = append(versions, v.GroupVersion)
			}
		}
		for _, gv := range versions {
			l := byVersion[gv]
			if l == nil {
				continue
			}
			parsed, err := schema.ParseGroupVersion(gv)
			if err != nil {
				return nil, nil, fmt.Errorf("discover resources: group version %q: %w", gv, err)
			}
			for _, r := range l.APIResources {
				if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
					continue
				}
				gr := schema.GroupResource{Group: parsed.Group, Resource: r.Name}
				at, ok := index[gr]
				if !ok {
					at = len(out)
					index[gr] = at
					out = append(out, served{group: parsed.Group, name: r.Name})
				}
				out[at].versions = append(out[at].versions, object.Resource{
					Group: parsed.Group, Version: parsed.Version, Name: r.Name, Kind: r.Kind, Namespaced: r.Namespaced,
				})
			}
		}
	}
	return out, failed, nil
}

// choose lets the rules take what is served: a resource is observed if a rule can take objects of it, in its preferred version
// unless the first of these rules asks for another. unserved are the patterns without a wildcard that match nothing.
//
// No object is taken under two names: of a resource that two groups serve, the first name that a rule matches is chosen, and a
// rule that matches the other one means the same objects. While discovery has not told of all groups that serve objects under two
// names (complete), a name that is only an alias is not chosen: the group that it is an alias of may be what could not be told.
// taken are the names under which resources are observed already.
func choose(rules []Rule, all []served, complete bool, taken map[schema.GroupResource]bool) (out []chosen, unserved []string) {
	index := map[schema.GroupResource]int{} // in out, by all names
	for i := range rules {
		rule := &rules[i]
		for _, s := range all {
			gr := schema.GroupResource{Group: s.group, Resource: s.name}
			v := slices.IndexFunc(s.versions, func(r object.Resource) bool { return rule.match(r.Group, r.Version, r.Name) })
			if v < 0 || !s.versions[v].Namespaced && !rule.AllNamespaces {
				continue
			}
			if at, ok := index[gr]; ok {
				c := &out[at]
				// Under another name, a rule takes the objects unless it leaves them out under this one.
				if !slices.Contains(c.rules, rule) && (c.is(gr) || !rule.excepts(&c.resource)) {
					c.rules = append(c.rules, rule)
				}
				continue
			}
			if _, alias := aliases()[gr]; alias && !complete && !taken[gr] || !taken[gr] && anyTaken(taken, gr) {
				continue
			}
			for _, name := range names(gr) {
				index[name] = len(out)
			}
			out = append(out, chosen{resource: s.versions[v], rules: []*Rule{rule}})
		}
		for _, p := range rule.Resources {
			if !strings.Contains(p.String(), "*") && !anyServed(p, all) {
				unserved = append(unserved, p.String())
			}
		}
	}
	return out, unserved
}

// is tells if the resource was chosen under that name.
func (c *chosen) is(gr schema.GroupResource) bool {
	return c.resource.Group == gr.Group && c.resource.Name == gr.Resource
}

func (r *Rule) excepts(o *object.Resource) bool {
	return slices.ContainsFunc(r.Except, func(p Pattern) bool { return p.Match(o.Group, o.Version, o.Name) })
}

// names are the names under which the objects of a resource are served.
func names(gr schema.GroupResource) []schema.GroupResource {
	out := []schema.GroupResource{gr}
	for alias, canonical := range aliases() {
		if gr == alias || gr == canonical {
			return []schema.GroupResource{alias, canonical}
		}
	}
	return out
}

// anyTaken tells if the objects of a resource are observed under any name.
func anyTaken(taken map[schema.GroupResource]bool, gr schema.GroupResource) bool {
	return slices.ContainsFunc(names(gr), func(n schema.GroupResource) bool { return taken[n] })
}

// serves tells if r is served as it is named: in that version, as that kind.
func serves(all []served, r *object.Resource) bool {
	return slices.ContainsFunc(all, func(s served) bool { return slices.Contains(s.versions, *r) })
}

// servesOther tells if r is served, but not as it is named.
func servesOther(all []served, r *object.Resource) bool {
	return !serves(all, r) && slices.ContainsFunc(all, func(s served) bool { return s.group == r.Group && s.name == r.Name })
}

func anyServed(p Pattern, all []served) bool {
	return slices.ContainsFunc(all, func(s served) bool {
		return slices.ContainsFunc(s.versions, func(r object.Resource) bool { return p.Match(r.Group, r.Version, r.Name) })
	})
}
