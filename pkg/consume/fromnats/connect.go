package fromnats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/nats/natsversion"
	"github.com/kubecdc/kubecdc/internal/bus/nats/silence"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// connect returns the connection to use. ctx bounds how long it takes, not the connection.
func (s *JetStream) connect(ctx context.Context) (*link, error) {
	if s.Conn != nil {
		if err := natsversion.Check(s.Conn.ConnectedServerVersion()); err != nil {
			return nil, err
		}
		return newLink(s.Conn, cmp.Or(s.Conn.ConnectedUrlRedacted(), "the connection that was given"), false), nil
	}
	servers, err := withoutUser(s.URL)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	dialing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	d := &dialer{}
	d.dial = func(network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(dialing, network, address)
		if err != nil {
			return nil, err
		}
		return silence.Limit(conn, silence.After(d.ping)), nil
	}
	keep := context.AfterFunc(ctx, giveUp) // a connection made by then may reconnect
	defer keep()
	opts := append([]nats.Option{
		nats.Name("kubecdc consumer"),
		nats.SetCustomDialer(d),
		nats.SkipHostLookup(), // the dialer does
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(silence.Ping),
		nats.MaxPingsOutstanding(silence.MaxPings),
	}, s.Options...)
	opts = append(opts, func(o *nats.Options) error { // s.Options may have another interval
		d.ping = o.PingInterval
		return nil
	})
	conn, err := nats.Connect(s.URL, opts...)
	if errors.Is(err, nats.ErrNoServers) && d.failed != nil {
		err = d.failed
	}
	switch {
	case ctx.Err() != nil:
		if err == nil {
			conn.Close()
		}
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("connect to %s: %w%s", servers, withoutURL(err), connectAdvice(err))
	}
	if err := natsversion.Check(conn.ConnectedServerVersion()); err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to %s: %w", servers, err)
	}
	return newLink(conn, servers, true), nil
}

// api returns the JetStream API of a connection.
func (s *JetStream) api(conn *nats.Conn) (jetstream.JetStream, error) {
	if s.Domain == "" {
		return jetstream.New(conn)
	}
	return jetstream.NewWithDomain(conn, s.Domain)
}

const dialTimeout = 5 * time.Second

// dialer keeps the last error: nats.go reports only that there are no servers. It closes a
// connection on which no data arrives, although the server has to answer pings.
type dialer struct {
	dial   func(network, address string) (net.Conn, error)
	ping   time.Duration // interval of the pings
	failed error
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.dial(network, address)
	d.failed = err
	return conn, err
}

func connectAdvice(err error) string {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported):
		return ": the server rejects the credentials"
	case errors.Is(err, nats.ErrSecureConnRequired):
		return ": the server requires TLS, use tls://"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return ": the server does not offer TLS, use nats:// without certificates"
	case errors.Is(err, nats.ErrTLS):
		return ": trust the authority of the server's certificate; the server may also require a client certificate"
	}
	return ": check that a NATS server listens there"
}

// withoutUser returns a list of URLs without users and passwords.
func withoutUser(urls string) (string, error) {
	if strings.TrimSpace(urls) == "" {
		return "", errors.New("neither a URL nor a connection is given")
	}
	var out []string
	for s := range strings.SplitSeq(urls, ",") {
		s = strings.TrimSpace(s)
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		u, err := url.Parse(s)
		if err != nil { // it may quote the password: a part of it before '/' or '#' looks like a port
			return "",
				errors.New(
					"url: want nats://host:port: in user and password, escape characters like / # ? , % as %2F %23 %3F %2C %25")
		}
		if u.Host == "" {
			return "", errors.New("url: no host in it, want nats://host:port")
		}
		out = append(out, u.Scheme+"://"+u.Host)
	}
	return strings.Join(out, ","), nil
}

// withoutURL takes the URL, which may hold a password, out of an error of net/url.
func withoutURL(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// explain adds what to do about an error of JetStream.
func (l *link) explain(ctx context.Context, js jetstream.JetStream, stream string, err error) error {
	server := cmp.Or(l.conn.ConnectedUrlRedacted(), l.servers)
	var slow *slowError
	old := natsversion.Check(l.conn.ConnectedServerVersion()) // the reader may have connected to another server since
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case old != nil:
		return fmt.Errorf("open stream %s at %s: %w: %w", stream, server, old, err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w %s at %s: %s", consume.ErrNoStream, stream, server, others(ctx, js))
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf(
			"open stream %s: the NATS server %s has no JetStream: start it with JetStream enabled (nats-server -js): %w",
			stream, server, err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("open stream %s: JetStream is not enabled for this account at %s: use another account: %w",
			stream, server, err)
	case errors.As(err, &slow) && !errors.Is(l.conn.LastError(), nats.ErrPermissionViolation):
		return fmt.Errorf(
			"open stream %s at %s: %w: try again, a server that has just started reads the stream from its disk; "+
				"check that the user may publish to $JS.API.CONSUMER.CREATE.%s.>", stream, server, err, stream)
	case isTimeout(err) && errors.Is(l.conn.LastError(), nats.ErrPermissionViolation): // such a request has no answer
		return fmt.Errorf("open stream %s at %s: %w", stream, server, l.conn.LastError())
	case isTimeout(err):
		return fmt.Errorf("open stream %s: %s does not respond: check that the stream's cluster is up, "+
			"and that the user may publish to $JS.API.STREAM.INFO.%s: %w", stream, server, stream, err)
	}
	return fmt.Errorf("open stream %s at %s: %w", stream, server, err)
}

// slowError reports that a server, which has answered before, did not create a consumer in time.
type slowError struct {
	after           time.Duration
	messages, bytes uint64
	err             error
}

func (e *slowError) Error() string {
	return fmt.Sprintf("the server did not create the consumers within %s, for %d records of %d MB: %v",
		e.after.Round(time.Second), e.messages, e.bytes/1e6, e.err)
}

func (e *slowError) Unwrap() error { return e.err }

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// others lists the existing streams.
func others(ctx context.Context, js jetstream.JetStream) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	const few = 10
	var names []string
	list := js.StreamNames(ctx)
	for name := range list.Name() {
		names = append(names, name)
	}
	if list.Err() != nil {
		return "check the name"
	}
	if len(names) == 0 {
		return "there are no streams; start the agent, which creates it"
	}
	slices.Sort(names)
	more := ""
	if len(names) > few {
		more = fmt.Sprintf(" and %d more", len(names)-few)
		names = names[:few]
	}
	return "there are " + strings.Join(names, ", ") + more
}
