package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
)

// Fence decides whether this process may write to the bus, if only one of several may.
//
// Pass returns nil if it may. While that is unknown it blocks until it is known, or ctx ends: then
// it returns the cause of ctx. Any other error means that this process may never write again. With
// a ctx that has ended Pass does not block. It must be cheap: it is called before each attempt,
// batch and dead letter, and again before each write to a socket that may contain events.
//
// A nil Fence permits everything.
type Fence interface {
	Pass(ctx context.Context) error
}

// ErrFenced means that this process may never write to the bus again, because another one does.
var ErrFenced = errors.New("another process writes to the bus")

// ErrShut means that bytes were not written because the fence was shut meanwhile. The caller must
// call Pass again.
var ErrShut = errors.New("not written: this process may not write to the bus now")

// Fencing is a Fence with the connection guards of a publisher. nil permits everything.
type Fencing struct {
	fence  Fence
	ended  context.Context //nolint:containedctx // it has ended, so that Pass does not wait
	breaks atomic.Int64    // connections that were broken instead of written to
}

// NewFencing returns the Fencing of f; nil for nil.
func NewFencing(f Fence) *Fencing {
	if f == nil {
		return nil
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return &Fencing{fence: f, ended: ended}
}

// Pass returns nil if bytes may be handed over, the cause of ctx if that has ended, or an error
// that wraps ErrFenced.
func (f *Fencing) Pass(ctx context.Context) error {
	if f == nil {
		return nil
	}
	err := f.fence.Pass(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", ErrFenced, err)
}

// Shut reports whether Pass would block or fail.
func (f *Fencing) Shut() bool { return f != nil && f.fence.Pass(f.ended) != nil }

// Broken returns the number of connections that were broken instead of written to.
func (f *Fencing) Broken() int64 {
	if f == nil {
		return 0
	}
	return f.breaks.Load()
}

// Guard is a connection that checks the fence once more, right before bytes go to the socket. After
// Pass, bytes may stay in a buffer for any time: a stopped process, for example, may resume when
// another one leads. Then Guard breaks the connection, and so discards its buffers.
type Guard struct {
	net.Conn
	fencing *Fencing
	// Carries is set if events were, or are about to be, written to the connection. Other traffic
	// (a handshake, a ping, a request) may go out at any time.
	Carries atomic.Bool
	Broke   atomic.Bool
}

// Guard wraps c, which must not be in use yet.
func (f *Fencing) Guard(c net.Conn, carries bool) *Guard {
	g := &Guard{Conn: c, fencing: f}
	g.Carries.Store(carries)
	return g
}

// Carry sets Carries: events are about to be written to the connection.
func (g *Guard) Carry() {
	if g != nil && !g.Carries.Load() { // it is usually set already, and a load causes no contention
		g.Carries.Store(true)
	}
}

// guardedWrite is the maximum number of bytes written between two checks of the fence.
const guardedWrite = 64 << 10

// Write implements net.Conn.
func (g *Guard) Write(b []byte) (n int, err error) {
	for {
		if g.Carries.Load() && g.fencing.Shut() {
			g.Broke.Store(true)
			g.fencing.breaks.Add(1)
			_ = g.Conn.Close()
			return n, ErrShut
		}
		written, err := g.Conn.Write(b[:min(len(b), guardedWrite)])
		n += written
		b = b[written:]
		if err != nil || len(b) == 0 {
			return n, err
		}
	}
}
