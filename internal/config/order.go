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

// order is the rules in the order in which they are tried, with the requirements of their
// selectors.
type order struct {
	rules []Rule
	terms []terms
}

// terms are the requirements of a rule's selectors, each in one spelling.
type terms struct {
	labels, fields []string
	unread         bool // a selector is malformed
}

func orderOf(rules []Rule) *order {
	o := &order{rules: rules, terms: make([]terms, len(rules))}
	for i := range rules {
		t := &o.terms[i]
		byLabel, err := labels.Parse(rules[i].LabelSelector)
		byField, wrong := fields.ParseSelector(rules[i].FieldSelector)
		t.unread = err != nil || wrong != nil
		if t.unread {
			continue
		}
		all, _ := byLabel.Requirements()
		for k := range all {
			t.labels = append(t.labels, all[k].String())
		}
		for _, r := range byField.Requirements() {
			t.fields = append(t.fields,
				fmt.Sprintf("%s %s %q", r.Field, strings.Replace(string(r.Operator), "==", "=", 1), r.Value))
		}
	}
	return o
}

// validate finds patterns of rule j that can never match, because the rule or rules before it
// exclude or take all of their objects. It also finds rules that disagree on versions.
func (o *order) validate(j int, path *field.Path) field.ErrorList {
	var list field.ErrorList
	rule := &o.rules[j]
	for k, p := range rule.Resources {
		q, at := p.span(), path.Index(j).Child("resources").Index(k)
		if q.resource == "" {
			continue // it could not be read
		}
		if except := slices.IndexFunc(rule.Except, func(e ResourcePattern) bool {
			return e.span().covers(q)
		}); except >= 0 {
			list = append(list,
				field.Forbidden(at,
					fmt.Sprintf("can never match: %s excludes it", path.Index(j).Child("except").Index(except))))
			continue
		}
		by, all := o.takenBefore(j, q)
		i, names := o.findOtherVersion(j, q)
		switch {
		case all && len(by) == 1:
			list = append(list, field.Forbidden(at, fmt.Sprintf("can never match: %s takes %s", path.Index(by[0]), q)))
		case all:
			list = append(list,
				field.Forbidden(at, fmt.Sprintf("can never match: %s leave nothing of %s", indexed(path, by), q)))
		case names != "":
			list = append(list,
				field.Forbidden(at, fmt.Sprintf("must not name a version: a resource is read in the version of the "+
					"first rule that takes it, and %s takes %s without naming this one; remove the version, or add %[2]s to %[3]s",
					path.Index(i), names, path.Index(i).Child("except"))))
		}
	}
	return list
}

// takenBefore reports whether the rules before rule j take all objects of s that rule j can take;
// by has these rules.
//
// If s leaves resource, group or version open, one object is enough, with a name that no rule has.
// A pattern that matches it matches all of s. The rest is the exceptions of that pattern's rule,
// which are examined in the same way.
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
			if !anyCovers(r.Resources, s) || anyCovers(r.Except, s) || !o.isWithin(j, i, s) {
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

// isWithin reports whether rule i selects all objects of s that rule j selects; false if that is
// not certain.
func (o *order) isWithin(j, i int, s span) bool {
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

// findOtherVersion finds a rule before rule j that takes objects of s, but does not name the
// version of s. names has the objects of s that it takes; "": there is no such rule. The first rule
// that takes a resource determines the version.
func (o *order) findOtherVersion(j int, s span) (i int, names string) {
	if s.version == "" {
		return 0, ""
	}
	for i := range j {
		for _, p := range o.rules[i].Resources {
			x, ok := p.span().intersect(s)
			if !ok || p.Version == s.version || anyCovers(o.rules[i].Except, x.anyVersion()) ||
				anyCovers(o.rules[j].Except, x) {
				continue
			}
			return i, x.String()
		}
	}
	return 0, ""
}

// validateFields rejects fields of rule j that the agent cannot evaluate, if it has to. It has to
// if another rule can take objects of the same resource: then the API server cannot apply the
// selector.
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
		for _, shared := range o.commonSpans(j, k) {
			for _, r := range doubtful {
				why := ""
				switch {
				case madeUp(shared.resource, r.Field):
					why = fmt.Sprintf("must not name %s, which is not part of the object", r.Field)
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
					"%s: %s can take %s too, so that the agent evaluates the selector, not the API server; select by a label",
					why, path.Index(k), names))}
			}
		}
	}
	return nil
}

// plainPath matches a path that the agent can look up in an object: names of members, separated by
// dots.
var plainPath = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*$`)

// madeUp reports whether the API server computes a selectable field from other fields, or from one
// that may be missing. Then its value is not in the object. (pkg/registry/*/*/strategy.go of
// Kubernetes)
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

// commonSpans returns the resources whose objects two rules can both take.
func (o *order) commonSpans(i, k int) []span {
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

// spans returns the resources that the rule names. Events are one resource with two names.
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

// indexed returns "watch[0], watch[2]".
func indexed(path *field.Path, indexes []int) string {
	names := make([]string, len(indexes))
	for i, at := range indexes {
		names[i] = path.Index(at).String()
	}
	return strings.Join(names, ", ")
}
