package main

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startServer starts a NATS server on a port, -1 for any, with JetStream if it has a directory.
func startServer(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	return start(t, &server.Options{Port: port, JetStream: dir != "", StoreDir: dir})
}

// startJetStream starts a NATS server with JetStream on a free port, and returns its address.
func startJetStream(t *testing.T, o *server.Options) string {
	t.Helper()
	o.Port = -1
	o.JetStream = true
	o.StoreDir = t.TempDir()
	return start(t, o).Addr().String()
}

func start(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	o.Host = "127.0.0.1"
	o.NoLog = true
	o.NoSigs = true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not come up")
	}
	return s
}

// connect connects to a server until the test ends.
func connect(t *testing.T, url string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
