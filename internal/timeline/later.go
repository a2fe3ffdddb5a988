package timeline

import (
	"slices"
	"strings"
)

// A changed selection replaces a scope by others, for example by one with a selector. A moment before
// that is not in the record of the others. That alone does not lower the answer: if the replaced
// scope had all of their objects, it decides.

// dropLater removes the scopes that had not begun at the moment, and whose objects another one had.
func dropLater(all []Scope) []Scope {
	return slices.DeleteFunc(slices.Clone(all), func(s Scope) bool {
		return s.beginsLater() && slices.ContainsFunc(all, func(o Scope) bool { return o.hasObjectsOf(&s) })
	})
}

// beginsLater reports whether the record of the scope begins after the moment.
func (s *Scope) beginsLater() bool {
	hasOnlyEnd := s.From == Bound{} && s.To != Bound{}
	return s.Certainty == Unknown && hasOnlyEnd && !s.Joined && !s.Former
}

// hasObjectsOf reports whether the scope was observed at the moment, and selects all objects that
// another scope does: it has no selector, and all namespaces or the same ones.
func (s *Scope) hasObjectsOf(other *Scope) bool {
	if s.ClusterKey() != other.ClusterKey() || s.Resource != other.Resource || s.Name == other.Name {
		return false
	}
	namespaces, _, _ := strings.Cut(other.Name, "?")
	isWider := s.Name == s.Resource || s.Name == namespaces
	return isWider && s.Ended == nil && !s.beginsLater()
}
