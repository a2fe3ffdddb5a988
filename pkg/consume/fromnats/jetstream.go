package fromnats

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// DefaultStream is the agent's default stream.
const DefaultStream = "KUBECDC"

// JetStream is a stream of NATS as a Source.
//
// Besides the errors that Reader names, its readers return an error if the connection was closed.
// If the stream has not existed for half a minute, they return ErrNoStream, and the next call waits
// again.
type JetStream struct {
	// URL is the server, "nats://host:4222", or several separated by commas. It is ignored if Conn
	// is set.
	URL string
	// Options are those of the connection to URL: credentials, TLS, a private inbox
	// (nats.CustomInboxPrefix).
	Options []nats.Option
	// Conn is a connection to use instead; it stays open.
	Conn *nats.Conn
	// Domain is the JetStream domain of the stream; "": the server's.
	Domain string
	Stream string // "": DefaultStream

	// Subjects are the subjects to read, with wildcards; none: all.
	Subjects []string
	// Choose, if set, returns the Subjects of a query. Read calls it once. The subjects must
	// include those of all events that the query asks for. Choose may clear LastOfEach: then Read
	// requests all records of the subjects.
	Choose func(ctx context.Context, stream jetstream.Stream, q *consume.Query) []string
	// About, if set, returns what a subject says of its records. It is called for those that cannot
	// be read.
	About func(subject string) consume.About

	// OnOpen is called by Read with the stream, as its leader describes it. nil: nobody needs to
	// know.
	OnOpen func(*jetstream.StreamInfo)

	// Consumers is the prefix of fixed names: the consumer of the first subject is <Consumers>-0,
	// that of the next <Consumers>-1. Permissions that have these names and subjects confine a user
	// to them. One reader at a time can use the names. Another one gets an *InUseError. "" stands
	// for random names.
	Consumers string
}

// Traits implements consume.Source. Without Choose, a stream is read whole.
func (s *JetStream) Traits() consume.Traits {
	return consume.Traits{OneLog: true, Seeks: s.Choose != nil}
}

// Read connects, unless a connection is given, and finds the stream.
func (s *JetStream) Read(ctx context.Context, q consume.Query) (consume.Reader, error) {
	r, err := s.read(ctx, q)
	if err != nil {
		return nil, err // not a Reader that holds nil
	}
	return r, nil
}

func (s *JetStream) read(ctx context.Context, q consume.Query) (*jetStreamReader, error) {
	if err := checkFilters(s.Subjects); err != nil {
		return nil, fmt.Errorf("read stream %s: %w", s.name(), err)
	}
	l, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	r := &jetStreamReader{
		q:        q,
		stream:   s.name(),
		requests: s.apiPrefix() + "CONSUMER.MSG.NEXT.",
		filters:  s.Subjects,
		about:    s.About,
		link:     l,
		wake:     make(chan struct{}, 1),
		called:   time.Now(),
		beat:     heartbeat,
		lives:    expires,
		patience: lagAfter,
	}
	if s.Consumers != "" {
		r.nameOf, r.id = s.consumerName, nuid.Next()
	}
	open := func(ctx context.Context) error { return r.open(ctx, s) }
	if r.nameOf != nil && l.ours {
		// without names, a reader copes with some refusals; a given connection may have other users
		open = func(ctx context.Context) error {
			return l.untilRefused(ctx, func(ctx context.Context) error { return r.open(ctx, s) })
		}
	}
	r.js, err = s.api(l.conn)
	if err == nil {
		err = l.attempt(ctx, attachTimeout, open)
	}
	if err != nil {
		err = l.explain(ctx, r.js, r.stream, err)
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func (s *JetStream) name() string { return cmp.Or(s.Stream, DefaultStream) }

// apiPrefix is the prefix of the subjects of JetStream's API.
func (s *JetStream) apiPrefix() string {
	if s.Domain == "" {
		return "$JS.API."
	}
	return "$JS." + s.Domain + ".API."
}
