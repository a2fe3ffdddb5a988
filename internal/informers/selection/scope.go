package selection

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Scope says which objects of a resource one informer observes, and what is done to them.
type Scope struct {
	Name      string // in stream events, metrics and the checkpoint: "deployments.apps/shop?labelSelector=app=web"
	Resource  *object.Resource
	Namespace string // the only one, "": there may be several
	// The selectors that the API server applies.
	LabelSelector string
	FieldSelector string

	patterns   []string          // of namespaces as configured, none: all
	namespaces func(string) bool // reports whether a namespace is taken
	clauses    []clause          // what each rule takes, in order; none if nothing can be read
	union      string            // what several clauses take together, "": everything, or there is one clause

	rest     *object.Cutter // of objects that no clause takes
	redacted []string       // paths that any clause redacts
	content  string
}

// Unreadable returns a scope of a checkpoint whose resource does not exist any more. No object can be read from it.
func Unreadable(r *object.Resource, name string, c *checkpoint.Scope, match func(patterns []string) func(string) bool) Scope {
	return Scope{Name: name, Resource: r, patterns: c.Namespaces, namespaces: match(c.Namespaces)}
}

// named returns the scope with the name that follows from its other fields.
func (s Scope) named() Scope {
	s.Name = scopeName(s.Resource, s.patterns, s.LabelSelector, s.FieldSelector, s.union)
	return s
}

// NameOfObject returns the name of the scope of one cluster-scoped object alone.
func NameOfObject(r *object.Resource, name string) string {
	return scopeName(r, nil, "", "metadata.name="+name, "")
}

// NameIn returns the name of the part of the scope that lies in a namespace.
func (s *Scope) NameIn(namespace string) string {
	return scopeName(s.Resource, []string{namespace}, s.LabelSelector, s.FieldSelector, s.union)
}

// scopeName names a resource, namespaces and selectors. union is what several clauses take:
// "pods?any=shop?labelSelector=team=payments|team-*".
func scopeName(r *object.Resource, namespaces []string, labelSelector, fieldSelector, union string) string {
	name := r.String()
	if len(namespaces) > 0 {
		name += "/" + strings.Join(namespaces, ",")
	}
	selectors := selectorsName(labelSelector, fieldSelector)
	switch {
	case union == "":
		return name + selectors
	case selectors == "":
		return name + "?any=" + union
	default:
		return name + selectors + "&any=" + union
	}
}

// selectorsName returns "?labelSelector=app=web&fieldSelector=metadata.name=a", "" without any selector.
func selectorsName(labelSelector, fieldSelector string) string {
	var b strings.Builder
	sep := byte('?')
	for _, s := range []struct{ name, value string }{{"labelSelector", labelSelector}, {"fieldSelector", fieldSelector}} {
		if s.value != "" {
			b.WriteByte(sep)
			b.WriteString(s.name + "=" + s.value)
			sep = '&'
		}
	}
	return b.String()
}

// SingleNamespace returns the only namespace that patterns name, false if there are several or none, or it is a glob.
func SingleNamespace(patterns []string) (namespace string, ok bool) {
	if len(patterns) != 1 {
		return "", false
	}
	for _, c := range patterns[0] {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return "", false
		}
	}
	return patterns[0], true
}

// Takes reports whether the scope can have objects in a namespace. A cluster-scoped resource has its objects in "".
func (s *Scope) Takes(namespace string) bool {
	return s.Resource.Namespaced == (namespace != "") && s.namespaces(namespace)
}

// HasServerSelector reports whether the API server applies a selector.
func (s *Scope) HasServerSelector() bool { return s.LabelSelector != "" || s.FieldSelector != "" }

// HasAgentSelector reports whether the agent excludes objects by selectors.
func (s *Scope) HasAgentSelector() bool { return s.union != "" }

// HasSelector reports whether an object can enter or leave the scope while it exists.
func (s *Scope) HasSelector() bool { return s.HasServerSelector() || s.HasAgentSelector() }

// ForNode returns the scope of a node's objects if s is that of objects without a node: the field selector of s ends in
// "spec.nodeName=".
func (s *Scope) ForNode(node string) Scope {
	of := *s
	of.FieldSelector += node
	return of.named()
}

// IsSame reports whether the same rules take the same objects in the same order, and cut and redact them in the same way. An
// informer keeps its version of the resource, unless the rules of other ask for another one.
func (s *Scope) IsSame(other *Scope) bool {
	was, is := s.Resource, other.Resource
	sameResource := *was == *is || was.Kind == is.Kind && was.Namespaced == is.Namespaced && other.clauses[0].rule.takes(was)
	return sameResource && s.content == other.content && slices.EqualFunc(s.clauses, other.clauses, func(a, b clause) bool {
		return a.limits() == b.limits()
	})
}

// Record writes what the scope is into its checkpoint, in the form that FromCheckpoint reads.
func (s *Scope) Record(c *checkpoint.Scope) {
	r := s.Resource
	c.Group, c.Version, c.Resource, c.Kind, c.Namespaced = r.Group, r.Version, r.Name, r.Kind, r.Namespaced
	c.Namespaces, c.LabelSelector, c.FieldSelector = s.patterns, s.LabelSelector, s.FieldSelector
	c.Redact, c.Content, c.Clauses = s.redacted, s.content, nil
	if !s.isShared() {
		return
	}
	for n := range s.clauses {
		cl := &s.clauses[n]
		c.Clauses = append(c.Clauses, checkpoint.Clause{Namespaces: cl.allPatterns(), LabelSelector: cl.labelSelector, FieldSelector: cl.fieldSelector})
	}
}

// isShared reports whether the agent decides for each object which of several clauses takes it.
func (s *Scope) isShared() bool { return len(s.clauses) > 1 }

// Content names how objects are cut and redacted: other content has another name.
func (s *Scope) Content() string { return s.content }

// unchanged is the content of objects that are neither cut nor redacted. A checkpoint of an old release has none at all.
const unchanged = "whole"

// content names how the clause cuts and redacts objects.
func (c *clause) content() string {
	if f := c.cutter.Fingerprint(); f != "" {
		return f
	}
	return unchanged
}

// alike reports whether all clauses cut and redact objects in the same way.
func alike(clauses []clause) bool {
	first := clauses[0].content()
	return !slices.ContainsFunc(clauses, func(c clause) bool { return c.content() != first })
}

// content names how clauses cut and redact objects.
func content(clauses []clause) string {
	if alike(clauses) {
		return clauses[0].content()
	}
	h := sha256.New() // which of them takes an object matters, and with it their order
	for n := range clauses {
		_, _ = io.WriteString(h, clauses[n].limits()+" "+clauses[n].content()+"\n") // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
