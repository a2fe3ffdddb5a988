package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	// maxConnections bounds the connections to one broker; further requests wait for one. A request waits on its connection
	// for its answer, so this is also how many partitions of one broker are written at once.
	maxConnections = 32
	// maxIdle is how long an idle connection is kept. The broker ends it after connections.max.idle.ms, 10 min.
	maxIdle = 4 * time.Minute
)

var (
	errAuthentication = errors.New("the broker does not know us")

	// errEnded says that the other side ended a connection while a request was on it.
	errEnded = errors.New("connection cut before the answer")

	// errCut says that a connection was cut while a request was on it that the broker had greeted and authenticated before.
	errCut = errors.New("request cut")

	errNotKafka = errors.New("the answer is not one of Kafka")
)

// network speaks to brokers. It sends a request to exactly the broker that it is told. kafka-go's Transport routes by metadata of its own,
// which is up to MetadataTTL old and is not renewed when a broker says that it leads a partition no more; it asks for a transaction
// coordinator before it asks for a producer id; and when the ctx of a request ends, it leaves the connection with an answer
// still to come behind in a goroutine. Here that connection is closed.
type network struct {
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	mechanism sasl.Mechanism
	fence     *publish.Fencing // nil: connections are not guarded

	mu      sync.Mutex
	brokers map[string]*brokerConns // by address; as many as a cluster has had
	closed  bool
}

// brokerConns are the connections to one broker.
type brokerConns struct {
	idle  []*conn       // the last one used comes last
	slots chan struct{} // one for each connection that is in use. Never closed.
}

// conn is a connection that one request at a time is on.
type conn struct {
	*protocol.Conn
	guard *publish.Guard // what it writes to; nil: it is not guarded
	used  time.Time
	ends  time.Time // when the broker wants another authentication (KIP-368); zero: never
	spent bool      // it cannot be used again
}

func newNetwork(t *publish.TLS, s *SASL, m sasl.Mechanism, f *publish.Fencing) *network {
	return &network{dial: dialer(t, s), mechanism: m, fence: f, brokers: map[string]*brokerConns{}}
}

// dialer is how all connections to brokers are made, those that the first ones name included: the files of t are read for each.
func dialer(t *publish.TLS, s *SASL) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: publish.DialTimeout, KeepAlive: 15 * time.Second}
	if s.inPlaintext(t) {
		return publish.LoopbackOnly(d.DialContext)
	}
	return t.Dialer(d.DialContext)
}

// RoundTrip implements kafka.RoundTripper. ctx ends it at once; the request may have been sent then.
func (n *network) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	b, err := n.enter(ctx, addr.String())
	if err != nil {
		return nil, err
	}
	defer func() { <-b.slots }()
	c, err := n.connection(ctx, b, addr.String())
	if err != nil {
		return nil, err
	}
	res, err := c.request(ctx, addr, req)
	if err != nil {
		_ = c.Close()
		if errors.Is(err, errCut) {
			n.drop(b)
		}
		return nil, err
	}
	n.keep(b, c)
	return res, nil
}

// apart makes each request on a connection of its own. It needs no slot: few requests are made so.
type apart struct{ *network }

// RoundTrip implements kafka.RoundTripper.
func (a apart) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	c, err := a.connect(ctx, addr.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.request(ctx, addr, req)
}

// request is exchange on a connection that stands.
func (c *conn) request(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	res, err := c.exchange(ctx, req)
	if errors.Is(err, errEnded) {
		err = fmt.Errorf("%w: %w", errCut, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return res, nil
}

// enter waits for a slot.
func (n *network) enter(ctx context.Context, addr string) (*brokerConns, error) {
	n.mu.Lock()
	b := n.brokers[addr]
	if b == nil {
		b = &brokerConns{slots: make(chan struct{}, maxConnections)}
		n.brokers[addr] = b
	}
	n.mu.Unlock()
	select {
	case b.slots <- struct{}{}:
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// connection is an idle connection, or a new one.
func (n *network) connection(ctx context.Context, b *brokerConns, addr string) (*conn, error) {
	n.mu.Lock()
	n.prune(b, time.Now())
	if last := len(b.idle) - 1; last >= 0 {
		c := b.idle[last]
		b.idle = b.idle[:last]
		n.mu.Unlock()
		return c, nil
	}
	n.mu.Unlock()
	return n.connect(ctx, addr)
}

// drop closes idle connections: a broker that was started anew has cut them all, and each would fail a request.
func (n *network) drop(b *brokerConns) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range b.idle {
		_ = c.Close()
	}
	clear(b.idle)
	b.idle = b.idle[:0]
}

// prune closes idle connections that are too old. n.mu is held.
func (n *network) prune(b *brokerConns, now time.Time) {
	kept := b.idle[:0]
	for _, c := range b.idle {
		if now.Sub(c.used) > maxIdle || !c.ends.IsZero() && now.After(c.ends) {
			_ = c.Close()
		} else {
			kept = append(kept, c)
		}
	}
	clear(b.idle[len(kept):])
	b.idle = kept
}

// sweep closes what has been idle for too long.
func (n *network) sweep() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.brokers {
		n.prune(b, time.Now())
	}
}

func (n *network) keep(b *brokerConns, c *conn) {
	c.used = time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || c.spent {
		_ = c.Close()
		return
	}
	b.idle = append(b.idle, c)
}

// close closes all connections. Those in use end when their request does.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, b := range n.brokers {
		for _, c := range b.idle {
			_ = c.Close()
		}
		b.idle = nil
	}
}

// connect dials, learns the versions that the broker speaks, and authenticates.
func (n *network) connect(ctx context.Context, addr string) (c *conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*publish.DialTimeout)
	defer cancel()
	socket, err := n.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = socket.Close()
		}
	}()
	c = new(conn)
	if n.fence != nil {
		c.guard = n.fence.Guard(socket, false)
		socket = c.guard
	}
	c.Conn = protocol.NewConn(&greeted{Conn: socket}, clientID)
	r, err := c.exchange(ctx, new(apiversions.Request))
	if err != nil {
		return nil, fmt.Errorf("%s: ask for its versions: %w", addr, notKafka(err))
	}
	res := r.(*apiversions.Response)
	if res.ErrorCode != 0 {
		return nil, fmt.Errorf("%s: ask for its versions: %w", addr, kafka.Error(res.ErrorCode))
	}
	versions := make(map[protocol.ApiKey]int16, len(res.ApiKeys))
	for _, k := range res.ApiKeys {
		key := protocol.ApiKey(k.ApiKey)
		versions[key] = key.SelectVersion(k.MinVersion, k.MaxVersion)
	}
	c.SetVersions(versions)
	if n.mechanism != nil {
		if err := c.authenticate(ctx, addr, n.mechanism); err != nil {
			return nil, fmt.Errorf("%s: authenticate with %s: %w", addr, n.mechanism.Name(), err)
		}
	}
	return c, nil
}

// greeted is a connection that looks at the first answer before kafka-go does, which makes an array of as many elements as
// whatever is there says, some gigabytes if it is the answer of an HTTP server.
type greeted struct {
	net.Conn
	done bool
	head []byte // read, and not handed out yet
}

// largestGreeting bounds the first answer, the versions of all requests: a broker's has some hundred bytes.
const largestGreeting = 1 << 20

func (g *greeted) Read(b []byte) (int, error) {
	if !g.done {
		head := make([]byte, 8) // size, and the number of the request
		n, err := io.ReadFull(g.Conn, head)
		g.done = true
		if err == nil && (binary.BigEndian.Uint32(head) > largestGreeting || binary.BigEndian.Uint32(head[4:]) != 1) {
			return 0, errNotKafka
		}
		if g.head = head[:n]; n == 0 {
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

// notKafka adds what most often is behind it.
func notKafka(err error) error {
	if errors.Is(err, errNotKafka) || errors.Is(err, errEnded) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (is it a listener of Kafka, and with TLS or without as configured?)", err)
	}
	return err
}

func (c *conn) authenticate(ctx context.Context, addr string, m sasl.Mechanism) error {
	r, err := c.exchange(ctx, &saslhandshake.Request{Mechanism: m.Name()})
	if err != nil {
		return err
	}
	if res := r.(*saslhandshake.Response); res.ErrorCode != 0 {
		return fmt.Errorf("%w: %w: the listener knows %v: set bus.kafka.sasl.mechanism to one of them", errAuthentication, kafka.Error(res.ErrorCode), res.Mechanisms)
	}
	host, _, _ := net.SplitHostPort(addr)
	session, state, err := m.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host}))
	if err != nil {
		return fmt.Errorf("%w: %w", errAuthentication, err)
	}
	for done := false; !done; {
		r, err := c.exchange(ctx, &saslauthenticate.Request{AuthBytes: state})
		if err != nil {
			if errors.Is(err, errEnded) { // how brokers of old said no
				return fmt.Errorf("%w: %w", errAuthentication, err)
			}
			return err
		}
		res := r.(*saslauthenticate.Response)
		if res.ErrorCode != 0 {
			// The broker's message names mechanism and reason, never a secret.
			return fmt.Errorf("%w: %w: %.200q: check user and password or token, and that the broker has them", errAuthentication, kafka.Error(res.ErrorCode), res.ErrorMessage)
		}
		if res.SessionLifetimeMs > 0 {
			c.ends = time.Now().Add(time.Duration(res.SessionLifetimeMs) * time.Millisecond * 8 / 10)
		}
		if done, state, err = session.Next(ctx, res.AuthBytes); err != nil {
			if !errors.Is(err, errAuthentication) {
				err = fmt.Errorf("%w: %w", errAuthentication, err)
			}
			return err
		}
	}
	return nil
}

// exchange sends a request and waits for its answer. After an error the connection is of no more use.
func (c *conn) exchange(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	if c.guard != nil {
		_, produces := req.(*rawproduce.Request)
		c.guard.Carries.Store(produces) // one request at a time is on it
	}
	res, err := c.RoundTrip(req)
	if !stop() && err == nil {
		c.spent = true // the answer has come, but the deadline is set, or about to be
	}
	switch {
	case err == nil:
		return res, nil
	case c.guard != nil && c.guard.Broke.Load():
		return nil, publish.ErrShut
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer: %w", context.Cause(ctx))
	case isCut(err):
		return nil, fmt.Errorf("%w: %w", errEnded, err)
	}
	return nil, err
}

// isCut reports whether err is that of a connection that the other side has ended.
func isCut(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	op := new(net.OpError)
	return errors.As(err, &op) && !op.Timeout()
}

// NewDialer returns a dialler for kafka-go's readers, with the TLS and the SASL of cfg.
func NewDialer(cfg *Config) (*kafka.Dialer, error) {
	m, err := cfg.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	if _, err := cfg.TLS.Config(); err != nil {
		return nil, err
	}
	// Its field TLS would be read once; DialFunc reads the files for each connection.
	return &kafka.Dialer{ClientID: clientID, Timeout: 2 * publish.DialTimeout, DialFunc: dialer(cfg.TLS, cfg.SASL), SASLMechanism: m}, nil
}
