package informers

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// ref finds the identity that the store holds for a name and uid under a clause, and when its last-known version was managed.
// Else it makes a new one. The arguments are not kept; scratch is reused.
func (s *store) ref(namespace, name, uid []byte, clause uint16, scratch *[]byte) (*object.Ref, object.Stamp) {
	k := append((*scratch)[:0], s.prefix...)
	k = append(k, namespace...)
	if len(namespace) > 0 {
		k = append(k, '/')
	}
	k = append(k, name...)
	*scratch = k
	s.mu.Lock()
	last := s.objects[string(k)].last
	s.mu.Unlock()
	var managed object.Stamp
	if last != nil && last.Ref.UID == string(uid) {
		if managed = last.Managed; last.Ref.Clause == clause {
			return last.Ref, managed
		}
	}
	ref := object.NewRef(s.o.Resource, string(namespace), string(name), string(uid))
	ref.Clause = clause
	return ref, managed
}

// has reports whether there is a cluster-scoped object of that name.
func (s *store) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[s.prefix+name].last != nil
}

// population is how many objects there are.
func (s *store) population() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}

// newest is the last-known object that was changed last, nil: there is none.
func (s *store) newest() (out *object.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.objects {
		if e.last != nil && (out == nil || e.last.ResourceVersion > out.ResourceVersion) {
			out = e.last
		}
	}
	return out
}

// remove has the object o not be known.
func (s *store) remove(o *object.Object, _ *object.Scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(o.Ref.Key, entry{})
}

// clear has no object be known.
func (s *store) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.objects {
		s.set(key, entry{})
	}
}

// isStateOf reports whether the objects that were just loaded are those of which c has the fingerprint. own has the
// fingerprints of objects that were ignored meanwhile, by name, nil: the agent has no objects of its own among those of the resource.
func (s *store) isStateOf(c *checkpoint.Scope, own map[string]uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	if c.Ignored != nil {
		for name, f := range own {
			if !slices.Contains(c.Ignored, name) { // it was captured
				state ^= f
			}
		}
		for _, name := range c.Ignored {
			if o := s.objects[s.prefix+name].last; o != nil { // else it still is ignored
				state ^= fingerprint(o)
			}
		}
		return state == c.State
	}
	if state == c.State || own == nil {
		return state == c.State
	}
	states := []uint64{state}
	for _, f := range own {
		for _, s := range states {
			states = append(states, s^f)
		}
	}
	if slices.Contains(states, c.State) {
		return true
	}
	for _, e := range s.objects {
		if e.last != nil && slices.Contains(states, fingerprint(e.last)^c.State) {
			return true
		}
	}
	return false
}
