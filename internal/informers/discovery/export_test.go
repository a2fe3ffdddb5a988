package discovery

// Known returns the number of definitions, existing or deleted.
func (e *Extensions) Known() int {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return len(e.mu.definitions) + len(e.mu.deleted)
}
