package selection

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Selection is a Spec that was found to be valid. It is immutable.
type Selection struct {
	Spec
	cutter *object.Cutter // of Strip
}

// Compile checks the paths and selectors of a Spec. An error names the rule by its index.
func Compile(spec Spec) (*Selection, error) {
	cutter, err := object.NewCutter(spec.Strip)
	if err != nil {
		return nil, fmt.Errorf("strip: %w", err)
	}
	for n := range spec.Rules {
		rule := &spec.Rules[n]
		c := clause{labelSelector: rule.LabelSelector, fieldSelector: rule.FieldSelector}
		if err := c.compile("", ""); err != nil {
			return nil, fmt.Errorf("rule %d: %w", n, err)
		}
		if _, err := cutter.Redact(rule.Redact, spec.MAC); err != nil {
			return nil, fmt.Errorf("rule %d: redact: %w", n, err)
		}
	}
	return &Selection{Spec: spec, cutter: cutter}, nil
}

// Takes reports whether any rule names a resource, in this version.
func (s *Selection) Takes(r *object.Resource) bool {
	return slices.ContainsFunc(s.Rules, func(rule Rule) bool { return rule.takes(r) })
}

// PartOf returns the part of a resource that is captured.
func (s *Selection) PartOf(r *object.Resource) Part {
	if s.Part == nil {
		return Part{}
	}
	return s.Part(r.Group, r.Name)
}

// Scopes returns the scopes of a choice: one, or one for each namespace if all rules name theirs one by one.
func (s *Selection) Scopes(c *Choice) ([]Scope, error) {
	clauses, err := s.clauses(&c.Resource, c.Rules)
	if err != nil || len(clauses) == 0 {
		return nil, err
	}
	if c.Part.Namespace != "" && c.Resource.Namespaced {
		return s.inNamespaces(&c.Resource, clauses, c.Part, c.Part.Namespace)
	}
	if literal := literalNamespaces(clauses); len(literal) > 0 {
		return s.inNamespaces(&c.Resource, clauses, c.Part, literal...)
	}
	scope, err := s.scope(&c.Resource, "", clauses, c.Part)
	return []Scope{scope}, err
}

// InNamespaces returns scopes of a choice in one namespace each: of those that any rule takes.
func (s *Selection) InNamespaces(c *Choice, namespaces ...string) ([]Scope, error) {
	clauses, err := s.clauses(&c.Resource, c.Rules)
	if err != nil {
		return nil, err
	}
	return s.inNamespaces(&c.Resource, clauses, Part{}, namespaces...)
}

func (s *Selection) inNamespaces(r *object.Resource, clauses []clause, part Part, namespaces ...string) ([]Scope, error) {
	var out []Scope
	for _, ns := range namespaces {
		if in := within(ns, clauses); len(in) > 0 {
			scope, err := s.scope(r, ns, in, part)
			if err != nil {
				return nil, err
			}
			out = append(out, scope)
		}
	}
	return out, nil
}

// clauses returns what the rules take of a resource, in order, less the clauses that can take nothing.
func (s *Selection) clauses(r *object.Resource, rules []*Rule) ([]clause, error) {
	var out []clause
	for _, rule := range rules {
		c := clause{
			rule: rule, names: rule.Names, patterns: rule.Patterns, namespaces: rule.Namespaces,
			labelSelector: rule.LabelSelector, fieldSelector: rule.FieldSelector,
		}
		if !r.Namespaced {
			c.names, c.patterns, c.namespaces = nil, nil, allNamespaces
		}
		var err error
		if c.cutter, err = s.cutter.Redact(s.redacted(r, rule), s.MAC); err != nil {
			return nil, fmt.Errorf("%s: redact: %w", r, err)
		}
		out = append(out, c)
	}
	return reachable(out), nil
}

// scope makes a scope of clauses: in one namespace, or ("") in all that they take. If there are several clauses, the API server
// applies what all of them have in common, if it supports the fields for every resource.
func (s *Selection) scope(r *object.Resource, namespace string, clauses []clause, part Part) (Scope, error) {
	scope := Scope{Resource: r, Namespace: namespace, clauses: slices.Clone(clauses)}
	first := &scope.clauses[0]
	if namespace != "" {
		scope.patterns = []string{namespace}
	}
	if len(scope.clauses) == 1 {
		scope.LabelSelector, scope.FieldSelector, scope.namespaces = first.labelSelector, first.fieldSelector, first.namespaces
		if namespace == "" {
			scope.patterns = first.allPatterns()
		}
	} else {
		scope.namespaces = func(ns string) bool {
			return slices.ContainsFunc(scope.clauses, func(c clause) bool { return c.namespaces(ns) })
		}
		// If the API server applies a selector, the version of an object before it matched belongs to no clause. All clauses must
		// then cut and redact alike.
		common := alike(scope.clauses)
		if common && !slices.ContainsFunc(scope.clauses, func(c clause) bool { return c.labelSelector != first.labelSelector }) {
			scope.LabelSelector = first.labelSelector
		}
		if common && !slices.ContainsFunc(scope.clauses, func(c clause) bool { return c.fieldSelector != first.fieldSelector }) &&
			knownFields(first.fieldSelector) {
			scope.FieldSelector = first.fieldSelector
		}
		scope.union = union(scope.clauses)
	}
	for n := range scope.clauses {
		if err := scope.clauses[n].compile(scope.LabelSelector, scope.FieldSelector); err != nil {
			return scope, fmt.Errorf("%s: %w", r, err)
		}
	}
	switch {
	case part.FieldSelector == "":
	case scope.FieldSelector == "":
		scope.FieldSelector = part.FieldSelector
	default:
		scope.FieldSelector += "," + part.FieldSelector
	}
	for n := range scope.clauses {
		scope.redacted = append(scope.redacted, s.redacted(r, scope.clauses[n].rule)...)
	}
	slices.Sort(scope.redacted)
	scope.redacted = slices.Compact(scope.redacted)
	scope.content = content(scope.clauses)
	var err error
	scope.rest, err = s.cutter.Redact(scope.redacted, s.MAC)
	return scope.named(), err
}

// redacted returns the paths that are redacted in the objects of a resource that a rule takes.
func (s *Selection) redacted(r *object.Resource, rule *Rule) []string {
	paths := slices.Clone(rule.Redact)
	if s.Secrets && isSecrets(r) {
		paths = append(paths, object.SecretPaths(s.MAC != nil)...)
	}
	return paths
}

func isSecrets(r *object.Resource) bool { return r.Group == "" && r.Name == "secrets" }

// redactedByAny returns the paths that any rule redacts in the objects of a resource.
func (s *Selection) redactedByAny(r *object.Resource) (paths []string) {
	for n := range s.Rules {
		if s.Rules[n].takes(r) {
			paths = append(paths, s.Rules[n].Redact...)
		}
	}
	return paths
}

// Whole returns a scope of all objects of a resource, whatever rules take them. It redacts what any rule redacts.
func (s *Selection) Whole(r *object.Resource) (Scope, error) {
	all, err := s.Scopes(&Choice{Resource: *r, Rules: []*Rule{{Namespaces: allNamespaces, Redact: s.redactedByAny(r)}}})
	if err != nil {
		return Scope{}, err
	}
	all[0].Resource = r
	return all[0], nil
}

// MatchOnly returns a scope of the objects of a cluster-scoped resource that the rules take, for Match and Filters only: the API
// server applies no selector of it. Of field selectors it keeps the terms on metadata.name. Only the API server has the
// values of other fields that an object lacks, so they exclude nothing. It returns nil if no rule takes objects of the resource.
func (s *Selection) MatchOnly(r *object.Resource) (*Scope, error) {
	var rules []*Rule
	for n := range s.Rules {
		if rule := &s.Rules[n]; rule.AllNamespaces && rule.takes(r) {
			rules = append(rules, rule)
		}
	}
	clauses, err := s.clauses(r, rules)
	if err != nil || len(clauses) == 0 {
		return nil, err
	}
	for n := range clauses {
		c := &clauses[n]
		if err := c.compile("", ""); err != nil {
			return nil, err
		}
		c.terms = slices.DeleteFunc(c.terms, func(t term) bool { return t.path.String() != "metadata.name" })
	}
	return &Scope{Resource: r, clauses: clauses, namespaces: allNamespaces}, nil
}

// FromCheckpoint returns the scope with that name as it was recorded by another run, or under another Selection. Its rules no
// longer exist: it redacts what they redacted and what the rules do now. Secrets are always redacted. match makes a function that
// reports whether patterns of namespaces take a namespace.
func (s *Selection) FromCheckpoint(r *object.Resource, name string, c *checkpoint.Scope, match func(patterns []string) func(string) bool) (Scope, error) {
	paths := append(slices.Clone(c.Redact), s.redactedByAny(r)...)
	if isSecrets(r) {
		paths = append(paths, object.SecretPaths(s.MAC != nil)...)
	}
	cutter, err := s.cutter.Redact(paths, s.MAC)
	if err != nil {
		return Scope{}, err
	}
	scope := Scope{
		Name: name, Resource: r, LabelSelector: c.LabelSelector, FieldSelector: c.FieldSelector, patterns: c.Namespaces, namespaces: match(c.Namespaces), rest: cutter,
	}
	if ns, ok := SingleNamespace(c.Namespaces); ok && strings.HasPrefix(name, scopeName(r, c.Namespaces, "", "", "")) {
		scope.Namespace = ns
	}
	recorded := c.Clauses
	if len(recorded) == 0 {
		recorded = []checkpoint.Clause{{Namespaces: c.Namespaces, LabelSelector: c.LabelSelector, FieldSelector: c.FieldSelector}}
	}
	for _, k := range recorded {
		cl := clause{
			patterns: k.Namespaces, namespaces: match(k.Namespaces), labelSelector: k.LabelSelector, fieldSelector: k.FieldSelector, cutter: cutter,
		}
		if err := cl.compile(c.LabelSelector, c.FieldSelector); err != nil {
			return Scope{}, fmt.Errorf("%s: %w", name, err)
		}
		scope.clauses = append(scope.clauses, cl)
	}
	return scope, nil
}
