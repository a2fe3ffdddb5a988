package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
)

// Fence tells if this process may write to the bus, where one of several does.
//
// Pass returns nil while it may. While that is not known it blocks, until it is or ctx ends: then it returns the cause of ctx. Where
// it never may again it returns any other error. With a ctx that has ended it does not block. It is asked right before bytes are handed
// over, for each attempt, batch and dead letter, and again before each write to a socket that may hold events: so it must be cheap.
//
// A nil Fence lets everything pass.
type Fence interface {
	Pass(ctx context.Context) error
}

// ErrFenced says that this process may never write to the bus again: another one does.
var ErrFenced = errors.New("another process writes to the bus")

// ErrShut says that bytes were not written, since the fence was shut meanwhile. Whoever has handed them over asks Pass again.
var ErrShut = errors.New("not written: this process may not write to the bus now")

// Fencing is a Fence and what a publisher has behind it. nil lets everything pass.
type Fencing struct {
	fence  Fence
	ended  context.Context //nolint:containedctx // one that has ended: it makes Pass tell without waiting
	breaks atomic.Int64    // connections that were broken rather than written to
}

// NewFencing returns f with what a publisher needs of it; nil for nil.
func NewFencing(f Fence) *Fencing {
	if f == nil {
		return nil
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return &Fencing{fence: f, ended: ended}
}

// Pass returns nil if bytes may be handed over, the cause of ctx if that has ended, or an error that wraps ErrFenced.
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

// Shut tells if pass would not return nil at once.
func (f *Fencing) Shut() bool { return f != nil && f.fence.Pass(f.ended) != nil }

// Broken counts the connections that were broken rather than written to.
func (f *Fencing) Broken() int64 {
	if f == nil {
		return 0
	}
	return f.breaks.Load()
}

// Guard is a connection on which the fence is asked once more, right before bytes go to the socket. Between pass and that, bytes may
// lie in a buffer for any time: the process is stopped, say, and goes on when another one leads. Then the connection is broken, and
// what is in its buffers with it.
type Guard struct {
	net.Conn
	fencing *Fencing
	// Carries tells that events have been, or are about to be, handed over. What else there is, a handshake, a ping, a question, may
	// go out at any time.
	Carries atomic.Bool
	Broke   atomic.Bool
}

// Guard wraps c, a connection that nobody knows yet.
func (f *Fencing) Guard(c net.Conn, carries bool) *Guard {
	g := &Guard{Conn: c, fencing: f}
	g.Carries.Store(carries)
	return g
}

// Carry says that events are about to be handed over.
func (g *Guard) Carry() {
	if g != nil && !g.Carries.Load() { // most often it is known, and a load is shared
		g.Carries.Store(true)
	}
}

// guardedWrite is how much is written between two looks at the fence.
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
		if b = b[written:]; err != nil || len(b) == 0 {
			return n, err
		}
	}
}
