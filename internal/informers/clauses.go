package informers

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	operator "k8s.io/apimachinery/pkg/selection"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// outside stands for the clause of what no rule takes.
const outside = math.MaxUint16

// clause is what one rule takes of the objects of a resource, within a scope. Where it is the only one of its scope, the API
// server applies the selectors; else the agent does, object by object: the first clause that matches takes it.
type clause struct {
	rule       *Rule             // nil: of a selection that is no more
	names      []string          // literal namespaces, none: see patterns
	patterns   []string          // of namespaces, none: all
	namespaces func(string) bool // which are taken
	labels     string
	fields     string
	cutter     *object.Cutter

	// Compiled for the agent, less what the API server applies.
	selector labels.Selector
	terms    []term
}

// term is a requirement of a field selector.
type term struct {
	path  *object.Path
	value string
	not   bool
}

// limits is the clause in a readable form: "shop,web?labelSelector=team=payments", "*" for all there is.
func (c *clause) limits() string {
	namespaces := "*"
	if all := c.patternsOf(); len(all) > 0 {
		namespaces = strings.Join(all, ",")
	}
	return namespaces + selectorsName(c.labels, c.fields)
}

// patternsOf are the patterns of namespaces, literal or not.
func (c *clause) patternsOf() []string {
	if len(c.names) > 0 {
		return c.names
	}
	return c.patterns
}

// everything tells that the clause has no limits.
func (c *clause) everything() bool {
	return len(c.patternsOf()) == 0 && c.labels == "" && c.fields == ""
}

// compile makes of the selectors what the agent applies. Those that the API server applies are not among them.
func (c *clause) compile(pushedLabels, pushedFields string) (err error) {
	c.selector, c.terms = labels.Everything(), nil
	if c.labels != pushedLabels {
		if c.selector, err = labels.Parse(c.labels); err != nil {
			return fmt.Errorf("labelSelector %q: %w", c.labels, err)
		}
	}
	if c.fields == pushedFields {
		return nil
	}
	c.terms, err = fieldTerms(c.fields)
	return err
}

func fieldTerms(text string) (out []term, err error) {
	parsed, err := fields.ParseSelector(text)
	if err != nil {
		return nil, fmt.Errorf("fieldSelector %q: %w", text, err)
	}
	for _, r := range parsed.Requirements() {
		path, err := object.NewPath(r.Field)
		if err != nil {
			return nil, fmt.Errorf("fieldSelector %q: %w", text, err)
		}
		out = append(out, term{path: path, value: r.Value, not: r.Operator == operator.NotEquals})
	}
	return out, nil
}

// matches tells if the clause takes an object.
func (c *clause) matches(o *peeked) bool {
	if !c.namespaces(o.namespace()) || !c.selector.Matches(o.Labels) {
		return false
	}
	for n := range c.terms {
		if t := &c.terms[n]; o.field(t.path) == t.value == t.not {
			return false
		}
	}
	return true
}

// clausesOf are what the rules take of a resource, in order, less those that can take nothing since one before takes it all.
func (s *selecting) clausesOf(r *object.Resource, rules []*Rule) ([]clause, error) {
	var out []clause
	for _, rule := range rules {
		c := clause{
			rule: rule, names: rule.Names, patterns: rule.Patterns, namespaces: rule.Namespaces, labels: rule.LabelSelector, fields: rule.FieldSelector,
		}
		if !r.Namespaced {
			c.names, c.patterns, c.namespaces = nil, nil, allNamespaces
		}
		var err error
		if c.cutter, err = s.cutterOf(r, rule); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return reachable(out), nil
}

func allNamespaces(string) bool { return true }

// reachable are the clauses that can take anything.
func reachable(all []clause) []clause {
	var out []clause
	seen := map[string]bool{}
	for _, c := range all {
		limits := c.limits()
		if seen[limits] {
			continue
		}
		seen[limits] = true
		out = append(out, c)
		if c.everything() {
			break
		}
	}
	return out
}

// within are the clauses in one namespace, which is the only one of a scope.
func within(namespace string, all []clause) []clause {
	var out []clause
	for _, c := range all {
		if c.namespaces(namespace) {
			c.names, c.patterns, c.namespaces = nil, nil, func(ns string) bool { return ns == namespace }
			out = append(out, c)
		}
	}
	return reachable(out)
}

// selections are what informers observe of a resource: one, or one for each namespace where all rules name theirs literally.
func (s *selecting) selections(r *object.Resource, rules []*Rule, part Part) ([]selection, error) {
	clauses, err := s.clausesOf(r, rules)
	if err != nil || len(clauses) == 0 {
		return nil, err
	}
	if part.Namespace != "" && r.Namespaced {
		return s.inNamespaces(r, clauses, part, part.Namespace)
	}
	if literal := literalNamespaces(clauses); len(literal) > 0 {
		return s.inNamespaces(r, clauses, part, literal...)
	}
	sel, err := s.over(r, "", clauses, part)
	return []selection{sel}, err
}

// literalNamespaces are the namespaces that all clauses name literally, none if one does not.
func literalNamespaces(clauses []clause) []string {
	all := map[string]bool{}
	for n := range clauses {
		if len(clauses[n].names) == 0 {
			return nil
		}
		for _, name := range clauses[n].names {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// inNamespaces are selections of one namespace each.
func (s *selecting) inNamespaces(r *object.Resource, clauses []clause, part Part, namespaces ...string) ([]selection, error) {
	var out []selection
	for _, ns := range namespaces {
		if in := within(ns, clauses); len(in) > 0 {
			sel, err := s.over(r, ns, in, part)
			if err != nil {
				return nil, err
			}
			out = append(out, sel)
		}
	}
	return out, nil
}

// over makes a selection of clauses: in one namespace, or ("") in all that they take. With several of them, the API server
// applies what all have in common, as far as it knows the fields for sure.
func (s *selecting) over(r *object.Resource, namespace string, clauses []clause, part Part) (selection, error) {
	sel := selection{namespace: namespace, clauses: slices.Clone(clauses)}
	first := &sel.clauses[0]
	if namespace != "" {
		sel.patterns = []string{namespace}
	}
	if len(sel.clauses) == 1 {
		sel.labels, sel.fields, sel.namespaces = first.labels, first.fields, first.namespaces
		if namespace == "" {
			sel.patterns = first.patternsOf()
		}
	} else {
		sel.namespaces = func(ns string) bool {
			return slices.ContainsFunc(sel.clauses, func(c clause) bool { return c.namespaces(ns) })
		}
		// What they make of objects must be one thing then: the version from before a selector took the object belongs to no rule.
		common := alike(sel.clauses)
		if common && !slices.ContainsFunc(sel.clauses, func(c clause) bool { return c.labels != first.labels }) {
			sel.labels = first.labels
		}
		if common && !slices.ContainsFunc(sel.clauses, func(c clause) bool { return c.fields != first.fields }) && knownFields(first.fields) {
			sel.fields = first.fields
		}
		sel.union = union(sel.clauses)
	}
	for n := range sel.clauses {
		if err := sel.clauses[n].compile(sel.labels, sel.fields); err != nil {
			return sel, fmt.Errorf("%s: %w", r, err)
		}
	}
	switch {
	case part.FieldSelector == "":
	case sel.fields == "":
		sel.fields = part.FieldSelector
	default:
		sel.fields += "," + part.FieldSelector
	}
	return sel, s.redacts(r, &sel)
}

// knownFields tells that the API server knows the fields of a selector of every resource.
func knownFields(selector string) bool {
	terms, err := fieldTerms(selector)
	return err == nil && !slices.ContainsFunc(terms, func(t term) bool {
		return t.path.String() != "metadata.name" && t.path.String() != "metadata.namespace"
	})
}

// union names the objects that any of the clauses takes, in one form whatever their order: what each takes, with bars between
// them. "": everything, which needs no name.
func union(clauses []clause) string {
	if clauses[len(clauses)-1].everything() {
		return ""
	}
	all := make([]string, len(clauses))
	for n := range clauses {
		all[n] = clauses[n].limits()
	}
	slices.Sort(all)
	return strings.Join(all, "|")
}

// route is the clause that takes an object of a scope with several; excluded: none ever can.
func (s *selection) route(o *peeked) (index uint16, excluded bool) {
	for n := range s.clauses {
		if s.clauses[n].matches(o) {
			return uint16(n), false
		}
	}
	return outside, !s.namespaces(o.namespace())
}

// several tells that the agent decides which clause takes an object.
func (s *selection) several() bool { return len(s.clauses) > 1 }

// name is the name of the scope.
func (s *selection) name(r *object.Resource) string {
	return scopeName(r, s.patterns, s.labels, s.fields, s.union)
}

// nameIn is the name of the part of the scope that lies in a namespace.
func (s *selection) nameIn(r *object.Resource, namespace string) string {
	return scopeName(r, []string{namespace}, s.labels, s.fields, s.union)
}

// kept are the clauses as a checkpoint keeps them, none where the selection itself says all.
func (s *selection) kept() []checkpoint.Clause {
	if !s.several() {
		return nil
	}
	out := make([]checkpoint.Clause, len(s.clauses))
	for n := range s.clauses {
		c := &s.clauses[n]
		out[n] = checkpoint.Clause{Namespaces: c.patternsOf(), LabelSelector: c.labels, FieldSelector: c.fields}
	}
	return out
}

// add makes informers for what has none yet. A resource that is no longer served keeps its informer, which retries. The
// caller holds mu.
func (s *Set) add(all []chosen) []*running {
	var out []*running
	for n := range all {
		resource := &all[n].resource
		sels, err := s.scopesOf(s.sel, &all[n])
		if err != nil {
			s.o.Log.Error("a resource cannot be observed as configured", "resource", resource.String(), "err", err)
		}
		for _, sel := range sels {
			scope := sel.name(resource)
			if s.informers[scope] != nil || s.drains[objectsOf(resource)] != nil { // the latter begins when those have come to rest
				continue
			}
			i := s.newInformer(resource, scope, sel, s.o.Lane(scope))
			i.shared = s.partOf(resource).FieldSelector != ""
			out = append(out, s.enroll(i))
		}
	}
	return out
}

// scopesOf are what informers observe of a resource, as sel has it. The caller holds mu.
func (s *Set) scopesOf(sel *selecting, c *chosen) ([]selection, error) {
	if names, split := s.namespaces.of(&c.resource); split {
		if clauses, whole := s.namespaces.whole(sel, c); whole {
			return sel.inNamespaces(&c.resource, clauses, Part{}, names...)
		}
	}
	return sel.selections(&c.resource, c.rules, s.partOf(&c.resource))
}
