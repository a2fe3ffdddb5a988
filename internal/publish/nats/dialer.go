package nats

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// dialer keeps a handle on the socket of a nats.go connection. nats.go dials, shakes hands and writes under one lock, so a server that does
// not read blocks every caller, even of IsConnected. Break unblocks them.
type dialer struct {
	ctx       context.Context               //nolint:containedctx // ends all dialling: nats.go's CustomDialer has no context
	plaintext bool                          // secrets are sent unencrypted, so only loopback connections are allowed
	fencing   *publish.Fencing              // nil: connections have no guard
	guarded   atomic.Pointer[publish.Guard] // the latest connection, which nats.go uses or is about to use; nil without a guard

	mu     sync.Mutex
	cancel context.CancelFunc // of the current dialling
	conn   net.Conn           // the latest, possibly closed
	failed error              // error of the latest dialling; nil if it succeeded
}

// dialer returns a dialer that stops when ctx ends.
func (c *Config) dialer(ctx context.Context, f *publish.Fencing) *dialer {
	return &dialer{ctx: ctx, fencing: f, plaintext: c.Auth.inPlaintext(c.URL, c.TLS)}
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, publish.DialTimeout)
	defer cancel()
	d.mu.Lock()
	d.cancel = cancel
	d.mu.Unlock()
	conn, err := dialAny(ctx, network, addr)
	if err == nil && d.plaintext {
		err = publish.OnLoopback(conn, addr)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && ctx.Err() != nil { // Break was called meanwhile
		_ = conn.Close()
		err = context.Cause(ctx)
	}
	d.cancel, d.failed = nil, err
	if err != nil {
		return nil, err
	}
	d.conn = conn
	if d.fencing == nil {
		return conn, nil
	}
	g := d.fencing.Guard(conn, false)
	d.guarded.Store(g)
	return g, nil
}

// broke reports whether the latest connection was broken because the fence was shut.
func (d *dialer) broke() bool {
	g := d.guarded.Load()
	return g != nil && g.Broke.Load()
}

// why returns the cause of err: nats.go's own error only says that no server is available.
func (d *dialer) why(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil && (err == nil || errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrDisconnected)) {
		return d.failed
	}
	return err
}

// dialAny resolves addr and tries all its addresses in random order, so that agents spread over a headless service. Each has an equal part
// of the time.
func dialAny(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	one := net.Dialer{Timeout: publish.DialTimeout / time.Duration(max(len(ips), 1))}
	var errs []error
	for _, ip := range ips {
		conn, err := one.DialContext(ctx, network, net.JoinHostPort(ip, port))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// Break cancels the current dialling and closes the current connection. nats.go treats it as broken.
func (d *dialer) Break() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cancel != nil {
		d.cancel()
	}
	if d.conn != nil {
		_ = d.conn.Close()
	}
}
