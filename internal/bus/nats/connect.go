package nats

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/bus/nats/silence"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// connectOptions returns the options of every connection, and the public key if the credentials are
// a seed.
func (b *Bus) connectOptions(d *dialer) (opts []nats.Option, nkey string, err error) {
	opts, nkey, err = b.opener().options(b.cfg.Key, b.noteTrouble)
	if err != nil {
		return nil, "", err
	}
	return append(
		opts,
		d.use,
		nats.Name("kubecdc "+b.cfg.Cluster),
		nats.SkipHostLookup(), // the dialer resolves hosts, and can be interrupted
		nats.Timeout(publish.DialTimeout),
		nats.FlusherTimeout(flushTimeout),
		// the subjects are constructed valid
		func(o *nats.Options) error { o.SkipSubjectValidation = true; return nil },
		nats.ErrorHandler(b.onError),
	), nkey, nil
}

// options returns the options of the main connection. gone is closed when that connection is closed
// for good.
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
		nats.IgnoreAuthErrorAbort(), // a new password may arrive later
		nats.CustomReconnectDelay(b.beforeReconnect),
		nats.ReconnectBufSize(-1), // no buffer without a connection: events wait in the table, in order
		nats.ConnectHandler(func(*nats.Conn) { b.wake.Raise() }),
		nats.ReconnectHandler(func(*nats.Conn) { b.wake.Raise() }),
		nats.DisconnectErrHandler(b.onDown),
		nats.ClosedHandler(func(*nats.Conn) { close(gone) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { b.noteTrouble(b.dialer.causeOf(err)) }),
	), nil
}

// onError logs an asynchronous error of an open connection.
func (b *Bus) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	if netErr := net.Error(nil); errors.As(err, &netErr) {
		return // the connection is lost, and onDown logs it
	}
	if kind, _ := b.opener().diagnose(b.cfg.Key, err); kind == troubleAuth {
		b.noteTrouble(err)
		return
	}
	suppressed, ok := b.window.First("async: " + kindOf(err))
	switch {
	case !ok:
	case errors.Is(err, nats.ErrPermissionViolation):
		b.log.Error("the user lacks a permission on the bus that the agent needs", "servers", b.servers, "err",
			err.Error(),
			"advice", "grant it (docs/guides/nats.md lists the permissions); the affected events wait", "suppressed",
			suppressed)
	default:
		b.log.Warn("error on the connection to the bus", "servers", b.servers, "err", err, "suppressed", suppressed)
	}
}

// nats.go calls beforeReconnect, without holding its lock, after it has tried all servers without
// success.
func (b *Bus) beforeReconnect(failures int) time.Duration {
	if nc := b.conn.Load(); nc != nil && !nc.IsConnected() {
		b.noteTrouble(b.dialer.causeOf(nc.LastError()))
	}
	if isOtherSeed(&b.cfg.Auth, b.seedOf.Load()) {
		b.renew.Raise()
	}
	return publish.BusyBackoff().Delay(failures)
}

// The kinds of trouble with a connection.
const (
	troubleNetwork = "network"
	troubleAuth    = "credentials"
	troubleTLS     = "tls"
)

// noteTrouble notes for Ready why there is no connection. It logs the first error of each kind in
// each window.
func (b *Bus) noteTrouble(err error) {
	if b.closed.Load() || err == nil {
		return
	}
	kind, advice := b.opener().diagnose(b.cfg.Key, err)
	why := err.Error()
	if advice != "" {
		why += ": " + advice
	}
	b.why.Store(&why)
	level := slog.LevelWarn
	if kind != troubleNetwork {
		level = slog.LevelError // somebody has to fix it
	}
	if suppressed, ok := b.window.First("reconnect: " + kind); ok {
		b.log.Log(context.Background(), level, "cannot reach the bus, retrying", "servers", b.servers, "err",
			err.Error(), "advice", advice,
			"suppressed", suppressed)
	}
}

// diagnose classifies a connect error and returns the fix. key is the place of the bus in the
// configuration.
func (o Opener) diagnose(key string, err error) (kind, advice string) {
	var (
		hostname  x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		socket    *net.OpError
		file      *os.PathError
		unusable  credentialsError
	)
	switch {
	case errors.Is(err, publish.ErrPlaintext):
		return troubleAuth,
			"write tls:// in " + key + ".url, or set " + key + ".tls: {} or " + key + ".auth.insecure: true"
	case errors.As(err, &unusable):
		return troubleAuth, "correct it, it is read again at each attempt"
	case refusesCredentials(err):
		return troubleAuth, adviceOn(&o.Auth, key)
	case errors.As(err, &hostname):
		return troubleTLS, "the server's certificate is for other names: use one of them in " + key + ".url"
	case errors.As(err, &authority):
		return troubleTLS, "the authority of the server's certificate is not trusted: set it in " + key + ".tls.caFile"
	case errors.As(err, &invalid):
		return troubleTLS, "the server's certificate is not valid: replace it, and check that the clocks agree"
	case errors.As(err, &socket) && (socket.Op == "remote error" || errors.Is(err, nats.ErrTLS) && !socket.Timeout()),
		errors.Is(err, nats.ErrTLS) && errors.Is(err, io.EOF):
		// In TLS 1.3 this error arrives after the handshake; a client that is writing then may see
		// only a broken pipe.
		return troubleTLS,
			"the server rejects the client certificate, or requires one: check " + key + ".tls.certFile and " + key +
				".tls.keyFile, and the authorities that the server trusts"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return troubleTLS,
			"the server does not offer TLS: remove " + key + ".tls and tls:// in " + key +
				".url, or configure it on the server"
	case errors.As(err, &file), errors.Is(err, nats.ErrTLS):
		return troubleTLS, "see " + key + ".tls"
	}
	return troubleNetwork, ""
}

// serversOf returns the hosts of a comma-separated list of URLs, for the log. Its errors quote
// nothing that may be secret.
func serversOf(urls string) (string, error) {
	var hosts []string
	for _, s := range strings.Split(urls, ",") {
		s = strings.TrimSpace(s)
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		u, err := url.Parse(s)
		if err != nil { // err may quote the password: its part before a '/' or '#' looks like a port
			return "",
				errors.New(
					"url: not a list of nats://host:port: in user and password, escape characters like / # ? , % as %2F %23 %3F %2C %25")
		}
		if u.Host == "" {
			return "", errors.New("url: no host")
		}
		hosts = append(hosts, u.Scheme+"://"+u.Host)
	}
	return strings.Join(hosts, ","), nil
}

// kindOf groups asynchronous errors for the log's window: their texts may name subjects, which are
// unbounded in number.
func kindOf(err error) string {
	for _, known := range []error{
		nats.ErrPermissionViolation, nats.ErrSlowConsumer, nats.ErrStaleConnection, nats.ErrAuthorization,
		nats.ErrAuthExpired,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "other"
}

// dialer keeps a handle on the socket of a nats.go connection. nats.go dials, shakes hands and
// writes under one lock, so a server that does not read blocks every caller, even of IsConnected.
// Break unblocks them.
//
// It also ends a connection that has died silently: each connection asks the server with PINGs, so
// no data means no server.
type dialer struct {
	ctx       context.Context  //nolint:containedctx // ends all dialling: nats.go's CustomDialer has no context
	plaintext bool             // secrets are sent unencrypted, so only loopback connections are allowed
	token     func() string    // Config.Token
	fencing   *publish.Fencing // nil: connections have no guard
	// the latest connection, which nats.go uses or is about to use; nil without a guard
	guarded atomic.Pointer[publish.Guard]

	mu     sync.Mutex
	cancel context.CancelFunc // of the current dialling
	conn   net.Conn           // the latest, possibly closed
	failed error              // error of the latest dialling; nil if it succeeded
	secret string             // what token returned before the latest dialling
}

// dialer returns a dialer that stops when ctx ends.
func (o Opener) dialer(ctx context.Context, f *publish.Fencing) *dialer {
	return &dialer{
		ctx:       ctx,
		fencing:   f,
		plaintext: o.InPlaintext(),
		token:     o.Token,
	}
}

// use is an option of nats.go: the connection uses the dialer, and its token if there is one.
func (d *dialer) use(o *nats.Options) error {
	o.CustomDialer = d
	if d.token == nil {
		return nil
	}
	o.IgnoreAuthErrorAbort = true // the server may be another one for a while
	o.TokenHandler = func() string {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.secret
	}
	return nil
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, publish.DialTimeout)
	defer cancel()
	secret := ""
	if d.token != nil {
		secret = d.token() // before dialling: later, the server of this connection may not be the token's
	}
	d.mu.Lock()
	d.cancel, d.secret = cancel, secret
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
	conn = silence.Limit(conn, silence.After(silence.Ping))
	d.conn = conn
	if d.fencing == nil {
		return conn, nil
	}
	g := d.fencing.Guard(conn, false)
	d.guarded.Store(g)
	return g, nil
}

// hasBroken reports whether the latest connection was broken because the fence was shut.
func (d *dialer) hasBroken() bool {
	g := d.guarded.Load()
	return g != nil && g.Broke.Load()
}

// causeOf returns the cause of err: nats.go's own error only says that no server is available.
func (d *dialer) causeOf(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil && (err == nil || errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrDisconnected)) {
		return d.failed
	}
	return err
}

// dialAny resolves addr and tries all its addresses in random order, so that agents spread over a
// headless service. Each has an equal part of the time.
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

// Break cancels the current dialling and closes the current connection. nats.go treats it as
// broken.
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
