package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// dialTimeout bounds the time to dial a backend. All backends are on this machine.
const dialTimeout = 5 * time.Second

// Proxy forwards connections. Its methods are safe for concurrent use. Unless documented otherwise,
// each takes effect immediately, also for existing connections.
type Proxy struct {
	listener *net.TCPListener
	backends []string

	mu        sync.Mutex
	conns     map[*conn]struct{}
	closed    bool
	preferred int
	dropped   map[int]bool
	refusing  bool
	held      chan struct{} // closed when Hold ends; nil: Hold is off
	delay     time.Duration
	inspect   func() Filter
	accepted  int
}

// conn is a connection with its two ends.
type conn struct {
	client  *net.TCPConn
	server  *net.TCPConn // nil until it is dialled
	backend int
	cut     chan struct{} // closed when the connection has ended
	left    int64         // bytes that may still be forwarded to the client; -1: any number

	looking sync.Mutex // serializes the calls of filter
	filter  Filter     // nil: none
}

// Listen opens a port of 127.0.0.1 for backends, each "host:port". Run serves it.
func Listen(backends ...string) (*Proxy, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("proxy for %v: %w", backends, err)
	}
	return &Proxy{
		listener: l,
		backends: backends,
		conns:    map[*conn]struct{}{},
		dropped:  map[int]bool{},
	}, nil
}

// Addr returns the address of the listener, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Run forwards until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() {
		p.listener.Close()
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.Cut()
	})
	defer stop()
	g.Go(func() error {
		for {
			client, err := p.listener.AcceptTCP()
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return fmt.Errorf("proxy for %v: %w", p.backends, err)
			}
			if c := p.admit(client); c != nil {
				g.Go(func() error {
					p.serve(ctx, c)
					return nil
				})
			}
		}
	})
	return g.Wait()
}

// admit registers a connection. If connections are refused, it resets this one and returns nil.
func (p *Proxy) admit(client *net.TCPConn) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	if p.refusing || p.closed {
		reset(client)
		return nil
	}
	c := &conn{
		client:  client,
		backend: -1,
		cut:     make(chan struct{}),
		left:    -1,
	}
	if p.inspect != nil {
		c.filter = p.inspect()
	}
	p.conns[c] = struct{}{}
	return c
}

// order returns the backends in the order in which they are tried: the preferred one first, and
// none that is dropped.
func (p *Proxy) order() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []int
	for n := range p.backends {
		if i := (p.preferred + n) % len(p.backends); !p.dropped[i] {
			list = append(list, i)
		}
	}
	return list
}

func (p *Proxy) serve(ctx context.Context, c *conn) {
	defer p.end(c, true)
	if !p.pass(c) || !p.dial(ctx, c) {
		return
	}
	var wg sync.WaitGroup
	var up, down bool
	wg.Go(func() { up = p.copy(c, c.server, c.client, false) })
	wg.Go(func() { down = p.copy(c, c.client, c.server, true) })
	wg.Wait()
	if up && down {
		p.end(c, false)
	}
}

// dial connects to the first backend that answers.
func (p *Proxy) dial(ctx context.Context, c *conn) bool {
	for _, i := range p.order() {
		d := net.Dialer{Timeout: dialTimeout}
		server, err := d.DialContext(ctx, "tcp", p.backends[i])
		if err != nil {
			continue
		}
		p.mu.Lock()
		_, open := p.conns[c]
		if open {
			c.server, c.backend = server.(*net.TCPConn), i
		}
		p.mu.Unlock()
		if !open {
			reset(server.(*net.TCPConn))
		}
		return open
	}
	return false
}

// copy forwards one direction until the sender closes it or the connection is cut. It reports
// whether it was closed normally.
func (p *Proxy) copy(c *conn, to, from *net.TCPConn, down bool) bool {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !p.pass(c) {
				return false
			}
			if !c.admits(down, buffer[:n]) {
				p.end(c, true)
				return false
			}
			allowed := n
			if down {
				allowed = p.take(c, n)
			}
			if _, err := to.Write(buffer[:allowed]); err != nil || allowed < n {
				p.end(c, true)
				return false
			}
		}
		if errors.Is(err, io.EOF) {
			return p.pass(c) && to.CloseWrite() == nil
		}
		if err != nil {
			p.end(c, true)
			return false
		}
	}
}

func (c *conn) admits(down bool, piece []byte) bool {
	if c.filter == nil {
		return true
	}
	c.looking.Lock()
	defer c.looking.Unlock()
	return c.filter(down, piece)
}

// take returns how many of n bytes may be forwarded to the client.
func (p *Proxy) take(c *conn, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.left < 0 {
		return n
	}
	n = int(min(int64(n), c.left))
	c.left -= int64(n)
	return n
}

// pass waits while Delay and Hold require it. It returns false if the connection is cut.
func (p *Proxy) pass(c *conn) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-c.cut:
			return false
		case <-timer.C:
		}
	}
	for {
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held == nil {
			return !isClosed(c)
		}
		select {
		case <-c.cut:
			return false
		case <-held:
		}
	}
}

func isClosed(c *conn) bool {
	select {
	case <-c.cut:
		return true
	default:
		return false
	}
}

// end closes both ends, unless they are closed already.
func (p *Proxy) end(c *conn, hard bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(c, hard)
}

func (p *Proxy) endLocked(c *conn, hard bool) {
	if _, ok := p.conns[c]; !ok {
		return
	}
	delete(p.conns, c)
	close(c.cut)
	for _, end := range []*net.TCPConn{c.client, c.server} {
		switch {
		case end == nil:
		case hard:
			reset(end)
		default:
			_ = end.Close()
		}
	}
}

// reset closes a connection so that the other end gets an error, not an end of file. Data that the
// other end has not read is lost, as in a crash of the machine.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // Both fail only on a connection that is closed.
	_ = c.Close()
}

// Cut resets all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		p.endLocked(c, true)
	}
}

// Refuse resets new connections immediately. Existing ones are kept.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = on
}

// Hold stops forwarding, while connections stay open and new ones are accepted: a black hole.
// Hold(false) resumes it.
func (p *Proxy) Hold(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.held == nil:
		p.held = make(chan struct{})
	case !on && p.held != nil:
		close(p.held)
		p.held = nil
	}
}

// Delay delays each forwarded piece by d, in both directions.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Truncate makes each existing connection forward n more bytes to its client. The next byte resets
// the connection.
func (p *Proxy) Truncate(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.left = n
	}
}

// Inspect gives each new connection its own filter, which filter makes. Nil: no filter.
func (p *Proxy) Inspect(filter func() Filter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inspect = filter
}

// Prefer makes new connections try backend i first, then the others in their order.
func (p *Proxy) Prefer(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.preferred = i
}

// Drop resets the connections to backend i, and prevents new ones until Restore.
func (p *Proxy) Drop(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped[i] = true
	for c := range p.conns {
		if c.backend == i {
			p.endLocked(c, true)
		}
	}
}

// Restore reverts Drop.
func (p *Proxy) Restore(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.dropped, i)
}

// Accepted returns the number of connections so far, including refused ones.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Open returns the number of open connections.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}
