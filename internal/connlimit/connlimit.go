// Package connlimit bounds the connections of a server that anybody may reach.
//
// A listener that waits at its bound lets idle connections shut everybody out. This one accepts
// every connection, and closes the one that has been idle longest. A client that sends its request
// at once gets its answer, whatever others hold open.
package connlimit

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Listen returns a listener that keeps at most a number of the connections of l open.
func Listen(l net.Listener, most int) net.Listener {
	return &listener{Listener: l, most: most, open: make(map[*conn]struct{}, most)}
}

type listener struct {
	net.Listener
	most int

	mu   sync.Mutex
	open map[*conn]struct{}
}

// conn is an accepted connection.
type conn struct {
	net.Conn
	of   *listener
	used atomic.Int64 // when data moved last, in ns since 1970
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, of: l}
	c.note(1)
	if idle := l.add(c); idle != nil {
		idle.reset()
	}
	return c, nil
}

// add adds a connection, and returns the one that must be closed, or nil.
func (l *listener) add(c *conn) (idle *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.most {
		for other := range l.open {
			if idle == nil || other.used.Load() < idle.used.Load() {
				idle = other
			}
		}
		delete(l.open, idle)
	}
	l.open[c] = struct{}{}
	return idle
}

// note notes that n bytes have moved.
func (c *conn) note(n int) {
	if n > 0 {
		c.used.Store(time.Now().UnixNano())
	}
}

// reset closes the connection without its unsent data, which the kernel would keep.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it fails only on a closed connection
	}
	_ = c.Conn.Close()
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.note(n)
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.note(n)
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// IsLoopback reports whether a host, with or without a port, is a name of this machine: localhost,
// or an address of the loopback interface.
func IsLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err == nil {
		host = name
	}
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
