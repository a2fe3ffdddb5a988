package store

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Ref returns the Ref of the last-known object with that name, uid and clause, or a new one, and
// the stamp of its last-known managedFields. It keeps none of the arguments. scratch is a buffer
// for the key.
func (s *Store) Ref(namespace, name, uid []byte, clause uint16, scratch *[]byte) (*object.Ref, object.Stamp) {
	last := s.lastOf(namespace, name, scratch)
	var managed object.Stamp
	if last != nil && last.Ref.UID == string(uid) {
		managed = last.Managed
		if last.Ref.Clause == clause {
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

// HasObject reports whether the object with that name and uid is known. scratch is a buffer for the
// key.
func (s *Store) HasObject(namespace, name, uid []byte, scratch *[]byte) bool {
	last := s.lastOf(namespace, name, scratch)
	return last != nil && last.Ref.UID == string(uid)
}

// lastOf returns the last-known object of that name, or nil.
func (s *Store) lastOf(namespace, name []byte, scratch *[]byte) *object.Object {
	k := append((*scratch)[:0], s.prefix...)
	k = append(k, namespace...)
	if len(namespace) > 0 {
		k = append(k, '/')
	}
	k = append(k, name...)
	*scratch = k
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known.objects[string(k)].last
}

// Knows reports whether the store has had the version o of an object, or a later one.
func (s *Store) Knows(o *object.Object) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	last := s.known.objects[o.Ref.Key].last
	return last != nil && last.Ref.UID == o.Ref.UID && last.ResourceVersion >= o.ResourceVersion
}

// Newest returns the last-known object with the highest resourceVersion, or nil.
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

// Clear deletes all last-known objects, and everything pending.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
	s.gaugeLocked()
}

// Match is how the last-known objects compare with a checkpoint.
type Match uint8

// The results of a comparison.
const (
	MatchesNot   Match = iota // there are other versions
	MatchesForms              // the versions are the same, and their contents, as far as they are known
	OtherForms                // the versions are the same, in another form
)

// Matches compares the last-known objects with the fingerprints of the checkpoint c. own has the
// fingerprints of the agent's own objects, which are not captured, by namespace/name; nil if the
// resource never has any. The previous run may have ignored others. Older releases did not save
// which ones: then any one object, or all of own, may account for the difference.
func (s *Store) Matches(c *checkpoint.Scope, own map[string]Fingerprint) Match {
	s.mu.RLock()
	defer s.mu.RUnlock()
	state := s.known.state
	if c.Ignored != nil {
		for name, f := range own {
			if !slices.Contains(c.Ignored, name) { // it was captured
				state = state.xor(f)
			}
		}
		for _, name := range c.Ignored {
			if o := s.known.objects[s.prefix+name].last; o != nil { // otherwise it is still ignored
				state = state.xor(fingerprintOf(o))
			}
		}
	}
	switch {
	case state.Versions == c.State && c.Forms != 0 && c.Forms != state.Forms:
		return OtherForms
	case state.Versions == c.State, c.Ignored == nil && own != nil && s.matchesFormerLocked(c, own):
		return MatchesForms
	default:
		return MatchesNot
	}
}

// matchesFormerLocked is Matches for a checkpoint that does not say which objects were ignored.
func (s *Store) matchesFormerLocked(c *checkpoint.Scope, own map[string]Fingerprint) bool {
	states := []uint64{s.known.state.Versions}
	for _, f := range own {
		for _, s := range states {
			states = append(states, s^f.Versions)
		}
	}
	if slices.Contains(states, c.State) {
		return true
	}
	for _, e := range s.known.objects {
		if e.last != nil && slices.Contains(states, fingerprintOf(e.last).Versions^c.State) {
			return true
		}
	}
	return false
}

// Fingerprint identifies objects by their versions, and by these in their forms. Those of several
// objects are combined by exclusive or: removing one is the same operation as adding it.
type Fingerprint struct{ Versions, Forms uint64 }

func (f Fingerprint) xor(g Fingerprint) Fingerprint {
	return Fingerprint{f.Versions ^ g.Versions, f.Forms ^ g.Forms}
}

func fingerprintOf(o *object.Object) Fingerprint {
	return NewFingerprint(o.Ref, o.ResourceVersion, o.Form)
}

// NewFingerprint returns the fingerprint of the version rv of an object, in a form.
func NewFingerprint(ref *object.Ref, rv, form uint64) Fingerprint {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := range len(ref.UID) {
		h = (h ^ uint64(ref.UID[i])) * prime
	}
	version := mixed(h ^ rv*0x9e3779b97f4a7c15)
	return Fingerprint{Versions: version, Forms: mixed(version ^ form)}
}

// mixed is the finalizer of splitmix64: it spreads a difference in the lowest bits to all of them.
func mixed(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
