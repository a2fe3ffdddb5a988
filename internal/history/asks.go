package history

// Asks reports whether a scope of a resource ("deployments.apps") may have an object of the
// selection. scope is "" for scopes that are not known.
func (s *Selection) Asks(resource, scope string) bool { return s.asks(resource, scope) }
