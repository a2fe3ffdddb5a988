package informers

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// The agent never captures its own objects: the ConfigMap of its checkpoint and the Lease of its election. They are not part
// of a scope's fingerprint either. Which objects these are follows from the configuration: a Lease that has another name, or
// an election that is switched on or off, changes what the agent ignores, and nothing else. So a checkpoint says which objects
// its fingerprint leaves out. One that an older release wrote does not say so: it matches if it leaves out any one object of
// the resource, or includes what is ignored now.

// ownName is an object's name as Scope.Ignored has it.
func ownName(namespace, name string) string { return namespace + "/" + name }

// isOwned reports whether an agent can have objects of its own among those of a resource.
func isOwned(r *object.Resource) bool {
	return r.Group == "" && r.Name == "configmaps" || r.Group == "coordination.k8s.io" && r.Name == "leases"
}

// ignores are the names of the agent's own objects of a resource. nil: an agent never has any.
func (s *Set) ignores(r *object.Resource) []string {
	var out []string
	if isOwned(r) {
		out = []string{}
	}
	for _, n := range s.o.Ignore {
		if n.Group == r.Group && n.Resource == r.Name {
			out = append(out, ownName(n.Namespace, n.Name))
		}
	}
	slices.Sort(out)
	return out
}

// isStateOf reports whether the objects that were just loaded are those of which c has the fingerprint. own has the
// fingerprints of objects that were ignored meanwhile, by name.
func (i *informer) isStateOf(c *checkpoint.Scope, own map[string]uint64) bool {
	state := i.store.objectsState()
	if c.Ignored != nil {
		for name, f := range own {
			if !slices.Contains(c.Ignored, name) { // it was captured
				state ^= f
			}
		}
		for _, name := range c.Ignored {
			state ^= i.store.fingerprintAt(name) // 0 if it still is ignored
		}
		return state == c.State
	}
	if state == c.State || !isOwned(i.resource) {
		return state == c.State
	}
	states := []uint64{state}
	for _, f := range own {
		for _, s := range states {
			states = append(states, s^f)
		}
	}
	return slices.Contains(states, c.State) || slices.ContainsFunc(states, func(s uint64) bool { return i.store.hasFingerprint(s ^ c.State) })
}

// fingerprintAt is that of the last-known object of a name, as namespace/name; 0: there is none.
func (s *store) fingerprintAt(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[s.prefix+name].last; o != nil {
		return fingerprint(o)
	}
	return 0
}

// hasFingerprint reports whether any of the last-known objects has the fingerprint f.
func (s *store) hasFingerprint(f uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.objects {
		if e.last != nil && fingerprint(e.last) == f {
			return true
		}
	}
	return false
}
