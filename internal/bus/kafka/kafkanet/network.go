package kafkanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/kubecdc/kubecdc/internal/pause"
)

const (
	// MaxConnections bounds the connections to one broker; further requests wait for one. A request
	// occupies its connection until the answer, so this also bounds the partitions of one broker
	// that are written at once.
	MaxConnections = 32
	// maxIdle is the maximum idle time of a connection. The broker closes it after
	// connections.max.idle.ms, 10 min.
	maxIdle = 4 * time.Minute

	requestTimeout = 5 * time.Second  // of a request, dialling included
	connectTimeout = 10 * time.Second // of a connection, with TLS and SASL
	produceMargin  = 5 * time.Second  // beyond the time for which the leader waits for its replicas
	fetchMargin    = 10 * time.Second // beyond the time for which the broker waits for records
)

// Options are the settings of a Network.
type Options struct {
	ClientID string
	// Dial returns a connection, after the handshake of TLS if there is one.
	Dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	Mechanism sasl.Mechanism // nil: none
	// Guard wraps each connection, before its first use; nil: none is wrapped.
	Guard func(net.Conn) Guard
	// OnThrottle is called when a pause that a broker names begins or grows: it ends at until, and
	// grew by added. It must not block. nil: nobody needs to know.
	OnThrottle func(addr string, until time.Time, added time.Duration)
	// OnVersions is called for each connection, with the broker's newest version of each request.
	// It must not block. nil: nobody needs to know.
	OnVersions func(addr string, newest map[protocol.ApiKey]int16)
}

// Guard is a connection that may refuse writes. Carry is called before each request, and reports
// whether that has records. Refused returns the error of a refused write; nil: there was none.
type Guard interface {
	net.Conn
	Carry(records bool)
	Refused() error
}

// Network sends each request to the given broker. It closes the connection when the request's ctx
// ends.
type Network struct {
	o Options

	mu      sync.Mutex
	brokers map[string]*broker // by address; includes former brokers of the cluster
	closed  bool
}

// broker is the state of one broker. Network.mu guards it, except the channels.
type broker struct {
	addr  string
	idle  []*conn            // the most recently used is last
	used  map[*conn]struct{} // those with a request
	until time.Time          // end of the last pause that the broker has named
	pace  pace               // of fetches under a quota

	slots chan struct{} // one element for each connection in use. Never closed.
	turn  chan struct{} // one element while a request to produce has its turn. Never closed.
}

// New returns a Network without connections.
func New(o Options) *Network { return &Network{o: o, brokers: map[string]*broker{}} }

// RoundTrip implements kafka.RoundTripper. It returns at once when ctx ends; the request may have
// been sent. The time limit of a request does not include waits for a quota or a connection.
func (n *Network) RoundTrip(ctx context.Context, addr net.Addr, req protocol.Message) (protocol.Message, error) {
	return n.roundTrip(ctx, addr.String(), req, false)
}

// Apart sends each request on its own connection. It needs no slot, because such requests are few.
type Apart struct{ *Network }

// RoundTrip implements kafka.RoundTripper.
func (a Apart) RoundTrip(ctx context.Context, addr net.Addr, req protocol.Message) (protocol.Message, error) {
	return a.roundTrip(ctx, addr.String(), req, true)
}

func (n *Network) roundTrip(
	ctx context.Context, addr string, req protocol.Message, apart bool,
) (protocol.Message, error) {
	b := n.broker(addr)
	for {
		leave, err := n.enter(ctx, b, req, apart)
		if err != nil {
			return nil, err
		}
		sent := req
		if n.isLimited(b) {
			sent = n.withLimits(b, req)
		}
		res, err := n.attempt(ctx, b, sent, apart)
		leave()
		if err != nil || !isWithheld(res) {
			return res, err
		}
	}
}

func (n *Network) broker(addr string) *broker {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.brokers[addr]
	if b == nil {
		b = &broker{
			addr:  addr,
			used:  map[*conn]struct{}{},
			slots: make(chan struct{}, MaxConnections),
			turn:  make(chan struct{}, 1),
		}
		n.brokers[addr] = b
	}
	return b
}

// enter waits until a request may be sent. leave must be called at its end.
func (n *Network) enter(ctx context.Context, b *broker, req protocol.Message, apart bool) (leave func(), err error) {
	for {
		release, err := n.awaitPause(ctx, b, req)
		if err != nil {
			return nil, err
		}
		if apart {
			return release, nil
		}
		select {
		case b.slots <- struct{}{}:
		case <-ctx.Done():
			release()
			return nil, context.Cause(ctx)
		}
		if n.pauseLeft(b) <= 0 {
			return func() {
				<-b.slots
				release()
			}, nil
		}
		<-b.slots // the pause began meanwhile
		release()
	}
}

// attempt sends a request once.
func (n *Network) attempt(ctx context.Context, b *broker, req protocol.Message, apart bool) (protocol.Message, error) {
	limited, cancel := context.WithTimeout(ctx, TimeLimit(req))
	defer cancel()
	began := time.Now()
	c, err := n.connection(limited, b, apart)
	if err == nil {
		began = time.Now()
		var res protocol.Message
		res, err = c.request(limited, req)
		if err == nil {
			n.noteThrottle(b, res)
			n.noteFetch(b, res, c.received)
			n.keep(b, c, apart)
			return res, nil
		}
		n.drop(b, c)
	}
	switch {
	case errors.Is(err, ErrCut):
		n.mu.Lock()
		b.closeIdle((*conn).reset, func(*conn) bool { return true }) // a restarted broker has cut them all
		n.mu.Unlock()
	case limited.Err() != nil && ctx.Err() == nil:
		n.giveUpSilent(b, began)
	}
	return nil, err
}

// TimeLimit returns the time within which a request must be answered after it is sent.
func TimeLimit(req protocol.Message) time.Duration {
	switch r := req.(type) {
	case *rawproduce.Request:
		return time.Duration(r.Timeout)*time.Millisecond + produceMargin
	case *fetch.Request:
		return time.Duration(r.MaxWaitTime)*time.Millisecond + fetchMargin
	}
	return requestTimeout
}

// connection returns an idle connection, or a new one.
func (n *Network) connection(ctx context.Context, b *broker, apart bool) (*conn, error) {
	n.mu.Lock()
	b.closeIdle((*conn).close, (*conn).isOld)
	if last := len(b.idle) - 1; last >= 0 && !apart {
		c := b.idle[last]
		b.idle = b.idle[:last]
		b.used[c] = struct{}{}
		n.mu.Unlock()
		return c, nil
	}
	n.mu.Unlock()
	c, err := n.connect(ctx, b)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	b.used[c] = struct{}{}
	return c, nil
}

// closeIdle ends the idle connections for which is returns true. It must be called with Network.mu
// held.
func (b *broker) closeIdle(end func(*conn), is func(*conn) bool) {
	b.idle = slices.DeleteFunc(b.idle, func(c *conn) bool {
		if !is(c) {
			return false
		}
		end(c)
		return true
	})
}

// giveUpSilent ends all connections that have not answered since a request was sent, at which the
// broker has not answered in time. Requests on them fail at once.
func (n *Network) giveUpSilent(b *broker, since time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b.closeIdle((*conn).reset, func(c *conn) bool { return c.answered.Before(since) })
	for c := range b.used {
		if c.answered.Before(since) {
			c.giveUp()
		}
	}
}

// Sweep closes connections that were idle for long.
func (n *Network) Sweep() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.brokers {
		b.closeIdle((*conn).close, (*conn).isOld)
	}
}

// keep makes a connection idle after an answer, unless it is for one request.
func (n *Network) keep(b *broker, c *conn, apart bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.answered = time.Now()
	delete(b.used, c)
	if n.closed || c.spent || c.silent.Load() || apart {
		c.close()
		return
	}
	b.idle = append(b.idle, c)
}

// drop resets a connection after an error.
func (n *Network) drop(b *broker, c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(b.used, c)
	c.reset()
}

// Close closes all idle connections. Those in use close at the end of their requests.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, b := range n.brokers {
		b.closeIdle((*conn).close, func(*conn) bool { return true })
	}
}

// connect returns a connection after the handshakes of the protocol.
func (n *Network) connect(ctx context.Context, b *broker) (_ *conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	socket, err := n.o.Dial(ctx, "tcp", b.addr)
	if err != nil {
		return nil, err
	}
	c := &conn{addr: b.addr, socket: socket}
	defer func() {
		if err != nil {
			c.reset()
		}
	}()
	if n.o.Guard != nil {
		c.guard = n.o.Guard(socket)
		socket = c.guard
	}
	c.Conn = protocol.NewConn(&greeted{Conn: socket, received: &c.received}, n.o.ClientID)
	versions, err := c.negotiate(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: get its API versions: %w", b.addr, notKafka(err))
	}
	n.noteThrottle(b, versions)
	if n.o.OnVersions != nil {
		n.o.OnVersions(b.addr, newest(versions))
	}
	// Quotas of requests name pauses of up to a second (quota.window.size.seconds), so the time
	// limit may include this one.
	if err := pause.For(ctx, pauseOf(versions)); err != nil {
		return nil, err
	}
	if n.o.Mechanism != nil {
		if err := c.authenticate(ctx, n.o.Mechanism); err != nil {
			return nil, fmt.Errorf("%s: authenticate with %s: %w", b.addr, n.o.Mechanism.Name(), err)
		}
	}
	c.answered = time.Now()
	return c, nil
}
