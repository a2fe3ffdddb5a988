package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// largeRun is a short TestTruth with large objects between small ones.
type largeRun struct {
	busTruth
	Steps int // Of the writers of large objects.
}

func (l *largeRun) run(t *testing.T, p *world.Plane) oracle.Verdict {
	t.Helper()
	p.NewNamespace(t, l.Namespace)
	// Other agents on this plane must not send the large objects.
	defer func() {
		if err := p.API.Remove(context.WithoutCancel(t.Context()),
			world.Collection("configmaps", l.Namespace)); err != nil {
			t.Errorf("remove what is large: %v", err)
		}
	}()
	// One object is too large from the beginning, for the snapshot.
	all := world.Collection("configmaps", l.Namespace)
	create := func(name string, size int) {
		cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": world.Meta(name), "data": obj{
			"text": world.Noise(size),
		}}
		if _, err := p.API.Create(t.Context(), all, cm); err != nil {
			t.Fatal(err)
		}
	}
	create("first", 400<<10)
	l.There, l.Reader = true, l.reader(p)
	l.begin(t, p)
	// Each part is given up at least once, regardless of the random writers.
	for name, change := range map[string]struct {
		size int
		data obj
	}{
		"patch":     {46 << 10, obj{"text": world.Noise(46 << 10)}},
		"before":    {100 << 10, obj{"step": "1"}},
		"reference": {300 << 10, obj{"step": "1"}},
	} {
		create(name, change.size)
		if _, err := p.API.MergePatch(t.Context(), all+"/"+name, obj{"data": change.data}); err != nil {
			t.Fatal(err)
		}
	}
	var steps atomic.Int64
	ws := &world.Writers{API: p.API, Done: func() bool { return steps.Load() >= int64(l.Steps) }}
	each := func(step func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			steps.Add(1)
			return step(ctx)
		}
	}
	ws.Run(t,
		each(ws.Writer("large0", l.Namespace, 6).Large), each(ws.Writer("large1", l.Namespace, 6).Large),
		ws.Writer("small", l.Namespace, 10).ConfigMaps, ws.Writer("widget", l.Namespace, 10).Widgets,
	)
	return l.judge(t, p)
}

func (l *largeRun) reader(p *world.Plane) *oracle.Reader {
	r := p.Reader()
	r.MayTruncate = true
	if l.Reader != nil {
		r.Whole = l.Reader.Whole
	}
	return r
}

// givenUp returns how many events were sent without a part, by that part, from the agent's metrics.
func givenUp(t testing.TB, a *world.Agent) map[string]float64 {
	t.Helper()
	counts := make(map[string]float64)
	for _, what := range []string{"patch", "before", "reference"} {
		n, err := a.Metric(t.Context(), "kubecdc_publish_oversize_events_total", `given_up="`+what+`"`)
		if err == nil { // Otherwise there was none.
			counts[what] = n
		}
	}
	return counts
}

// TestLarge sends objects of up to 900 KiB over buses that take much less, with each way to do so.
func TestLarge(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.SharedPlane(t)
	const limit = 128 << 10
	steps := size(60, 60, 160)
	small := func(t *testing.T) *world.Bus {
		o := world.BusOptions(server.RANDOM_PORT, t.TempDir())
		// The event, and the room that the agent reserves for headers.
		o.MaxPayload = limit + 16<<10
		return &world.Bus{URL: world.StartServer(t, o).ClientURL()}
	}
	event := fmt.Sprintf("event: {maxBytes: %d}\n", limit)

	t.Run("nats, object store", func(t *testing.T) {
		b := small(t)
		store := objectStore{b: b, t: t}
		run := &largeRun{Steps: steps, busTruth: busTruth{
			To: b, Namespace: "large-store", Extra: event, Reader: &oracle.Reader{Whole: store.get},
		}}
		got := run.run(t, p)
		gave := givenUp(t, run.agent)
		if gave["patch"] == 0 || gave["before"] == 0 || gave["reference"] == 0 {
			t.Errorf("given up: %v, want some of each", gave)
		}
		if len(run.stream.DeadObjects()) > 0 {
			oracle.Fail(t, "%d dead letters, where all can be put aside", len(run.stream.DeadObjects()))
		}
		t.Logf("given up: %v; %d records without before", gave, got.Shortened)
	})
	t.Run("nats, dead letters", func(t *testing.T) {
		run := &largeRun{Steps: steps, busTruth: busTruth{
			To: small(t), Namespace: "large-dead", Letters: true,
			Extra: event + "claimCheck: {}\noversize: [patch, before]",
		}}
		run.run(t, p)
		if len(run.stream.DeadObjects()) == 0 {
			t.Error("no dead letters, where much is too large and cannot be put aside")
		}
		for _, l := range run.stream.Dead() {
			if !strings.HasPrefix(l.Why, "too_large") {
				t.Errorf("reason %q", l.Why)
			}
		}
		t.Logf("given up: %v; %d dead letters", givenUp(t, run.agent), len(run.stream.DeadObjects()))
	})
	t.Run("http, directory", func(t *testing.T) {
		h := world.StartReceiver(t, nil)
		h.Limit = limit // The agent does not know this limit.
		dir := t.TempDir()
		run := &largeRun{Steps: steps, busTruth: busTruth{
			To: h, Namespace: "large-http", Reader: &oracle.Reader{Whole: readClaim},
			Extra: fmt.Sprintf("claimCheck: {directory: {path: %q}}\n", dir),
		}}
		run.run(t, p)
		gave := givenUp(t, run.agent)
		if gave["patch"] == 0 || gave["before"] == 0 || gave["reference"] == 0 {
			t.Errorf("given up: %v, want some of each", gave)
		}
		t.Logf("given up: %v", gave)
	})
	t.Run("http, dead letters", func(t *testing.T) {
		h, dead := world.StartReceiver(t, nil), world.StartReceiver(t, nil)
		h.Limit = limit
		run := &largeRun{Steps: steps, busTruth: busTruth{
			To: &withLetters{Receiver: h, dead: dead}, Namespace: "large-http-dead", Letters: true,
			Extra: fmt.Sprintf("deadLetter: {url: %q}\n", dead.URL),
		}}
		run.run(t, p)
		if len(run.stream.DeadObjects()) == 0 {
			t.Error("no dead letters, where much is too large and cannot be put aside")
		}
		t.Logf("given up: %v; %d dead letters", givenUp(t, run.agent), len(run.stream.DeadObjects()))
	})
}

// TestKafkaLarge is TestLarge for a topic whose limit is lower than the size of events.
func TestKafkaLarge(t *testing.T) {
	slow(t)
	t.Parallel()
	kafka.Require(t)
	p := world.SharedPlane(t)
	const limit = 128 << 10
	event := fmt.Sprintf("event: {maxBytes: %d}\n", limit)
	start := func(t *testing.T) *world.Kafka {
		k := world.StartKafka(t, kafka.Options{})
		k.Settings = fmt.Sprintf("max.message.bytes: %q", fmt.Sprint(limit+64<<10))
		return k
	}
	steps := size(60, 60, 160)
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		run := &largeRun{Steps: steps, busTruth: busTruth{
			To: start(t), Namespace: "large-kafka", Reader: &oracle.Reader{Whole: readClaim},
			Extra: event + fmt.Sprintf("claimCheck: {directory: {path: %q}}\n", t.TempDir()),
		}}
		run.run(t, p)
		gave := givenUp(t, run.agent)
		if gave["patch"] == 0 || gave["before"] == 0 || gave["reference"] == 0 {
			t.Errorf("given up: %v, want some of each", gave)
		}
		t.Logf("given up: %v", gave)
	})
	t.Run("dead letters", func(t *testing.T) {
		t.Parallel()
		run := &largeRun{Steps: steps, busTruth: busTruth{
			To: start(t), Namespace: "large-kafka-dead", Letters: true, Extra: event,
		}}
		run.run(t, p)
		if len(run.stream.DeadObjects()) == 0 {
			t.Error("no dead letters, where much is too large and cannot be put aside")
		}
		t.Logf("given up: %v; %d dead letters", givenUp(t, run.agent), len(run.stream.DeadObjects()))
	})
}

// objectStore reads events that were stored in the object store, with the NATS client.
type objectStore struct {
	b  *world.Bus
	t  testing.TB
	js jetstream.JetStream
}

func (o *objectStore) get(ref string) ([]byte, error) {
	at, err := url.Parse(ref)
	if err != nil {
		return nil, err
	}
	if at.Scheme != "nats-obj" {
		return nil, fmt.Errorf("the scheme is not nats-obj")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if o.js == nil {
		conn, err := nats.Connect(o.b.URL)
		if err != nil {
			return nil, err
		}
		o.t.Cleanup(conn.Close)
		o.js, err = jetstream.New(conn)
		if err != nil {
			return nil, err
		}
	}
	store, err := o.js.ObjectStore(ctx, at.Host)
	if err != nil {
		return nil, err
	}
	return store.GetBytes(ctx, strings.TrimPrefix(at.Path, "/"))
}

// readClaim reads events that were stored as files.
func readClaim(ref string) ([]byte, error) {
	path, ok := strings.CutPrefix(ref, "file://")
	if !ok {
		return nil, errors.New("the scheme is not file")
	}
	return os.ReadFile(path)
}

// withLetters is a receiver with a second one for its dead letters.
type withLetters struct {
	*world.Receiver
	dead *world.Receiver
}

func (w *withLetters) Read(t testing.TB, r *oracle.Reader) *world.Stream {
	t.Helper()
	s := w.Receiver.Read(t, r)
	own := *r // Not safe for concurrent use.
	s.Run(t, func(ctx context.Context) error {
		return w.dead.Each(ctx, func(m oracle.Message) { s.Bury(own.ReadLetter(m)) })
	})
	return s
}
