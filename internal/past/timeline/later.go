package timeline

import (
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
)

// A changed selection replaces a scope by others, for example by one with a selector. A moment
// before that is not in the record of the others. That alone does not lower the answer: if the
// replaced scope had all of their objects, it decides.

// dropLater removes the scopes that had not begun at the moment, and whose objects another one had.
func dropLater(m Moment, all []certainty.Scope) []certainty.Scope {
	return slices.DeleteFunc(slices.Clone(all), func(s certainty.Scope) bool {
		c := s.Find(certainty.BeforeRecord)
		isInside := c != nil && m.kind == atTime && !c.To.Time.After(m.time) // a span has moments after its begin
		return c != nil && !isInside &&
			slices.ContainsFunc(all, func(o certainty.Scope) bool { return hasObjectsOf(&o, &s) })
	})
}

// beginsLater reports whether the record of a scope begins after the moment.
func beginsLater(s *certainty.Scope) bool { return s.Find(certainty.BeforeRecord) != nil }

// hasObjectsOf reports whether a scope was observed at the moment, and selects all objects that
// another scope does: it has no selector, and all namespaces or the same ones.
func hasObjectsOf(s, other *certainty.Scope) bool {
	if s.ClusterKey() != other.ClusterKey() || s.Resource != other.Resource || s.Name == other.Name {
		return false
	}
	namespaces, _, _ := strings.Cut(other.Name, "?")
	isWider := s.Name == s.Resource || s.Name == namespaces
	return isWider && s.Ended == nil && !beginsLater(s)
}
