package natschild

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Env names the variable with the file of the nats-server that tests run. Empty: that of go.mod.
const Env = "KUBECDC_NATS_SERVER"

// IsWanted reports whether tests run a child.
func IsWanted() bool { return os.Getenv(Env) != "" }

// Options are the settings of a server. Its JetStream is on.
type Options struct {
	Name       string
	Dir        string // of its data
	Port       int    // of 127.0.0.1
	Cluster    int    // port of its routes; 0: it is alone
	Routes     []int  // ports of the routes of all servers of the cluster
	MaxCatchup int    // bytes in flight to a replica that lags; 0: the default
}

// Server is a running nats-server.
type Server struct {
	options Options
	cmd     *exec.Cmd
	output  string // the file of its log
	ended   chan struct{}
}

// Start starts a server, and returns when it accepts connections. The server ends with the test.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	dir := tb.TempDir()
	config := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(config, []byte(o.text()), 0o600); err != nil {
		tb.Fatal(err)
	}
	s := &Server{options: o, output: filepath.Join(dir, "log"), ended: make(chan struct{})}
	log, err := os.Create(s.output)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = log.Close() }()                       // the child has its own copy
	s.cmd = exec.Command(os.Getenv(Env), "--config", config) //nolint:noctx // Shutdown ends it.
	s.cmd.Stdout, s.cmd.Stderr = log, log
	endWithParent(s.cmd)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the kernel ends the child with the thread that started it
		defer runtime.UnlockOSThread()
		defer close(s.ended)
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // a server exits with 1 after a signal
		}
	}()
	if err := <-started; err != nil {
		tb.Fatalf("start the nats-server of $%s: %v", Env, err)
	}
	tb.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
		if tb.Failed() {
			tb.Logf("end of the log of nats-server %s:\n%s", o.Name, s.logTail())
		}
	})
	s.await(tb)
	return s
}

// text returns the configuration of the server.
func (o *Options) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "server_name: %q\nlisten: \"127.0.0.1:%d\"\n", o.Name, o.Port)
	// Without a limit, that of the free space of the disk holds.
	fmt.Fprintf(&b, "jetstream {\n  store_dir: %q\n  max_file_store: %d\n", o.Dir, int64(64<<30))
	if o.MaxCatchup > 0 {
		fmt.Fprintf(&b, "  max_outstanding_catchup: %d\n", o.MaxCatchup)
	}
	b.WriteString("}\n")
	if o.Cluster > 0 {
		fmt.Fprintf(&b, "cluster {\n  name: test\n  listen: \"127.0.0.1:%d\"\n  routes: [", o.Cluster)
		for _, port := range o.Routes {
			fmt.Fprintf(&b, " \"nats://127.0.0.1:%d\",", port)
		}
		b.WriteString(" ]\n}\n")
	}
	return b.String()
}

// await waits until the server accepts connections.
func (s *Server) await(tb testing.TB) {
	tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for {
		conn, err := nats.Connect(s.ClientURL(), nats.Timeout(time.Second))
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-tick.C:
		case <-s.ended:
			tb.Fatalf("nats-server %s has ended:\n%s", s.options.Name, s.logTail())
		case <-limit:
			tb.Fatalf("nats-server %s does not come up: %v\n%s", s.options.Name, err, s.logTail())
		}
	}
}

// ClientURL returns the URL for clients.
func (s *Server) ClientURL() string { return "nats://" + s.Addr().String() }

// Addr returns the address for clients.
func (s *Server) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: s.options.Port}
}

// Name returns the name of the server.
func (s *Server) Name() string { return s.options.Name }

// Shutdown ends the server in order.
func (s *Server) Shutdown() { _ = s.cmd.Process.Signal(os.Interrupt) } // fails only if it has ended

// WaitForShutdown waits until the server has ended, and kills it after ten seconds.
func (s *Server) WaitForShutdown() {
	timer := time.AfterFunc(10*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	<-s.ended
}

// logTail returns the end of the server's log.
func (s *Server) logTail() []byte {
	text, _ := os.ReadFile(s.output)
	const most = 4 << 10
	return bytes.TrimSpace(text[max(0, len(text)-most):])
}

// AwaitCluster waits until a stream can have a replica on each server of a cluster.
func AwaitCluster(tb testing.TB, url string, size int) {
	tb.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		tb.Fatal(err)
	}
	const name = "IS-THE-CLUSTER-READY"
	config := jetstream.StreamConfig{
		Name:     name,
		Subjects: []string{name},
		Replicas: size,
		Storage:  jetstream.MemoryStorage,
	}
	attempt := func() error {
		ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Second)
		defer cancel()
		if _, err := js.CreateOrUpdateStream(ctx, config); err != nil {
			return err
		}
		return js.DeleteStream(ctx, name)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); ; <-tick.C {
		err = attempt()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			tb.Fatalf("the cluster is not ready: %v", err)
		}
	}
}

// FreePort returns a port of 127.0.0.1 at which nobody listened a moment ago.
func FreePort(tb testing.TB) int {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
