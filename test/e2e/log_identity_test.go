package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// recreations returns how often the log is deleted and created again under load.
func recreations(t testing.TB) int { return int(world.EnvUint(t, "RECREATIONS", 2)) }

// logWorld is an agent whose log is lost, with writers that write continuously.
type logWorld struct {
	*world.Plane
	to        world.Destination
	namespace string
	agent     *world.Agent
	stop      func() // stops the writers
}

// beginLogWorld starts an agent after some objects exist, and then writers.
func beginLogWorld(t *testing.T, to world.Destination, namespace, extra string) *logWorld {
	t.Helper()
	p := world.SharedPlane(t)
	w := &logWorld{Plane: p, to: to, namespace: namespace}
	p.NewNamespace(t, namespace)
	p.MakeMany(t, namespace, "before", 300)
	w.agent = world.StartAgent(t, p, world.AgentConfig{
		Bus:   to,
		Extra: extra,
		Watch: fmt.Sprintf("  - resources: [%s]\n    namespaces: [%s]", strings.Join(busResources, ", "), namespace),
	})
	sw := &world.SteadyWriters{Every: 20 * time.Millisecond, APIs: []*world.API{p.API}}
	w.stop = sw.Run(t,
		func(ws *world.Writers) func(context.Context) error { return ws.Writer("cm", namespace, 25).ConfigMaps },
		func(ws *world.Writers) func(context.Context) error { return ws.Writer("secret", namespace, 15).Secrets },
		func(ws *world.Writers) func(context.Context) error { return ws.Writer("widget", namespace, 15).Widgets },
	)
	return w
}

// logVerdict is the verdict on a log that replaced another one.
type logVerdict struct {
	oracle.Verdict
	Early int // Records before the gap of their scope.
}

// errNotYet means that the log may still get records.
var errNotYet = errors.New("not yet")

// judgeNew reads a log that has just replaced another one from its first record, and compares it
// with all of etcd's history. Every revision must be on the log or in a gap, and the final state of
// each object must be on the log. Each scope must have a gap followed by a snapshot. gaps is the
// number of gaps of each scope: above 1 if the log is a copy of one that had itself replaced
// another.
func (w *logWorld) judgeNew(t *testing.T, gaps int) logVerdict {
	t.Helper()
	s := w.to.Read(t, w.Reader())
	var got logVerdict
	var until uint64
	err := wait.For(t.Context(), 30*time.Second, func() error {
		records := s.All()
		if err := retold(records, s.Lanes, gaps); err != nil {
			return err
		}
		if until == 0 {
			until = w.Now(t)
		}
		got = w.judgeLog(s, records, until)
		if len(got.Faults) > 0 {
			return fmt.Errorf("%w: %d faults, %v, the first: %s", errNotYet, len(got.Faults),
				oracle.FaultKinds(got.Faults), got.Faults[0])
		}
		return nil
	})
	if err != nil {
		if len(got.Faults) > 0 {
			world.Report(t, w.Plane, s, got.Faults)
			w.explain(t, s.All(), until, got.Faults)
		}
		t.Fatalf("the new log (%s): %v", countOps(s.All()), err)
	}
	return got
}

// explain logs the records of the objects of some faults, and of their scopes, together with etcd's
// versions.
func (w *logWorld) explain(t *testing.T, records []oracle.Record, until uint64, faults []oracle.Fault) {
	t.Helper()
	for _, f := range faults[:min(2, len(faults))] {
		var b strings.Builder
		fmt.Fprintf(&b, "%s (until %d)\n", f, until)
		for _, ver := range w.History.Of(f.Key.Resource)[f.Key] {
			if ver.Rev+300 > f.Rev && ver.Rev <= until {
				fmt.Fprintf(&b, "  etcd: revision %d, deleted %t\n", ver.Rev, ver.Deleted)
			}
		}
		for i := range records {
			switch rec := &records[i]; {
			case rec.Stream != "" && rec.Stream != oracle.Progress && rec.Scope.Has(f.Key):
				fmt.Fprintf(&b, "  log %d/%d: %s %s at %d, %d to %d\n", rec.Lane, rec.Position, rec.Stream,
					rec.Snapshot, rec.Rev, rec.From, rec.To)
			case rec.Key == f.Key && rec.Stream == "" && rec.Rev+300 > f.Rev && rec.Rev <= until:
				fmt.Fprintf(&b, "  log %d/%d: %s %d, %s\n", rec.Lane, rec.Position, rec.Op, rec.Rev, rec.ID)
			}
		}
		t.Log(b.String())
	}
}

// retold returns nil if each scope has that many gaps for a lost checkpoint, followed by a
// completed snapshot, in every lane.
func retold(records []oracle.Record, count func() int, gaps int) error {
	type mark struct {
		gaps               int
		started, completed bool
	}
	marks := map[string]*mark{}
	lanes := 1
	if count != nil {
		lanes = count()
	}
	for i := range records {
		rec := &records[i]
		if rec.Stream == "" {
			continue
		}
		id := fmt.Sprint(rec.Scope.Text, rec.Lane)
		m := marks[id]
		if m == nil {
			m = &mark{}
			marks[id] = m
		}
		switch {
		case rec.Stream == oracle.Gap && rec.Reason == oracle.CheckpointLost:
			*m = mark{gaps: m.gaps + 1}
		case rec.Stream == oracle.SnapshotStarted && m.gaps >= gaps:
			m.started, m.completed = true, false
		case rec.Stream == oracle.SnapshotCompleted && m.started:
			m.completed = true
		}
	}
	for lane := range lanes {
		for _, resource := range busResources {
			ok := false
			for id, m := range marks {
				ok = ok || strings.HasPrefix(id, resource) && strings.HasSuffix(id, fmt.Sprint(lane)) && m.completed
			}
			if !ok {
				return fmt.Errorf("%w: no gap with a snapshot of %s in lane %d", errNotYet, resource, lane)
			}
		}
	}
	return nil
}

// judgeLog compares the records of a new log with the history up to a revision.
func (w *logWorld) judgeLog(s *world.Stream, records []oracle.Record, until uint64) logVerdict {
	// A snapshot that was in progress when the log was lost is not judged: the agent abandons it.
	begun := map[string]bool{}
	for i := range records {
		if records[i].Stream == oracle.SnapshotStarted {
			begun[records[i].Snapshot] = true
		}
	}
	records = slices.DeleteFunc(slices.Clone(records), func(rec oracle.Record) bool {
		return rec.Snapshot != "" && !begun[rec.Snapshot]
	})
	all := oracle.SnapshotsOf(records, 0)
	v := oracle.View{
		Until: until,
		// All revisions count, from the first. Revisions that are not on the log must be in a gap.
		Snapshot: func(key oracle.ObjectKey) (oracle.Snapshot, bool) {
			return oracle.Snapshot{}, key.Namespace == w.namespace
		},
		Later: func(key oracle.ObjectKey) []oracle.Snapshot {
			var list []oracle.Snapshot
			for _, b := range all {
				if b.Has(key) {
					list = append(list, b.Snapshot)
				}
			}
			return list
		},
	}
	got := logVerdict{Verdict: s.Judge(oracle.Expect(w.History.Of(busResources...), v), records, v)}
	gaps := map[string]uint64{} // The position of the last one, by resource and lane.
	at := func(resource string, lane int) string { return fmt.Sprint(resource, " ", lane) }
	for i := range records {
		if rec := &records[i]; rec.Stream == oracle.Gap {
			gaps[at(rec.Scope.Resource, rec.Lane)] = rec.Position
		}
	}
	for i := range records {
		if rec := &records[i]; rec.Stream == "" && rec.Position < gaps[at(rec.Key.Resource, rec.Lane)] {
			got.Early++
		}
	}
	// Records that the log acknowledged before the agent detected the replacement may lack their
	// predecessors.
	got.Faults = slices.DeleteFunc(got.Faults, func(f oracle.Fault) bool {
		return f.Kind == "chain" && f.Position < gaps[at(f.Key.Resource, f.Lane)]
	})
	return got
}

// TestStreamIsRecreated deletes the stream under load, again and again. Either the agent or the
// operator creates it again.
//
//	RECREATIONS=50 go test -v -run 'TestStreamIsRecreated|TestTopicIsRecreated' ./e2e
func TestStreamIsRecreated(t *testing.T) {
	slow(t)
	t.Parallel()
	b := world.StartBus(t)
	w := beginLogWorld(t, b, "stream-recreated", "")
	js, err := jetstream.New(b.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	b.Read(t, w.Reader()).Completed(t, busResources...)
	w.recreate(t, func(t *testing.T, n int) {
		old, err := js.Stream(t.Context(), world.StreamName)
		if err != nil {
			t.Fatal(err)
		}
		if err := js.DeleteStream(t.Context(), world.StreamName); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			_, err := js.CreateStream(t.Context(), old.CachedInfo().Config)
			var refused *jetstream.APIError
			busy := errors.As(err, &refused) && refused.ErrorCode == storeFailed
			if err != nil && !busy && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				t.Fatal(err)
			}
		}
	})
}

// storeFailed is the server's error code (JSStreamCreateErrF) while it still removes the files of
// the deleted stream. The agent then creates the stream.
const storeFailed = 10049

// TestTopicIsRecreated deletes the topic under load and creates it again, again and again.
func TestTopicIsRecreated(t *testing.T) {
	slow(t)
	t.Parallel()
	k := world.StartKafka(t, kafka.Options{Nodes: world.KafkaNodes(t)})
	w := beginLogWorld(t, k, "topic-recreated", "")
	k.Read(t, w.Reader()).Completed(t, busResources...)
	w.recreate(t, func(t *testing.T, _ int) {
		deleteTopic(t, k)
		if err := k.CreateTopic(t.Context(), k.Topic, k.PartitionCount, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// deleteTopic deletes the topic.
func deleteTopic(t *testing.T, k *world.Kafka) {
	t.Helper()
	transport := new(kafkago.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	client := &kafkago.Client{Addr: kafkago.TCP(k.Inside()...), Timeout: 10 * time.Second, Transport: transport}
	res, err := client.DeleteTopics(t.Context(), &kafkago.DeleteTopicsRequest{Topics: []string{k.Topic}})
	if err == nil {
		err = res.Errors[k.Topic]
	}
	if err != nil {
		t.Fatal(err)
	}
}

// recreate replaces the log again and again, and judges each new one.
func (w *logWorld) recreate(t *testing.T, replace func(t *testing.T, n int)) {
	t.Helper()
	var records, inGaps, early int
	begin := time.Now()
	n := recreations(t)
	for i := range n {
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			replace(t, i)
			got := w.judgeNew(t, 1)
			records += got.Records
			inGaps += got.InGaps
			early += got.Early
			if got.Early > 0 {
				t.Logf("%d records before the gap", got.Early)
			}
		})
		if !ok {
			break
		}
	}
	w.stop()
	if t.Failed() {
		return
	}
	t.Logf(
		"%d recreations in %s: %d records on the new logs, %d of them before a gap; %d revisions in gaps; none missing",
		n, time.Since(begin).Round(time.Second), records, early, inGaps)
}

// between changes the log while the agent is down, and judges the log that the next run finds.
func (w *logWorld) between(t *testing.T, crash bool, do func()) {
	t.Helper()
	if crash {
		w.agent.Crash()
	} else if err := w.agent.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	do()
	w.agent.Again(t)
	got := w.judgeNew(t, 1)
	w.stop()
	t.Logf("%d records on the log, %d of them before the gap; %d revisions in gaps", got.Records, got.Early, got.InGaps)
}

// TestStreamIsRecreatedWhileDown deletes the stream between two runs.
func TestStreamIsRecreatedWhileDown(t *testing.T) {
	slow(t)
	t.Parallel()
	for name, crash := range map[string]bool{"stopped": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := world.StartBus(t)
			w := beginLogWorld(t, b, "stream-down-"+name, "")
			js, err := jetstream.New(b.Connect(t))
			if err != nil {
				t.Fatal(err)
			}
			b.Read(t, w.Reader()).Completed(t, busResources...)
			savedLogs(t, w.agent)
			w.between(t, crash, func() {
				if err := js.DeleteStream(t.Context(), world.StreamName); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// savedLogs waits until the checkpoint has the identity of a log.
func savedLogs(t *testing.T, a *world.Agent) {
	t.Helper()
	wait.Eventually(t, 30*time.Second, func() error {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(a.Log), "checkpoint.json"))
		if err == nil && !(strings.Contains(string(text), `"logs"`) && strings.Contains(string(text), `"acked"`)) {
			err = errors.New("the checkpoint has no log yet")
		}
		return err
	})
}

// TestStreamIsRestored restores an older copy of the stream's files on its server, with the same
// creation time.
func TestStreamIsRestored(t *testing.T) {
	slow(t)
	t.Parallel()
	b := world.StartBusProcess(t)
	w := beginLogWorld(t, b, "stream-restored", "")
	s := b.Read(t, w.Reader())
	s.Completed(t, busResources...)
	for i, name := range []string{"while the agent is down", "while it runs"} {
		t.Run(name, func(t *testing.T) {
			running, n := i == 1, len(s.All())
			b.Kill()
			backup := t.TempDir()
			if err := os.CopyFS(backup, os.DirFS(b.Dir)); err != nil {
				t.Fatal(err)
			}
			b.Start(t)
			wait.Eventually(t, 5*time.Minute, func() error { // the writers share the machine with other tests
				if len(s.All()) < n+500 {
					return errors.New("too few records behind the backup")
				}
				return nil
			})
			savedLogs(t, w.agent)
			if !running {
				if err := w.agent.Stop(time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			b.Kill()
			if err := os.RemoveAll(b.Dir); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(b.Dir, os.DirFS(backup)); err != nil {
				t.Fatal(err)
			}
			b.Start(t)
			if !running {
				w.agent.Again(t)
			}
			got := w.judgeNew(t, i+1)
			t.Logf("%d records on the log, %d of them before the gap; %d revisions in gaps", got.Records, got.Early,
				got.InGaps)
		})
	}
	w.stop()
}

// TestKafkaIsExchanged replaces the Kafka cluster at an address by another one, as after a
// disaster.
func TestKafkaIsExchanged(t *testing.T) {
	slow(t)
	t.Parallel()
	kafka.Require(t)
	f := startForwarder(t)
	at := func(backend *string) func(int, kafka.Listener, string) (string, error) {
		return func(_ int, l kafka.Listener, addr string) (string, error) {
			if l != kafka.Plain {
				return "", nil
			}
			*backend = addr
			return f.listener.Addr().String(), nil
		}
	}
	var first, second string
	k := world.StartKafka(t, kafka.Options{Advertise: at(&first)})
	f.to(first)
	w := beginLogWorld(t, k, "kafka-exchanged", "")
	k.Read(t, w.Reader()).Completed(t, busResources...)
	savedLogs(t, w.agent)
	other := world.StartKafka(t, kafka.Options{Advertise: at(&second), ClusterID: "a3ViZWNkYy10ZXN0LTAwMQ"})
	w.to = other
	w.between(t, false, func() {
		k.Stop()
		f.to(second)
	})
	if err := w.agent.Stop(time.Minute); err != nil {
		// The second cluster ends before the processes that were started earlier.
		t.Errorf("agent, asked to stop: %v", err)
	}
}

// forwarder forwards one address to one backend at a time.
type forwarder struct {
	listener net.Listener
	backend  atomic.Pointer[string]
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
}

func startForwarder(t *testing.T) *forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{listener: l, conns: map[net.Conn]struct{}{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.forward(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.cut()
		wg.Wait()
	})
	return f
}

func (f *forwarder) forward(client net.Conn) {
	defer client.Close()
	backend := f.backend.Load()
	if backend == nil {
		return
	}
	server, err := net.Dial("tcp", *backend)
	if err != nil {
		return
	}
	defer server.Close()
	f.mu.Lock()
	f.conns[client], f.conns[server] = struct{}{}, struct{}{}
	f.mu.Unlock()
	var wg sync.WaitGroup
	for a, b := range map[net.Conn]net.Conn{client: server, server: client} {
		wg.Go(func() {
			_, _ = io.Copy(a, b)
			_, _ = a.Close(), b.Close()
		})
	}
	wg.Wait()
	f.mu.Lock()
	delete(f.conns, client)
	delete(f.conns, server)
	f.mu.Unlock()
}

// to directs new connections to a backend, and closes the existing ones.
func (f *forwarder) to(backend string) {
	f.backend.Store(&backend)
	f.cut()
}

func (f *forwarder) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range slices.Collect(maps.Keys(f.conns)) {
		_ = c.Close()
	}
}
