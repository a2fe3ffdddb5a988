package selection

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	patterns      []string          // of namespaces; none if it takes all
	literal       bool              // the patterns name the namespaces one by one
	namespaces    func(string) bool // reports whether a namespace is taken
	labelSelector string
	fieldSelector string
	cutter        *object.Cutter

	// The agent applies these: the selectors without those that the API server applies.
	selector labels.Selector
	terms    []term
}

// term is a requirement of a field selector.
type term struct {
	path  *object.Path
	value string
	not   bool
}

// limits returns the clause in a readable form: "shop,web?labelSelector=team=payments", "*" without
// any limit.
func (c *clause) limits() string {
	namespaces := "*"
	if len(c.patterns) > 0 {
		namespaces = strings.Join(c.patterns, ",")
	}
	return namespaces + query(c.labelSelector, c.fieldSelector, "")
}

// takesAll reports whether the clause has no limits.
func (c *clause) takesAll() bool {
	return len(c.patterns) == 0 && c.labelSelector == "" && c.fieldSelector == ""
}

// compile prepares the selectors that the agent applies, without those that the API server applies.
func (c *clause) compile(serverLabels, serverFields string) (err error) {
	c.selector, c.terms = labels.Everything(), nil
	if c.labelSelector != serverLabels {
		c.selector, err = labels.Parse(c.labelSelector)
		if err != nil {
			return fmt.Errorf("labelSelector %q: %w", c.labelSelector, err)
		}
	}
	if c.fieldSelector != serverFields {
		c.terms, err = fieldTerms(c.fieldSelector)
	}
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

// matches reports whether the clause takes the object raw, whose head is h.
func (c *clause) matches(h *object.Head, raw []byte) bool {
	return c.namespaces(string(h.Namespace)) && c.selector.Matches(h.Labels) &&
		!slices.ContainsFunc(c.terms, func(t term) bool { return field(raw, t.path) == t.value == t.not })
}

func allNamespaces(string) bool { return true }

// reachable returns the clauses that can take anything, in order: no earlier clause takes all of
// their objects.
func reachable(all []clause) []clause {
	var out []clause
	seen := map[string]bool{}
	for _, c := range all {
		if limits := c.limits(); !seen[limits] {
			seen[limits] = true
			out = append(out, c)
		}
		if c.takesAll() {
			break
		}
	}
	return out
}

// within returns the clauses within one namespace, the only one of a scope.
func within(namespace string, all []clause) []clause {
	out := slices.DeleteFunc(slices.Clone(all), func(c clause) bool { return !c.namespaces(namespace) })
	for n := range out {
		out[n].patterns = nil
		out[n].literal = false
		out[n].namespaces = func(ns string) bool { return ns == namespace }
	}
	return reachable(out)
}

// literalNamespaces returns the namespaces if all clauses name theirs one by one, else none.
func literalNamespaces(clauses []clause) []string {
	var all []string
	for n := range clauses {
		if !clauses[n].literal {
			return nil
		}
		all = append(all, clauses[n].patterns...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// knownFields reports whether the API server supports the fields of a selector for every resource.
func knownFields(selector string) bool {
	terms, err := fieldTerms(selector)
	return err == nil && !slices.ContainsFunc(terms, func(t term) bool {
		return t.path.String() != "metadata.name" && t.path.String() != "metadata.namespace"
	})
}

// union returns a name for the objects that any of several clauses takes: the limits of each,
// sorted, between bars; "" for all objects.
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
	Where    string // name of the conditions that withhold whole objects, "" if there are none
}

// Filters returns the filters of the scope's rules, nil if none has one.
func (s *Scope) Filters() *Filters {
	out := &Filters{byClause: make([]Filter, len(s.clauses))}
	some := false
	where := ""
	for n := range s.clauses {
		rule := s.clauses[n].rule
		if rule != nil && rule.Filter != nil {
			out.byClause[n] = rule.Filter(s.Resource)
			some = some || out.byClause[n] != nil
		}
		if rule != nil && rule.Where != "" {
			where += fmt.Sprintf("%d %s\n", n, rule.Where)
		}
	}
	switch {
	case !some:
		return nil
	case where != "":
		out.Where = digest(where)
	}
	return out
}

// digest returns a short name of a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// Withholds returns why a delta is not sent, "" to send it. The rule that takes the object decides,
// or the one that took a deleted object.
func (f *Filters) Withholds(d *object.Delta) (reason string) {
	return f.WithholdsAs(cmp.Or(d.After, d.Before).Ref.Clause, d)
}

// WithholdsAs does what Withholds does, by the rule of a clause.
func (f *Filters) WithholdsAs(clause uint16, d *object.Delta) (reason string) {
	if f == nil || int(clause) >= len(f.byClause) || f.byClause[clause] == nil {
		return ""
	}
	return f.byClause[clause].Withholds(d)
}
