package fromnats_test

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

func TestMain(m *testing.M) {
	// Most tests wait. More of them run at a time than there are processors, unless the command
	// line says otherwise.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	code := m.Run()
	if code == 0 {
		// A server that is shut down while it makes a stream leaves these two of its own behind.
		if err := goleak.Find(
			goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
			goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// bus is an embedded server that can be stopped and started again.
type bus struct {
	tb   testing.TB
	dir  string
	port int
	*server.Server
}

func startBus(tb testing.TB) *bus {
	tb.Helper()
	b := &bus{tb: tb, dir: tb.TempDir(), port: server.RANDOM_PORT}
	b.start()
	tb.Cleanup(b.stop)
	return b
}

func (b *bus) start() {
	b.tb.Helper()
	s, err := server.NewServer(&server.Options{
		Host:      "127.0.0.1",
		Port:      b.port,
		JetStream: true,
		StoreDir:  b.dir,
		NoSigs:    true,
		NoLog:     true,
	})
	if err != nil {
		b.tb.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		b.tb.Fatal("the server does not come up")
	}
	b.Server, b.port = s, s.Addr().(*net.TCPAddr).Port
}

func (b *bus) stop() {
	b.Shutdown()
	b.WaitForShutdown()
}

// client is a connection of the test's own, which survives restarts.
func (b *bus) client() (*nats.Conn, jetstream.JetStream) {
	b.tb.Helper()
	nc, err := nats.Connect(b.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.tb.Fatal(err)
	}
	return nc, js
}

// stream creates the stream that the agent would. The server may refuse this while it still removes
// the files of one that was just deleted.
func (b *bus) stream(js jetstream.JetStream, name string) (s jetstream.Stream) {
	b.tb.Helper()
	const storeFailed = 10049 // JSStreamCreateErrF of the server
	until(b.tb, "the stream is created", func() (created bool) {
		var err error
		s, err = js.CreateStream(b.tb.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{"kubecdc.>"}})
		var refused *jetstream.APIError
		if err != nil && (!errors.As(err, &refused) || refused.ErrorCode != storeFailed) {
			b.tb.Fatal(err)
		}
		return err == nil
	})
	return s
}

// until waits for a condition.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("%s: not within 20 s", what)
		}
	}
}

// pod is the record of the n-th version of a pod.
func pod(n int) []byte { return consumetest.Pod(n) }

func put(tb testing.TB, js jetstream.JetStream, from, to int) {
	tb.Helper()
	for n := from; n <= to; n++ {
		msg := &nats.Msg{Subject: fmt.Sprintf("kubecdc.x.object.core.pods.shop.web-%d", n%3), Data: pod(n)}
		msg.Header = nats.Header{"content-type": {"application/cloudevents+json"}}
		var err error
		until(tb, "publish", func() bool {
			_, err = js.PublishMsg(tb.Context(), msg, jetstream.WithMsgID(fmt.Sprint(n)))
			return err == nil
		})
	}
}

// unusedPort is one at which nobody listened a moment ago.
func unusedPort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
