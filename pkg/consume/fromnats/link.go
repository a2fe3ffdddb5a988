package fromnats

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/pause"
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

// waitUp waits until there is a connection, and reports whether it had to wait. It drops earlier
// changes of the state: no request is under way.
func (l *link) waitUp(ctx context.Context) (waited bool, err error) {
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

// attempt calls f with a context that ends after a timeout or when the connection is lost, because
// a request then has no answer.
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

// search calls f, whose requests may make the server read a stream. If the server has refused a
// request by then, its context ends after apiTimeout at the latest, because a refused request has
// no answer.
func (l *link) search(
	ctx context.Context, limit time.Duration, s *jetstream.StreamState, f func(context.Context) error,
) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	limited, refuse := context.WithCancelCause(limited)
	defer refuse(nil)
	before := l.conn.LastError()
	refused := time.AfterFunc(apiTimeout, func() {
		err := l.conn.LastError()
		isLater := err != before //nolint:errorlint // not another of its kind
		if isLater && errors.Is(err, nats.ErrPermissionViolation) {
			refuse(err)
		}
	})
	defer refused.Stop()
	err := f(limited)
	switch cause := context.Cause(limited); {
	case err != nil && errors.Is(cause, nats.ErrPermissionViolation):
		return cause
	case ctx.Err() == nil && limited.Err() != nil && isTimeout(err):
		return &slowError{limit, s.Msgs, s.Bytes, err}
	}
	return err
}

// untilRefused calls f with a context that also ends soon after the server has refused a request of
// the connection, because a refused request has no answer.
func (l *link) untilRefused(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	before := l.conn.LastError()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for pause.For(ctx, quickHeartbeat) == nil {
			err := l.conn.LastError()
			isLater := err != before //nolint:errorlint // not another of its kind
			if isLater && errors.Is(err, nats.ErrPermissionViolation) {
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
