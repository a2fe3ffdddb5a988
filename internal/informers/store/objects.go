package store

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Ref returns the Ref of the last-known object of that name, uid and clause, or a new one, and the stamp of the managedFields of its last-known
// version. It keeps none of the arguments. scratch is a buffer for the key.
func (s *Store) Ref(namespace, name, uid []byte, clause uint16, scratch *[]byte) (*object.Ref, object.Stamp) {
	k := append((*scratch)[:0], s.prefix...)
	k = append(k, namespace...)
	if len(namespace) > 0 {
		k = append(k, '/')
	}
	k = append(k, name...)
	*scratch = k
	s.mu.RLock()
	last := s.known.objects[string(k)].last
	s.mu.RUnlock()
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

// Has reports whether a cluster-scoped object of that name is known.
func (s *Store) Has(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known.objects[s.prefix+name].last != nil
}

// Len returns the number of objects, and of those whose deletion is pending.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.known.objects)
}

// Newest returns the last-known object with the highest resourceVersion, nil: there is none.
func (s *Store) Newest() (out *object.Object) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.known.objects {
		if e.last != nil && (out == nil || e.last.ResourceVersion > out.ResourceVersion) {
			out = e.last
		}
	}
	return out
}

// Remove deletes o from the last-known objects. It has the signature of Load.
func (s *Store) Remove(o *object.Object, _ *object.Scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(o.Ref.Key, entry{})
	s.gaugeLocked()
}

// Clear deletes all last-known objects.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.known.objects {
		s.setLocked(key, entry{})
	}
	s.gaugeLocked()
}

// Matches reports whether the last-known objects have the fingerprint of the checkpoint c. own are the fingerprints of the agent's own objects,
// which are not captured, by namespace/name. nil: the resource never has any. Which ones are ignored may differ from the checkpoint's run, and older
// releases did not save them: then any one object, or all of own, may account for the difference.
func (s *Store) Matches(c *checkpoint.Scope, own map[string]uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
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

// fingerprint is that of one version of one object. Those of all objects are combined by exclusive or: their order does not matter, and
// removing one is the same operation as adding it.
func fingerprint(o *object.Object) uint64 { return Fingerprint(o.Ref, o.ResourceVersion) }

// Fingerprint returns the fingerprint of the version rv of an object.
func Fingerprint(ref *object.Ref, rv uint64) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := range len(ref.UID) {
		h = (h ^ uint64(ref.UID[i])) * prime
	}
	// A difference in the lowest bits has to spread to all of them: splitmix64's finalizer.
	h ^= rv * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// IsLoaded reports whether there are objects to compare a list with.
func (s *Store) IsLoaded() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.list.at == listed || s.list.at == Relist
}

// ResourceVersion returns the resourceVersion up to which the store has everything. During a list, that is the one before the list.
func (s *Store) ResourceVersion() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known.rv
}

// Size returns the compressed size of the last-known objects, in bytes.
func (s *Store) Size() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known.bytes
}

// Progress returns the number of objects, of pending deltas (including reads that the bus has not acknowledged), and whether everything that the
// first list made pending is acknowledged.
func (s *Store) Progress() (objects, pending int, caughtUp bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pending = s.known.pendingKeys
	if s.snaps.current != nil {
		pending += s.snaps.current.reads.Outstanding()
	}
	return len(s.known.objects), pending, s.caughtUp
}
