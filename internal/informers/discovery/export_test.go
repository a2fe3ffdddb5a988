package discovery

// Known returns the number of definitions, existing or deleted.
func (x *Extensions) Known() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.mu.definitions) + len(x.mu.deleted)
}
