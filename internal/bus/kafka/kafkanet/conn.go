package kafkanet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
)

var (
	// ErrAuthentication means that a broker rejects the credentials.
	ErrAuthentication = errors.New("authentication failed")
	// ErrCut means that a connection ended before the answer, after the handshake and
	// authentication.
	ErrCut = errors.New("request cut")
	// ErrNotKafka means that a broker's first answer is not Kafka's.
	ErrNotKafka = errors.New("the response is not from a Kafka broker")

	errEnded  = errors.New("connection closed before the response")
	errSilent = fmt.Errorf("no answer on any connection to the broker: %w", context.DeadlineExceeded)
)

// conn is a connection for one request at a time.
type conn struct {
	*protocol.Conn
	addr     string
	socket   net.Conn    // the connection as dialled
	guard    Guard       // around it; nil: not guarded
	answered time.Time   // last answer, or end of the handshake. Network.mu guards it.
	ends     time.Time   // when the broker requires reauthentication (KIP-368); zero: never
	spent    bool        // it cannot be reused
	silent   atomic.Bool // it was given up
	received int         // size of the last answer, in bytes
}

// close closes the connection in order.
func (c *conn) close() { _ = c.Close() }

// reset closes the connection without its unsent data, which the kernel would keep and resend for
// minutes.
func (c *conn) reset() {
	raw := c.socket
	for {
		inner, ok := raw.(interface{ NetConn() net.Conn }) // TLS writes an alert when it closes
		if !ok {
			break
		}
		raw = inner.NetConn()
	}
	if tcp, ok := raw.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // it fails only on a closed connection
	}
	_ = raw.Close()
}

// giveUp makes the request in progress fail.
func (c *conn) giveUp() {
	c.silent.Store(true)
	_ = c.SetDeadline(time.Unix(1, 0))
}

func (c *conn) isOld() bool {
	now := time.Now()
	return now.Sub(c.answered) > maxIdle || !c.ends.IsZero() && now.After(c.ends)
}

// request is exchange on an established connection.
func (c *conn) request(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	res, err := c.exchange(ctx, req)
	if errors.Is(err, errEnded) {
		err = fmt.Errorf("%w: %w", ErrCut, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.addr, err)
	}
	return res, nil
}

// newest returns the newest version of each request.
func newest(res *apiversions.Response) map[protocol.ApiKey]int16 {
	all := make(map[protocol.ApiKey]int16, len(res.ApiKeys))
	for _, k := range res.ApiKeys {
		all[protocol.ApiKey(k.ApiKey)] = k.MaxVersion
	}
	return all
}

// negotiate chooses the versions of all requests.
func (c *conn) negotiate(ctx context.Context) (*apiversions.Response, error) {
	r, err := c.exchange(ctx, new(apiversions.Request))
	if err != nil {
		return nil, err
	}
	res := r.(*apiversions.Response)
	if res.ErrorCode != 0 {
		return nil, kafka.Error(res.ErrorCode)
	}
	versions := make(map[protocol.ApiKey]int16, len(res.ApiKeys))
	for _, k := range res.ApiKeys {
		key := protocol.ApiKey(k.ApiKey)
		versions[key] = key.SelectVersion(k.MinVersion, k.MaxVersion)
	}
	c.SetVersions(versions)
	return res, nil
}

// greeted is a connection that checks the first answer before kafka-go does. kafka-go allocates an
// array of whatever length the answer has, some gigabytes for that of an HTTP server.
type greeted struct {
	net.Conn
	done     bool
	head     []byte // read, but not returned yet
	received *int   // bytes returned
}

// largestGreeting bounds the first answer, the versions of all requests: a broker's has a few
// hundred bytes.
const largestGreeting = 1 << 20

func (g *greeted) Read(b []byte) (int, error) {
	n, err := g.read(b)
	*g.received += n
	return n, err
}

func (g *greeted) read(b []byte) (int, error) {
	if !g.done {
		head := make([]byte, 8) // size, and correlation id of the request
		n, err := io.ReadFull(g.Conn, head)
		g.done = true
		if err == nil && (binary.BigEndian.Uint32(head) > largestGreeting || binary.BigEndian.Uint32(head[4:]) != 1) {
			return 0, ErrNotKafka
		}
		g.head = head[:n]
		if n == 0 {
			return 0, err
		}
	}
	if len(g.head) > 0 {
		n := copy(b, g.head)
		g.head = g.head[n:]
		return n, nil
	}
	return g.Conn.Read(b)
}

// notKafka adds the most frequent cause to an error of the first answer.
func notKafka(err error) error {
	if errors.Is(err, ErrNotKafka) || errors.Is(err, errEnded) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (check that it is a Kafka listener, and that TLS is configured as the listener requires)",
			err)
	}
	return err
}

func (c *conn) authenticate(ctx context.Context, m sasl.Mechanism) error {
	r, err := c.exchange(ctx, &saslhandshake.Request{Mechanism: m.Name()})
	if err != nil {
		return err
	}
	if res := r.(*saslhandshake.Response); res.ErrorCode != 0 {
		return fmt.Errorf("%w: %w: the listener supports %v: set bus.kafka.sasl.mechanism to one of them",
			ErrAuthentication, kafka.Error(res.ErrorCode), res.Mechanisms)
	}
	host, _, _ := net.SplitHostPort(c.addr)
	session, state, err := m.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host}))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAuthentication, err)
	}
	for done := false; !done; {
		r, err := c.exchange(ctx, &saslauthenticate.Request{AuthBytes: state})
		if err != nil {
			if errors.Is(err, errEnded) { // old brokers refuse in this way
				return fmt.Errorf("%w: %w", ErrAuthentication, err)
			}
			return err
		}
		res := r.(*saslauthenticate.Response)
		if res.ErrorCode != 0 {
			// The broker's message names mechanism and reason, never a secret.
			return fmt.Errorf("%w: %w: %.200q: check user and password or token, and that the broker has them",
				ErrAuthentication, kafka.Error(res.ErrorCode), res.ErrorMessage)
		}
		if res.SessionLifetimeMs > 0 {
			c.ends = time.Now().Add(time.Duration(res.SessionLifetimeMs) * time.Millisecond * 8 / 10)
		}
		done, state, err = session.Next(ctx, res.AuthBytes)
		if err != nil {
			if !errors.Is(err, ErrAuthentication) {
				err = fmt.Errorf("%w: %w", ErrAuthentication, err)
			}
			return err
		}
	}
	return nil
}

// exchange sends a request and waits for its answer. After an error the connection must not be
// reused.
func (c *conn) exchange(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	if c.guard != nil {
		c.guard.Carry(produces(req)) // the connection carries one request at a time
	}
	c.received = 0
	res, err := c.RoundTrip(req)
	if !stop() && err == nil {
		c.spent = true // the answer arrived, but the deadline is set, or about to be
	}
	switch {
	case err == nil:
		return res, nil
	case c.guard != nil && c.guard.Refused() != nil:
		return nil, c.guard.Refused()
	case c.silent.Load():
		return nil, errSilent
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer: %w", context.Cause(ctx))
	case isCut(err):
		return nil, fmt.Errorf("%w: %w", errEnded, err)
	}
	return nil, err
}

func isCut(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	op := new(net.OpError)
	return errors.As(err, &op) && !op.Timeout()
}
