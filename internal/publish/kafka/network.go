package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
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
	// maxConnections bounds the connections to one broker; further requests wait for one. A request occupies its connection until the
	// answer, so this also bounds the partitions of one broker that are written at once.
	maxConnections = 32
	// maxIdle is the maximum idle time of a connection. The broker closes it after connections.max.idle.ms, 10 min.
	maxIdle = 4 * time.Minute
)

var (
	errAuthentication = errors.New("authentication failed")
	errEnded          = errors.New("connection closed before the response")
	errCut            = errors.New("request cut") // errEnded after the handshake and authentication
	errNotKafka       = errors.New("the response is not from a Kafka broker")
)

// network sends each request to the given broker, and closes the connection when the request's ctx ends. kafka-go's Transport routes by
// its own metadata, which it does not refresh when a partition's leader changes. It requests a transaction coordinator before a producer
// id, and leaves a connection with an outstanding answer in a goroutine.
type network struct {
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	mechanism sasl.Mechanism
	fence     *publish.Fencing // nil: connections are not guarded

	mu      sync.Mutex
	brokers map[string]*brokerConns // by address; includes former brokers of the cluster
	closed  bool
}

type brokerConns struct {
	idle  []*conn       // the most recently used is last
	slots chan struct{} // one element for each connection in use. Never closed.
}

// conn is a connection for one request at a time.
type conn struct {
	*protocol.Conn
	guard *publish.Guard // the underlying connection; nil: not guarded
	used  time.Time
	ends  time.Time // when the broker requires reauthentication (KIP-368); zero: never
	spent bool      // it cannot be reused
}

func newNetwork(t *publish.TLS, s *SASL, f *publish.Fencing) *network {
	return &network{dial: dialer(t, s), mechanism: s.mechanism(), fence: f, brokers: map[string]*brokerConns{}}
}

// dialer returns the dial function for all brokers, configured or discovered. It reads the files of t for each connection.
func dialer(t *publish.TLS, s *SASL) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: publish.DialTimeout, KeepAlive: 15 * time.Second}
	if s.inPlaintext(t) {
		return publish.LoopbackOnly(d.DialContext)
	}
	return t.Dialer(d.DialContext)
}

// RoundTrip implements kafka.RoundTripper. It returns at once when ctx ends; the request may have been sent.
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
			n.mu.Lock()
			b.closeIdle(func(*conn) bool { return true }) // a restarted broker has cut them all
			n.mu.Unlock()
		}
		return nil, err
	}
	n.keep(b, c)
	return res, nil
}

// apart sends each request on its own connection. It needs no slot, because such requests are few.
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

// request is exchange on an established connection.
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

func (n *network) connection(ctx context.Context, b *brokerConns, addr string) (*conn, error) {
	n.mu.Lock()
	b.closeIdle((*conn).isOld)
	if last := len(b.idle) - 1; last >= 0 {
		c := b.idle[last]
		b.idle = b.idle[:last]
		n.mu.Unlock()
		return c, nil
	}
	n.mu.Unlock()
	return n.connect(ctx, addr)
}

// closeIdle closes the idle connections for which is returns true. It must be called with network.mu held.
func (b *brokerConns) closeIdle(is func(*conn) bool) {
	b.idle = slices.DeleteFunc(b.idle, func(c *conn) bool {
		if !is(c) {
			return false
		}
		_ = c.Close()
		return true
	})
}

func (c *conn) isOld() bool {
	now := time.Now()
	return now.Sub(c.used) > maxIdle || !c.ends.IsZero() && now.After(c.ends)
}

func (n *network) sweep() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.brokers {
		b.closeIdle((*conn).isOld)
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

// close closes all idle connections. Those in use close at the end of their requests.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, b := range n.brokers {
		b.closeIdle(func(*conn) bool { return true })
	}
}

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
		return nil, fmt.Errorf("%s: get its API versions: %w", addr, notKafka(err))
	}
	res := r.(*apiversions.Response)
	if res.ErrorCode != 0 {
		return nil, fmt.Errorf("%s: get its API versions: %w", addr, kafka.Error(res.ErrorCode))
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

// greeted is a connection that checks the first answer before kafka-go does. kafka-go allocates an array of whatever length the answer
// has, some gigabytes for that of an HTTP server.
type greeted struct {
	net.Conn
	done bool
	head []byte // read, but not returned yet
}

// largestGreeting bounds the first answer, the versions of all requests: a broker's has a few hundred bytes.
const largestGreeting = 1 << 20

func (g *greeted) Read(b []byte) (int, error) {
	if !g.done {
		head := make([]byte, 8) // size, and correlation id of the request
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

// notKafka adds the most frequent cause to an error of the first answer.
func notKafka(err error) error {
	if errors.Is(err, errNotKafka) || errors.Is(err, errEnded) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (check that it is a Kafka listener, and that TLS is configured as the listener requires)", err)
	}
	return err
}

func (c *conn) authenticate(ctx context.Context, addr string, m sasl.Mechanism) error {
	r, err := c.exchange(ctx, &saslhandshake.Request{Mechanism: m.Name()})
	if err != nil {
		return err
	}
	if res := r.(*saslhandshake.Response); res.ErrorCode != 0 {
		return fmt.Errorf("%w: %w: the listener supports %v: set bus.kafka.sasl.mechanism to one of them", errAuthentication, kafka.Error(res.ErrorCode), res.Mechanisms)
	}
	host, _, _ := net.SplitHostPort(addr)
	session, state, err := m.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host}))
	if err != nil {
		return fmt.Errorf("%w: %w", errAuthentication, err)
	}
	for done := false; !done; {
		r, err := c.exchange(ctx, &saslauthenticate.Request{AuthBytes: state})
		if err != nil {
			if errors.Is(err, errEnded) { // old brokers refuse in this way
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

// exchange sends a request and waits for its answer. After an error the connection must not be reused.
func (c *conn) exchange(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	if c.guard != nil {
		_, produces := req.(*rawproduce.Request)
		c.guard.Carries.Store(produces) // the connection carries one request at a time
	}
	res, err := c.RoundTrip(req)
	if !stop() && err == nil {
		c.spent = true // the answer arrived, but the deadline is set, or about to be
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

func isCut(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	op := new(net.OpError)
	return errors.As(err, &op) && !op.Timeout()
}

// NewDialer returns a dialler for kafka-go's readers, with the TLS and the SASL of cfg.
func NewDialer(cfg *Config) (*kafka.Dialer, error) {
	if _, err := cfg.TLS.Config(); err != nil {
		return nil, err
	}
	// The field TLS is fixed; DialFunc reads the files for each connection.
	return &kafka.Dialer{ClientID: clientID, Timeout: 2 * publish.DialTimeout, DialFunc: dialer(cfg.TLS, cfg.SASL), SASLMechanism: cfg.SASL.mechanism()}, nil
}
