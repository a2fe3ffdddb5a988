package bustest

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Proxy forwards connections to a server, and interferes with them on request.
type Proxy struct {
	target string
	l      net.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex
	cond  *sync.Cond
	conns map[net.Conn]bool
	held  [2]bool // per direction: nothing is read
	drops [2]bool // per direction: what is read is thrown away
	done  bool

	swallows bool              // new connections are dead
	dead     map[net.Conn]bool // see Swallow

	poison string // a connection is cut when it is to carry this to the server
	cuts   int    // by poison
}

// Direction is one of a connection's two.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// StartProxy starts a proxy to the server at target, host:port.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		target: target,
		l:      l,
		conns:  map[net.Conn]bool{},
		dead:   map[net.Conn]bool{},
	}
	p.cond = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	tb.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.done = true
		p.mu.Unlock()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Addr returns the proxy's host:port.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// URL returns the proxy's address for NATS.
func (p *Proxy) URL() string { return "nats://" + p.Addr() }

func (p *Proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		backend, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[backend] = true, true
		p.dead[client], p.dead[backend] = p.swallows, p.swallows
		p.mu.Unlock()
		p.wg.Go(func() { p.pipe(backend, client, ToServer) })
		p.wg.Go(func() { p.pipe(client, backend, ToClient) })
	}
}

func (p *Proxy) pipe(dst, src net.Conn, d Direction) {
	defer func() {
		_, _ = dst.Close(), src.Close()
		p.mu.Lock()
		delete(p.conns, src)
		delete(p.dead, src)
		p.mu.Unlock()
	}()
	buf := make([]byte, 4<<10)
	var tail string // of what went to the server, for poison that comes in pieces
	for {
		n, err := src.Read(buf)
		p.mu.Lock()
		for (p.held[d] || p.dead[src]) && p.conns[src] && !p.done {
			p.cond.Wait()
		}
		dropped := p.drops[d]
		if d == ToServer && p.poison != "" {
			tail += string(buf[:n])
			if strings.Contains(tail, p.poison) {
				p.cuts++
				err = io.EOF
			}
			tail = tail[max(0, len(tail)-len(p.poison)):]
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
		if dropped {
			continue
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Hold stops one direction, or resumes it.
func (p *Proxy) Hold(d Direction, held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[d] = held
	p.cond.Broadcast()
}

// Drop throws away the data of one direction, or ceases to. If a connection has lost data, cut it
// before others use it.
func (p *Proxy) Drop(d Direction, dropped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops[d] = dropped
}

// Swallow simulates the silent death of the path. The open connections stay open until the end of
// the test. Nothing arrives any more, writes block when the buffers are full, and neither end
// detects that the other one closes. With all, connections that are opened later are dead too,
// until Swallow(false).
func (p *Proxy) Swallow(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallows = all
	for c := range p.conns {
		p.dead[c] = true
	}
}

// Poison cuts connections that are to carry s to the server; "": none.
func (p *Proxy) Poison(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.poison = s
}

// Poisonings returns how many connections were cut because of Poison.
func (p *Proxy) Poisonings() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Cut breaks all connections; data that is held is lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
		delete(p.conns, c)
	}
	p.cond.Broadcast()
}
