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

// dialer gives a connection of nats.go a handle from beside. nats.go dials, shakes hands and writes under one lock: a
// server that does not read holds up everybody who only wants to ask whether it is connected. Break frees them.
type dialer struct {
	ctx       context.Context //nolint:containedctx // ends all dialling: nats.go's CustomDialer has none
	timeout   time.Duration
	plaintext bool                          // secrets go out unencrypted, and must not leave this machine
	fencing   *publish.Fencing              // nil: connections are not guarded
	guarded   atomic.Pointer[publish.Guard] // the latest connection: nats.go writes to it, or is about to. nil: it is not guarded

	mu     sync.Mutex
	cancel context.CancelFunc // of the dialling that is under way
	conn   net.Conn           // the latest one, maybe closed
	failed error              // what became of the latest dialling
}

// newDialer returns a dialer that ends with ctx.
func (b *Bus) newDialer(ctx context.Context) *dialer {
	return &dialer{ctx: ctx, timeout: publish.DialTimeout, fencing: b.fence, plaintext: b.cfg.Auth.inPlaintext(b.cfg.URL, b.cfg.TLS)}
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	conn, err := d.dial(network, addr)
	if err == nil && d.plaintext {
		err = publish.OnLoopback(conn, addr)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
	if err != nil {
		return nil, err
	}
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

// why is the cause of err, an error of nats.go, which tells only that it found no server.
func (d *dialer) why(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil && (err == nil || errors.Is(err, nats.ErrNoServers)) {
		return d.failed
	}
	return err
}

// dial resolves addr and tries all its addresses in random order, so that agents spread over a headless service.
func (d *dialer) dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.timeout)
	defer cancel()
	d.mu.Lock()
	d.cancel = cancel
	d.mu.Unlock()

	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	var errs []error
	for _, ip := range ips {
		conn, err := d.dialOne(ctx, network, net.JoinHostPort(ip, port), len(ips))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.cancel = nil
		if ctx.Err() != nil { // Break came between
			_ = conn.Close()
			return nil, context.Cause(ctx)
		}
		d.conn = conn
		return conn, nil
	}
	return nil, errors.Join(errs...)
}

// dialOne gives one of several addresses its share of the time.
func (d *dialer) dialOne(ctx context.Context, network, addr string, of int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout/time.Duration(of))
	defer cancel()
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// Break ends the dialling that is under way and closes the connection that stands. nats.go takes it for a broken one.
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
