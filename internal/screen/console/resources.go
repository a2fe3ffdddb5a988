package console

import "github.com/kubecdc/kubecdc/internal/object/kinds"

// builtin reports whether a group is Kubernetes' own, so that its resources are shown without it.
// events.k8s.io is not included: it has the core group's events.
func builtin(group string) bool { return group != "events.k8s.io" && kinds.IsGroup(group) }

// expand returns the plural and the groups of a Kubernetes resource. name is its plural, singular,
// kind or short name. plural is "" if there is none.
func expand(name string) (plural string, groups []string) {
	for _, k := range kinds.Named(name) {
		plural, groups = k.Plural, append(groups, k.Group)
	}
	return plural, groups
}
