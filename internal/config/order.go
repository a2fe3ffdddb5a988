package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// order is rules in the order in which they are tried, with what their selectors ask for.
type order struct {
	rules []Rule
	terms []terms
}

// terms are the requirements of a rule's selectors, each in one spelling.
type terms struct {
	labels, fields []string
	unread         bool // a selector is none
}

func orderOf(rules []Rule) *order {
	o := &order{rules: rules, terms: make([]terms, len(rules))}
	for i := range rules {
		t := &o.terms[i]
		byLabel, err := labels.Parse(rules[i].LabelSelector)
		byField, wrong := fields.ParseSelector(rules[i].FieldSelector)
		if t.unread = err != nil || wrong != nil; t.unread {
			continue
		}
		all, _ := byLabel.Requirements()
		for k := range all {
			t.labels = append(t.labels, all[k].String())
		}
		for _, r := range byField.Requirements() {
			t.fields = append(t.fields, fmt.Sprintf("%s %s %q", r.Field, strings.Replace(string(r.Operator), "==", "=", 1), r.Value))
		}
	}
	return o
}

// validate finds what rule j can never take, because it excepts it itself or rules before it leave nothing of it, and versions
// that the rules do not agree on.
func (o *order) validate(j int, path *field.Path) field.ErrorList {
	var list field.ErrorList
	rule := &o.rules[j]
	for k, p := range rule.Resources {
		q, at := p.span(), path.Index(j).Child("resources").Index(k)
		if q.resource == "" {
			continue // it could not be read
		}
		if except := slices.IndexFunc(rule.Except, func(e ResourcePattern) bool { return e.span().covers(q) }); except >= 0 {
			list = append(list, field.Forbidden(at, fmt.Sprintf("can never match: %s excepts it", path.Index(j).Child("except").Index(except))))
			continue
		}
		by, all := o.takenBefore(j, q)
		i, names := o.otherVersion(j, q)
		switch {
		case all && len(by) == 1:
			list = append(list, field.Forbidden(at, fmt.Sprintf("can never match: %s takes %s", path.Index(by[0]), q)))
		case all:
			list = append(list, field.Forbidden(at, fmt.Sprintf("can never match: %s leave nothing of %s", indexed(path, by), q)))
		case names != "":
			list = append(list, field.Forbidden(at, fmt.Sprintf("must name no version of its own: a resource is read in that of the "+
				"first rule which takes it, and %s takes %s without naming this one; leave the version out, or add %[2]s to %[3]s",
				path.Index(i), names, path.Index(i).Child("except"))))
		}
	}
	return list
}

// takenBefore tells whether the rules before rule j take all objects of s that rule j could take, less what it excepts; by are
// the rules which do.
//
// It is enough to look at an object of s whose resource, group and version nobody names, where s leaves them open: a pattern
// that matches it matches all of s. What is left then is what that pattern's rule excepts, to be looked at in the same way.
func (o *order) takenBefore(j int, s span) (by []int, all bool) {
	rule := &o.rules[j]
	var taken func(s span) bool
	taken = func(s span) bool {
		if len(s.groups) > 1 {
			for _, g := range s.groups {
				if !taken(span{resource: s.resource, version: s.version, groups: []string{g}}) {
					return false
				}
			}
			return true
		}
		if anyCovers(rule.Except, s) {
			return true
		}
		for i := range j {
			r := &o.rules[i]
			if !anyCovers(r.Resources, s) || anyCovers(r.Except, s) || !o.within(j, i, s) {
				continue
			}
			if !slices.Contains(by, i) {
				by = append(by, i)
			}
			for _, e := range r.Except {
				if x, ok := e.span().intersect(s); ok && !parted(e.span(), s) && !taken(x) {
					return false
				}
			}
			return true
		}
		return false
	}
	all = taken(s)
	slices.Sort(by)
	return by, all
}

// parted reports whether two spans name two versions.
func parted(s, t span) bool { return s.version != "" && t.version != "" && s.version != t.version }

func anyCovers(patterns []ResourcePattern, s span) bool {
	return slices.ContainsFunc(patterns, func(p ResourcePattern) bool { return p.Resource != "" && p.span().covers(s) })
}

// within reports whether all objects of s that rule j selects are selected by rule i; false where that cannot be told.
func (o *order) within(j, i int, s span) bool {
	inner, outer := &o.rules[j], &o.rules[i]
	b := builtinOf(s.resource)
	cluster := b != nil && b.cluster && slices.Equal(s.groups, b.groups)
	if !outer.Namespaces.covers(inner.Namespaces) && !(cluster && outer.Namespaces.Match("")) {
		return false
	}
	asks := func(some, all []string) bool {
		return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
	}
	in, out := &o.terms[j], &o.terms[i]
	return !in.unread && !out.unread && asks(out.labels, in.labels) && asks(out.fields, in.fields)
}

// otherVersion finds a rule before rule j that takes objects of s and does not name the version that s names; names is what of
// s that rule takes, "": there is no such rule. The first rule that takes a resource decides on the version.
func (o *order) otherVersion(j int, s span) (i int, names string) {
	if s.version == "" {
		return 0, ""
	}
	for i := range j {
		for _, p := range o.rules[i].Resources {
			x, ok := p.span().intersect(s)
			if !ok || p.Version == s.version || anyCovers(o.rules[i].Except, x.anyVersion()) || anyCovers(o.rules[j].Except, x) {
				continue
			}
			return i, x.String()
		}
	}
	return 0, ""
}

// validateFields refuses, in rule j, fields that the agent cannot evaluate where it has to: another rule can take objects of the
// same resource, so that the selector cannot be left to the API server.
func (o *order) validateFields(j int, path *field.Path) field.ErrorList {
	at, selector := path.Index(j).Child("fieldSelector"), o.rules[j].FieldSelector
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return nil
	}
	doubtful := slices.DeleteFunc(parsed.Requirements(), func(r fields.Requirement) bool {
		return plainPath.MatchString(r.Field) && !madeUp("*", r.Field)
	})
	for k := range o.rules {
		if k == j || len(doubtful) == 0 {
			continue
		}
		for _, shared := range o.both(j, k) {
			for _, r := range doubtful {
				why := ""
				switch {
				case madeUp(shared.resource, r.Field):
					why = fmt.Sprintf("must not name %s, which is no part of the object", r.Field)
				case !plainPath.MatchString(r.Field):
					why = "must name metadata.name, metadata.namespace or plain paths of the object, such as spec.nodeName"
				default:
					continue
				}
				names := shared.String()
				if names == "*" {
					names = "the same resources"
				}
				return field.ErrorList{field.Invalid(at, selector, fmt.Sprintf(
					"%s: %s can take %s too, so that the agent evaluates the selector, not the API server; select by a label", why, path.Index(k), names))}
			}
		}
	}
	return nil
}

// plainPath is what the agent can look up in an object: names of members with dots between them.
var plainPath = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*$`)

// madeUp reports whether the API server makes a field of a resource out of others, or of one that may be missing: what it
// compares is not what the object holds. (pkg/registry/*/*/strategy.go of Kubernetes)
func madeUp(resource, name string) bool {
	of := func(r string) bool { return resource == "*" || resource == r }
	switch name {
	case "spec.unschedulable": // false where it is missing
		return of("nodes")
	case "spec.hostNetwork":
		return of("pods")
	case "status.successful": // status.succeeded
		return of("jobs")
	case "source": // source.component or reportingComponent
		return of("events")
	case "name": // metadata.name
		return of("namespaces")
	}
	return false
}

// both are the resources of which two rules can take objects.
func (o *order) both(i, k int) []span {
	first, second := min(i, k), max(i, k)
	var out []span
	for _, p := range o.rules[first].spans() {
		for _, q := range o.rules[second].spans() {
			x, ok := p.intersect(q)
			if !ok || anyCovers(o.rules[first].Except, x) || anyCovers(o.rules[second].Except, x) {
				continue
			}
			if _, all := o.takenBefore(second, x); all {
				continue
			}
			if _, all := o.takenBefore(first, x); !all {
				out = append(out, x)
			}
		}
	}
	return out
}

// spans are what the rule names. Events are one resource under two names.
func (r *Rule) spans() []span {
	var out []span
	events := span{resource: "events", groups: builtinGroups("events")}
	for _, p := range r.Resources {
		out = append(out, p.span())
		if _, ok := p.span().intersect(events); ok {
			out = append(out, events)
		}
	}
	return out
}

// indexed is "watch[0], watch[2]".
func indexed(path *field.Path, indexes []int) string {
	names := make([]string, len(indexes))
	for i, at := range indexes {
		names[i] = path.Index(at).String()
	}
	return strings.Join(names, ", ")
}
