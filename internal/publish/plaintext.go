package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// ErrPlaintext says that a password, a token or a client secret would have left this machine unencrypted.
var ErrPlaintext = errors.New("the password or token would be sent unencrypted: use TLS, or set insecure: true beside it")

// dialFunc is that of a net.Dialer.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// LoopbackOnly returns dial for connections that secrets are sent on unencrypted: it gives up those to other machines before anything is
// written to them. A name says too little: localhost may resolve to any address, and servers name others of their cluster.
func LoopbackOnly(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := OnLoopback(conn, addr); err != nil {
			return nil, err
		}
		return conn, nil
	}
}

// isLocal reports whether an address is on the loopback interface. Tests replace it, because they connect to no other machine.
var isLocal = net.IP.IsLoopback //nolint:gochecknoglobals // tests replace it

// OnLoopback closes a connection that leaves this machine, and returns ErrPlaintext for it.
func OnLoopback(conn net.Conn, addr string) error {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err == nil && isLocal(net.ParseIP(host)) {
		return nil
	}
	_ = conn.Close()
	return fmt.Errorf("%s: %w", addr, ErrPlaintext)
}
