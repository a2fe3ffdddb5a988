package discovery

// It returns the number of known definitions, existing or deleted.
func (x *Extensions) Remembered() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.mu.definitions) + len(x.mu.deleted)
}
