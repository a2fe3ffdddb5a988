package nats

// Queued returns how many events are to be handed to nats.go.
func (b *Bus) Queued() (n int) {
	b.table.mu.Lock()
	defer b.table.mu.Unlock()
	return len(b.table.queue) - b.table.head
}
