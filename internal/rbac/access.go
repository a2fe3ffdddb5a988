package rbac

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubecdc/kubecdc/internal/config"
)

// access is the permission to LIST and WATCH a resource.
type access struct {
	namespace string // "" for all, and for cluster-scoped objects
	group     string // "*" for every group
	resource  string // "*" for every resource
	name      string // "" for every object
	notes     []string
}

func (a *access) covers(b *access) bool {
	return (a.namespace == "" || a.namespace == b.namespace) &&
		(a.group == "*" || a.group == b.group) &&
		(a.resource == "*" || a.resource == b.resource) &&
		(a.name == "" || a.name == b.name)
}

// compare orders by namespace, group and name before resource: New merges adjacent accesses that
// differ only in the resource.
func compare(a, b *access) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.group, b.group), cmp.Compare(a.name, b.name),
		cmp.Compare(a.resource, b.resource))
}

// needs collects the accesses that a configuration needs.
type needs struct {
	config *config.Config
	access []*access
	notes  []string // that belong to no single rule of RBAC
}

// class is the set of resources that a pattern selects: one, all of a group, those of one name in
// every group, or all.
type class struct {
	group    string // "*" for every group
	resource string // "*" for every resource
}

// intersect returns the intersection of both, and false if it is empty.
func (c class) intersect(d class) (class, bool) {
	both := func(a, b string) (string, bool) {
		switch {
		case a == "*":
			return b, true
		case b == "*", a == b:
			return a, true
		}
		return "", false
	}
	g, ok := both(c.group, d.group)
	r, too := both(c.resource, d.resource)
	return class{g, r}, ok && too
}

// isWithin reports whether d contains all of c.
func (c class) isWithin(d class) bool {
	m, ok := c.intersect(d)
	return ok && m == c
}

// clusterScoped reports whether the resource is known to have objects without a namespace.
func clusterScoped(c class) bool {
	r, err := config.FindResource(c.resource)
	return err == nil && r.ClusterScoped && r.Name == c.resource && r.Group == c.group
}

// classes returns the classes of pattern p of rule j, without those that the rule excludes and
// without the second name of events.
func (n *needs) classes(j int, p config.ResourcePattern) []class {
	groups := p.Groups()
	if groups == nil {
		groups = []string{"*"}
	}
	var out []class
	for _, g := range groups {
		if p.Resource == "events" && isEventGroup(g) {
			taken, ok := n.eventGroup()
			if !ok || len(groups) == 1 && !n.config.Watch[j].Takes(g, "v1", "events") {
				continue
			}
			g = taken
		}
		c := class{g, p.Resource}
		if (c.resource == "*" || !excepts(&n.config.Watch[j], c)) && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// ofPatterns adds the accesses that the rules need for their wanted patterns. It derives them from
// the patterns alone.
func (n *needs) ofPatterns(wanted func(config.ResourcePattern) bool) {
	var all []class
	notes := map[class][]string{}
	for j := range n.config.Watch {
		for _, p := range n.config.Watch[j].Resources {
			if !wanted(p) {
				continue
			}
			for _, c := range n.classes(j, p) {
				all = append(all, c)
				notes[c] = union(notes[c], n.beyondPattern(j, p))
			}
		}
	}
	// One informer reads the resources that two patterns share, for both of their rules. That may
	// need more than each pattern does.
	for _, a := range slices.Clone(all) {
		for _, b := range slices.Clone(all) {
			if c, ok := a.intersect(b); ok {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b class) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource))
	})
	for _, c := range slices.Compact(all) {
		n.add(n.takers(c), access{group: c.group, resource: c.resource, notes: notes[c]}, !clusterScoped(c))
	}
}

// takers returns the rules that can take resources of a class, judging by their patterns.
func (n *needs) takers(c class) []int {
	var out []int
	for j := range n.config.Watch {
		rule := &n.config.Watch[j]
		if clusterScoped(c) && !rule.Namespaces.Match("") {
			continue
		}
		if slices.ContainsFunc(rule.Resources, func(p config.ResourcePattern) bool {
			return slices.ContainsFunc(n.classes(j, p), c.isWithin)
		}) && !excepts(rule, c) {
			out = append(out, j)
		}
	}
	return out
}

// beyondPattern returns notes on the access that pattern p of rule j grants beyond the agent's
// reads.
func (n *needs) beyondPattern(j int, p config.ResourcePattern) []string {
	rule := &n.config.Watch[j]
	var notes []string
	switch {
	case p.Resource == "*" && p.Groups() == nil:
		notes = append(notes,
			fmt.Sprintf(
				"watch[%d] takes every resource, also those that are defined later; kubecdc rbac --discover lists "+
					"the resources that a cluster serves now instead.", j))
	case p.Resource == "*":
		notes = append(notes,
			fmt.Sprintf("watch[%d] takes every resource of the group, also those that are defined later.", j))
	case p.Groups() == nil:
		notes = append(notes,
			fmt.Sprintf("watch[%d] gives no group for %s, which Kubernetes itself does not serve: it is taken from "+
				"every group. %[2]s.<group> would narrow this.", j, p.Resource))
	}
	if except := exceptions(rule, p); len(except) > 0 {
		notes = append(notes,
			fmt.Sprintf("RBAC has no exclusions: this role allows the resources that watch[%d] excepts (%s), and "+
				"kubecdc leaves them out.", j, join(except)))
	}
	return notes
}

// eventGroup returns the group in which the agent reads events: that of the first rule that takes
// them. Both groups serve the same objects.
func (n *needs) eventGroup() (group string, takes bool) {
	for j := range n.config.Watch {
		if g, ok := eventGroup(&n.config.Watch[j]); ok {
			return g, true
		}
	}
	return "", false
}

// eventGroup returns the group in which the agent reads the rule's events: the first of the two
// that the rule takes.
func eventGroup(r *config.Rule) (group string, takes bool) {
	for _, g := range []string{"", "events.k8s.io"} {
		if r.Takes(g, "v1", "events") {
			return g, true
		}
	}
	return "", false
}

func isEventGroup(g string) bool { return g == "" || g == "events.k8s.io" }

// add adds a for those rules that can take it. If all of them name their namespaces literally, a is
// added once for each namespace, else once for all. namespaced is false if the objects have no
// namespace.
func (n *needs) add(rules []int, a access, namespaced bool) {
	rules = n.reachable(rules, namespaced)
	if len(rules) == 0 {
		return
	}
	if (a.group == "" || a.group == "*") && (a.resource == "secrets" || a.resource == "*") {
		note := "Who may list Secrets may read their values; kubecdc drops these as it reads."
		if !n.config.Redaction.Secrets {
			note = "Who may list Secrets may read their values, and kubecdc sends them: redaction.secrets is false."
		}
		a.notes = append(a.notes, note)
	}
	within, literal := map[string][]int{}, true
	for _, j := range rules {
		names, ok := n.config.Watch[j].Namespaces.Literal()
		literal = literal && ok
		for _, ns := range names {
			within[ns] = append(within[ns], j)
		}
	}
	part := n.config.Part(a.group, a.resource, "NODE_NAME")
	switch {
	case part.None:
		return // another agent takes it
	case n.config.Mode == config.ModeNode:
		if part.Namespace != "" {
			within, literal = map[string][]int{part.Namespace: rules}, true
		}
		// All resources get the same text, so that union drops it if resources share a rule.
		a.notes = append(a.notes,
			"RBAC knows no field selectors: the agent of each node reads what belongs to that node, and may read "+
				"the rest.")
	case part.FieldSelector != "":
		a.notes = append(a.notes,
			fmt.Sprintf("RBAC knows no field selectors: the central agent reads what no node has (%s), and may read "+
				"the rest.", part.FieldSelector))
	}
	if !literal {
		within = map[string][]int{"": rules}
	}
	for _, ns := range slices.Sorted(maps.Keys(within)) {
		in := a
		of := within[ns]
		if ns != "" {
			of = n.reachable(of, false) // within ns, namespaces do not limit the rules
		}
		in.namespace = ns
		in.name = n.onlyName(of)
		in.notes = slices.Clone(a.notes)
		for _, j := range of {
			rule := &n.config.Watch[j]
			in.notes = append(in.notes, beyondSelectors(j, rule, in.name)...)
			_, plainly := rule.Namespaces.Literal()
			switch {
			case ns != "" || !namespaced || rule.Namespaces.All():
			case plainly:
				in.notes = append(in.notes,
					fmt.Sprintf(
						"watch[%d] names its namespaces (%s), but another rule takes the same resources in others: they "+
							"are read for both at a time.", j, join(rule.Namespaces)))
			default:
				in.notes = append(in.notes,
					fmt.Sprintf("RBAC has no globs: the namespaces of watch[%d] (%s) are chosen by kubecdc, and "+
						"all are allowed. Plain names would give a Role for each.", j, join(rule.Namespaces)))
			}
		}
		n.access = append(n.access, &in)
	}
}

// reachable returns those of the rules that can take an object, if all of them name its resource. A
// rule after one without limits takes nothing; of several with the same limits, only the first
// takes anything.
func (n *needs) reachable(rules []int, namespaced bool) []int {
	var out []int
	seen := map[[3]string]bool{}
	for _, j := range rules {
		rule := &n.config.Watch[j]
		limits := [3]string{join(rule.Namespaces), rule.LabelSelector, rule.FieldSelector}
		if !namespaced || rule.Namespaces.All() {
			limits[0] = ""
		}
		if seen[limits] {
			continue
		}
		seen[limits] = true
		out = append(out, j)
		if limits == [3]string{} {
			break
		}
	}
	return out
}

// onlyName returns the one name that the agent requests if one informer reads for all of the rules;
// "" if it requests more. The API server applies the field selector that all rules share; the agent
// applies the rest.
func (n *needs) onlyName(rules []int) string {
	first := &n.config.Watch[rules[0]]
	for _, j := range rules[1:] {
		if n.config.Watch[j].FieldSelector != first.FieldSelector || !ofMetadata(first.FieldSelector) {
			return ""
		}
	}
	return onlyName(first)
}

// ofMetadata reports whether every resource supports the fields of the selector.
func ofMetadata(selector string) bool {
	s, err := fields.ParseSelector(selector)
	return err == nil && !slices.ContainsFunc(s.Requirements(), func(r fields.Requirement) bool {
		return r.Field != "metadata.name" && r.Field != "metadata.namespace"
	})
}

// reduced returns the collected accesses in order, without those that another one covers.
func (n *needs) reduced() []*access {
	slices.SortStableFunc(n.access, compare)
	var all []*access
	for _, a := range n.access {
		if last := len(all) - 1; last >= 0 && compare(all[last], a) == 0 {
			all[last].notes = union(all[last].notes, a.notes)
			continue
		}
		all = append(all, a)
	}
	return slices.DeleteFunc(slices.Clone(all), func(b *access) bool {
		return slices.ContainsFunc(all, func(a *access) bool { return a != b && a.covers(b) })
	})
}

// excepts reports whether the rule excludes the whole class, in every version.
func excepts(r *config.Rule, c class) bool {
	return slices.ContainsFunc(r.Except, func(e config.ResourcePattern) bool {
		if e.Version != "" {
			return false
		}
		groups := e.Groups()
		return (groups == nil || slices.Contains(groups, c.group)) && (e.Resource == "*" || e.Resource == c.resource)
	})
}

// exceptions returns the exceptions of the rule that exclude a part of p.
func exceptions(r *config.Rule, p config.ResourcePattern) []config.ResourcePattern {
	within := func(groups, of []string) bool {
		return groups == nil || of == nil ||
			slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(of, g) })
	}
	var out []config.ResourcePattern
	for _, e := range r.Except {
		if p.Resource != "*" && p.Groups() != nil {
			continue // the rule excludes an exact resource as a whole or not at all
		}
		if (e.Resource == "*" || p.Resource == "*" || e.Resource == p.Resource) && within(e.Groups(), p.Groups()) {
			out = append(out, e)
		}
	}
	return out
}

// onlyName returns the one name that the rule's field selector permits, "" if it permits more. The
// API server authorizes such a LIST or WATCH by resourceNames.
func onlyName(r *config.Rule) string {
	s, err := fields.ParseSelector(r.FieldSelector)
	if err != nil {
		return "" // Validate rejects it
	}
	name, ok := s.RequiresExactMatch("metadata.name")
	if !ok || len(content.IsPathSegmentName(name)) > 0 {
		return ""
	}
	return name
}

// beyondSelectors returns notes on what the selectors of rule j exclude but RBAC allows. name is
// the result of onlyName.
func beyondSelectors(j int, r *config.Rule, name string) []string {
	var notes []string
	note := func(selector, value string) {
		notes = append(notes,
			fmt.Sprintf("RBAC knows no selectors: %s of watch[%d] (%s) narrows what is read, not what may be read.",
				selector, j, value))
	}
	if r.LabelSelector != "" {
		note("labelSelector", r.LabelSelector)
	}
	switch r.FieldSelector {
	case "", "metadata.name=" + name, "metadata.name==" + name:
	default:
		note("fieldSelector", r.FieldSelector)
		if name != "" {
			notes[len(notes)-1] += " Its metadata.name does both."
		}
	}
	return notes
}

func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

func join[T any](items []T) string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = fmt.Sprint(item)
	}
	return strings.Join(out, ", ")
}
