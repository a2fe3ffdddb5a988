package timeline

import (
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
)

// A changed selection replaces a scope by others, for example by one with a selector. The record of
// the others has nothing of an earlier moment. That alone does not lower the answer: if the
// replaced scope had all of their objects, it decides.

// dropReplacements removes the scopes that had not begun at the moment, and whose objects another
// one had.
func dropReplacements(m Moment, all []certainty.Scope) []certainty.Scope {
	return slices.DeleteFunc(slices.Clone(all), func(s certainty.Scope) bool {
		c := s.Find(certainty.BeforeRecord)
		if c == nil {
			return false
		}
		beginsInside := m.kind == atTime && !c.To.Time.After(m.time) // of a moment that is a span
		return !beginsInside &&
			slices.ContainsFunc(all, func(o certainty.Scope) bool { return hasObjectsOf(&o, &s) })
	})
}

// hasObjectsOf reports whether a scope was observed at the moment, and selects all objects that
// another scope does: it has no selector, and all namespaces or the same ones.
func hasObjectsOf(s, other *certainty.Scope) bool {
	if s.ClusterKey() != other.ClusterKey() || s.Resource != other.Resource || s.Name == other.Name {
		return false
	}
	namespaces, _, _ := strings.Cut(other.Name, "?")
	isWider := s.Name == s.Resource || s.Name == namespaces
	hasBegun := s.Find(certainty.BeforeRecord) == nil
	return isWider && s.Ended == nil && hasBegun
}
