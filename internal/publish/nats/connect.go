package nats

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// connectOptions returns the options of all connections, and the public key of the seed among the credentials.
func (b *Bus) connectOptions(d *dialer) (opts []nats.Option, nkey string, err error) {
	credentials, nkey, err := b.cfg.Auth.option(b.cfg.Key, b.trouble)
	if err != nil {
		return nil, "", err
	}
	secure, err := tlsOption(b.cfg.TLS, b.cfg.Key)
	if err != nil {
		return nil, "", err
	}
	return []nats.Option{
		nats.Name("kubecdc " + b.cfg.Cluster),
		nats.CustomInboxPrefix(b.cfg.InboxPrefix),
		nats.SetCustomDialer(d),
		nats.SkipHostLookup(), // the dialer does, and can be interrupted in it
		nats.Timeout(publish.DialTimeout),
		nats.FlusherTimeout(flushTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		func(o *nats.Options) error { o.SkipSubjectValidation = true; return nil }, // they are made valid
		nats.ErrorHandler(b.onError),
		credentials,
		secure,
	}, nkey, nil
}

// options are those of the connection that is kept. gone is closed when it is closed for good.
func (b *Bus) options(gone chan<- struct{}) ([]nats.Option, error) {
	opts, nkey, err := b.connectOptions(b.dialer)
	if err != nil {
		return nil, err
	}
	b.seedOf.Store(&nkey)
	return append(
		opts,
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // a password may be on its way
		nats.CustomReconnectDelay(b.beforeReconnect),
		nats.ReconnectBufSize(-1), // nothing is kept for later while there is no connection: events wait in the table, in order
		nats.ConnectHandler(func(*nats.Conn) { b.requestCheck() }),
		nats.ReconnectHandler(func(*nats.Conn) { b.requestCheck() }),
		nats.DisconnectErrHandler(b.onDown),
		nats.ClosedHandler(func(*nats.Conn) { close(gone) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { b.trouble(b.dialer.why(err)) }),
	), nil
}

// onError logs what nats.go says of a connection that stands.
func (b *Bus) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	if netErr := net.Error(nil); errors.As(err, &netErr) {
		return // the connection is lost, and onDown says so
	}
	if kind, _ := b.diagnose(err); kind == troubleAuth {
		b.trouble(err)
		return
	}
	suppressed, ok := b.window.First("async: " + kindOf(err))
	switch {
	case !ok:
	case errors.Is(err, nats.ErrPermissionViolation):
		b.log.Error("the user may not do on the bus what the agent must", "servers", b.servers, "err", err.Error(),
			"advice", "grant it, docs/guides/nats.md lists what is needed; events that it holds up wait", "suppressed", suppressed)
	default:
		b.log.Warn("error on the connection to the bus", "servers", b.servers, "err", errText(err), "suppressed", suppressed)
	}
}

// beforeReconnect is called by nats.go when it has tried all servers in vain, without its lock.
func (b *Bus) beforeReconnect(failures int) time.Duration {
	if nc := b.conn.Load(); nc != nil && !nc.IsConnected() {
		b.trouble(b.dialer.why(nc.LastError()))
	}
	if b.cfg.Auth.changed(b.seedOf.Load()) {
		select {
		case b.renew <- struct{}{}:
		default:
		}
	}
	return dialBackoff().Delay(failures)
}

// What keeps a connection from standing.
const (
	troubleNetwork = "network"
	troubleAuth    = "credentials"
	troubleTLS     = "tls"
)

// trouble says, the first time in each window for each kind of it, why there is no connection, and keeps it for Ready.
func (b *Bus) trouble(err error) {
	if b.closed.Load() || err == nil {
		return
	}
	kind, advice := b.diagnose(err)
	why := err.Error()
	if advice != "" {
		why += ": " + advice
	}
	b.why.Store(&why)
	level := slog.LevelWarn
	if kind != troubleNetwork {
		level = slog.LevelError // it does not pass by itself
	}
	if suppressed, ok := b.window.First("reconnect: " + kind); ok {
		b.log.Log(context.Background(), level, "bus cannot be reached, trying on", "servers", b.servers, "err", err.Error(), "advice", advice,
			"suppressed", suppressed)
	}
}

// diagnose tells what to do about an error of connecting.
func (b *Bus) diagnose(err error) (kind, advice string) {
	key := b.cfg.Key
	var (
		hostname  x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		socket    *net.OpError
		file      *os.PathError
		unusable  *credentialsError
	)
	switch {
	case errors.Is(err, publish.ErrPlaintext):
		return troubleAuth, "write tls:// in " + key + ".url, or set " + key + ".tls: {} or " + key + ".auth.insecure: true"
	case errors.As(err, &unusable):
		return troubleAuth, "put it right, it is read again at each attempt"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported):
		return troubleAuth, b.cfg.Auth.advice(key)
	case errors.As(err, &hostname):
		return troubleTLS, "the server's certificate is for other names: use one of them in " + key + ".url"
	case errors.As(err, &authority):
		return troubleTLS, "the authority of the server's certificate is not trusted: name it in " + key + ".tls.caFile"
	case errors.As(err, &invalid):
		return troubleTLS, "the server's certificate is not valid: have it replaced, and see that the clocks agree"
	case errors.As(err, &socket) && (socket.Op == "remote error" || errors.Is(err, nats.ErrTLS) && !socket.Timeout()),
		errors.Is(err, nats.ErrTLS) && errors.Is(err, io.EOF):
		// TLS 1.3 tells of it after the handshake, and whoever writes then may see no more of it than a broken pipe.
		return troubleTLS, "the server does not accept this client's certificate, or wants one: see " + key + ".tls.certFile and " + key + ".tls.keyFile, and what authorities the server trusts"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return troubleTLS, "the server offers no TLS: leave out " + key + ".tls and tls:// in " + key + ".url, or configure it on the server"
	case errors.As(err, &file), errors.Is(err, nats.ErrTLS):
		return troubleTLS, "see " + key + ".tls"
	}
	return troubleNetwork, ""
}

// serversOf lists the hosts of a comma-separated list of URLs, for the log. Errors do not quote what may be a secret.
func serversOf(urls string) (string, error) {
	var hosts []string
	for _, s := range strings.Split(urls, ",") {
		s = strings.TrimSpace(s)
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		u, err := url.Parse(s)
		if err != nil { // it may quote the password: what stands before a '/' or '#' in it looks like a port
			return "", errors.New("url: not a list of nats://host:port: in a user and a password, write characters like / # ? , % as %2F %23 %3F %2C %25")
		}
		if u.Host == "" {
			return "", errors.New("url: no host")
		}
		hosts = append(hosts, u.Scheme+"://"+u.Host)
	}
	return strings.Join(hosts, ","), nil
}

// kindOf groups asynchronous errors for the log's window: their texts may name subjects, which are without number.
func kindOf(err error) string {
	for _, known := range []error{nats.ErrPermissionViolation, nats.ErrSlowConsumer, nats.ErrStaleConnection, nats.ErrAuthorization, nats.ErrAuthExpired} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "other"
}
