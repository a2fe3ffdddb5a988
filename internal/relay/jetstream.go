package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/subjectfilter"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// JetStreamConfig configures a relay that reads from NATS.
type JetStreamConfig struct {
	Relay   string // name, and key of the cursor
	URL     string // nats://host:port, several of one cluster separated by commas
	Options []nats.Option
	Domain  string       // of JetStream; "": the server's
	Stream  string       // "": consume.DefaultStream
	Start   driver.Start // "": driver.Live
	// Subject is the template of the subjects; "": the default. Objects and Events select the records of the relay.
	Subject string
	Objects []consume.Objects
	Events  consume.Events
}

// JetStream is the source of a relay that reads a stream.
type JetStream struct {
	cfg     JetStreamConfig
	log     *slog.Logger
	servers string // for the log
	window  publish.Window

	conn   *nats.Conn
	js     jetstream.JetStream
	cursor *cursor
	reader *Reading
	choose func(context.Context, jetstream.Stream, *consume.Query) []string
	dialer dialer
}

// NewJetStream checks the configuration and returns an unconnected source.
func NewJetStream(cfg JetStreamConfig, log *slog.Logger) (*JetStream, error) {
	cfg.Stream, cfg.Start = cmp.Or(cfg.Stream, consume.DefaultStream), cmp.Or(cfg.Start, driver.Live)
	var servers []string
	for s := range strings.SplitSeq(cfg.URL, ",") {
		s = strings.TrimSpace(s)
		servers = append(servers, s[strings.LastIndexByte(s, '@')+1:])
	}
	s := &JetStream{cfg: cfg, log: log.With("relay", cfg.Relay), servers: strings.Join(servers, ",")}
	var err error
	s.choose, err = subjectfilter.Choose(cfg.Subject, func(err error) {
		s.log.Info("the server cannot filter for the relay, which reads all records", "stream", cfg.Stream, "why", err)
	})
	if err != nil {
		return nil, fmt.Errorf("bus.nats.subject: %w", err)
	}
	return s, nil
}

// Open implements driver.Source.
func (s *JetStream) Open(ctx context.Context) error {
	if s.conn == nil {
		if err := s.connect(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	err := s.begin(ctx)
	var final finalError
	if err == nil || errors.As(err, &final) {
		return err
	}
	return driver.Transient(err)
}

// finalError is an error for which a retry is useless.
type finalError struct{ error }

// connect creates the connection, which may still be down when it returns.
func (s *JetStream) connect() error {
	options := append([]nats.Option{
		nats.Name("kubecdc relay " + s.cfg.Relay),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(20 * time.Second),
		nats.SetCustomDialer(&s.dialer),
		nats.IgnoreAuthErrorAbort(), // after a rotation of the credentials it reconnects
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.note("connection to bus", err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { s.note("connect to bus", err) }),
	}, s.cfg.Options...)
	conn, err := nats.Connect(s.cfg.URL, options...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.servers, s.dialer.reason(err))
	}
	if s.js, err = JetStreamIn(s.cfg.Domain, conn); err != nil {
		conn.Close()
		return err
	}
	s.conn = conn
	return nil
}

func (s *JetStream) note(what string, err error) {
	if suppressed, ok := s.window.First(what); ok && err != nil {
		s.log.Warn("bus cannot be read at present, trying on", "servers", s.servers, "doing", what, "err", s.dialer.reason(err), "suppressed", suppressed)
	}
}

// dialer stores its last error, because nats.go reports only that there are no servers.
type dialer struct{ failed atomic.Pointer[error] }

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: apiTimeout}).DialContext(context.Background(), network, address)
	d.failed.Store(nil)
	if err != nil {
		d.failed.Store(&err)
	}
	return conn, err
}

// reason returns the error of a connection for display, without URLs.
func (d *dialer) reason(err error) error {
	if failed := d.failed.Load(); failed != nil && (errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrDisconnected)) {
		return *failed
	}
	switch text := strings.ToLower(err.Error()); {
	case strings.Contains(text, "authorization violation"), strings.Contains(text, "authentication"):
		return fmt.Errorf("%w: the server wants other credentials: see bus.nats.auth of the file (flags name none)", publish.WithoutURL(err))
	case errors.Is(err, nats.ErrSecureConnRequired):
		return fmt.Errorf("%w: the server wants TLS: use tls://, or set bus.nats.tls", err)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("%w: the server offers no TLS: use nats://, and no bus.nats.tls", err)
	}
	return publish.WithoutURL(err)
}

// begin takes the cursor and begins to read after it.
func (s *JetStream) begin(ctx context.Context) error {
	if !s.conn.IsConnected() {
		return s.dialer.reason(cmp.Or(s.conn.LastError(), nats.ErrDisconnected))
	}
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s.cfg.Start = driver.Beginning // all records will come after this start, so a live start skips none
			return fmt.Errorf("there is no stream %s yet: the agent makes it (bus.nats.stream.create), or create it, or name another", s.cfg.Stream)
		}
		return fmt.Errorf("look up stream %s: %w", s.cfg.Stream, err)
	}
	info := stream.CachedInfo()
	first := position{Stream: s.cfg.Stream, Created: created(info)}
	if s.cfg.Start == driver.Live {
		first.Position = info.State.LastSeq
	} else if info.State.FirstSeq > 0 {
		first.Position = info.State.FirstSeq - 1
	}
	c, err := takeCursor(ctx, s.js, s.cfg.Relay, first, info.Config.Replicas)
	if err != nil {
		return err
	}
	switch {
	case c.before.Holder != "" && time.Since(c.before.Updated) < 3*checkInterval:
		s.log.Warn("cursor was held by another relay of this name until now, which ends: run it once", "host", c.before.Host)
	case c.made:
		s.log.Info("relay begins", "stream", s.cfg.Stream, "start", string(s.cfg.Start), "position", c.last.Position)
	}
	filtered := false
	bus := &consume.JetStream{Conn: s.conn, Domain: s.cfg.Domain, Stream: s.cfg.Stream}
	bus.Choose = func(ctx context.Context, stream jetstream.Stream, q *consume.Query) []string {
		chosen := s.choose(ctx, stream, q)
		filtered = len(chosen) > 0
		return chosen
	}
	reader, err := bus.Read(ctx, consume.Query{
		Objects: s.cfg.Objects, Events: s.cfg.Events, Start: consume.After(c.last.after()),
		OnRetry: func(err error) { s.note("read", err) },
		OnResume: func() {
			s.log.Info("reading goes on where it was interrupted", "stream", s.cfg.Stream)
		},
	})
	if err != nil {
		return err
	}
	s.cursor, s.reader = c, NewReading(reader, filtered, c.last.after())
	return nil
}

// created returns the id of a stream in package consume.
func created(info *jetstream.StreamInfo) string { return info.Created.UTC().Format(time.RFC3339Nano) }

// Next implements driver.Source.
func (s *JetStream) Next(ctx context.Context) (*driver.Record, error) {
	for {
		r, err := s.reader.Next(ctx)
		if !errors.Is(err, consume.ErrNoStream) {
			return r, err
		}
		s.note("read", err) // another client may create it again
	}
}

// Save implements driver.Source. Without marks it checks whether this relay still holds the cursor.
func (s *JetStream) Save(ctx context.Context, marks []driver.Mark) error {
	last := s.cursor.last
	for _, m := range marks {
		last.Position, last.Created = m.Position, m.ID
	}
	return s.cursor.save(ctx, last)
}

// Behind implements driver.Source.
func (s *JetStream) Behind(ctx context.Context, marks []driver.Mark) (uint64, error) {
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return 0, err
	}
	at := s.cursor.last.Position
	for _, m := range marks {
		at = m.Position
	}
	return behind(stream.CachedInfo().State, at), nil
}

// behind returns the number of records in a stream after a position.
func behind(state jetstream.StreamState, at uint64) uint64 {
	at = max(at, max(state.FirstSeq, 1)-1)
	if state.LastSeq <= at {
		return 0
	}
	return state.LastSeq - at
}

// Ready implements driver.Source.
func (s *JetStream) Ready() error {
	if s.conn.IsConnected() {
		return nil
	}
	return fmt.Errorf("not connected to %s: %w", s.servers, s.dialer.reason(cmp.Or(s.conn.LastError(), nats.ErrDisconnected)))
}

// Close implements driver.Source.
func (s *JetStream) Close() error {
	if s.reader != nil {
		_ = s.reader.Close() // its error is always nil
	}
	if s.conn == nil {
		return nil
	}
	if s.cursor != nil && s.conn.IsConnected() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.cursor.release(ctx)
	}
	s.conn.Close()
	return nil
}

// Status returns the status of the cursor without taking it. It is used in place of Open, and closes the connection.
func (s *JetStream) Status(ctx context.Context) ([]driver.CursorStatus, error) {
	conn, err := nats.Connect(s.cfg.URL, append([]nats.Option{nats.Timeout(apiTimeout), nats.SetCustomDialer(&s.dialer)}, s.cfg.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.servers, s.dialer.reason(err))
	}
	defer conn.Close()
	js, err := JetStreamIn(s.cfg.Domain, conn)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", s.cfg.Stream, err)
	}
	info := stream.CachedInfo()
	p := driver.CursorStatus{Place: s.cfg.Stream}
	at, err := readCursor(ctx, js, s.cfg.Relay)
	switch {
	case errors.Is(err, errNoCursor):
		p.Problem = "it has not been started yet"
		return []driver.CursorStatus{p}, nil
	case err != nil:
		return nil, err
	case at.Stream != s.cfg.Stream:
		p.Place, p.Problem = at.Stream, "the cursor is one in another stream than the configured "+s.cfg.Stream
	case at.Created != created(info):
		p.Problem = "the stream has been created anew since: it begins at its beginning"
	}
	p.At, p.Updated, p.Holder = at.Position, at.Updated, at.Host
	if p.Problem == "" {
		p.Behind = behind(info.State, at.Position)
	}
	return []driver.CursorStatus{p}, nil
}

// JetStreamIn returns the API of JetStream in a domain; "": in the server's.
func JetStreamIn(domain string, conn *nats.Conn) (jetstream.JetStream, error) {
	if domain == "" {
		return jetstream.New(conn)
	}
	return jetstream.NewWithDomain(conn, domain)
}
