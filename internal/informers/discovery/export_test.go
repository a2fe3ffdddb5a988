package discovery

// Remembered returns how many definitions are known, whether they exist or were deleted.
func (x *Extensions) Remembered() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.mu.definitions) + len(x.mu.deleted)
}
