package config

import (
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// builtin is a resource that Kubernetes itself serves and that can be watched.
type builtin struct {
	resource string
	groups   []string // that serve it; the preferred one is the first
	cluster  bool     // its objects have no namespace
}

// newBuiltin returns the resource of kinds with one plural, nil if there are none.
func newBuiltin(all []kinds.Kind) *builtin {
	if len(all) == 0 {
		return nil
	}
	b := &builtin{resource: all[0].Plural, cluster: !all[0].Namespaced}
	for i := range all {
		b.groups = append(b.groups, all[i].Group)
	}
	return b
}

// name returns the resource with its group.
func (b *builtin) name() string {
	if b.groups[0] == "" {
		return b.resource
	}
	return b.resource + "." + b.groups[0]
}

// uncapturables are the resources that Kubernetes and metrics-server serve without one of the verbs
// list and watch.
var uncapturables = []struct { //nolint:gochecknoglobals // a constant; Go has none of slices
	resource, group, why string
}{
	{"bindings", "", onlyCreated},
	{"componentstatuses", "", onlyRead},
	{"selfsubjectreviews", "authentication.k8s.io", onlyCreated},
	{"tokenreviews", "authentication.k8s.io", onlyCreated},
	{"localsubjectaccessreviews", "authorization.k8s.io", onlyCreated},
	{"selfsubjectaccessreviews", "authorization.k8s.io", onlyCreated},
	{"selfsubjectrulesreviews", "authorization.k8s.io", onlyCreated},
	{"subjectaccessreviews", "authorization.k8s.io", onlyCreated},
	{"nodes", "metrics.k8s.io", onlyRead},
	{"pods", "metrics.k8s.io", onlyRead},
}

const (
	onlyCreated = "is served without list and watch (its verbs: create), so it cannot be captured"
	onlyRead    = "is served without watch (its verbs: get, list), so it cannot be captured"
)

// uncapturable returns the group of a resource that cannot be captured, and why; "": it may be one
// that can.
func (p *ResourcePattern) uncapturable() (group, why string) {
	for _, u := range uncapturables {
		anyGroup := p.Group == "" && !p.Core && builtinOf(p.Resource) == nil
		if u.resource == p.Resource && (u.group == p.Group || anyGroup) {
			return u.group, u.why
		}
	}
	return "", ""
}

// builtinOf returns the resource with a name; nil: Kubernetes serves none.
func builtinOf(resource string) *builtin { return newBuiltin(kinds.Of(resource)) }

// builtinGroups returns the groups in which Kubernetes serves a resource of this name, nil if it
// serves none.
func builtinGroups(resource string) []string {
	if b := builtinOf(resource); b != nil {
		return b.groups
	}
	return nil
}

// builtinNamed finds a resource by any name that kubectl accepts: its name, a short name, the
// singular or the kind.
func builtinNamed(word string) *builtin { return newBuiltin(kinds.Named(word)) }

// whyWrong returns why the pattern, written as text, is not valid; "": it is.
func (p *ResourcePattern) whyWrong(text string) string {
	malformed := p.Resource != "*" && !resourceName.MatchString(p.Resource) ||
		p.Group != "" && !resourceGroup.MatchString(p.Group)
	switch b := builtinNamed(p.Resource); {
	case text == "":
		return "it is empty"
	case malformed:
		// "Deployment", "Deployment.apps", "apps/v1/Deployment", "deployments/scale"
		words := strings.Split(text, "/")
		for _, word := range slices.Backward(words) {
			name, _, _ := strings.Cut(word, ".")
			if b := builtinNamed(name); b != nil {
				return "did you mean " + b.name() + "?"
			}
		}
		if near := wording.Nearest(p.Resource, kinds.Plurals()); near != "" { // "Deploymnet"
			return "did you mean " + builtinOf(near).name() + "?"
		}
		return "write pods, deployments.apps, deployments.v1.apps, *.networking.k8s.io or *, in lower case"
	case b == nil:
		return ""
	case b.resource != p.Resource && p.Group == "" && !p.Core:
		return "did you mean " + b.name() + "?" // a kind or a short name; with a group it may be a custom resource
	case b.resource == p.Resource && (p.Group != "" || p.Core) && !slices.Contains(b.groups, p.Group) &&
		(!strings.Contains(p.Group, ".") || kinds.IsGroup(p.Group)):
		// A group without a dot belongs to Kubernetes; groups of custom resources have a dot.
		return "there are no " + b.resource + " in that group, did you mean " + b.name() + "?"
	}
	return ""
}

// whyDoubtful returns why a valid pattern is probably a mistake; "": no reason is known.
func (p *ResourcePattern) whyDoubtful() string {
	switch {
	case p.Resource == "*" && p.Group != "" && !strings.Contains(p.Group, ".") && !kinds.IsGroup(p.Group):
		return "Kubernetes has no group " + p.Group + ", and those of custom resources have a dot in their names"
	case p.Resource == "*", p.Group != "", p.Core, builtinOf(p.Resource) != nil:
		return ""
	}
	if near := wording.Nearest(p.Resource, kinds.Plurals()); near != "" {
		return "Kubernetes has no resource " + p.Resource + ", did you mean " + builtinOf(near).name() + "?"
	}
	return "Kubernetes has no resource " + p.Resource +
		": it is captured from every group that has one; to name only one, " +
		"add its group (" + p.Resource + ".example.com)"
}
