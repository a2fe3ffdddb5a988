package informers

import (
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// ownGroup reports whether the API server itself serves a group. The list is that of one release of Kubernetes, so it decides what
// is watched and which permissions that takes. It never decides whether objects were deleted (definitions.isGone).
func ownGroup(group string) bool {
	switch group {
	case "", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "authentication.k8s.io",
		"authorization.k8s.io", "autoscaling", "batch", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"extensions", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "policy",
		"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io":
		return true
	}
	return false
}

// TakesForeign tells if a pattern can name what is not Kubernetes' own: custom resources, and those that other API servers
// serve. An agent that takes such resources watches CustomResourceDefinitions and APIServices.
func TakesForeign(p selection.Pattern) bool {
	resource, group, _ := strings.Cut(p.String(), ".")
	in := "v1"
	if v, rest, _ := strings.Cut(group, "."); isVersion(v) {
		in, group = v, rest
	}
	switch {
	case group != "":
		return !ownGroup(group)
	case strings.HasSuffix(p.String(), "."):
		return false // the core group
	case resource == "*":
		resource = "any"
	}
	return p.Match("foreign.invalid", in, resource)
}

// isVersion tells a version from the first label of a group.
func isVersion(s string) bool { return len(s) > 1 && s[0] == 'v' && s[1] >= '0' && s[1] <= '9' }

// takesForeign tells if any rule can take what is not Kubernetes' own.
func (s *Set) takesForeign() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.partOf(&object.Resource{Group: "foreign.invalid", Name: "any"}).None {
		return false
	}
	return slices.ContainsFunc(s.sel.Rules, func(r selection.Rule) bool { return slices.ContainsFunc(r.Resources, TakesForeign) })
}
