package selection

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Scope says which objects of a resource one informer observes, and how it changes them.
type Scope struct {
	Name      string // in stream events, metrics and the checkpoint: "deployments.apps/shop?labelSelector=app=web"
	Resource  *object.Resource
	Namespace string // the only one, "" if there may be several
	// The selectors that the API server applies.
	LabelSelector string
	FieldSelector string

	patterns   []string          // of namespaces as configured; none if it takes all
	namespaces func(string) bool // reports whether a namespace is taken
	clauses    []clause          // one for each rule, in order; none if nothing can be read
	// name of the objects of several clauses; "" for all objects, or if there is one clause
	union string

	rest     *object.Cutter // of objects that no clause takes
	redacted []string       // paths that any clause redacts
	content  string
}

// Unreadable returns a scope of a checkpoint whose resource no longer exists. No object can be read
// from it.
func Unreadable(
	r *object.Resource, name string, c *checkpoint.Scope, match func(patterns []string) func(string) bool,
) Scope {
	return Scope{
		Name:       name,
		Resource:   r,
		patterns:   c.Namespaces,
		namespaces: match(c.Namespaces),
	}
}

// named returns the scope with the name that its other fields determine.
func (s Scope) named() Scope {
	s.Name = scopeName(s.Resource, s.patterns, s.LabelSelector, s.FieldSelector, s.union)
	return s
}

// NameOfObject returns the name of the scope of a single cluster-scoped object.
func NameOfObject(r *object.Resource, name string) string {
	return scopeName(r, nil, "", "metadata.name="+name, "")
}

// NameIn returns the name of the part of the scope in a namespace.
func (s *Scope) NameIn(namespace string) string {
	return scopeName(s.Resource, []string{namespace}, s.LabelSelector, s.FieldSelector, s.union)
}

// scopeName returns for example "pods?any=shop?labelSelector=team=payments|team-*".
func scopeName(r *object.Resource, namespaces []string, labelSelector, fieldSelector, union string) string {
	name := r.String()
	if len(namespaces) > 0 {
		name += "/" + strings.Join(namespaces, ",")
	}
	return name + query(labelSelector, fieldSelector, union)
}

// query returns "?labelSelector=app=web&fieldSelector=metadata.name=a", "" if all are empty.
func query(labelSelector, fieldSelector, union string) (out string) {
	sep := "?"
	for _, p := range [][2]string{{"labelSelector", labelSelector}, {"fieldSelector", fieldSelector}, {"any", union}} {
		if p[1] != "" {
			out += sep + p[0] + "=" + p[1]
			sep = "&"
		}
	}
	return out
}

// SingleNamespace returns the only namespace that patterns name. It returns false if there are
// several or none, or it is a glob.
func SingleNamespace(patterns []string) (namespace string, ok bool) {
	if len(patterns) != 1 || strings.Trim(patterns[0], "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "", false
	}
	return patterns[0], true
}

// Takes reports whether the scope can have objects in a namespace. A cluster-scoped resource has
// its objects in "".
func (s *Scope) Takes(namespace string) bool {
	return s.Resource.Namespaced == (namespace != "") && s.namespaces(namespace)
}

// HasServerSelector reports whether the API server applies a selector.
func (s *Scope) HasServerSelector() bool { return s.LabelSelector != "" || s.FieldSelector != "" }

// HasAgentSelector reports whether the agent excludes objects by selectors.
func (s *Scope) HasAgentSelector() bool { return s.union != "" }

// HasSelector reports whether an object can enter or leave the scope while it exists.
func (s *Scope) HasSelector() bool { return s.HasServerSelector() || s.HasAgentSelector() }

// ForNode returns the scope of a node's objects. s is that of objects on no node: its field
// selector ends in "spec.nodeName=".
func (s *Scope) ForNode(node string) Scope {
	of := *s
	of.FieldSelector += node
	return of.named()
}

// IsSame reports whether the same rules take the same objects in the same order, and cut and redact
// them in the same way. An informer keeps its version of the resource, unless the rules of other
// ask for another one.
func (s *Scope) IsSame(other *Scope) bool {
	was, is := s.Resource, other.Resource
	sameResource := *was == *is ||
		was.Kind == is.Kind && was.Namespaced == is.Namespaced && other.clauses[0].rule.takes(was)
	return sameResource && s.content == other.content &&
		slices.EqualFunc(s.clauses, other.clauses, func(a, b clause) bool {
			return a.limits() == b.limits()
		})
}

// Describe writes the description of the scope into its checkpoint, in the form that FromCheckpoint
// reads.
func (s *Scope) Describe(c *checkpoint.Scope) {
	r := s.Resource
	c.Group = r.Group
	c.Version = r.Version
	c.Resource = r.Name
	c.Kind = r.Kind
	c.Namespaced = r.Namespaced
	c.Namespaces = s.patterns
	c.LabelSelector = s.LabelSelector
	c.FieldSelector = s.FieldSelector
	c.Redact = s.redacted
	c.Content = s.content
	c.Clauses = nil
	if s.isShared() {
		for _, cl := range s.clauses {
			c.Clauses = append(c.Clauses, checkpoint.Clause{
				Namespaces:    cl.patterns,
				LabelSelector: cl.labelSelector,
				FieldSelector: cl.fieldSelector,
			})
		}
	}
}

// FilterText says which changes the filters of a rule send, in the words of the configuration.
type FilterText struct {
	Operations []string `json:"operations,omitempty"`
	Where      string   `json:"where,omitempty"`
	OnError    string   `json:"onError,omitempty"`
	Noise      []string `json:"noise,omitempty"`
}

// Rules returns the rules of the scope in order, each with its limits and filters, as a JSON array
// for consumers (consume.Rule).
func (s *Scope) Rules() []byte {
	type rule struct {
		checkpoint.Clause
		FilterText
	}
	all := make([]rule, len(s.clauses))
	for n := range s.clauses {
		c := &s.clauses[n]
		all[n].Clause = checkpoint.Clause{
			Namespaces:    c.patterns,
			LabelSelector: c.labelSelector,
			FieldSelector: c.fieldSelector,
		}
		if s.Namespace != "" {
			all[n].Namespaces = []string{s.Namespace}
		}
		if c.rule != nil {
			all[n].FilterText = c.rule.Filters
		}
	}
	out, _ := json.Marshal(all) // strings
	return out
}

// isShared reports whether the agent decides for each object which of several clauses takes it.
func (s *Scope) isShared() bool { return len(s.clauses) > 1 }

// Content returns a name for the way in which objects are cut and redacted. Another way has another
// name.
func (s *Scope) Content() string { return s.content }

// content returns a name for the way in which the clause cuts and redacts: "whole" if it does
// neither. Old releases saved none.
func (c *clause) content() string { return cmp.Or(c.cutter.Fingerprint(), "whole") }

// alike reports whether of returns the same for all clauses.
func alike(clauses []clause, of func(*clause) string) bool {
	first := of(&clauses[0])
	return !slices.ContainsFunc(clauses, func(c clause) bool { return of(&c) != first })
}

// content returns a name for the way in which clauses cut and redact objects.
func content(clauses []clause) string {
	if alike(clauses, (*clause).content) {
		return clauses[0].content()
	}
	var text string // it matters which of them takes an object, and so does their order
	for n := range clauses {
		text += clauses[n].limits() + " " + clauses[n].content() + "\n"
	}
	return digest(text)
}
