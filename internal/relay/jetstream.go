package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/subjectfilter"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// JetStreamConfig says what a relay reads from NATS.
type JetStreamConfig struct {
	Relay   string // its name, which is the cursor's key
	URL     string // nats://host:port, several of one cluster separated by commas
	Options []nats.Option
	Domain  string // of JetStream; "": that of the server
	Stream  string // "": consume.DefaultStream
	Start   Start  // "": Live
	// Subject is the template of the subjects; "": the default. Objects and Events are what the relay asks for.
	Subject string
	Objects []consume.Objects
	Events  consume.Events
}

// JetStream is a stream as the source of a relay.
type JetStream struct {
	cfg     JetStreamConfig
	log     *slog.Logger
	servers string // for the log
	notes   notes

	conn   *nats.Conn
	js     jetstream.JetStream
	cursor *cursor
	reader *reading // Next's
	choose func(context.Context, jetstream.Stream, *consume.Query) []string
	dialer dialer

	mu      sync.Mutex
	problem error // why it is not open
	open    bool
}

// NewJetStream checks the configuration and returns a source that Open connects.
func NewJetStream(cfg JetStreamConfig, log *slog.Logger) (*JetStream, error) {
	if cfg.Stream == "" {
		cfg.Stream = consume.DefaultStream
	}
	if cfg.Start == "" {
		cfg.Start = Live
	}
	if cfg.Relay == "" || strings.Trim(cfg.Relay, nameBytes) != "" {
		return nil, fmt.Errorf("relay name %q: must be made of a-z, A-Z, 0-9, - and _", cfg.Relay)
	}
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

const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// Open implements Source.
func (s *JetStream) Open(ctx context.Context) error {
	if err := s.connect(); err != nil {
		return err
	}
	for failures := 1; ; failures++ {
		err := s.begin(ctx)
		var fatal fatalError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &fatal):
			return fatal.error
		}
		s.mu.Lock()
		s.problem = err
		s.mu.Unlock()
		if suppressed, ok := s.notes.first("open"); ok {
			s.log.Warn("stream cannot be read yet, trying on", "servers", s.servers, "stream", s.cfg.Stream, "err", err, "suppressed", suppressed)
		}
		if err := backoff(ctx, failures); err != nil {
			return err
		}
	}
}

// fatalError is one that no retry mends.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// connect makes the connection, which need not stand yet.
func (s *JetStream) connect() error {
	options := append([]nats.Option{
		nats.Name("kubecdc relay " + s.cfg.Relay),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(20 * time.Second),
		nats.SetCustomDialer(&s.dialer),
		nats.IgnoreAuthErrorAbort(), // credentials are rotated, and then it goes on
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
	if suppressed, ok := s.notes.first(what); ok && err != nil {
		s.log.Warn("bus cannot be read at present, trying on", "servers", s.servers, "doing", what, "err", s.dialer.reason(err), "suppressed", suppressed)
	}
}

// dialer remembers why it has failed last: nats.go says no more than that there are no servers.
type dialer struct{ failed atomic.Pointer[error] }

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: apiTimeout}).DialContext(context.Background(), network, address)
	if err != nil {
		d.failed.Store(&err)
	} else {
		d.failed.Store(nil)
	}
	return conn, err
}

// reason is what an error of a connection says to people. It holds no URL.
func (d *dialer) reason(err error) error {
	if failed := d.failed.Load(); failed != nil && (errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrDisconnected)) {
		return *failed
	}
	switch text := strings.ToLower(err.Error()); {
	case strings.Contains(text, "authorization violation"), strings.Contains(text, "authentication"):
		return fmt.Errorf("%w: the server wants other credentials: see bus.nats.auth of the file (flags name none)", withoutURL(err))
	case errors.Is(err, nats.ErrSecureConnRequired):
		return fmt.Errorf("%w: the server wants TLS: use tls://, or set bus.nats.tls", err)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("%w: the server offers no TLS: use nats://, and no bus.nats.tls", err)
	}
	return withoutURL(err)
}

// begin takes the cursor and begins to read behind it.
func (s *JetStream) begin(ctx context.Context) error {
	if !s.conn.IsConnected() {
		return s.dialer.reason(cmpErr(s.conn.LastError(), nats.ErrDisconnected))
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s.cfg.Start = Beginning // there is nothing that a live start would leave out: all of it comes after the start
			return fmt.Errorf("there is no stream %s yet: the agent makes it (bus.nats.stream.create), or create it, or name another", s.cfg.Stream)
		}
		return fmt.Errorf("look up stream %s: %w", s.cfg.Stream, err)
	}
	info := stream.CachedInfo()
	first := position{Stream: s.cfg.Stream, Created: created(info)}
	if s.cfg.Start == Live {
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
	s.cursor, s.reader = c, newReading(reader, filtered, []consume.Position{c.last.after()})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
	return nil
}

// created is the id that consume gives a stream.
func created(info *jetstream.StreamInfo) string { return info.Created.UTC().Format(time.RFC3339Nano) }

// Next implements Source.
func (s *JetStream) Next(ctx context.Context) (*Record, error) {
	for {
		r, err := s.reader.next(ctx)
		if !errors.Is(err, consume.ErrNoStream) {
			return r, err
		}
		s.note("read", err) // somebody may create it again
	}
}

// Save implements Source. Without marks it looks whether the cursor is still held.
func (s *JetStream) Save(ctx context.Context, marks []Mark) error {
	last := s.cursor.last
	for _, m := range marks {
		last.Position, last.Created = m.Position, m.ID
	}
	return s.cursor.save(ctx, last)
}

// Behind implements Source.
func (s *JetStream) Behind(ctx context.Context, marks []Mark) (uint64, error) {
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

// behind is how many records a stream has beyond a position.
func behind(state jetstream.StreamState, at uint64) uint64 {
	at = max(at, max(state.FirstSeq, 1)-1)
	if state.LastSeq <= at {
		return 0
	}
	return state.LastSeq - at
}

// Ready implements Source.
func (s *JetStream) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.open && s.problem != nil:
		return s.problem
	case !s.open:
		return fmt.Errorf("not connected to %s", s.servers)
	case !s.conn.IsConnected():
		return fmt.Errorf("not connected to %s: %w", s.servers, s.dialer.reason(cmpErr(s.conn.LastError(), nats.ErrDisconnected)))
	}
	return nil
}

// Close implements Source.
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

// Status says where the cursor stands, without taking it. It is used in place of Open, and closes the connection.
func (s *JetStream) Status(ctx context.Context) ([]Position, error) {
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
	p := Position{Place: s.cfg.Stream}
	at, err := readCursor(ctx, js, s.cfg.Relay)
	switch {
	case errors.Is(err, errNoCursor):
		p.Problem = "it has not been started yet"
		return []Position{p}, nil
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
	return []Position{p}, nil
}

// JetStreamIn is the API of JetStream in a domain; "": in that of the server.
func JetStreamIn(domain string, conn *nats.Conn) (jetstream.JetStream, error) {
	if domain == "" {
		return jetstream.New(conn)
	}
	return jetstream.NewWithDomain(conn, domain)
}
