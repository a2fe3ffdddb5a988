package informers

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/object"
)

// The agent never captures its own objects: the ConfigMap of its checkpoint and the Lease of its election. They are not part
// of a scope's fingerprint either. Which objects these are follows from the configuration: a Lease that has another name, or
// an election that is switched on or off, changes what the agent ignores, and nothing else. So a checkpoint stores which objects
// its fingerprint leaves out. A checkpoint of an older release does not: it matches if it leaves out any one object of the resource, or
// includes the objects that are ignored now.

// isOwned reports whether an agent can have objects of its own among those of a resource.
func isOwned(r *object.Resource) bool {
	return r.Group == "" && r.Name == "configmaps" || r.Group == "coordination.k8s.io" && r.Name == "leases"
}

// ownNames returns the names of the agent's own objects of a resource. nil: an agent never has any.
func (s *Manager) ownNames(r *object.Resource) []string {
	var out []string
	if isOwned(r) {
		out = []string{}
	}
	for _, n := range s.o.Ignore {
		if n.Group == r.Group && n.Resource == r.Name {
			out = append(out, scope.OwnName(n.Namespace, n.Name))
		}
	}
	slices.Sort(out)
	return out
}
