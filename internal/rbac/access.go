package rbac

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubecdc/kubecdc/internal/config"
)

// access is LIST and WATCH of a resource.
type access struct {
	namespace string // "": all, and cluster-scoped objects
	group     string // "*": every one
	resource  string // "*": every one
	name      string // "": every object
	notes     []string
}

func (a *access) covers(b *access) bool {
	return (a.namespace == "" || a.namespace == b.namespace) &&
		(a.group == "*" || a.group == b.group) &&
		(a.resource == "*" || a.resource == b.resource) &&
		(a.name == "" || a.name == b.name)
}

// compare orders by where, then by what.
func compare(a, b *access) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.group, b.group), cmp.Compare(a.name, b.name),
		cmp.Compare(a.resource, b.resource))
}

// needs collects accesses.
type needs struct {
	config *config.Config
	events bool // an earlier rule takes events, which are the same objects in both of their groups
	access []*access
	notes  []string // about what no rule of RBAC stands for
}

// ofPatterns adds what rule j needs for those of its patterns that are wanted, as far as the patterns alone tell.
func (n *needs) ofPatterns(j int, wanted func(config.ResourcePattern) bool) {
	rule := &n.config.Watch[j]
	eventGroup, takesEvents := eventGroup(rule)
	for _, p := range rule.Resources {
		if !wanted(p) {
			continue
		}
		groups, note := p.Groups(), ""
		switch {
		case p.Resource == "*" && groups == nil:
			groups = []string{"*"}
			note = fmt.Sprintf("watch[%d] takes every resource, also what is defined later; kubecdc rbac --discover writes out "+
				"what a cluster serves now instead.", j)
		case p.Resource == "*":
			note = fmt.Sprintf("watch[%d] takes every resource of the group, also what is defined later.", j)
		case groups == nil:
			groups = []string{"*"}
			note = fmt.Sprintf("watch[%d] gives no group for %s, which Kubernetes itself does not serve: it is taken from "+
				"every group. %[2]s.<group> would narrow this.", j, p.Resource)
		}
		for _, g := range groups {
			if p.Resource != "*" && excepts(rule, g, p.Resource) {
				continue
			}
			if p.Resource == "events" && isEventGroup(g) && (n.events || g != eventGroup) {
				continue
			}
			var notes []string
			if note != "" {
				notes = append(notes, note)
			}
			if except := exceptions(rule, p); len(except) > 0 {
				notes = append(notes, fmt.Sprintf("RBAC has no exclusions: what watch[%d] excepts (%s) is allowed here and "+
					"left out by kubecdc.", j, join(except)))
			}
			n.add(j, access{group: g, resource: p.Resource, notes: notes}, true)
		}
	}
	n.events = n.events || takesEvents
}

// eventGroup is that of the two in which the agent reads events where the rule takes them: the first.
func eventGroup(r *config.Rule) (group string, takes bool) {
	for _, g := range []string{"", "events.k8s.io"} {
		if r.Takes(g, "v1", "events") {
			return g, true
		}
	}
	return "", false
}

func isEventGroup(g string) bool { return g == "" || g == "events.k8s.io" }

// add adds a for rule j, in its namespaces.
func (n *needs) add(j int, a access, namespaced bool) {
	rule := &n.config.Watch[j]
	names, literal := rule.Namespaces.Literal()
	a.name = onlyName(rule)
	a.notes = append(a.notes, beyondSelectors(j, rule, a.name)...)
	if (a.group == "" || a.group == "*") && (a.resource == "secrets" || a.resource == "*") {
		a.notes = append(a.notes, "Who may list Secrets may read their values; kubecdc drops these as it reads.")
	}
	switch p := n.config.Part(a.group, a.resource, "NODE_NAME"); {
	case p.None:
		return // another agent takes it
	case n.config.Mode == config.ModeNode && p.Namespace != "":
		names, literal = []string{p.Namespace}, true
		fallthrough
	case n.config.Mode == config.ModeNode:
		a.notes = append(a.notes, fmt.Sprintf("RBAC knows no field selectors: the agent of each node reads what belongs to that "+
			"(%s), and may read the rest.", p.FieldSelector))
	case p.FieldSelector != "":
		a.notes = append(a.notes, fmt.Sprintf("RBAC knows no field selectors: the companion reads what no node has (%s), and may read "+
			"the rest.", p.FieldSelector))
	}
	if !literal {
		if namespaced && !rule.Namespaces.All() {
			a.notes = append(a.notes, fmt.Sprintf("RBAC has no globs: the namespaces of watch[%d] (%s) are chosen by kubecdc, and "+
				"all are allowed. Plain names would give a Role for each.", j, join(rule.Namespaces)))
		}
		n.access = append(n.access, &a)
		return
	}
	for _, ns := range names {
		in := a
		in.namespace, in.notes = ns, slices.Clone(a.notes)
		n.access = append(n.access, &in)
	}
}

// reduced is what is needed without what something else of it covers, in order.
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

// excepts tells if the rule leaves the resource out whatever its version.
func excepts(r *config.Rule, group, resource string) bool {
	return slices.ContainsFunc(r.Except, func(e config.ResourcePattern) bool {
		return e.Version == "" && e.Match(group, "", resource)
	})
}

// exceptions are those of the rule that leave out a part of what p matches.
func exceptions(r *config.Rule, p config.ResourcePattern) []config.ResourcePattern {
	within := func(groups, of []string) bool {
		return groups == nil || of == nil || slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(of, g) })
	}
	var out []config.ResourcePattern
	for _, e := range r.Except {
		if p.Resource != "*" && p.Groups() != nil {
			continue // an exact resource: left out as a whole or not at all
		}
		if (e.Resource == "*" || p.Resource == "*" || e.Resource == p.Resource) && within(e.Groups(), p.Groups()) {
			out = append(out, e)
		}
	}
	return out
}

// onlyName is the one name that the rule's field selector lets through, "" where there are more: the API server authorizes
// such a LIST or WATCH by resourceNames.
func onlyName(r *config.Rule) string {
	s, err := fields.ParseSelector(r.FieldSelector)
	if err != nil {
		return "" // Validate lets none pass
	}
	name, ok := s.RequiresExactMatch("metadata.name")
	if !ok || len(content.IsPathSegmentName(name)) > 0 {
		return ""
	}
	return name
}

// beyondSelectors says what the selectors of rule j leave out and RBAC does not. name is onlyName's.
func beyondSelectors(j int, r *config.Rule, name string) []string {
	var notes []string
	note := func(selector, value string) {
		notes = append(notes, fmt.Sprintf("RBAC knows no selectors: %s of watch[%d] (%s) narrows what is read, not what may be read.",
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
