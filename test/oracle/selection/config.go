package selection

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// This file has configurations of an agent and their meaning. It uses no code of the agent: each
// selector, expression and path exists as text for the configuration, and as a Go function over
// objects as encoding/json decodes them.

// Tree is an object as encoding/json decodes it. Numbers keep their spelling.
type Tree = map[string]any

// Config is a randomly drawn configuration.
type Config struct {
	Rules     []Rule
	Noise     []string
	Strip     []string // Nil: the default.
	Redaction Redaction
}

// Rule is a rule of watch.
type Rule struct {
	Resources  []string // As in the file.
	Except     []string
	Namespaces []string
	Labels     *labelSelector
	Fields     *fieldSelector
	Operations []string // Nil: all.
	Where      *condition
	Drop       bool // onError: drop.
	Redact     []string
}

// Redaction is the setting redaction. With a key, its mode is hash.
type Redaction struct {
	Off           bool
	Key           []byte
	KeyFile       string
	AcrossObjects bool
}

// labelSelector is a label selector as text and as a function.
type labelSelector struct {
	Text    string
	Matches func(labels map[string]string) bool
}

// fieldSelector is a field selector as text and as a function. The API server supports only the
// fields of names and of a Secret's type.
type fieldSelector struct {
	Text    string
	Plain   bool // The API server does not support the field. The agent evaluates it, if there are several rules.
	Matches func(object Tree) bool
}

// versionPart matches the version in a resource's name: "v1" in deployments.v1.apps.
var versionPart = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// names reports whether a pattern such as "*", "*.apps", "deployments.apps" or
// "deployments.v1.apps" matches a resource.
func names(pattern, resource string) bool {
	if pattern == "*" {
		return true
	}
	plural, group := oracle.ObjectKey{Resource: resource}.Split()
	p, rest, _ := strings.Cut(pattern, ".")
	if head, tail, ok := strings.Cut(rest, "."); versionPart.MatchString(head) {
		rest = tail
		if !ok {
			rest = ""
		}
	}
	return (p == "*" || p == plural) && rest == group
}

func anyNames(patterns []string, resource string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return names(p, resource) })
}

// takesNamespace is oracle.Scope.Has for the patterns of a rule.
func takesNamespace(patterns []string, namespace string) bool {
	if len(patterns) == 0 {
		return true
	}
	taken := false
	for _, pattern := range patterns {
		pattern, excluded := strings.CutPrefix(pattern, "!")
		if ok, err := path.Match(pattern, namespace); err != nil || !ok {
			continue
		}
		if excluded {
			return false
		}
		taken = true
	}
	return taken
}

// of reports whether the rule can match objects of a resource.
func (r *Rule) of(resource string) bool {
	return anyNames(r.Resources, resource) && !anyNames(r.Except, resource)
}

// takes reports whether the rule matches an object.
func (r *Rule) takes(v *Version) bool {
	return r.of(v.Key.Resource) && takesNamespace(r.Namespaces, v.Key.Namespace) &&
		(r.Labels == nil || r.Labels.Matches(v.Labels)) && (r.Fields == nil || r.Fields.Matches(v.Object))
}

// rule returns the index of the first rule that matches a version of an object, or -1 if none does.
func (c *Config) rule(v *Version) int {
	if v == nil || v.Object == nil {
		return -1
	}
	for i := range c.Rules {
		if c.Rules[i].takes(v) {
			return i
		}
	}
	return -1
}

// Clauses returns the rules that can match objects of a resource.
func (c *Config) Clauses(resource string) []*Rule {
	var list []*Rule
	for i := range c.Rules {
		if c.Rules[i].of(resource) {
			list = append(list, &c.Rules[i])
		}
	}
	return list
}

// Scopes returns the namespaces that have an informer of the resource each. "" is one informer for
// all namespaces.
func (c *Config) Scopes(resource string) []string {
	seen := make(map[string]bool)
	var list []string
	for _, r := range c.Clauses(resource) {
		if len(r.Namespaces) == 0 {
			return []string{""}
		}
		for _, ns := range r.Namespaces {
			if strings.ContainsAny(ns, "*?[!") {
				return []string{""}
			}
			if !seen[ns] {
				seen[ns] = true
				list = append(list, ns)
			}
		}
	}
	return list
}

// Watch returns the value of watch as YAML.
func (c *Config) Watch() string {
	var b strings.Builder
	for i := range c.Rules {
		r := &c.Rules[i]
		fmt.Fprintf(&b, "  - resources: %s\n", flow(r.Resources))
		if len(r.Except) > 0 {
			fmt.Fprintf(&b, "    except: %s\n", flow(r.Except))
		}
		if len(r.Namespaces) > 0 {
			fmt.Fprintf(&b, "    namespaces: %s\n", flow(r.Namespaces))
		}
		if r.Labels != nil {
			fmt.Fprintf(&b, "    labelSelector: %q\n", r.Labels.Text)
		}
		if r.Fields != nil {
			fmt.Fprintf(&b, "    fieldSelector: %q\n", r.Fields.Text)
		}
		if len(r.Operations) > 0 {
			fmt.Fprintf(&b, "    operations: %s\n", flow(r.Operations))
		}
		if r.Where != nil {
			fmt.Fprintf(&b, "    where: '%s'\n", strings.ReplaceAll(r.Where.Text, "'", "''"))
			if r.Drop {
				b.WriteString("    onError: drop\n")
			}
		}
		if len(r.Redact) > 0 {
			fmt.Fprintf(&b, "    redact: %s\n", flow(r.Redact))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Rest returns the other settings of the configuration as YAML.
func (c *Config) Rest() string {
	var b strings.Builder
	if len(c.Noise) > 0 {
		fmt.Fprintf(&b, "noise: %s\n", flow(c.Noise))
	}
	if c.Strip != nil {
		fmt.Fprintf(&b, "strip: %s\n", flow(c.Strip))
	}
	if r := c.Redaction; r.Key != nil {
		fmt.Fprintf(&b, "redaction: {secrets: %t, mode: hash, keyFile: %q, acrossObjects: %t}\n", !r.Off, r.KeyFile,
			r.AcrossObjects)
	} else if r.Off {
		b.WriteString("redaction: {secrets: false}\n")
	}
	return b.String()
}

// flow returns a list in YAML's flow style.
func flow(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// labelSelectors returns the label selectors that can be drawn, in the syntax of kubectl.
func labelSelectors() []labelSelector {
	team := func(want string) func(map[string]string) bool {
		return func(l map[string]string) bool { return l["team"] == want }
	}
	has := func(l map[string]string, key string) bool { _, ok := l[key]; return ok }
	return []labelSelector{
		{"team=payments", team("payments")},
		{"team==search", team("search")},
		{"team!=payments", func(l map[string]string) bool { return l["team"] != "payments" }},
		{"team in (payments, search)", func(l map[string]string) bool {
			return l["team"] == "payments" || l["team"] == "search"
		}},
		{"team notin (search)", func(l map[string]string) bool { return l["team"] != "search" }},
		{"team", func(l map[string]string) bool { return has(l, "team") }},
		{"!team", func(l map[string]string) bool { return !has(l, "team") }},
		{"team=payments,tier!=silver", func(l map[string]string) bool {
			return l["team"] == "payments" && l["tier"] != "silver"
		}},
		{"tier=gold", func(l map[string]string) bool { return l["tier"] == "gold" }},
	}
}

// fieldSelectors returns the field selectors that can be drawn for a resource. The agent treats a
// missing field as empty text, as the API server does.
func fieldSelectors(resource string) []fieldSelector {
	name := func(o Tree) string { return Text(o, "metadata", "name") }
	list := []fieldSelector{
		{"metadata.name=m0-1", false, func(o Tree) bool { return name(o) == "m0-1" }},
		{"metadata.name!=m0-2", false, func(o Tree) bool { return name(o) != "m0-2" }},
		{"metadata.name!=m0-1,metadata.name!=m1-1", false, func(o Tree) bool {
			return name(o) != "m0-1" && name(o) != "m1-1"
		}},
	}
	switch resource {
	case "secrets":
		list = append(list,
			fieldSelector{"type=Opaque", false, func(o Tree) bool { return Text(o, "type") == "Opaque" }},
			fieldSelector{"type!=Opaque", false, func(o Tree) bool { return Text(o, "type") != "Opaque" }},
		)
	case oracle.Widgets:
		list = append(list,
			fieldSelector{"spec.tier=gold", true, func(o Tree) bool { return Text(o, "spec", "tier") == "gold" }},
			fieldSelector{"spec.tier!=gold", true, func(o Tree) bool { return Text(o, "spec", "tier") != "gold" }},
			fieldSelector{"status.phase=Ready,metadata.name!=m0-1", true, func(o Tree) bool {
				return Text(o, "status", "phase") == "Ready" && name(o) != "m0-1"
			}},
		)
	}
	return list
}

// Text returns the text at a path, or "" if there is none.
func Text(o Tree, path ...string) string {
	s, _ := At(o, path...).(string)
	return s
}

// At returns the value at a path of members, or nil if there is none.
func At(value any, path ...string) any {
	for _, member := range path {
		o, ok := value.(Tree)
		if !ok {
			return nil
		}
		value = o[member]
	}
	return value
}
