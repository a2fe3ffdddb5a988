package publish

// Sending is how many calls are within nats.go: many at once only while its lock is held for long.
func (n *NATS) Sending() (sending int) {
	for _, w := range n.waiters {
		w.mu.Lock()
		if w.sending {
			sending++
		}
		w.mu.Unlock()
	}
	return sending
}
