package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// ErrPlaintext means that a password, a token or a client secret would have left this machine unencrypted.
var ErrPlaintext = errors.New("the password or token would be sent unencrypted: use TLS, or set insecure: true beside it")

// ReadSecret reads a file with one secret, without final line ends. Errors contain only the file's name.
func ReadSecret(what, file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", what, err)
	}
	secret := strings.TrimRight(string(b), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("read %s: %s is empty", what, file)
	}
	return secret, nil
}

// dialFunc has the type of net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// LoopbackOnly wraps dial for connections that carry unencrypted secrets: it closes those to other machines before any write. A check of
// the name is not enough: localhost may resolve to any address, and servers name others of their cluster.
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

// isLocal reports whether an address is on the loopback interface. Tests replace it, because they never connect to another machine.
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
