package selection

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	operator "k8s.io/apimachinery/pkg/selection"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Outside stands for the clause of an object that no clause of its scope takes.
const Outside = math.MaxUint16

// clause has the limits of one rule within a scope.
type clause struct {
	rule          *Rule             // nil: the scope is from a checkpoint
	names         []string          // literal namespaces, none: see patterns
	patterns      []string          // of namespaces, none: all
	namespaces    func(string) bool // reports whether a namespace is taken
	labelSelector string
	fieldSelector string
	cutter        *object.Cutter

	// What the agent applies: the selectors less those that the API server applies.
	selector labels.Selector
	terms    []term
}

// term is a requirement of a field selector.
type term struct {
	path  *object.Path
	value string
	not   bool
}

// limits returns the clause in a readable form: "shop,web?labelSelector=team=payments", "*" without any limit.
func (c *clause) limits() string {
	namespaces := "*"
	if all := c.allPatterns(); len(all) > 0 {
		namespaces = strings.Join(all, ",")
	}
	return namespaces + selectorsName(c.labelSelector, c.fieldSelector)
}

// allPatterns returns the patterns of namespaces, literal or not.
func (c *clause) allPatterns() []string {
	if len(c.names) > 0 {
		return c.names
	}
	return c.patterns
}

// takesAll reports whether the clause has no limits.
func (c *clause) takesAll() bool {
	return len(c.allPatterns()) == 0 && c.labelSelector == "" && c.fieldSelector == ""
}

// compile prepares the selectors that the agent applies. Those that the API server applies are not among them.
func (c *clause) compile(serverLabels, serverFields string) (err error) {
	c.selector, c.terms = labels.Everything(), nil
	if c.labelSelector != serverLabels {
		if c.selector, err = labels.Parse(c.labelSelector); err != nil {
			return fmt.Errorf("labelSelector %q: %w", c.labelSelector, err)
		}
	}
	if c.fieldSelector == serverFields {
		return nil
	}
	c.terms, err = fieldTerms(c.fieldSelector)
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

// matches reports whether the clause takes an object.
func (c *clause) matches(h *head) bool {
	if !c.namespaces(h.namespace()) || !c.selector.Matches(h.Labels) {
		return false
	}
	for n := range c.terms {
		if t := &c.terms[n]; h.field(t.path) == t.value == t.not {
			return false
		}
	}
	return true
}

func allNamespaces(string) bool { return true }

// reachable returns the clauses that can take anything, in order: no clause before them takes all that they would.
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
		if c.takesAll() {
			break
		}
	}
	return out
}

// within returns the clauses in one namespace, which is the only one of a scope.
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

// literalNamespaces returns the namespaces that all clauses name one by one, none if one clause does not.
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

// knownFields reports whether the API server supports the fields of a selector for every resource.
func knownFields(selector string) bool {
	terms, err := fieldTerms(selector)
	return err == nil && !slices.ContainsFunc(terms, func(t term) bool {
		return t.path.String() != "metadata.name" && t.path.String() != "metadata.namespace"
	})
}

// union names the objects that any of several clauses takes: the limits of each, sorted, with bars between them. It is "" if they take
// all objects.
func union(clauses []clause) string {
	if clauses[len(clauses)-1].takesAll() {
		return ""
	}
	all := make([]string, len(clauses))
	for n := range clauses {
		all[n] = clauses[n].limits()
	}
	slices.Sort(all)
	return strings.Join(all, "|")
}

// Filters are the filters of the rules of a scope. nil withholds nothing.
type Filters struct {
	byClause []Filter
	// Where names the conditions by which objects as a whole are withheld, "": there are none.
	Where string
}

// Filters returns the filters of the scope's rules, nil if none has one.
func (s *Scope) Filters() *Filters {
	out, some := &Filters{byClause: make([]Filter, len(s.clauses))}, false
	h, whole := sha256.New(), false
	for n := range s.clauses {
		rule := s.clauses[n].rule
		if rule == nil {
			continue
		}
		if rule.Filter != nil {
			out.byClause[n] = rule.Filter(s.Resource)
			some = some || out.byClause[n] != nil
		}
		if rule.Where != "" {
			whole = true
			fmt.Fprintf(h, "%d %s\n", n, rule.Where) // a hash never fails
		}
	}
	if whole {
		out.Where = hex.EncodeToString(h.Sum(nil)[:8])
	}
	if !some {
		return nil
	}
	return out
}

// Withholds returns why a delta is not sent, "" if it is sent. The rule that takes the object as it is now decides, or the one that took a
// deleted object.
func (f *Filters) Withholds(d *object.Delta) (reason string) {
	o := d.After
	if o == nil {
		o = d.Before
	}
	return f.WithholdsAs(o.Ref.Clause, d)
}

// WithholdsAs is Withholds for the rule of a clause.
func (f *Filters) WithholdsAs(clause uint16, d *object.Delta) (reason string) {
	if f == nil || int(clause) >= len(f.byClause) || f.byClause[clause] == nil {
		return ""
	}
	return f.byClause[clause].Withholds(d)
}
