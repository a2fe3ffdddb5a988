package informers_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lines connects an API server with its clients in memory, so that both can run in a synctest
// bubble, where minutes take no time. It is the server's net.Listener.
type lines struct {
	incoming chan net.Conn
	once     sync.Once
	closed   chan struct{}

	mu     sync.Mutex
	broken chan struct{} // closed: the connections made so far are silently dead
	made   int
	open   int
}

func newLines() *lines {
	return &lines{incoming: make(chan net.Conn), closed: make(chan struct{}), broken: make(chan struct{})}
}

func (l *lines) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	l.mu.Lock()
	l.made++
	l.open++
	line := &line{Conn: client, of: l, broken: l.broken, closed: make(chan struct{})}
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.made}
	l.mu.Unlock()
	select {
	case l.incoming <- &remote{server, from}:
		return line, nil
	case <-l.closed:
	case <-ctx.Done():
	}
	line.Close()
	server.Close()
	return nil, net.ErrClosed
}

// breakAll silently drops all traffic on the connections made so far.
func (l *lines) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.broken)
	l.broken = make(chan struct{})
}

func (l *lines) counts() (made, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made, l.open
}

func (l *lines) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *lines) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *lines) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }

// line is the client's end of a connection.
type line struct {
	net.Conn
	of     *lines
	broken chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (c *line) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.broken:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *line) Write(p []byte) (int, error) {
	select {
	case <-c.broken:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

func (c *line) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.of.mu.Lock()
		c.of.open--
		c.of.mu.Unlock()
	})
	return c.Conn.Close()
}

// remote is the server's end of a connection. Its client's address is different for each
// connection.
type remote struct {
	net.Conn
	from net.Addr
}

func (c *remote) RemoteAddr() net.Addr { return c.from }

// newLinkedServer returns an apiServer with HTTP/2 over TLS or plain HTTP/1.1, and its lines.
func newLinkedServer(t *testing.T, http2 bool) (*apiServer, *lines) {
	s := newServer(t, http2)
	return s, s.lines
}

// pass waits for d, and until all other goroutines wait.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// onWatch makes f answer watches, which number counts from 1. If f returns false, the server
// answers.
func (s *apiServer) onWatch(f func(number int, w http.ResponseWriter, r *http.Request) bool) {
	n := 0
	s.do(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") == "" {
				return false
			}
			number := 0
			s.do(func() {
				n++
				number = n
			})
			if !f(number, w, r) {
				return false
			}
			s.do(func() { s.watches++ })
			return true
		}
	})
}

// say writes frames to a watch at once.
func say(w http.ResponseWriter, frames ...string) {
	w.WriteHeader(http.StatusOK)
	for _, f := range frames {
		fmt.Fprintln(w, f)
	}
	w.(http.Flusher).Flush()
}

func bookmark(rv uint64) string {
	return fmt.Sprintf(
		`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`, rv)
}

// labelled returns the sum of a metric over the series that have a label with this value.
func labelled(t *testing.T, reg *prometheus.Registry, name, label string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}
