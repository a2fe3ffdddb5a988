package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Run connects, checks the stream, creates it where told to, and keeps the connection until ctx ends; then it returns
// nil. A bus that is not there yet is no error: Run says so and goes on trying. It returns an error that wraps ErrStream
// where the stream would lose events silently, and another where credentials or certificates cannot be read to begin with.
//
// End ctx only after the last call of Publish has returned: those that have not then return ErrClosed. Call it once.
func (n *NATS) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	n.dialer = &dialer{ctx: ctx, timeout: DialTimeout, fencing: n.fence, plaintext: n.cfg.Auth.inPlaintext(n.cfg.URL, n.cfg.TLS)}
	// What is wrong with the files now is wrong with the configuration; later they may be in the midst of an exchange.
	if err := n.Check(); err != nil {
		n.shutdown()
		return err
	}
	g.Go(func() error { return n.sweep(ctx) })
	g.Go(func() error {
		// Everything below may stand in a socket: this is what frees it.
		<-ctx.Done()
		n.closed.Store(true) // so that it is not taken for a loss
		n.dialer.Break()
		return nil
	})
	g.Go(func() error {
		defer n.shutdown() // for those that began to wait in between
		for failures := 1; ; failures++ {
			err := n.connection(ctx)
			if !errors.Is(err, errGone) {
				return err
			}
			// nats.go gives a connection up where the server says something that it does not know, and where it is told
			// to. What the server thought of is not for ever.
			if suppressed, ok := n.window.First("gone"); ok {
				n.log.Warn("connection to bus was closed, connecting anew", "servers", n.servers, "err", err, "suppressed", suppressed)
			}
			n.onDown(nil, err)
			if Sleep(ctx, dialBackoff().Delay(min(failures, 10))) != nil {
				return nil
			}
		}
	})
	return g.Wait()
}

// Check returns what Run would end with at once: a file of credentials or TLS that cannot be used. It connects to nobody.
func (n *NATS) Check() error {
	_, err := n.options(nil)
	return err
}

// errGone says that a connection is closed for good, and the next one may do better.
var errGone = errors.New("connection closed")

// connection keeps a connection for as long as nats.go does.
func (n *NATS) connection(ctx context.Context) (err error) {
	gone := make(chan struct{}) // closed by nats.go's last callback
	options, err := n.options(gone)
	if err != nil { // a file has been there at first
		n.trouble(err)
		return fmt.Errorf("%w: %w", errGone, err)
	}
	nc, err := nats.Connect(n.cfg.URL, options...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", n.servers, WithoutURL(err))
	}
	defer func() {
		if !errors.Is(err, errGone) {
			n.shutdown()
		}
		n.dialer.Break() // or Close may wait for a socket
		nc.Close()
		<-gone
	}()
	return n.supervise(ctx, nc, gone)
}

// supervise checks the stream whenever asked to, and opens the gate when it is in order.
func (n *NATS) supervise(ctx context.Context, nc *nats.Conn, gone <-chan struct{}) error {
	if _, err := nc.Subscribe(n.inbox+".*", n.onAck); err != nil {
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	js, err := JetStreamIn(n.cfg.Domain, nc)
	if err != nil {
		return err
	}
	n.conn.Store(nc)
	if !nc.IsConnected() {
		n.trouble(n.dialer.why(nc.LastError()))
	}
	look := time.NewTimer(LogAge)
	defer look.Stop()
	for failures := 0; ; {
		look.Reset(LogAge)
		if n.lookAgain {
			look.Reset(LogPause)
		}
		select {
		case <-n.wake:
		case <-look.C:
			if nc.IsConnected() {
				n.lookAgain = n.lookAtLog(ctx, js)
			}
			continue
		case <-ctx.Done():
			return nil
		case <-n.renew:
			return fmt.Errorf("%w: other credentials are in %s", errGone, n.cfg.Auth.NKeySeedFile)
		case <-gone:
			return fmt.Errorf("%w: %w", errGone, nc.LastError())
		}
		_, epoch := n.gate.isOpen()
		if !nc.IsConnected() {
			continue // whoever reconnects wakes us
		}
		switch err := n.check(ctx, nc, js); {
		case ctx.Err() != nil:
			return nil
		case err != nil && n.gate.current() != epoch && !errors.Is(err, ErrStream):
			// The connection is gone, and whoever reconnects wakes us.
		case err == nil:
			failures = 0
			n.why.Store(nil)
			if n.gate.unlock(epoch) {
				n.metrics.Connected.Set(1)
				n.log.Info("connected to bus", "server", nc.ConnectedAddr(), "stream", n.cfg.Stream.Name)
			}
		case errors.Is(err, ErrStream):
			return err
		default:
			failures++
			why := err.Error()
			n.why.Store(&why)
			if suppressed, ok := n.window.First("check"); ok {
				n.log.Warn("stream cannot be checked, trying on", "stream", n.cfg.Stream.Name, "err", errText(err),
					"suppressed", suppressed)
			}
			if Sleep(ctx, checkBackoff().Delay(failures)) != nil {
				return nil
			}
			n.requestCheck()
		}
	}
}

// check looks at server and stream.
func (n *NATS) check(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error {
	ctx, lost := n.gate.during(ctx)
	defer lost()
	if !nc.HeadersSupported() {
		return fmt.Errorf("%w: server %s does not know headers: it must be nats-server 2.2 or later", ErrStream, nc.ConnectedServerVersion())
	}
	if need := n.cfg.MaxEventBytes + headRoom; nc.MaxPayload() < int64(need) {
		return fmt.Errorf("%w: the server's max_payload is %d bytes, and an event may need %d: raise it, or lower event.maxBytes", ErrStream, nc.MaxPayload(), need)
	}
	return n.stream(ctx, js)
}

func (n *NATS) requestCheck() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}
