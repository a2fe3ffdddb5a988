package selection

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Selection is a valid Spec. It is immutable.
type Selection struct {
	Spec
	cutter  *object.Cutter // of Strip
	cutters *cutters       // derived from it
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
		rule.uses = object.NewUses(rule.Redact, time.Now())
	}
	return &Selection{Spec: spec, cutter: cutter, cutters: &cutters{of: map[cutterKey]*object.Cutter{}}}, nil
}

// Takes reports whether any rule names a resource, in this version.
func (s *Selection) Takes(r *object.Resource) bool {
	return slices.ContainsFunc(s.Rules, func(rule Rule) bool { return rule.takes(r) })
}

// PartOf returns the captured part of a resource.
func (s *Selection) PartOf(r *object.Resource) Part {
	if s.Part == nil {
		return Part{}
	}
	return s.Part(r.Group, r.Name)
}

// Scopes returns the scopes of a choice: one, or one for each namespace if all rules name theirs
// one by one.
func (s *Selection) Scopes(c *Choice) ([]Scope, error) {
	clauses, err := s.clauses(&c.Resource, c.Rules)
	if err != nil || len(clauses) == 0 {
		return nil, err
	}
	literal := literalNamespaces(clauses)
	if c.Part.Namespace != "" && c.Resource.Namespaced {
		literal = []string{c.Part.Namespace}
	}
	if len(literal) > 0 {
		return s.inNamespaces(&c.Resource, clauses, c.Part, literal)
	}
	scope, err := s.scope(&c.Resource, "", clauses, c.Part)
	return []Scope{scope}, err
}

// InNamespaces returns scopes of a choice, each in one of those namespaces that any rule takes.
func (s *Selection) InNamespaces(c *Choice, namespaces ...string) ([]Scope, error) {
	clauses, err := s.clauses(&c.Resource, c.Rules)
	if err != nil {
		return nil, err
	}
	return s.inNamespaces(&c.Resource, clauses, Part{}, namespaces)
}

func (s *Selection) inNamespaces(
	r *object.Resource, clauses []clause, part Part, namespaces []string,
) ([]Scope, error) {
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

// clauses returns the clauses of the rules for a resource, in order, without those that can take
// nothing.
func (s *Selection) clauses(r *object.Resource, rules []*Rule) ([]clause, error) {
	var out []clause
	for _, rule := range rules {
		c := clause{
			rule:          rule,
			patterns:      rule.Patterns,
			namespaces:    rule.Namespaces,
			labelSelector: rule.LabelSelector,
			fieldSelector: rule.FieldSelector,
		}
		if !r.Namespaced {
			c.patterns, c.namespaces = nil, allNamespaces
		} else if len(rule.Names) > 0 {
			c.patterns, c.literal = rule.Names, true
		}
		var err error
		c.cutter, err = s.redact(r, s.redacted(r, rule), s.Secrets)
		if err != nil {
			return nil, fmt.Errorf("%s: redact: %w", r, err)
		}
		if rule.uses != nil {
			c.cutter, err = c.cutter.WithUses(rule.uses)
			if err != nil {
				return nil, fmt.Errorf("%s: redact: %w", r, err)
			}
		}
		out = append(out, c)
	}
	return reachable(out), nil
}

// scope makes a scope of clauses: in one namespace, or ("") in all that they take. If there are
// several clauses, the API server applies the selectors common to all of them, if it supports their
// fields for every resource.
func (s *Selection) scope(r *object.Resource, namespace string, clauses []clause, part Part) (Scope, error) {
	scope := Scope{Resource: r, Namespace: namespace, clauses: clauses}
	first := &clauses[0]
	if namespace != "" {
		scope.patterns = []string{namespace}
	}
	if len(clauses) == 1 {
		scope.LabelSelector = first.labelSelector
		scope.FieldSelector = first.fieldSelector
		scope.namespaces = first.namespaces
		if namespace == "" {
			scope.patterns = first.patterns
		}
	} else {
		scope.namespaces = func(ns string) bool {
			return slices.ContainsFunc(clauses, func(c clause) bool { return c.namespaces(ns) })
		}
		// If the API server applies a selector, the last version of an object before it matched
		// belongs to no clause. All clauses must then cut and redact alike.
		if alike(clauses, (*clause).content) && alike(clauses, func(c *clause) string { return c.labelSelector }) {
			scope.LabelSelector = first.labelSelector
		}
		if alike(clauses, (*clause).content) && alike(clauses, func(c *clause) string { return c.fieldSelector }) &&
			knownFields(first.fieldSelector) {
			scope.FieldSelector = first.fieldSelector
		}
		scope.union = union(clauses)
	}
	for n := range clauses {
		c := &clauses[n]
		if err := c.compile(scope.LabelSelector, scope.FieldSelector); err != nil {
			return scope, fmt.Errorf("%s: %w", r, err)
		}
		scope.redacted = append(scope.redacted, s.redacted(r, c.rule)...)
	}
	if part.FieldSelector != "" {
		scope.FieldSelector = strings.TrimPrefix(scope.FieldSelector+","+part.FieldSelector, ",")
	}
	slices.Sort(scope.redacted)
	scope.redacted = slices.Compact(scope.redacted)
	scope.content = content(clauses)
	var err error
	scope.rest, err = s.redact(r, scope.redacted, s.Secrets)
	return scope.named(), err
}

// redacted returns the redacted paths in those objects of a resource that a rule takes.
func (s *Selection) redacted(r *object.Resource, rule *Rule) []string {
	paths := slices.Clone(rule.Redact)
	if s.Secrets && isSecrets(r) {
		paths = append(paths, object.SecretPaths(s.MAC != nil)...)
	}
	return paths
}

// redact returns the cutter for objects of a resource: it redacts paths and, if copies, what is
// known to copy Secrets.
func (s *Selection) redact(r *object.Resource, paths []string, copies bool) (*object.Cutter, error) {
	key := cutterKey{paths: strings.Join(paths, "\x00"), copies: copies}
	if copies && (isSecrets(r) || isCarrier(r)) {
		key.resource = r.String()
	}
	return s.cutters.get(key, func() (*object.Cutter, error) {
		cutter, err := s.cutter.Redact(paths, s.MAC)
		if err != nil || !copies {
			return cutter, err
		}
		return cutter.RedactCopies(r.Group, r.Name)
	})
}

// cutters keeps compiled cutters, because most resources have the same one. Discovery asks for
// those of all resources each minute.
type cutters struct {
	mu sync.Mutex
	of map[cutterKey]*object.Cutter
}

type cutterKey struct {
	paths    string
	copies   bool
	resource string // ""; or a resource with rules of its own about copies of Secrets
}

func (c *cutters) get(key cutterKey, compile func() (*object.Cutter, error)) (*object.Cutter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cutter, ok := c.of[key]; ok {
		return cutter, nil
	}
	cutter, err := compile()
	if err != nil {
		return nil, err
	}
	c.of[key] = cutter
	return cutter, nil
}

func isCarrier(r *object.Resource) bool {
	return slices.ContainsFunc(object.Carriers(), func(c object.Carrier) bool {
		return c.Group == r.Group && c.Resource == r.Name
	})
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

// ScopeOfAll returns a scope of all objects of a resource, whatever rules take them. It redacts the
// paths of every rule.
func (s *Selection) ScopeOfAll(r *object.Resource) (Scope, error) {
	clauses, err := s.clauses(r, []*Rule{{Namespaces: allNamespaces, Redact: s.redactedByAny(r)}})
	if err != nil {
		return Scope{}, err
	}
	return s.scope(r, "", clauses, Part{})
}

// MatchOnly returns a scope of the objects that the rules take of a cluster-scoped resource, or nil
// if no rule takes any. It is for Match and Filters only: the API server does not apply its
// selectors. It keeps only those terms of field selectors that are on metadata.name. Only the API
// server has the values of other fields that an object lacks, so they exclude nothing.
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

// FromCheckpoint returns the scope with that name as recorded by another run, or under another
// Selection. Its rules no longer exist: it redacts their paths, and those of the current rules.
// Secrets are always redacted.
func (s *Selection) FromCheckpoint(
	r *object.Resource, name string, c *checkpoint.Scope, match func(patterns []string) func(string) bool,
) (Scope, error) {
	paths := append(slices.Clone(c.Redact), s.redactedByAny(r)...)
	if isSecrets(r) {
		paths = append(paths, object.SecretPaths(s.MAC != nil)...)
	}
	cutter, err := s.redact(r, paths, s.Secrets || isSecrets(r))
	if err != nil {
		return Scope{}, err
	}
	scope := Scope{
		Name:          name,
		Resource:      r,
		LabelSelector: c.LabelSelector,
		FieldSelector: c.FieldSelector,
		patterns:      c.Namespaces,
		namespaces:    match(c.Namespaces),
		rest:          cutter,
	}
	if ns, ok := SingleNamespace(c.Namespaces); ok && strings.HasPrefix(name, scopeName(r, c.Namespaces, "", "", "")) {
		scope.Namespace = ns
	}
	recorded := c.Clauses
	if len(recorded) == 0 {
		recorded = []checkpoint.Clause{{
			Namespaces:    c.Namespaces,
			LabelSelector: c.LabelSelector,
			FieldSelector: c.FieldSelector,
		}}
	}
	for _, k := range recorded {
		cl := clause{
			patterns:      k.Namespaces,
			namespaces:    match(k.Namespaces),
			labelSelector: k.LabelSelector,
			fieldSelector: k.FieldSelector,
			cutter:        cutter,
		}
		if err := cl.compile(c.LabelSelector, c.FieldSelector); err != nil {
			return Scope{}, fmt.Errorf("%s: %w", name, err)
		}
		scope.clauses = append(scope.clauses, cl)
	}
	return scope, nil
}
