package consumers_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/test/wait"
)

// bus is a NATS server with a JetStream.
type bus struct {
	URL    string
	server *server.Server
	set    func(*server.Options) // may be nil
	dir    string
	js     jetstream.JetStream
}

func startBus(t testing.TB) *bus {
	t.Helper()
	return startBusWith(t, nil)
}

// startBusWith starts a server with other options, to which the test connects with those of its
// own.
func startBusWith(t testing.TB, set func(*server.Options), admin ...nats.Option) *bus {
	t.Helper()
	b := &bus{dir: t.TempDir(), set: set}
	b.start(t, server.RANDOM_PORT)
	b.URL = b.server.ClientURL()
	t.Cleanup(b.stop)
	conn, err := nats.Connect(b.URL, append(admin, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	b.js, err = jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bus) start(t testing.TB, port int) {
	t.Helper()
	options := &server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true,
		JetStreamMaxStore: 1 << 30, // The default depends on the free space of the disk.
	}
	if b.set != nil {
		b.set(options)
	}
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("NATS server is not ready")
	}
	b.server = s
}

func (b *bus) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// restart ends the server, which loses its memory, and starts it again at the same port.
func (b *bus) restart(t testing.TB) {
	t.Helper()
	port := b.server.Addr().(*net.TCPAddr).Port
	b.stop()
	b.start(t, port)
}

// createStream creates the stream as the agent does.
func (b *bus) createStream(t testing.TB) jetstream.Stream {
	t.Helper()
	s, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: natsconfig.DefaultStream, Subjects: []string{"kubecdc.>"}, AllowDirect: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put stores records as they are. The stream does not detect copies, because duplicate windows end.
func (b *bus) put(t testing.TB, records ...record) {
	t.Helper()
	for _, r := range records {
		wait.Eventually(t, time.Minute, func() error { // The server may have just been started.
			_, err := b.js.PublishMsg(t.Context(), &nats.Msg{Subject: r.Subject, Header: r.Header, Data: r.Body})
			return err
		})
	}
}

// fill stores many records as they are, in order.
func (b *bus) fill(t testing.TB, records []record) {
	t.Helper()
	for batch := range slices.Chunk(records, 500) {
		var acks []jetstream.PubAckFuture
		for _, r := range batch {
			ack, err := b.js.PublishMsgAsync(&nats.Msg{Subject: r.Subject, Header: r.Header, Data: r.Body})
			if err != nil {
				t.Fatal(err)
			}
			acks = append(acks, ack)
		}
		for _, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				t.Fatal(err)
			}
		}
	}
}

// publish sends deltas as the agent does, through its encoder and its publisher.
func (b *bus) publish(t testing.TB, o encode.Options, deltas ...*object.Delta) {
	t.Helper()
	n, err := natsbus.New(natsbus.Config{
		URL: b.URL, Env: driver.Env{Cluster: o.Cluster, MaxEventBytes: 512 << 10},
		Stream: natsconfig.Stream{Create: true},
	}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	p := bustest.Await(n, false)
	var ev encode.Event
	for _, d := range deltas {
		if err := errors.Join(encode.New(o).Encode(&ev, d), p.Publish(ctx, &ev)); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// records reads the whole stream.
func (b *bus) records(t testing.TB) []record {
	t.Helper()
	s, err := b.js.Stream(t.Context(), natsconfig.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	var all []record
	for seq := range s.CachedInfo().State.LastSeq {
		m, err := s.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, record{Subject: m.Subject, Header: m.Header, Body: m.Data})
	}
	return all
}

// record is a record as it is in the stream.
type record struct {
	Subject string
	Header  nats.Header
	Body    []byte
}
