package consume

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// link is a connection and its state.
type link struct {
	conn    *nats.Conn
	servers string           // the addresses without passwords
	ours    bool             // the reader closes it
	status  chan nats.Status // if it is full, changes are lost, so each wait empties it first
}

func newLink(conn *nats.Conn, servers string, ours bool) *link {
	return &link{conn, servers, ours, conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)}
}

func (l *link) close() {
	l.conn.RemoveStatusListener(l.status)
	if l.ours {
		l.conn.Close()
	}
}

// up waits until there is a connection, and reports whether it had to wait. It drops earlier changes of the state: no request is under way.
func (l *link) up(ctx context.Context) (waited bool, err error) {
	for {
		select {
		case <-l.status:
			continue
		default:
		}
		switch {
		case l.conn.IsConnected():
			return waited, nil
		case l.conn.IsClosed():
			return waited, nats.ErrConnectionClosed
		}
		waited = true
		select {
		case <-l.status:
		case <-ctx.Done():
			return waited, context.Cause(ctx)
		}
	}
}

// attempt calls f with a context that ends after a timeout or when the connection is lost, because a request then has no answer.
func (l *link) attempt(ctx context.Context, patience time.Duration, f func(context.Context) error) error {
	connected, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	limited, cancel := context.WithTimeout(connected, patience)
	defer cancel()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case s := <-l.status:
				if s != nats.CONNECTED {
					lost(nats.ErrDisconnected)
					return
				}
			case <-limited.Done():
				return
			}
		}
	})
	err := f(limited)
	cancel()
	watcher.Wait()
	if cause := context.Cause(connected); errors.Is(cause, nats.ErrDisconnected) {
		return cause
	}
	return err
}

// untilRefused calls f with a context that also ends soon after the server has refused a request of the connection, because a refused
// request has no answer.
func (l *link) untilRefused(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	before := l.conn.LastError()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for sleep(ctx, quickHeartbeat) == nil {
			if err := l.conn.LastError(); err != before && errors.Is(err, nats.ErrPermissionViolation) { //nolint:errorlint // a later one
				cancel(err)
			}
		}
	})
	err := f(ctx)
	if refused := context.Cause(ctx); err != nil && errors.Is(refused, nats.ErrPermissionViolation) {
		err = refused
	}
	cancel(nil)
	watcher.Wait()
	return err
}
