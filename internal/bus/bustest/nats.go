package bustest

import (
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/nats/natsversion/natschild"
)

// StartServer starts a NATS server with JetStream. A port of -1 is any; the same dir and port make
// it the same server again.
func StartServer(tb testing.TB, dir string, port int, change ...func(*server.Options)) *server.Server {
	tb.Helper()
	opts := &server.Options{
		Host:      "127.0.0.1",
		Port:      port,
		JetStream: true,
		StoreDir:  dir,
		NoSigs:    true,
		NoLog:     true,
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
	tb.Cleanup(func() { StopServer(s) })
	return s
}

// Server is a NATS server with JetStream, in this process or another.
type Server interface {
	Name() string
	ClientURL() string
	Addr() net.Addr
	Shutdown()
	WaitForShutdown()
}

// StartAnyServer is StartServer for tests that hold for servers of other versions: it starts the
// one of package natschild if the environment names one.
func StartAnyServer(tb testing.TB, dir string, port int) Server {
	tb.Helper()
	if !natschild.IsWanted() {
		return StartServer(tb, dir, port)
	}
	if port < 0 {
		port = natschild.FreePort(tb)
	}
	return natschild.Start(tb, natschild.Options{Name: "n0", Dir: dir, Port: port})
}

// StopServer stops a server, and waits until it has.
func StopServer(s Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// PortOf returns the port of a server.
func PortOf(s Server) int { return s.Addr().(*net.TCPAddr).Port }

// Admin returns a connection of the test's own.
func Admin(tb testing.TB, url string) jetstream.JetStream {
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

// Records reads all records of the stream.
func Records(tb testing.TB, js jetstream.JetStream, stream string) []*jetstream.RawStreamMsg {
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

// BucketName is the bucket of large events.
const BucketName = "KUBECDC_LARGE"

// CheckBucket checks how long the bucket keeps objects, and their number.
func CheckBucket(tb testing.TB, js jetstream.JetStream, ttl time.Duration, objects int) {
	tb.Helper()
	b, err := js.ObjectStore(tb.Context(), BucketName)
	if err != nil {
		tb.Fatal(err)
	}
	list, err := b.List(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	status, err := b.Status(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if len(list) != objects || status.TTL() != ttl || status.Storage() != jetstream.FileStorage {
		tb.Errorf("%d objects, kept for %v, in %v", len(list), status.TTL(), status.Storage())
	}
}
