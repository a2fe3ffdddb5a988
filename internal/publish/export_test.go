package publish

import "net"

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

// Guard is c behind f, as publishers have their connections. carries: events have been handed over.
func Guard(f Fence, c net.Conn, carries bool) net.Conn { return newFencing(f).guard(c, carries) }
