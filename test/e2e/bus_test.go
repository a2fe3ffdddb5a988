package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// bus is a NATS server with a JetStream, or a cluster of them.
type bus struct {
	URL string // Of a cluster: those of all servers, separated by commas.

	replicas int    // Of the stream that the agent makes; 0 is 1.
	more     string // More of bus.nats, YAML as in a flow mapping.
	options  []nats.Option

	process *process // Nil: it runs in this process.
	port    int
	dir     string
}

func busOptions(port int, dir string) *server.Options {
	return &server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir,
		NoSigs: true, NoLog: true,
		// No SyncAlways: what a killed server has acknowledged, the kernel has; an fsync for each record would only guard
		// against the end of the machine. The bound is one because the default goes by the free space of the disk.
		JetStreamMaxStore: 64 << 30,
	}
}

// startBus runs a server in this process.
func startBus(t testing.TB) *bus {
	t.Helper()
	return &bus{URL: startServer(t, busOptions(server.RANDOM_PORT, t.TempDir())).ClientURL()}
}

// startServer runs a server in this process until the test ends.
func startServer(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("NATS server is not ready")
	}
	return s
}

// asBus makes this test binary a NATS server: "<port> <directory>".
const asBus = "KUBECDC_E2E_NATS"

// serveBus is the program of a bus in a process of its own. It ends at the end of file on stdin: with its parent.
func serveBus(args string) error {
	var port int
	var dir string
	if _, err := fmt.Sscanf(args, "%d %s", &port, &dir); err != nil {
		return fmt.Errorf("%s=%q: %w", asBus, args, err)
	}
	s, err := server.NewServer(busOptions(port, dir))
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		return errors.New("NATS server is not ready")
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	return err
}

// startBusProcess runs a server in a process of its own, so that it can be stopped and killed.
func startBusProcess(t testing.TB) *bus {
	t.Helper()
	b := &bus{port: freePort(t), dir: t.TempDir()}
	b.URL = "nats://127.0.0.1:" + strconv.Itoa(b.port)
	b.start(t)
	t.Cleanup(func() {
		b.process.kill()
	})
	return b
}

// start starts the process, or starts it again with what it had.
func (b *bus) start(t testing.TB) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", asBus, b.port, b.dir))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // Held open; closed by the end of this process.
		t.Fatal(err)
	}
	if b.process, err = start(cmd); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() error {
		conn, err := nats.Connect(b.URL, nats.Timeout(time.Second))
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// freeze stops the process in its tracks: connections stay open and nothing answers.
func (b *bus) freeze(t testing.TB) { b.signal(t, syscall.SIGSTOP) }

// thaw lets it go on.
func (b *bus) thaw(t testing.TB) { b.signal(t, syscall.SIGCONT) }

func (b *bus) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := b.process.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s to the NATS server: %v", s, err)
	}
}

// kill ends the process as a crash does; start brings it back.
func (b *bus) kill() { b.process.kill() }

// connect is a client's connection that survives what is done to the server.
func (b *bus) connect(t testing.TB) *nats.Conn {
	t.Helper()
	options := append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.Timeout(10 * time.Second),
	}, b.options...)
	conn, err := nats.Connect(b.URL, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

var errStopped = errors.New("stopped")

func isStopped(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errStopped) }
