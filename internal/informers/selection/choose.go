package selection

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Choice is a resource that is captured.
type Choice struct {
	Resource object.Resource
	Rules    []*Rule // that can take its objects, in order: elements of Spec.Rules
	Part     Part    // captured part
}

// Choose applies the rules to the served resources. It chooses a resource if a rule can take its
// objects and this agent has a part of it. The first such rule may ask for another version than the
// preferred one. unserved are the patterns without a wildcard that match nothing.
//
// No object is chosen under two names. If two groups serve a resource, Choose takes the first name
// that a rule matches; a rule that matches the other name means the same objects. unknown are the
// group versions that discovery could not read. While they include a group that serves objects
// under two names, no alias is chosen: the canonical name may be served too. observed are the names
// under which resources are already observed.
func (s *Selection) Choose(
	served []APIResource, unknown []string, observed map[schema.GroupResource]bool,
) (out []Choice, unserved []string) {
	complete := AliasesKnown(unknown)
	index := map[schema.GroupResource]int{} // index in out, by canonical name
	for i := range s.Rules {
		rule := &s.Rules[i]
		for n := range served {
			r, gr := rule.version(&served[n]), schema.GroupResource{Group: served[n].Group, Resource: served[n].Name}
			if r == nil {
				continue
			}
			at, chosen := index[Canonical(gr)]
			switch other := otherName(gr); {
			case chosen:
				out[at].add(rule, gr)
			case !observed[gr] && (gr != Canonical(gr) && !complete || observed[other]):
			default:
				index[Canonical(gr)] = len(out)
				out = append(out, Choice{Resource: *r, Rules: []*Rule{rule}, Part: s.PartOf(r)})
			}
		}
		for _, p := range rule.Resources {
			matches := func(r object.Resource) bool { return p.Match(r.Group, r.Version, r.Name) }
			anyServed := slices.ContainsFunc(served, func(a APIResource) bool {
				return slices.ContainsFunc(a.Versions, matches)
			})
			if !anyServed && !strings.Contains(p.String(), "*") {
				unserved = append(unserved, p.String())
			}
		}
	}
	return slices.DeleteFunc(out, func(c Choice) bool { return c.Part.None }), unserved
}

// version returns the first version of a resource that the rule names, nil if the rule can take
// none of its objects.
func (r *Rule) version(a *APIResource) *object.Resource {
	v := slices.IndexFunc(a.Versions, func(res object.Resource) bool { return r.takes(&res) })
	if v < 0 || !a.Versions[v].Namespaced && !r.AllNamespaces {
		return nil
	}
	return &a.Versions[v]
}

// add adds a rule that matches the resource as gr, unless it was chosen under its other name and
// the rule excepts that.
func (c *Choice) add(rule *Rule, gr schema.GroupResource) {
	is := c.Resource.Group == gr.Group && c.Resource.Name == gr.Resource
	if !slices.Contains(c.Rules, rule) && (is || !matchesAny(rule.Except, &c.Resource)) {
		c.Rules = append(c.Rules, rule)
	}
}

// Takes reports whether any rule takes objects in a namespace.
func (c *Choice) Takes(namespace string) bool {
	return slices.ContainsFunc(c.Rules, func(r *Rule) bool { return r.Namespaces(namespace) })
}

// SpansNamespaces reports whether one scope covers several namespaces, without a part: some rule
// does not list its namespaces.
func (c *Choice) SpansNamespaces() bool {
	return c.Resource.Namespaced && c.Part == (Part{}) &&
		slices.ContainsFunc(c.Rules, func(r *Rule) bool { return len(r.Names) == 0 })
}

// Spec says what is captured, and how objects are changed before they are stored.
type Spec struct {
	Rules   []Rule                            // tried in order, for each object
	Strip   []string                          // removed paths, see object.NewCutter
	Secrets bool                              // the values of Secrets are redacted
	MAC     *object.MAC                       // replaces redacted values; nil removes them
	Part    func(group, resource string) Part // the agent's part of a resource, within the rules; nil: all of it
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
	// Names lists the namespaces if the configuration names each of them: then each has a scope of
	// its own, which works if RBAC permits these namespaces only.
	Names         []string
	Namespaces    func(namespace string) bool // reports whether a namespace is taken
	Patterns      []string                    // as configured, for the scope's name; empty: all
	AllNamespaces bool                        // the rule takes cluster-scoped resources too
	LabelSelector string
	FieldSelector string
	// paths whose values are redacted while an object is read, see object.Cutter.Redact
	Redact []string
	// returns a resource's filter. If it is nil or returns nil, nothing is withheld
	Filter func(r *object.Resource) Filter
	// the condition by which Filter withholds whole objects and reads; "": none
	Where   string
	Filters FilterText // what Filter does, for consumers

	uses *object.Uses // of Redact; set by Compile
}

// Filter withholds deltas on purpose. It is safe for concurrent use.
type Filter interface {
	Withholds(d *object.Delta) (reason string) // why d is not sent, "" to send it
}

// Part limits the capture of a resource to the agent's part of the cluster. The zero value sets no
// limit.
type Part struct {
	None          bool   // nothing is captured
	FieldSelector string // in addition to the rule's own
	Namespace     string // the only one, "" for all that the rules take
}

// takes reports whether the rule names a resource. The rule may still take none of its objects.
func (r *Rule) takes(res *object.Resource) bool {
	return matchesAny(r.Resources, res) && !matchesAny(r.Except, res)
}

func matchesAny(patterns []Pattern, res *object.Resource) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Match(res.Group, res.Version, res.Name) })
}

// APIResource is a resource that can be listed and watched, with the versions that serve it, the
// preferred one first.
type APIResource struct {
	Group, Name string
	Versions    []object.Resource
}

// Unwatchable is a resource that is served without one of the verbs list and watch, and so cannot
// be captured.
type Unwatchable struct {
	object.Resource
	Verbs []string
}

// Uncapturable is a pattern that names only resources that cannot be watched.
type Uncapturable struct{ Pattern, Why string }

// Uncapturable divides the unserved patterns of Choose: rest names resources that are not served at
// all.
func (s *Selection) Uncapturable(unserved []string, unwatchable []Unwatchable) (rest []string, found []Uncapturable) {
	for _, text := range unserved {
		i := slices.IndexFunc(unwatchable, func(u Unwatchable) bool { return s.names(text, &u.Resource) })
		if i < 0 {
			rest = append(rest, text)
			continue
		}
		found = append(found, Uncapturable{text, unwatchable[i].why()})
	}
	return rest, found
}

// names reports whether the pattern with a text names a resource.
func (s *Selection) names(text string, r *object.Resource) bool {
	return slices.ContainsFunc(s.Rules, func(rule Rule) bool {
		return slices.ContainsFunc(rule.Resources, func(p Pattern) bool {
			return p.String() == text && p.Match(r.Group, r.Version, r.Name)
		})
	})
}

// why describes what the resource lacks.
func (u *Unwatchable) why() string {
	lacks := slices.DeleteFunc([]string{"list", "watch"}, func(verb string) bool {
		return slices.Contains(u.Verbs, verb)
	})
	return fmt.Sprintf("it is served without %s (its verbs: %s)", strings.Join(lacks, " and "),
		strings.Join(u.Verbs, ", "))
}

// Index finds served resources by their names.
type Index map[schema.GroupResource]*APIResource

// NewIndex returns the index of all, which must not be changed afterwards.
func NewIndex(all []APIResource) Index {
	x := make(Index, len(all))
	for n := range all {
		name := schema.GroupResource{Group: all[n].Group, Resource: all[n].Name}
		if x[name] == nil {
			x[name] = &all[n]
		}
	}
	return x
}

// Has reports whether a resource is served, in any version.
func (i Index) Has(r *object.Resource) bool {
	return i[schema.GroupResource{Group: r.Group, Resource: r.Name}] != nil
}

// Current returns r if its version and kind are served, otherwise the preferred version. It returns
// false if r is not served.
func (i Index) Current(r *object.Resource) (*object.Resource, bool) {
	a := i[schema.GroupResource{Group: r.Group, Resource: r.Name}]
	switch {
	case a == nil:
		return nil, false
	case slices.Contains(a.Versions, *r):
		return r, true
	}
	return &a.Versions[0], true
}

// aliases maps resources to the canonical name of the same objects, if the API server serves them
// under two groups.
func aliases() map[schema.GroupResource]schema.GroupResource {
	return map[schema.GroupResource]schema.GroupResource{
		{Group: "events.k8s.io", Resource: "events"}: {Resource: "events"},
		{Group: "extensions", Resource: "ingresses"}: {Group: "networking.k8s.io", Resource: "ingresses"},
	}
}

// Canonical returns the name of the objects of a resource, which is the same for both of their
// names if they have two.
func Canonical(gr schema.GroupResource) schema.GroupResource {
	return cmp.Or(aliases()[gr], gr)
}

// otherName returns the other name under which the objects of a resource can be served, gr if there
// is none.
func otherName(gr schema.GroupResource) schema.GroupResource {
	for alias, canonical := range aliases() {
		if gr == canonical {
			return alias
		}
	}
	return Canonical(gr)
}

// GroupKnown reports whether discovery could read all resources of a group. unknown are the group
// versions that it could not read. An aggregated API may be unavailable for weeks. Other groups do
// not wait for it.
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
