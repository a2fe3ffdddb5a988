package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
)

// ErrPlaintext says that a password, a token or a client secret would have left this machine unencrypted.
var ErrPlaintext = errors.New("the password or token would be sent unencrypted: use TLS, or set insecure: true beside it")

// dialFunc is that of a net.Dialer.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// loopbackOnly returns dial for connections that secrets are sent on unencrypted: it gives up those to other machines before anything is
// written to them. A name says too little: localhost may resolve to any address, and servers name others of their cluster.
func loopbackOnly(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := onLoopback(conn, addr); err != nil {
			return nil, err
		}
		return conn, nil
	}
}

// isLocal reports whether an address is on the loopback interface. Tests replace it, because they connect to no other machine.
var isLocal = net.IP.IsLoopback //nolint:gochecknoglobals // tests replace it

// onLoopback closes a connection that leaves this machine, and returns ErrPlaintext for it.
func onLoopback(conn net.Conn, addr string) error {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err == nil && isLocal(net.ParseIP(host)) {
		return nil
	}
	_ = conn.Close()
	return fmt.Errorf("%s: %w", addr, ErrPlaintext)
}

// inPlaintext reports whether a secret may go to the servers without TLS, and nothing permits that. With one tls:// or wss:// among
// the URLs, nats.go insists on TLS with all of them.
func (a *NATSAuth) inPlaintext(urls string, t *TLS) bool {
	secret := a.PasswordFile != "" || a.TokenFile != ""
	for s := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(s))
		if err != nil {
			continue // nats.go refuses it
		}
		if u.Scheme == "tls" || u.Scheme == "wss" {
			return false
		}
		secret = secret || u.User != nil
	}
	return secret && t == nil && !a.Insecure
}

// plainDialer is a nats.CustomDialer for loopbackOnly.
type plainDialer struct{ net.Dialer }

func (d *plainDialer) Dial(network, addr string) (net.Conn, error) {
	return loopbackOnly(d.DialContext)(context.Background(), network, addr)
}

// plainOption is the option of nats.go for it; its timeout is the one that nats.go has by default.
func plainOption() nats.Option {
	return nats.SetCustomDialer(&plainDialer{net.Dialer{Timeout: nats.DefaultTimeout}})
}

// inPlaintext is that of NATSAuth for brokers. SCRAM proves that the password is known, and does not send it.
func (s *SASL) inPlaintext(t *TLS) bool {
	return s != nil && !s.Insecure && t == nil && (s.Mechanism == "PLAIN" || s.Mechanism == "OAUTHBEARER")
}

// inPlaintext reports whether the headers go out without TLS to an endpoint.
func (c *credentials) inPlaintext(endpoint *url.URL, insecure bool) bool {
	return !insecure && endpoint.Scheme == "http" && (c.headersFile != "" || c.tokenFile != "")
}
