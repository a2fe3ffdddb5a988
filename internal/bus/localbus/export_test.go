package localbus

// LoseStore makes the server give up its store, as it does when a write fails.
func (b *Bus) LoseStore() error { return b.server.DisableJetStream() }
