package localbus

// checkOwner does nothing: the default directory is in the profile of its user, which the system
// protects.
func checkOwner(string) error { return nil }
