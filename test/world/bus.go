package world

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

	"github.com/kubecdc/kubecdc/internal/bus/nats/natsversion/natschild"
	"github.com/kubecdc/kubecdc/test/wait"
)

// Bus is a NATS server with a JetStream, or a cluster of them.
type Bus struct {
	URL string // For a cluster, the URLs of all servers, separated by commas.

	replicas int    // The replicas of the stream that the agent creates; 0 is 1.
	More     string // More of bus.nats, YAML as in a flow mapping.
	Options  []nats.Option

	process *Process // Nil: the server runs in this process.
	port    int
	Dir     string
}

// BusOptions returns the options of a server with JetStream on a port of 127.0.0.1.
func BusOptions(port int, dir string) *server.Options {
	return &server.Options{
		Host:      "127.0.0.1",
		Port:      port,
		JetStream: true,
		StoreDir:  dir,
		NoSigs:    true,
		NoLog:     true,
		// No SyncAlways: records that a killed server has acknowledged are in the kernel, and an
		// fsync only matters if the machine crashes. JetStreamMaxStore is set because its default
		// depends on the free space of the disk.
		JetStreamMaxStore: 64 << 30,
	}
}

// StartBus runs a server in this process, or one of another version if the environment names it
// (natschild.Env).
func StartBus(t testing.TB) *Bus {
	t.Helper()
	if natschild.IsWanted() {
		o := natschild.Options{Name: "bus", Dir: t.TempDir(), Port: FreePort(t)}
		return &Bus{URL: natschild.Start(t, o).ClientURL()}
	}
	return &Bus{URL: StartServer(t, BusOptions(server.RANDOM_PORT, t.TempDir())).ClientURL()}
}

// StartServer runs a server in this process until the test ends.
func StartServer(t testing.TB, o *server.Options) *server.Server {
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

// AsBusEnv makes this test binary a NATS server: "<port> <directory>".
const AsBusEnv = "KUBECDC_E2E_NATS"

// ServeBus is the program of a bus in a child process. It ends at the end of file on stdin, so with
// its parent.
func ServeBus(args string) error {
	var port int
	var dir string
	if _, err := fmt.Sscanf(args, "%d %s", &port, &dir); err != nil {
		return fmt.Errorf("%s=%q: %w", AsBusEnv, args, err)
	}
	s, err := server.NewServer(BusOptions(port, dir))
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

// StartBusProcess runs a server in a child process, so that tests can stop and kill it.
func StartBusProcess(t testing.TB) *Bus {
	t.Helper()
	b := &Bus{port: FreePort(t), Dir: t.TempDir()}
	b.URL = "nats://127.0.0.1:" + strconv.Itoa(b.port)
	b.Start(t)
	t.Cleanup(func() {
		b.process.Kill()
	})
	return b
}

// Start starts the process, or restarts it with its data.
func (b *Bus) Start(t testing.TB) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self) //nolint:noctx // The test stops or kills it.
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", AsBusEnv, b.port, b.Dir))
	if natschild.IsWanted() {
		cmd = exec.Command(os.Getenv(natschild.Env), //nolint:noctx // As above.
			"--addr", "127.0.0.1", "--port", strconv.Itoa(b.port),
			"--jetstream", "--store_dir", b.Dir, "--log", b.Dir+".log")
	}
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // Open until this process ends.
		t.Fatal(err)
	}
	b.process, err = StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	wait.Eventually(t, 30*time.Second, func() error {
		conn, err := nats.Connect(b.URL, nats.Timeout(time.Second))
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// Freeze pauses the process: connections stay open, but the server does not answer.
func (b *Bus) Freeze(t testing.TB) { b.signal(t, syscall.SIGSTOP) }

// Thaw resumes a frozen process.
func (b *Bus) Thaw(t testing.TB) { b.signal(t, syscall.SIGCONT) }

func (b *Bus) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := b.process.Cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s to the NATS server: %v", s, err)
	}
}

// Kill ends the process as a crash does. Start restarts it.
func (b *Bus) Kill() { b.process.Kill() }

// Connect returns a client connection that reconnects whenever the server is back.
func (b *Bus) Connect(t testing.TB) *nats.Conn {
	t.Helper()
	options := append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.Timeout(10 * time.Second),
	}, b.Options...)
	conn, err := nats.Connect(b.URL, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

var errStopped = errors.New("stopped")

func isStopped(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errStopped) }
