package selection

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Choice is a resource, the rules that can take objects of it, in order, and the part of it that is captured. The rules are
// elements of Spec.Rules.
type Choice struct {
	Resource object.Resource
	Rules    []*Rule
	Part     Part
}

// Choose applies the rules to what is served. A resource is chosen if a rule can take objects of it, in its preferred version
// unless the first of these rules asks for another, and if it has a part for this agent. unserved are the patterns without a wildcard that match nothing.
//
// No object is chosen under two names. Of a resource that two groups serve, Choose takes the first name that a rule matches; a
// rule that matches the other name means the same objects. unknown are the group versions that discovery could not read. As long
// as a group that serves objects under two names is among them, an alias is not chosen: the canonical name may be served too.
// observed are the names under which resources are observed already.
func (s *Selection) Choose(served []APIResource, unknown []string, observed map[schema.GroupResource]bool) (out []Choice, unserved []string) {
	complete := AliasesKnown(unknown)
	index := map[schema.GroupResource]int{} // in out, by all names
	for i := range s.Rules {
		rule := &s.Rules[i]
		for n := range served {
			r, gr := rule.version(&served[n]), served[n].groupResource()
			if r == nil {
				continue
			}
			if at, ok := index[gr]; ok {
				out[at].add(rule, gr)
				continue
			}
			if !observed[gr] && (gr != Canonical(gr) && !complete || anyObserved(observed, gr)) {
				continue
			}
			for _, name := range names(gr) {
				index[name] = len(out)
			}
			out = append(out, Choice{Resource: *r, Rules: []*Rule{rule}, Part: s.PartOf(r)})
		}
		for _, p := range rule.Resources {
			if !strings.Contains(p.String(), "*") && !anyServed(p, served) {
				unserved = append(unserved, p.String())
			}
		}
	}
	return slices.DeleteFunc(out, func(c Choice) bool { return c.Part.None }), unserved
}

// version returns the first version of a resource that the rule names, nil if it can take no objects of it.
func (r *Rule) version(a *APIResource) *object.Resource {
	v := slices.IndexFunc(a.Versions, func(res object.Resource) bool { return r.takes(&res) })
	if v < 0 || !a.Versions[v].Namespaced && !r.AllNamespaces {
		return nil
	}
	return &a.Versions[v]
}

// add adds a rule that matches the resource as gr. If the resource was chosen under its other name, the rule takes it unless it
// excepts that name.
func (c *Choice) add(rule *Rule, gr schema.GroupResource) {
	is := c.Resource.Group == gr.Group && c.Resource.Name == gr.Resource
	if !slices.Contains(c.Rules, rule) && (is || !rule.excepts(&c.Resource)) {
		c.Rules = append(c.Rules, rule)
	}
}

// anyObserved reports whether the objects of a resource are observed under any name.
func anyObserved(observed map[schema.GroupResource]bool, gr schema.GroupResource) bool {
	return slices.ContainsFunc(names(gr), func(n schema.GroupResource) bool { return observed[n] })
}

func anyServed(p Pattern, served []APIResource) bool {
	return slices.ContainsFunc(served, func(a APIResource) bool {
		return slices.ContainsFunc(a.Versions, func(r object.Resource) bool { return p.Match(r.Group, r.Version, r.Name) })
	})
}

// Takes reports whether any rule takes objects in a namespace.
func (c *Choice) Takes(namespace string) bool {
	return slices.ContainsFunc(c.Rules, func(r *Rule) bool { return r.Namespaces(namespace) })
}

// SpansNamespaces reports whether one scope covers several namespaces, without a part: not every rule names its own one by one.
func (c *Choice) SpansNamespaces() bool {
	return c.Resource.Namespaced && c.Part == (Part{}) && slices.ContainsFunc(c.Rules, func(r *Rule) bool { return len(r.Names) == 0 })
}

// Spec says what is captured, and what is done to objects before anything holds them.
type Spec struct {
	Rules []Rule   // tried in order, for each object
	Strip []string // paths that are removed, see object.NewCutter
	// Secrets says that the values of Secrets are redacted.
	Secrets bool
	MAC     *object.MAC // replaces redacted values; nil: they are removed
	// Part returns the part of a resource that the agent captures, within what the rules take. nil: all of it.
	Part func(group, resource string) Part
}

// Pattern names resources as kubectl does.
type Pattern interface {
	Match(group, version, resource string) bool
	String() string
}

// Rule takes objects of the resources that match one of Resources and none of Except.
type Rule struct {
	Resources []Pattern
	Except    []Pattern
	// Namespaces reports whether a namespace is taken. Names lists the namespaces if the configuration names each of them:
	// then each has a scope of its own, which works if RBAC permits these namespaces only. AllNamespaces: the rule takes
	// cluster-scoped resources too.
	Namespaces    func(namespace string) bool
	Names         []string
	Patterns      []string // as configured, for the scope's name; empty: all
	AllNamespaces bool
	LabelSelector string
	FieldSelector string
	// Redact are paths whose values are redacted while an object is read, see object.Cutter.Redact.
	Redact []string
	// Filter returns what withholds deltas of a resource, nil: nothing does. A nil Filter withholds nothing.
	Filter func(r *object.Resource) Filter
	// Where names the condition that Filter withholds whole objects by, in reads too; "": there is none.
	Where string
}

// Filter withholds deltas on purpose. It is safe for concurrent use.
type Filter interface {
	// Withholds returns why a delta is not sent, "": it is sent.
	Withholds(d *object.Delta) (reason string)
}

// Part limits what an agent captures of a resource to its part of the cluster. The zero value sets no limit.
type Part struct {
	None          bool   // nothing of the resource
	FieldSelector string // in addition to the rule's own
	Namespace     string // the only one, "": all that the rules take
}

// takes reports whether the rule names a resource. It may still take no object of it.
func (r *Rule) takes(res *object.Resource) bool {
	return matchesAny(r.Resources, res) && !r.excepts(res)
}

func (r *Rule) excepts(res *object.Resource) bool { return matchesAny(r.Except, res) }

func matchesAny(patterns []Pattern, res *object.Resource) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Match(res.Group, res.Version, res.Name) })
}

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
