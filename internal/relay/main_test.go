package relay_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func TestMain(m *testing.M) {
	// Most tests wait. More of them run at a time than there are processors, unless the command
	// line says otherwise.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	code := m.Run()
	if code == 0 {
		// A server that is shut down while it creates a stream leaks these two of its own
		// goroutines.
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

// bus is a JetStream with a stream, as an agent makes it.
type bus struct {
	tb     testing.TB
	server *server.Server
	url    string
	js     jetstream.JetStream
}

// newBus creates a bus. Without users, everyone may do everything; otherwise the first user is the
// test's.
func newBus(tb testing.TB, users ...*server.User) *bus {
	tb.Helper()
	return newBusWith(tb, &server.Options{Users: users})
}

func newBusWith(tb testing.TB, o *server.Options) *bus {
	tb.Helper()
	s := startServer(tb, o)
	var options []nats.Option
	if len(o.Users) > 0 {
		options = append(options, nats.UserInfo(o.Users[0].Username, o.Users[0].Password))
	}
	nc, err := nats.Connect(s.ClientURL(), options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	b := &bus{tb, s, s.ClientURL(), js}
	b.create()
	return b
}

func startServer(tb testing.TB, o *server.Options) *server.Server {
	tb.Helper()
	o.Host = "127.0.0.1"
	o.Port = -1
	o.JetStream = true
	o.StoreDir = tb.TempDir()
	o.NoSigs = true
	o.NoLog = true
	s, err := server.NewServer(o)
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		tb.Fatal("server does not come up")
	}
	tb.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// leaf starts a leaf node of the bus with a JetStream domain of its own, and returns its URL.
func (b *bus) leaf(domain string, users ...*server.User) string {
	b.tb.Helper()
	v, err := b.server.Varz(nil)
	if err != nil {
		b.tb.Fatal(err)
	}
	s := startServer(b.tb, &server.Options{
		ServerName: domain, JetStreamDomain: domain, Users: users,
		LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{{
			URLs: []*url.URL{{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(v.LeafNode.Port))}},
		}}},
	})
	waitFor(b.tb, func() bool { return s.NumLeafNodes() == 1 && b.server.NumLeafNodes() == 1 })
	return s.ClientURL()
}

// create creates the stream. The server may refuse this while it still removes the files of one
// that was just deleted.
func (b *bus) create() {
	b.tb.Helper()
	const storeFailed = 10049 // JSStreamCreateErrF of the server
	waitFor(b.tb, func() bool {
		_, err := b.js.CreateStream(b.tb.Context(), jetstream.StreamConfig{Name: "KUBECDC", Subjects: []string{
			"kubecdc.>",
		}})
		var refused *jetstream.APIError
		if err != nil && (!errors.As(err, &refused) || refused.ErrorCode != storeFailed) {
			b.tb.Fatal(err)
		}
		return err == nil
	})
}

func (b *bus) send(records ...string) {
	b.tb.Helper()
	b.sendTo("kubecdc.test", records...)
}

// sendTo is send to the subject of an object.
func (b *bus) sendTo(subject string, records ...string) {
	b.tb.Helper()
	for _, r := range records {
		if _, err := b.js.Publish(b.tb.Context(), subject, []byte(r)); err != nil {
			b.tb.Fatal(err)
		}
	}
}

// inNamespace selects the objects of one namespace.
func inNamespace(namespace string) []consume.Objects {
	return []consume.Objects{{Namespace: namespace}}
}

func (b *bus) subscription(name string, start driver.Start) driver.RelaySubscription {
	b.tb.Helper()
	return b.subscriptionOf(&driver.Relaying{Name: name, Start: start, Log: slog.New(slog.DiscardHandler)})
}

// subscriptionOf changes the settings of the bus with each change function.
func (b *bus) subscriptionOf(r *driver.Relaying, change ...func(*natsbus.Config)) driver.RelaySubscription {
	b.tb.Helper()
	c := new(natsbus.Config)
	c.SetDefaults()
	c.URL = b.url
	for _, f := range change {
		f(c)
	}
	s, err := natsbus.Opener{Config: c}.Subscribe(r)
	if err != nil {
		b.tb.Fatal(err)
	}
	return s
}

// event is the record of an update; rv is its version.
func event(namespace, name string, rv int) string { return eventOf("updated", namespace, name, rv) }

func eventOf(verb, namespace, name string, rv int) string {
	before := fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"%d"},"data":{"n":"%d"}}`, name, rv-1, rv-1)
	after := fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"%d"},"data":{"n":"%d"}}`, name, rv, rv)
	switch verb {
	case "created":
		before = "null"
	case "deleted":
		after = "null"
	}
	op := verb[:1]
	return fmt.Sprintf(
		`{"specversion":"1.0","id":"configmaps/uid-%[2]s-%[3]s/%[4]d","source":"/kubernetes/prod","type":"dev.kubecdc.object.%[1]s",`+
			`"subject":"/api/v1/namespaces/%[2]s/configmaps/%[3]s","time":"2026-11-20T15:00:00.000000000Z","cluster":"prod","apiversion":"v1",`+
			`"kind":"ConfigMap","resource":"configmaps","namespace":%[2]q,"name":%[3]q,"uid":"uid-%[2]s-%[3]s","op":%[5]q,`+
			`"resourceversion":"%[4]d","sequence":"%020[4]d","partitionkey":"prod/core/configmaps/%[2]s/%[3]s",`+
			`"data":{"op":%[5]q,"resourceVersion":"%[4]d","before":%[6]s,"after":%[7]s,`+
			`"changedBy":[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T15:00:00Z"}]}}`,
		verb, namespace, name, rv, op, before, after)
}

// streamEvent is the record of an event about the stream.
func streamEvent(kind string, rv int) string {
	return fmt.Sprintf(
		`{"specversion":"1.0","id":"configmaps/%[1]s/%[2]d","source":"/kubernetes/prod","type":"dev.kubecdc.%[1]s",`+
			`"time":"2026-11-20T15:00:00Z","apiversion":"v1","kind":"ConfigMap","resource":"configmaps","scope":"configmaps",`+
			`"data":{"snapshot":"s1","resourceVersion":"%[2]d"}}`, kind, rv)
}

// progressEvent is the progress of an agent, whose configmaps are on the bus up to rv.
func progressEvent(rv int) string {
	return fmt.Sprintf(
		`{"specversion":"1.0","id":"progress/w/0-1/%[1]d","source":"/kubernetes/prod","type":"dev.kubecdc.progress",`+
			`"time":"2026-11-20T15:00:00Z","data":{"writer":"w","run":"0-1","number":%[1]d,"since":"2026-11-20T14:50:00Z",`+
			`"scopes":[{"resource":"configmaps","resourceVersion":"%[1]d"}]}}`, rv)
}

// target collects delivered events.
type target struct {
	before func(ctx context.Context, r *driver.Record) error // nil: nothing
	ctx    context.Context                                   // ends with Run
	end    context.CancelFunc
	calls  sync.WaitGroup

	mu       sync.Mutex
	got      []*driver.Record
	inFlight map[string]bool
	wrong    []string
	changed  chan struct{}
}

func newTarget() *target {
	ctx, end := context.WithCancel(context.Background())
	return &target{ctx: ctx, end: end, inFlight: map[string]bool{}, changed: make(chan struct{}, 1)}
}

// Publish implements publish.Bus: each event waits in a goroutine of its own.
func (t *target) Publish(e *publish.Event) {
	t.calls.Go(func() {
		err := t.take(t.ctx, relay.RecordOf(e))
		if err != nil && t.ctx.Err() != nil {
			err = publish.ErrClosed
		}
		e.Done(err)
	})
}

func (t *target) take(ctx context.Context, r *driver.Record) error {
	key := r.Event.PartitionKey
	t.mu.Lock()
	if key != "" && t.inFlight[key] {
		t.wrong = append(t.wrong, "two of "+key+" at a time")
	}
	t.inFlight[key] = true
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.inFlight, key)
	}()
	if t.before != nil {
		if err := t.before(ctx, r); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.got = append(t.got, r)
	select {
	case t.changed <- struct{}{}:
	default:
	}
	return nil
}

func (t *target) Run(ctx context.Context) error {
	<-ctx.Done()
	t.end()
	t.calls.Wait()
	return nil
}

func (t *target) Ready() error  { return nil }
func (t *target) Stream() bool  { return true }
func (t *target) InFlight() int { return 24 } // one lane has 16 of them

// ids returns the ids of the events delivered so far.
func (t *target) ids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]string, len(t.got))
	for i, r := range t.got {
		out[i] = r.Event.ID
	}
	return out
}

// wait waits until n events have been delivered.
func (t *target) wait(tb testing.TB, n int) {
	tb.Helper()
	deadline := time.After(60 * time.Second)
	for {
		if len(t.ids()) >= n {
			return
		}
		select {
		case <-t.changed:
		case <-deadline:
			tb.Fatalf("delivered: %d of %d", len(t.ids()), n)
		}
	}
}

// checkOrder checks that the versions of each object increase, except for duplicates of events
// delivered before.
func (t *target) checkOrder(tb testing.TB) {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.wrong {
		tb.Error(w)
	}
	last := map[string]string{}
	for _, r := range t.got {
		e := r.Event
		if e.Sequence == "" {
			continue
		}
		if e.Sequence < last[e.UID] {
			tb.Errorf("%s came behind %s", e.ID, last[e.UID])
		}
		last[e.UID] = e.Sequence
	}
}

// running is a running relay.
type running struct {
	cancel context.CancelFunc
	done   chan error
}

func start(tb testing.TB, o relay.Options) *running {
	tb.Helper()
	return startLogging(tb, o, slog.New(slog.DiscardHandler))
}

func startLogging(tb testing.TB, o relay.Options, log *slog.Logger) *running {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	r := &running{cancel, make(chan error, 1)}
	go func() { r.done <- relay.New(o, log, nil).Run(ctx) }()
	tb.Cleanup(func() {
		if r.done != nil {
			_ = r.stop() // of a test that has failed
		}
	})
	return r
}

// stop ends the relay and returns its error.
func (r *running) stop() error {
	r.cancel()
	err := <-r.done
	r.done = nil
	return err
}

// wait waits until the relay ends by itself.
func (r *running) wait(tb testing.TB) error {
	tb.Helper()
	select {
	case err := <-r.done:
		r.done = nil
		return err
	case <-time.After(60 * time.Second):
		tb.Fatal("relay does not end")
		return nil
	}
}

// unsaved is a subscription whose cursor cannot be saved, as if the relay crashed.
type unsaved struct{ driver.Subscription }

func (unsaved) Save(context.Context, []driver.Mark) error { return errors.New("not saved") }

// memory is a subscription to records in memory.
type memory struct {
	records []*driver.Record
	mu      sync.Mutex
	saved   map[consume.Log]uint64
	empty   bool // all records are read
}

func (m *memory) Open(context.Context) error { return nil }

func (m *memory) Next(ctx context.Context) (*driver.Record, error) {
	if len(m.records) == 0 {
		m.mu.Lock()
		m.empty = true
		m.mu.Unlock()
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	r := m.records[0]
	m.records = m.records[1:]
	return r, nil
}

// wait waits until the relay has read all records.
func (m *memory) wait(tb testing.TB) {
	tb.Helper()
	waitFor(tb, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.empty
	})
}

func (m *memory) Save(_ context.Context, marks []driver.Mark) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.saved == nil {
		m.saved = map[consume.Log]uint64{}
	}
	for _, mark := range marks {
		m.saved[mark.Log] = mark.Position
	}
	return nil
}

func (m *memory) Behind(context.Context, []driver.Mark) (uint64, error) { return 0, nil }
func (m *memory) Ready() error                                          { return nil }
func (m *memory) Close() error                                          { return nil }

// copyOf is a record in a partition of a topic with that many partitions.
func copyOf(tb testing.TB, partition, partitions int, offset uint64, raw string) *driver.Record {
	tb.Helper()
	e, err := consume.Parse([]byte(raw))
	if err != nil {
		tb.Fatal(err)
	}
	return &driver.Record{Log: consume.Log{
		Name:      "t",
		Partition: partition,
	}, Position: offset, Event: e, Copies: partitions}
}

// logBuffer collects log output.
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

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
