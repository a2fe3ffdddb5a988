package silence

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	// Ping is the interval at which a client of NATS sends a PING.
	Ping = 5 * time.Second
	// MaxPings is the number of unanswered PINGs after which nats.go itself closes a connection.
	// nats.go does not count other data, and answers may wait behind records, so that takes a
	// minute.
	MaxPings = 12

	answer = 5 * time.Second // time for the answer
)

// ErrSilent means that no data arrived within the limit.
var ErrSilent = errors.New("the connection is dead: no data arrived")

// After returns the limit for a client that sends a ping at an interval. It returns 0, for no
// limit, if the client sends no pings (0 or less).
func After(ping time.Duration) time.Duration {
	if ping <= 0 {
		return 0
	}
	return ping + answer
}

// Limit returns a connection whose Read closes c, and returns an error that wraps ErrSilent, if no
// data arrives for a time. A deadline of the caller replaces the limit until the caller removes it.
// A limit of 0 or less changes nothing.
//
// The connection is reset: the kernel discards data that it could not send. Otherwise it could
// deliver that data minutes later.
func Limit(c net.Conn, limit time.Duration) net.Conn {
	if limit <= 0 {
		return c
	}
	return &conn{Conn: c, limit: limit}
}

type conn struct {
	net.Conn
	limit   time.Duration
	bounded atomic.Bool // the caller has set a deadline for reads
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if !c.bounded.Load() {
		if err := c.extend(); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(b)
	if err == nil || c.bounded.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only on a connection that is closed
	}
	_ = c.Close() // ends a write that waits for the dead path
	return n, fmt.Errorf("%w for %s", ErrSilent, c.limit)
}

func (c *conn) extend() error { return c.Conn.SetReadDeadline(time.Now().Add(c.limit)) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn. Without a deadline, the limit applies at once, also to a
// Read that is under way.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.bounded.Store(!t.IsZero())
	if t.IsZero() {
		return c.extend()
	}
	return c.Conn.SetReadDeadline(t)
}
