package discovery

import (
	"strings"

	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// IsBuiltIn reports whether the API server itself serves a group, according to one release of Kubernetes. This decides what is watched
// and which permissions are needed. It never decides whether objects were deleted; see Extensions.DeletedAt.
func IsBuiltIn(group string) bool {
	switch group {
	case "", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "authentication.k8s.io",
		"authorization.k8s.io", "autoscaling", "batch", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"extensions", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "policy",
		"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io":
		return true
	}
	return false
}

// SomeExtension is a group that no API server has. It stands for any extension.
const SomeExtension = "extension.invalid"

// TakesExtensions reports whether a pattern can match extensions. If one can, the agent watches definitions and APIServices.
func TakesExtensions(p selection.Pattern) bool {
	resource, group, _ := strings.Cut(p.String(), ".")
	in := "v1"
	if v, rest, _ := strings.Cut(group, "."); isVersion(v) {
		in, group = v, rest
	}
	switch {
	case group != "":
		return !IsBuiltIn(group)
	case strings.HasSuffix(p.String(), "."):
		return false // the core group
	case resource == "*":
		resource = "any"
	}
	return p.Match(SomeExtension, in, resource)
}

// isVersion reports whether the first label of a group is a version.
func isVersion(s string) bool { return len(s) > 1 && s[0] == 'v' && s[1] >= '0' && s[1] <= '9' }
