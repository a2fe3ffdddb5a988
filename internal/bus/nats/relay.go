package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsversion"
	"github.com/kubecdc/kubecdc/internal/bus/nats/subjectfilter"
	"github.com/kubecdc/kubecdc/internal/bus/subscription"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// recentlySaved is the age below which the holder of a cursor may still run: a holder saves it
// every ten seconds.
const recentlySaved = 30 * time.Second

// relaySubscription is the subscription of a relay that reads a stream.
type relaySubscription struct {
	cfg     Opener
	relay   driver.Relaying
	options []nats.Option
	log     *slog.Logger
	servers string // for the log
	window  publish.Window

	conn   *nats.Conn
	js     jetstream.JetStream
	cursor *cursor
	memo   json.RawMessage // see driver.Noter
	reader *subscription.Reading
	choose func(context.Context, jetstream.Stream, *consume.Query) []string
	// confined is the stream, without its connection, if the relay may read only a part of it; nil:
	// choose selects the subjects.
	confined *confined
	copies   *copies // of the stream
	dialer   *dialer
}

// Subscribe implements driver.Reader.
func (o Opener) Subscribe(r *driver.Relaying) (driver.RelaySubscription, error) {
	s := &relaySubscription{
		cfg:   o,
		relay: *r,
		log:   r.Log.With("relay", r.Name),
		copies: &copies{
			template: o.Subject,
		},
		dialer: o.dialer(context.Background(), nil),
	}
	var err error
	s.options, _, err = o.options("bus.nats", func(error) {})
	if err != nil {
		return nil, err
	}
	s.options = append(s.options, s.dialer.use)
	s.relay.Start = cmp.Or(r.Start, driver.Live)
	s.servers, err = serversOf(o.URL)
	if err != nil {
		return nil, fmt.Errorf("bus.nats.%w", err)
	}
	if o.Reader != nil {
		return s.confine()
	}
	s.choose, err = subjectfilter.Choose(o.Subject, func(err error) {
		s.log.Info("the server cannot filter, so the relay reads all records", "stream", o.Stream.Name, "why", err)
	})
	if err != nil {
		return nil, fmt.Errorf("bus.nats.subject: %w", err)
	}
	return s, nil
}

// confine confines the subscription to the subjects of its reader. It returns an error if the relay
// selects only objects of others.
func (s *relaySubscription) confine() (driver.RelaySubscription, error) {
	bus := fromnats.JetStream{Domain: s.cfg.Domain, Stream: s.cfg.Stream.Name}
	var err error
	s.confined, err = s.cfg.confine(bus, s.cfg.Reader.ConsumersOf(s.relay.Name))
	if err != nil {
		return nil, err
	}
	some, all := s.confined.Reads(s.relay.Objects, s.relay.Events, s.relay.Cluster)
	switch {
	case !some:
		return nil, &OutsideError{s.confined.only}
	case !all:
		s.log.Info("the relay selects more objects than it can read", "why", s.confined.only)
	}
	return s, nil
}

// Open implements driver.Subscription.
func (s *relaySubscription) Open(ctx context.Context) error {
	if s.conn == nil {
		if err := s.connect(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, publish.RequestTimeout)
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
func (s *relaySubscription) connect() error {
	conn, err := nats.Connect(s.cfg.URL, append(s.options,
		nats.Name("kubecdc relay "+s.relay.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond),
		nats.IgnoreAuthErrorAbort(), // after a rotation of the credentials it reconnects
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			s.noteError("connection to bus", err)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { s.noteError("connect to bus", err) }),
		nats.ReconnectHandler(func(c *nats.Conn) {
			if err := natsversion.Check(c.ConnectedServerVersion()); err != nil {
				s.noteError("reconnect to bus", err)
			}
		}),
	)...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.servers, s.explain(err))
	}
	s.js, err = jetStreamIn(s.cfg.Domain, conn)
	if err != nil {
		conn.Close()
		return err
	}
	s.conn = conn
	return nil
}

func (s *relaySubscription) noteError(what string, err error) {
	if suppressed, ok := s.window.First(what); ok && err != nil {
		s.log.Warn("cannot read the bus, retrying", "servers", s.servers, "doing", what, "err", s.explain(err),
			"suppressed", suppressed)
	}
}

// explain returns the error of a connection for display, without URLs, and with the fix.
func (s *relaySubscription) explain(err error) error {
	err = publish.WithoutURL(s.dialer.causeOf(err))
	if _, advice := s.cfg.diagnose("bus.nats", err); advice != "" {
		return fmt.Errorf("%w: %s", err, advice)
	}
	return err
}

// begin takes the cursor and begins to read after it.
func (s *relaySubscription) begin(ctx context.Context) error {
	if err := s.checkConnected(); err != nil {
		return err
	}
	if err := natsversion.Check(s.conn.ConnectedServerVersion()); err != nil {
		return finalError{err}
	}
	name := s.cfg.Stream.Name
	info, err := lookUp(ctx, s.js, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.relay.Start = driver.Beginning // all records will come after this start, so a live start skips none
		return fmt.Errorf(
			"stream %s does not exist yet: the agent creates it (bus.nats.stream.create); or create it yourself, or use another",
			name)
	}
	if err != nil {
		return err
	}
	first := position{Stream: name, Created: created(info)}
	if s.relay.Start == driver.Live {
		first.Position = info.State.LastSeq
	} else if info.State.FirstSeq > 0 {
		first.Position = info.State.FirstSeq - 1
	}
	kv, err := s.openBucket(ctx, info.Config.Replicas)
	if err != nil {
		return err
	}
	c, err := takeCursor(ctx, kv, s.relay.Name, first)
	if err != nil {
		return err
	}
	// an earlier Open took it, and failed after that
	retried := s.cursor != nil && s.cursor.last.Holder == c.before.Holder
	s.cursor, s.memo = c, c.last.Note
	switch {
	case retried:
	case c.before.Holder != "" && time.Since(c.before.Updated) < recentlySaved:
		s.log.Warn("took over the cursor of another relay of this name, which stops: run only one", "host",
			c.before.Host)
	case c.made:
		s.log.Info("relay starts", "stream", name, "start", string(s.relay.Start), "position", c.last.Position)
	}
	filtered := false
	reader, err := s.bus(&filtered).Read(ctx, consume.Query{
		Objects:  s.relay.Objects,
		Events:   s.relay.Events,
		Start:    consume.After(c.last.after()),
		OnRetry:  func(err error) { s.noteError("read", err) },
		OnResume: func() { s.log.Info("reading resumes where it was interrupted", "stream", name) },
	})
	if err != nil {
		return err
	}
	s.reader = subscription.NewReading(reader, filtered, c.last.after())
	return nil
}

// bus returns the stream on the current connection. Its Read sets filtered if the server does not
// send all records.
func (s *relaySubscription) bus(filtered *bool) consume.Source {
	if s.confined != nil {
		*filtered = true
		confined := *s.confined
		confined.bus.Conn = s.conn
		return &confined
	}
	return &fromnats.JetStream{
		Conn:   s.conn,
		Domain: s.cfg.Domain,
		Stream: s.cfg.Stream.Name,
		OnOpen: s.copies.note,
		Choose: func(ctx context.Context, stream jetstream.Stream, q *consume.Query) []string {
			chosen := s.choose(ctx, stream, q)
			*filtered = len(chosen) > 0
			return chosen
		},
	}
}

// Next implements driver.Subscription.
func (s *relaySubscription) Next(ctx context.Context) (*driver.Record, error) {
	for {
		r, err := s.reader.Next(ctx)
		if !errors.Is(err, consume.ErrNoStream) {
			return r, err
		}
		s.noteError("read", err) // another client may create it again
	}
}

// Save implements driver.Subscription. Without marks it checks whether this relay still holds the
// cursor.
func (s *relaySubscription) Save(ctx context.Context, marks []driver.Mark) error {
	last := s.cursor.last
	for _, m := range marks {
		last.Position, last.Created = m.Position, m.ID
	}
	last.Note = s.memo
	return s.cursor.save(ctx, last)
}

// Note implements driver.Noter.
func (s *relaySubscription) Note() (note []byte, known bool) { return s.memo, true }

// SetNote implements driver.Noter.
func (s *relaySubscription) SetNote(note []byte) { s.memo = note }

// HasAll implements driver.Partial.
func (s *relaySubscription) HasAll(o *consume.Objects) bool {
	objects := []consume.Objects{*o}
	if _, all := s.copies.reads(objects, consume.AllEvents, s.relay.Cluster); !all || s.confined == nil {
		return all
	}
	_, all := s.confined.Reads(objects, consume.AllEvents, s.relay.Cluster)
	return all
}

// Behind implements driver.Subscription.
func (s *relaySubscription) Behind(ctx context.Context, marks []driver.Mark) (uint64, error) {
	info, err := lookUp(ctx, s.js, s.cfg.Stream.Name)
	if err != nil {
		return 0, err
	}
	at := s.cursor.last.Position
	for _, m := range marks {
		at = m.Position
	}
	return behind(info.State, at), nil
}

// behind returns the number of records in a stream after a position.
func behind(state jetstream.StreamState, at uint64) uint64 {
	at = max(at, max(state.FirstSeq, 1)-1)
	if state.LastSeq <= at {
		return 0
	}
	return state.LastSeq - at
}

func (s *relaySubscription) checkConnected() error {
	if s.conn.IsConnected() {
		return nil
	}
	return s.explain(cmp.Or(s.conn.LastError(), nats.ErrDisconnected))
}

// Ready implements driver.Subscription.
func (s *relaySubscription) Ready() error {
	if err := s.checkConnected(); err != nil {
		return fmt.Errorf("not connected to %s: %w", s.servers, err)
	}
	return nil
}

// Close implements driver.Subscription.
func (s *relaySubscription) Close() error {
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

// Status returns the status of the cursor without taking it. It is used in place of Open, and
// closes the connection.
func (s *relaySubscription) Status(ctx context.Context) ([]driver.CursorStatus, error) {
	conn, err := nats.Connect(s.cfg.URL, append(s.options, nats.Timeout(publish.RequestTimeout))...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.servers, s.explain(err))
	}
	defer conn.Close()
	if err := natsversion.Check(conn.ConnectedServerVersion()); err != nil {
		return nil, err
	}
	js, err := jetStreamIn(s.cfg.Domain, conn)
	if err != nil {
		return nil, err
	}
	p := driver.CursorStatus{Place: s.cfg.Stream.Name}
	info, err := lookUp(ctx, js, p.Place)
	if err != nil {
		return nil, err
	}
	at, err := readCursor(ctx, js, s.cfg.cursorBucket(), s.relay.Name)
	switch {
	case errors.Is(err, errNoCursor):
		p.Problem = "it has not been started yet"
		return []driver.CursorStatus{p}, nil
	case err != nil:
		return nil, err
	case at.Stream != p.Place:
		p.Place, p.Problem = at.Stream, "the cursor belongs to another stream than the configured "+p.Place
	case at.Created != created(info):
		p.Problem = "the stream was recreated: the relay starts over"
	}
	p.At = at.Position
	p.Updated = at.Updated
	p.Holder = at.Host
	if p.Problem == "" {
		p.Behind = behind(info.State, at.Position)
	}
	return []driver.CursorStatus{p}, nil
}

// Source implements driver.Reader.
func (o Opener) Source(r *driver.Reading) (consume.Source, func(error) error, error) {
	key := r.Key
	if o.CredsFlag != "" {
		key = ""
	}
	options, err := o.ConnectOptions(key)
	if err != nil {
		return nil, nil, err
	}
	var isOther atomic.Bool // the stream has subjects that the template does not make
	choose, err := subjectfilter.Choose(o.Subject, func(error) { isOther.Store(true) })
	if err != nil {
		return nil, nil, fmt.Errorf("bus.nats.subject: %w", err)
	}
	about, err := subjectfilter.About(o.Subject)
	if err != nil {
		return nil, nil, fmt.Errorf("bus.nats.subject: %w", err)
	}
	advice := "Set credentials: --creds FILE, or --config FILE with bus.nats.auth in it. " +
		"The bus of a 'kubecdc run' without a configuration is for the user who runs it: give the same --data-dir"
	switch {
	case o.CredsFlag != "":
		advice = "The server rejects the credentials in " + o.CredsFlag +
			" (--creds): use those of a user who may read the stream"
	case o.Auth != (natsconfig.Auth{}):
		advice = "The server rejects the credentials that bus.nats.auth in " + r.ConfigFile +
			" names: correct them, or use others with --creds"
	}
	explain := func(err error) error {
		if refusesCredentials(err) {
			return fmt.Errorf("%w\n%s", err, advice)
		}
		return err
	}
	bus := fromnats.JetStream{
		URL:     o.URL,
		Options: options,
		Domain:  o.Domain,
		Stream:  o.Stream.Name,
		About: func(of string) consume.About {
			if isOther.Load() {
				return consume.About{}
			}
			return about(of)
		},
	}
	if o.Reader != nil {
		confined, err := o.confine(bus, o.Reader.Consumers)
		return confined, explain, err
	}
	s := &stream{bus, &copies{template: o.Subject}}
	s.Choose, s.OnOpen = choose, s.copies.note
	return s, explain, nil
}

func refusesCredentials(err error) bool {
	return slices.ContainsFunc(
		[]error{
			nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
			nats.ErrNkeysNotSupported,
		},
		func(refused error) bool { return errors.Is(err, refused) })
}

// Logs implements driver.Reader.
func (o Opener) Logs(ctx context.Context, r *driver.Reading) ([]consume.Log, error) {
	options, err := o.ConnectOptions(r.Key)
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(o.URL, options...)
	if err != nil {
		return nil, nil //nolint:nilerr // see driver.Reader
	}
	defer conn.Close()
	js, err := jetStreamIn(o.Domain, conn)
	if err != nil {
		return nil, nil //nolint:nilerr // see driver.Reader
	}
	info, err := lookUp(ctx, js, o.Stream.Name)
	if err != nil {
		return nil, nil //nolint:nilerr // see driver.Reader
	}
	return []consume.Log{{Name: o.Stream.Name, ID: created(info)}}, nil
}
