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
