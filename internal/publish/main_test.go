package publish_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestMain(m *testing.M) {
	publish.TakeForRemote()
	// Most tests wait. More of them run at a time than there are processors, unless the command line says otherwise.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	code := m.Run()
	if code == 0 {
		// A server that is shut down while it makes a stream leaves these two of its own behind.
		if err := goleak.Find(
			goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
			goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
			// ObjectStore.Put of nats.go starts this goroutine, which then reads js.publisher.connStatusCh. If Put returns first (its
			// context has ended), the channel is nil by then, and the goroutine never ends. The agent does not use PublishAsync itself.
			goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// startServer starts a JetStream. A port of -1 is any; the same dir and port make it the same server again.
func startServer(tb testing.TB, dir string, port int, change ...func(*server.Options)) *server.Server {
	tb.Helper()
	opts := &server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	}
	for _, c := range change {
		c(opts)
	}
	s, err := server.NewServer(opts)
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		tb.Fatal("server does not come up")
	}
	tb.Cleanup(func() { stop(s) })
	return s
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

func portOf(s *server.Server) int { return s.Addr().(*net.TCPAddr).Port }

// admin is a connection of the test's own.
func admin(tb testing.TB, url string) jetstream.JetStream {
	tb.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// records reads all records of the stream.
func records(tb testing.TB, js jetstream.JetStream, stream string) []*jetstream.RawStreamMsg {
	tb.Helper()
	s, err := js.Stream(tb.Context(), stream)
	if err != nil {
		tb.Fatal(err)
	}
	state := s.CachedInfo().State
	var all []*jetstream.RawStreamMsg
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		m, err := s.GetMsg(tb.Context(), seq)
		if err != nil {
			tb.Fatal(err)
		}
		for _, h := range []string{"Nats-Sequence", "Nats-Stream", "Nats-Subject", "Nats-Time-Stamp"} {
			m.Header.Del(h) // of the reading, not of the record
		}
		all = append(all, m)
	}
	return all
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// running is a NATS publisher whose Run is under way.
type running struct {
	*publish.NATS
	log  *logBuffer
	reg  *prometheus.Registry
	done chan struct{} // closed when Run has returned err
	err  error
	stop func()
}

func testConfig(url string) publish.NATSConfig {
	return publish.NATSConfig{
		URL: url, Cluster: "prod-eu-1", MaxEventBytes: 900 << 10, Stream: publish.Stream{Create: true},
	}
}

func run(tb testing.TB, cfg publish.NATSConfig) *running {
	tb.Helper()
	r := &running{log: new(logBuffer), reg: prometheus.NewPedanticRegistry(), done: make(chan struct{})}
	n, err := publish.NewNATS(cfg, r.log.logger(), publish.NewMetrics(r.reg))
	if err != nil {
		tb.Fatal(err)
	}
	r.NATS = n
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(r.done)
		r.err = n.Run(ctx)
	}()
	r.stop = func() { cancel(); <-r.done }
	tb.Cleanup(func() {
		r.stop()
		if tb.Failed() {
			tb.Logf("log of the publisher:\n%s", r.log)
		}
	})
	return r
}

func (r *running) metric(tb testing.TB, name, label string) float64 {
	tb.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// wait waits for a condition that comes true by itself.
func wait(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-limit:
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}

var pods = &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}

// event makes the event of version rv of a pod.
func event(name string, rv int, body string) *encode.Event {
	ref := object.NewRef(pods, "shop", name, "uid-"+name)
	return &encode.Event{
		Delta:       &object.Delta{Op: object.Updated, Ref: ref, ResourceVersion: uint64(rv)},
		ID:          fmt.Appendf(nil, "pods/%s/%d", ref.UID, rv),
		Source:      []byte("/kubernetes/prod-eu-1"),
		ContentType: "application/cloudevents+json",
		Body:        []byte(body),
	}
}

// proxy stands between the publisher and the server, and makes trouble.
type proxy struct {
	target string
	l      net.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex
	cond  *sync.Cond
	conns map[net.Conn]bool
	held  [2]bool // per direction: nothing is read
	drops [2]bool // per direction: what is read is thrown away
	done  bool

	poison string // a connection is cut when it is to carry this to the server
	cuts   int    // by poison
}

type direction int

const (
	toServer direction = iota
	toClient
)

func startProxy(tb testing.TB, target string) *proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{target: target, l: l, conns: map[net.Conn]bool{}}
	p.cond = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	tb.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.done = true
		p.mu.Unlock()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.l.Addr().String() }

func (p *proxy) accept() {
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
		p.mu.Unlock()
		p.wg.Go(func() { p.pipe(backend, client, toServer) })
		p.wg.Go(func() { p.pipe(client, backend, toClient) })
	}
}

func (p *proxy) pipe(dst, src net.Conn, d direction) {
	defer func() {
		_, _ = dst.Close(), src.Close()
		p.mu.Lock()
		delete(p.conns, src)
		p.mu.Unlock()
	}()
	buf := make([]byte, 4<<10)
	var tail string // of what went to the server, for poison that comes in pieces
	for {
		n, err := src.Read(buf)
		p.mu.Lock()
		for p.held[d] && p.conns[src] && !p.done {
			p.cond.Wait()
		}
		dropped := p.drops[d]
		if d == toServer && p.poison != "" {
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

// hold stops one direction, or lets it go on.
func (p *proxy) hold(d direction, held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[d] = held
	p.cond.Broadcast()
}

// drop throws away what goes in one direction, or ceases to. Where a connection has lost some of it, cut it before others use it.
func (p *proxy) drop(d direction, dropped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops[d] = dropped
}

// poisoned cuts connections that are to carry s to the server; "": none.
func (p *proxy) poisoned(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.poison = s
}

func (p *proxy) poisonings() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// cut breaks all connections; what is held is lost.
func (p *proxy) cut() {
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

func lines(s, containing string) (n int) {
	for line := range strings.Lines(s) {
		if strings.Contains(line, containing) {
			n++
		}
	}
	return n
}

var discard = slog.New(slog.DiscardHandler)
