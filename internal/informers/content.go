package informers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Selection is what a Set observes, and what it does to the objects before anything holds them.
type Selection struct {
	Rules []Rule   // tried in order, for each object
	Strip []string // paths, see object.NewCutter
	// Secrets has the values of Secrets redacted.
	Secrets bool
	MAC     *object.MAC // replaces what is redacted, nil: it is removed
}

// selecting is a Selection with what is made of it. Immutable.
type selecting struct {
	Selection
	cutter *object.Cutter // of Strip
}

func newSelecting(sel Selection) (*selecting, error) {
	cutter, err := object.NewCutter(sel.Strip)
	if err != nil {
		return nil, fmt.Errorf("strip: %w", err)
	}
	s := &selecting{Selection: sel, cutter: cutter}
	for n := range sel.Rules {
		rule := &sel.Rules[n]
		c := clause{labels: rule.LabelSelector, fields: rule.FieldSelector}
		if err := c.compile("", ""); err != nil {
			return nil, fmt.Errorf("rule %d: %w", n, err)
		}
		if _, err := cutter.Redact(rule.Redact, sel.MAC); err != nil {
			return nil, fmt.Errorf("rule %d: redact: %w", n, err)
		}
	}
	return s, nil
}

func isSecrets(r *object.Resource) bool { return r.Group == "" && r.Name == "secrets" }

// cutterOf is what cuts and redacts the objects of a resource that a rule takes; nil: of no rule.
func (s *selecting) cutterOf(r *object.Resource, rule *Rule) (*object.Cutter, error) {
	c, err := s.cutter.Redact(s.redacted(r, rule), s.MAC)
	if err != nil {
		return nil, fmt.Errorf("%s: redact: %w", r, err)
	}
	return c, nil
}

// redacted are the paths that are redacted in the objects of a resource that a rule takes; nil: of no rule.
func (s *selecting) redacted(r *object.Resource, rule *Rule) []string {
	var paths []string
	if rule != nil {
		paths = append(paths, rule.Redact...)
	}
	if s.Secrets && isSecrets(r) {
		paths = append(paths, object.SecretPaths(s.MAC != nil)...)
	}
	return paths
}

// redacts completes a selection by what is done to objects: what no clause takes is redacted as all of them do together.
func (s *selecting) redacts(r *object.Resource, sel *selection) (err error) {
	sel.redacted = nil
	for n := range sel.clauses {
		sel.redacted = append(sel.redacted, s.redacted(r, sel.clauses[n].rule)...)
	}
	slices.Sort(sel.redacted)
	sel.redacted = slices.Compact(sel.redacted)
	sel.content = content(sel.clauses)
	sel.rest, err = s.cutter.Redact(sel.redacted, s.MAC)
	return err
}

// plain is a selection of all objects of a resource, redacted as all rules do together.
func (s *selecting) plain(r *object.Resource) (selection, error) {
	rule := &Rule{Namespaces: allNamespaces}
	for n := range s.Rules {
		if s.Rules[n].match(r.Group, r.Version, r.Name) {
			rule.Redact = append(rule.Redact, s.Rules[n].Redact...)
		}
	}
	all, err := s.selections(r, []*Rule{rule}, Part{})
	if err != nil {
		return selection{}, err
	}
	return all[0], nil
}

// restored is the selection of a scope of another run, or of another Selection, whose rules are no more: it is redacted as they
// did and as those do that there are now. Secrets always are.
func (s *selecting) restored(r *object.Resource, scope string, c *checkpoint.Scope, match func([]string) func(string) bool) (selection, error) {
	paths := slices.Clone(c.Redact)
	if isSecrets(r) {
		paths = append(paths, object.SecretPaths(s.MAC != nil)...)
	}
	for n := range s.Rules {
		if s.Rules[n].match(r.Group, r.Version, r.Name) {
			paths = append(paths, s.Rules[n].Redact...)
		}
	}
	cutter, err := s.cutter.Redact(paths, s.MAC)
	if err != nil {
		return selection{}, err
	}
	sel := selection{patterns: c.Namespaces, namespaces: match(c.Namespaces), labels: c.LabelSelector, fields: c.FieldSelector, rest: cutter}
	if len(c.Namespaces) == 1 && isName(c.Namespaces[0]) && strings.HasPrefix(scope, scopeName(r, c.Namespaces, "", "", "")) {
		sel.namespace = c.Namespaces[0]
	}
	kept := c.Clauses
	if len(kept) == 0 {
		kept = []checkpoint.Clause{{Namespaces: c.Namespaces, LabelSelector: c.LabelSelector, FieldSelector: c.FieldSelector}}
	}
	for _, k := range kept {
		cl := clause{patterns: k.Namespaces, namespaces: match(k.Namespaces), labels: k.LabelSelector, fields: k.FieldSelector, cutter: cutter}
		if err := cl.compile(c.LabelSelector, c.FieldSelector); err != nil {
			return selection{}, fmt.Errorf("%s: %w", scope, err)
		}
		sel.clauses = append(sel.clauses, cl)
	}
	return sel, nil
}

// unchanged is the content of what is neither cut nor redacted: in a checkpoint, none at all tells that it is an old one.
const unchanged = "whole"

// name names what is done to the objects that the clause takes.
func (c *clause) name() string {
	if f := c.cutter.Fingerprint(); f != "" {
		return f
	}
	return unchanged
}

// alike tells that one thing is done to whatever the clauses take.
func alike(clauses []clause) bool {
	first := clauses[0].name()
	return !slices.ContainsFunc(clauses, func(c clause) bool { return c.name() != first })
}

// content names what is done to the objects that the clauses take.
func content(clauses []clause) string {
	if alike(clauses) {
		return clauses[0].name()
	}
	h := sha256.New() // which of them takes an object matters, and with it their order
	for n := range clauses {
		_, _ = io.WriteString(h, clauses[n].limits()+" "+clauses[n].name()+"\n") // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
