package store

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Ref finds the identity that the store holds for a name and uid under a clause, and when its last-known version was managed.
// Else it makes a new one. The arguments are not kept; scratch is reused.
func (s *Store) Ref(namespace, name, uid []byte, clause uint16, scratch *[]byte) (*object.Ref, object.Stamp) {
	k := append((*scratch)[:0], s.prefix...)
	k = append(k, namespace...)
	if len(namespace) > 0 {
		k = append(k, '/')
	}
	k = append(k, name...)
	*scratch = k
	s.mu.Lock()
	last := s.known.objects[string(k)].last
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

// Has reports whether there is a cluster-scoped object of that name.
func (s *Store) Has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.objects[s.prefix+name].last != nil
}

// Len is how many objects there are.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known.objects)
}

// Newest is the last-known object that was changed last, nil: there is none.
func (s *Store) Newest() (out *object.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.known.objects {
		if e.last != nil && (out == nil || e.last.ResourceVersion > out.ResourceVersion) {
			out = e.last
		}
	}
	return out
}

// Remove has the object o not be known.
func (s *Store) Remove(o *object.Object, _ *object.Scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(o.Ref.Key, entry{})
}

// Clear has no object be known.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.known.objects {
		s.setLocked(key, entry{})
	}
}

// Matches reports whether the objects that were just loaded are those of which c has the fingerprint. own has the
// fingerprints of objects that were ignored meanwhile, by name, nil: the agent has no objects of its own among those of the resource.
func (s *Store) Matches(c *checkpoint.Scope, own map[string]uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.known.state
	if c.Ignored != nil {
		for name, f := range own {
			if !slices.Contains(c.Ignored, name) { // it was captured
				state ^= f
			}
		}
		for _, name := range c.Ignored {
			if o := s.known.objects[s.prefix+name].last; o != nil { // else it still is ignored
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
	for _, e := range s.known.objects {
		if e.last != nil && slices.Contains(states, fingerprint(e.last)^c.State) {
			return true
		}
	}
	return false
}

// fingerprint is of one version of one object. Those of all objects are combined by exclusive or: their order does not
// matter, and one is taken out as it is put in.
func fingerprint(o *object.Object) uint64 { return Fingerprint(o.Ref, o.ResourceVersion) }

// Fingerprint is of the version rv of an object.
func Fingerprint(ref *object.Ref, rv uint64) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := range len(ref.UID) {
		h = (h ^ uint64(ref.UID[i])) * prime
	}
	// What differs in the lowest bits only has to differ in all of them: splitmix64's finalizer.
	h ^= rv * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// IsLoaded tells if there is anything to compare a list with.
func (s *Store) IsLoaded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list.at == listed || s.list.at == Relist
}

// ResourceVersion is the resourceVersion up to which everything is in the store. While a list is read again, it is the one before.
func (s *Store) ResourceVersion() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known.rv
}

// Size is how many bytes the last-known objects take.
func (s *Store) Size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.bytes
}

// Progress is how many objects there are, how many deltas a list made due that are not on their way yet (reads of a
// snapshot: not acknowledged yet), and if the first of these catch-ups has ended.
func (s *Store) Progress() (objects, pending int, caughtUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending = s.known.pendingKeys
	if s.snaps.current != nil {
		pending += s.snaps.current.reads.Outstanding()
	}
	return len(s.known.objects), pending, s.caughtUp
}
