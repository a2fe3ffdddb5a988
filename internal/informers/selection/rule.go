package selection

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Spec says what is captured, and what is done to objects before anything holds them.
type Spec struct {
	Rules []Rule   // tried in order, for each object
	Strip []string // paths that are removed, see object.NewCutter
	// Secrets says that the values of Secrets are redacted.
	Secrets bool
	MAC     *object.MAC // replaces redacted values; nil: they are removed
	// Part returns the part of a resource that the agent captures, within what the rules take. nil: all of it.
	Part func(group, resource string) Part
}

// Pattern names resources as kubectl does.
type Pattern interface {
	Match(group, version, resource string) bool
	String() string
}

// Rule takes objects of the resources that match one of Resources and none of Except.
type Rule struct {
	Resources []Pattern
	Except    []Pattern
	// Namespaces reports whether a namespace is taken. Names lists the namespaces if the configuration names each of them:
	// then each has a scope of its own, which works if RBAC permits these namespaces only. AllNamespaces: the rule takes
	// cluster-scoped resources too.
	Namespaces    func(namespace string) bool
	Names         []string
	Patterns      []string // as configured, for the scope's name; empty: all
	AllNamespaces bool
	LabelSelector string
	FieldSelector string
	// Redact are paths whose values are redacted while an object is read, see object.Cutter.Redact.
	Redact []string
	// Filter returns what withholds deltas of a resource, nil: nothing does. A nil Filter withholds nothing.
	Filter func(r *object.Resource) Filter
	// Where names the condition by which Filter withholds objects as a whole, in reads too; "": there is none.
	Where string
}

// Filter withholds deltas on purpose. It is safe for concurrent use.
type Filter interface {
	// Withholds returns why a delta is not sent, "": it is sent.
	Withholds(d *object.Delta) (reason string)
}

// Part limits what an agent captures of a resource to its part of the cluster. The zero value sets no limit.
type Part struct {
	None          bool   // nothing of the resource
	FieldSelector string // in addition to the rule's own
	Namespace     string // the only one, "": all that the rules take
}

// takes reports whether the rule names a resource. It may still take no object of it.
func (r *Rule) takes(res *object.Resource) bool {
	return matchesAny(r.Resources, res) && !r.excepts(res)
}

func (r *Rule) excepts(res *object.Resource) bool { return matchesAny(r.Except, res) }

func matchesAny(patterns []Pattern, res *object.Resource) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Match(res.Group, res.Version, res.Name) })
}
