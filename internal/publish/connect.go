package publish

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
)

// NATSAuth names the files that hold credentials; at most one kind. They are read again at each connect, but for the
// seed, which is read once.
type NATSAuth struct {
	CredsFile    string // a user's JWT and seed
	User         string // with PasswordFile
	PasswordFile string
	TokenFile    string
	NKeySeedFile string
}

// NATSTLS names the files of TLS. With any of them set, the connection must be encrypted.
type NATSTLS struct {
	CAFile   string // certificates to trust, instead of the system's
	CertFile string // with KeyFile: the client's certificate
	KeyFile  string
}

// options are those of the connection. gone is closed when it is closed for good.
func (n *NATS) options(gone chan<- struct{}) ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name("kubecdc " + n.cfg.Cluster),
		nats.SetCustomDialer(n.dialer),
		nats.SkipHostLookup(), // the dialer does, and can be interrupted in it
		nats.Timeout(dialTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // a password may be on its way
		nats.CustomReconnectDelay(dialBackoff().delay),
		// Nothing is kept for later while there is no connection: what waits, waits in Publish, in order.
		nats.ReconnectBufSize(-1),
		nats.FlusherTimeout(flushTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		func(o *nats.Options) error { o.SkipSubjectValidation = true; return nil }, // they are made valid
		nats.ConnectHandler(func(*nats.Conn) { n.requestCheck() }),
		nats.ReconnectHandler(func(*nats.Conn) { n.requestCheck() }),
		nats.DisconnectErrHandler(n.onDown),
		nats.ClosedHandler(func(*nats.Conn) { close(gone) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if suppressed, ok := n.window.first("reconnect"); ok && !n.closed.Load() {
				n.log.Warn("bus cannot be reached, trying on", "servers", n.servers, "err", errText(n.dialer.why(err)), "suppressed", suppressed)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if netErr := net.Error(nil); errors.As(err, &netErr) {
				return // the connection is lost, and onDown says so
			}
			if suppressed, ok := n.window.first("async: " + kindOf(err)); ok {
				n.log.Warn("error on the connection to the bus", "servers", n.servers, "err", errText(err), "suppressed", suppressed)
			}
		}),
	}
	auth, err := n.cfg.Auth.options(n)
	if err != nil {
		return nil, err
	}
	opts = append(opts, auth...)
	if t := n.cfg.TLS; t.CAFile != "" {
		opts = append(opts, nats.RootCAs(t.CAFile))
	}
	if t := n.cfg.TLS; t.CertFile != "" {
		opts = append(opts, nats.ClientCert(t.CertFile, t.KeyFile))
	}
	return opts, nil
}

func (a *NATSAuth) options(n *NATS) ([]nats.Option, error) {
	var opts []nats.Option
	if a.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(a.CredsFile))
	}
	if a.User != "" {
		opts = append(opts, nats.UserInfoHandler(func() (string, string) { return a.User, n.secret(a.PasswordFile) }))
	}
	if a.TokenFile != "" {
		opts = append(opts, nats.TokenHandler(func() string { return n.secret(a.TokenFile) }))
	}
	if a.NKeySeedFile != "" {
		o, err := nats.NkeyOptionFromSeed(a.NKeySeedFile)
		if err != nil {
			return nil, fmt.Errorf("read nkey seed: %w", err)
		}
		opts = append(opts, o)
	}
	if len(opts) > 1 {
		return nil, errors.New("more than one kind of credentials")
	}
	return opts, nil
}

// secret reads a file anew at each connect, so that a secret can be changed. Failing that, the server will refuse us, and
// we try on.
func (n *NATS) secret(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		if suppressed, ok := n.window.first("secret"); ok {
			n.log.Error("credentials cannot be read", "err", err, "suppressed", suppressed)
		}
	}
	return strings.TrimRight(string(b), "\r\n")
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
		if err != nil {
			return "", fmt.Errorf("url: %w", withoutURL(err))
		}
		if u.Host == "" {
			return "", errors.New("url: no host")
		}
		hosts = append(hosts, u.Scheme+"://"+u.Host)
	}
	return strings.Join(hosts, ","), nil
}

// withoutURL takes the URL, which may hold a password, out of an error of net/url.
func withoutURL(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
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
