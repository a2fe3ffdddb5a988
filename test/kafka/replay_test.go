package kafka_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// madeRecord is a record of an hour ago: two snapshots, a gap in which changes were missed, objects
// that are deleted and created again.
type madeRecord struct {
	lines    bytes.Buffer
	now      time.Time
	rv, uids int
	live     map[string]*recorded // by resource and name
}

type recorded struct {
	resource, name, uid string
	rv                  int
}

func (r *madeRecord) event(resource, id, typ string, extra, data map[string]any) {
	e := map[string]any{
		"specversion": "1.0",
		"source":      "/kubernetes/prod",
		"type":        consume.TypePrefix + typ,
		"id":          resource + "/" + id,
		"cluster":     "prod",
		"clusteruid":  "c",
		"apiversion":  "v1",
		"kind":        "Kind",
		"resource":    resource,
		"time":        r.now.Format(time.RFC3339Nano),
		"subject":     "/api/v1/" + resource,
		"data":        data,
	}
	for k, v := range extra {
		e[k] = v
	}
	raw, _ := json.Marshal(e) // maps of strings and numbers
	r.lines.Write(append(raw, '\n'))
}

func (r *madeRecord) object(o *recorded, op consume.Op, verb, id string, data map[string]any) {
	data["op"] = op
	data["resourceVersion"] = fmt.Sprint(o.rv)
	data["after"] = nil
	if op != consume.Deleted {
		data["after"] = map[string]any{"kind": "Kind", "metadata": map[string]any{
			"name":            o.name,
			"namespace":       "shop",
			"uid":             o.uid,
			"resourceVersion": fmt.Sprint(o.rv),
		}}
	}
	r.event(o.resource, o.uid+"/"+id, "object."+verb, map[string]any{
		"namespace":       "shop",
		"name":            o.name,
		"uid":             o.uid,
		"op":              op,
		"resourceversion": fmt.Sprint(o.rv),
		"sequence":        fmt.Sprintf("%020d", o.rv),
		"partitionkey":    "prod/core/" + o.resource + "/shop/" + o.name,
	}, data)
}

func (r *madeRecord) stream(resource, id, typ string, data map[string]any) {
	r.event(resource, id, typ, map[string]any{"scope": resource, "partitionkey": "prod/" + resource}, data)
}

func (r *madeRecord) snapshot(resource, id string) {
	bound := map[string]any{"snapshot": id, "resourceVersion": fmt.Sprint(r.rv), "objects": 0}
	r.stream(resource, id+"/started", "snapshot.started", bound)
	for i := range 40 {
		if o := r.live[resource+fmt.Sprint("/o", i)]; o != nil {
			r.object(o, consume.Read, "read", fmt.Sprintf("%d/r/%s", o.rv, id), map[string]any{"snapshot": id})
		}
	}
	r.stream(resource, id+"/completed", "snapshot.completed", bound)
}

func makeRecord() *madeRecord {
	r := &madeRecord{
		now: time.Now().Add(-time.Hour).UTC().Truncate(time.Second), rv: 1000, live: map[string]*recorded{},
	}
	resources := []string{"configmaps", "pods"}
	for i := range 3000 {
		r.now = r.now.Add(40 * time.Millisecond)
		resource := resources[i%2]
		if i%1500 < 2 { // half of the objects were deleted while the agent was away
			if i > 2 {
				for k := range 20 {
					delete(r.live, resource+fmt.Sprint("/o", 2*k))
				}
				r.stream(resource, fmt.Sprintf("gap/%d-%d", r.rv-1, r.rv), "gap", map[string]any{
					"reason":    "compacted",
					"recovered": false,
				})
			}
			r.snapshot(resource, fmt.Sprint("s", i))
		}
		if i%50 < 2 {
			r.stream(resource, fmt.Sprintf("started/%d/%d", r.rv, r.now.UnixNano()), "scope.started", map[string]any{
				"resourceVersion": fmt.Sprint(r.rv),
			})
		}
		r.rv++
		key := resource + fmt.Sprint("/o", i*7%40)
		o := r.live[key]
		switch {
		case o == nil:
			r.uids++
			o = &recorded{
				resource: resource,
				name:     strings.TrimPrefix(key, resource+"/"),
				uid:      fmt.Sprint("u", r.uids),
				rv:       r.rv,
			}
			r.live[key] = o
			r.object(o, consume.Created, "created", fmt.Sprint(o.rv), map[string]any{})
		case i%5 == 0:
			o.rv = r.rv
			delete(r.live, key)
			r.object(o, consume.Deleted, "deleted", "d", map[string]any{})
		default:
			o.rv = r.rv
			r.object(o, consume.Updated, "updated", fmt.Sprint(o.rv), map[string]any{})
		}
	}
	return r
}

// judge is a consumer: it keeps a table, and records ids and the order of first copies.
type judge struct {
	trackers map[consume.Log]*consume.Tracker
	table    map[string]string // uid to resourceVersion
	ids      map[string]bool
	last     map[string]string // uid to the highest sequence
	wrong    []string
}

func (j *judge) take(e *consume.Event) {
	t := j.trackers[e.Position.Log]
	if t == nil {
		t = &consume.Tracker{}
		j.trackers[e.Position.Log] = t
	}
	v := t.Apply(e)
	for _, o := range v.Gone {
		delete(j.table, o.UID)
	}
	if e.Data != nil && !j.ids[e.ID] {
		if e.Sequence < j.last[e.UID] {
			j.wrong = append(j.wrong, e.ID)
		}
		j.last[e.UID] = e.Sequence
	}
	j.ids[e.ID] = true
	switch {
	case !v.News || e.Data == nil:
	case e.Op == consume.Deleted:
		delete(j.table, e.UID)
	default:
		j.table[e.UID] = e.ResourceVersion
	}
}

// A table that a consumer builds from a replay is the state at its end, from each kind of source
// and on each kind of target. This holds even if the replay is killed several times on the way.
// Every event of the span is there, and first copies are in order per object.
func TestReplayKilledOnTheWay(t *testing.T) {
	t.Parallel()
	// A fetch returns one batch of a partition, so a replay is at another position in each
	// partition when it is killed.
	c := kafka.Start(t, kafka.Options{Properties: map[string]string{"fetch.max.bytes": "1024"}})
	const partitions = 3
	for _, topic := range []string{"copy.prod", "from.prod", "record.prod"} {
		if err := c.CreateTopic(t.Context(), topic, partitions, nil); err != nil {
			t.Fatal(err)
		}
	}
	received := &receivedLines{}
	receiver := httptest.NewServer(received)
	t.Cleanup(receiver.Close)

	r := makeRecord()
	source := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(source, r.lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	from, to := r.now.Add(-100*time.Second), r.now.Add(-20*time.Second)
	args := []string{"replay", "--from", from.Format(time.RFC3339Nano), "--to", to.Format(time.RFC3339Nano)}
	want := stateAt(t, source, to)
	address := "kafka://" + c.Inside()[0]
	fill := func(target string) {
		replayed(t.Context(), t, "replay", "--from", r.now.Add(-115*time.Second).Format(time.RFC3339Nano), "--bus",
			"file:"+source, "--target", target)
	}
	stream, copied := startNATS(t), startNATS(t)
	fill(stream)
	putRecord(t, c, "record.prod", partitions, r)
	t.Run("killed", func(t *testing.T) {
		dir := t.TempDir()
		file := func(name string) (string, consume.Source) {
			path := filepath.Join(dir, name)
			return "file:" + path, &fromfile.File{Path: path}
		}
		for name, run := range map[string]struct {
			bus    string
			logs   int // of the bus
			kills  int
			target func() (url string, events consume.Source)
		}{
			"file to file": {"file:" + source, 1, 10, func() (string, consume.Source) {
				return file("file.jsonl")
			}},
			"JetStream to file": {stream, 1, 10, func() (string, consume.Source) { return file("jetstream.jsonl") }},
			"Kafka to file": {address + "/record.prod", partitions, 5, func() (string, consume.Source) {
				return file("kafka.jsonl")
			}},
			"file to JetStream": {"file:" + source, 1, 10, func() (string, consume.Source) {
				return copied, &fromnats.JetStream{URL: copied}
			}},
			"file to Kafka": {"file:" + source, 1, 10, func() (string, consume.Source) {
				return address + "/copy.prod", &fromkafka.Kafka{Brokers: c.Inside(), Topics: []string{"copy.prod"}}
			}},
			"file to HTTP": {"file:" + source, 1, 10, func() (string, consume.Source) {
				return receiver.URL, received
			}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				target, events := run.target()
				position := filepath.Join(t.TempDir(), "position")
				command := append(slices.Clone(args), "--bus", run.bus, "--target", target, "--position", position,
					"--speed")
				for i := range run.kills {
					killReplay(t, position, time.Duration(i)*30*time.Millisecond, append(slices.Clone(command), "2")...)
				}
				if at, done, err := positionIn(position); err != nil || len(at) != run.logs || done {
					t.Errorf(
						"before the last run, the position file has %v, complete: %v: %v; want a position in %d logs",
						at, done, err, run.logs)
				}
				replayed(t.Context(), t, append(slices.Clone(command), "max")...)
				judgeReplay(t, events, r, from, to, want)
			})
		}
	})
	t.Run("stdout", func(t *testing.T) {
		out := replayed(t.Context(), t, append(slices.Clone(args), "--bus", "file:"+source, "--target", "stdout:")...)
		judgeReplay(t, &receivedLines{text: out}, r, from, to, want)
	})
	// Large batches of partitions: these are read at very different speeds.
	fill(address + "/from.prod")
	again := filepath.Join(t.TempDir(), "again.jsonl")
	replayed(t.Context(), t, append(slices.Clone(args), "--bus", address+"/from.prod", "--target", "file:"+again)...)
	judgeReplay(t, &fromfile.File{Path: again}, r, from, to, want)

	into := append(slices.Clone(args), "--bus", address+"/from.prod", "--target", address+"/from.prod")
	out, err := exec.CommandContext(t.Context(), build.SharedAgent(t), into...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--target is a log of the record itself") {
		t.Errorf("into its source: %v: %s", err, out)
	}
}

// startNATS starts a JetStream and returns its URL.
func startNATS(tb testing.TB) string {
	tb.Helper()
	s, err := server.NewServer(&server.Options{
		Host:      "127.0.0.1",
		Port:      -1,
		JetStream: true,
		StoreDir:  tb.TempDir(),
		NoLog:     true,
		NoSigs:    true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		tb.Fatal("NATS does not come up")
	}
	return s.ClientURL()
}

// putRecord writes a record to a topic: events about the stream to each partition, others to that
// of their object. A batch has the events of two seconds, so partitions are read at about the same
// speed.
func putRecord(t *testing.T, c *kafka.Cluster, topic string, partitions int, r *madeRecord) {
	t.Helper()
	var all []int
	var conns []*kafkago.Conn
	for p := range partitions {
		conn, err := kafkago.DialLeader(t.Context(), "tcp", c.Inside()[0], topic, p)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all, conns = append(all, p), append(conns, conn)
	}
	for batch := range slices.Chunk(bytes.Split(bytes.TrimSpace(r.lines.Bytes()), []byte("\n")), 50) {
		messages := make([][]kafkago.Message, partitions)
		for _, line := range batch {
			e, err := consume.Parse(line)
			if err != nil {
				t.Fatal(err)
			}
			m := kafkago.Message{
				Key: []byte(e.PartitionKey), Value: line,
				Headers: []kafkago.Header{{
					Key:   "content-type",
					Value: []byte("application/cloudevents+json; charset=UTF-8"),
				}},
			}
			to := all
			if e.Stream == nil {
				to = []int{kafkago.Murmur2Balancer{}.Balance(m, all...)}
			}
			for _, p := range to {
				messages[p] = append(messages[p], m)
			}
		}
		for p, ms := range messages {
			if len(ms) == 0 {
				continue
			}
			if _, err := conns[p].WriteMessages(ms...); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// replayed runs a replay to its end, or kills it when ctx ends. It returns the standard output.
func replayed(ctx context.Context, t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(ctx, build.SharedAgent(t), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		t.Fatalf("%q: %v\n%s", args, err, &stderr)
	default:
		t.Log(lastLine(stderr.String()))
	}
	return out
}

// killReplay runs a replay and kills it after it has saved another position in the record, or after
// five seconds, and a delay.
func killReplay(t *testing.T, position string, delay time.Duration, args ...string) {
	t.Helper()
	before, _, err := positionIn(position)
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		defer kill()
		_ = wait.For(ctx, 5*time.Second, func() error { // the test checks the last position
			if at, _, err := positionIn(position); err != nil || maps.Equal(at, before) {
				return errors.New("no other position")
			}
			return nil
		})
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	})
	defer watching.Wait()
	defer kill()
	replayed(ctx, t, args...)
}

// positionIn returns the positions in a position file, and whether the replay is complete.
func positionIn(file string) (at map[consume.Log]uint64, complete bool, err error) {
	var saved struct {
		Logs []consume.Position
		Done bool
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &saved)
	}
	at = map[consume.Log]uint64{}
	for _, p := range saved.Logs {
		at[p.Log] = p.Next
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return at, saved.Done, err
}

func lastLine(text string) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return all[len(all)-1]
}

func stateAt(t *testing.T, file string, at time.Time) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), build.SharedAgent(t), "get", "all", "--at",
		at.Format(time.RFC3339Nano), "--bus", "file:"+file, "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Metadata struct{ UID, ResourceVersion string }
		}
	}
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	for _, o := range list.Items {
		table[o.Metadata.UID] = o.Metadata.ResourceVersion
	}
	if len(table) < 10 {
		t.Fatalf("%d objects at the end: too few", len(table))
	}
	return table
}

func judgeReplay(t *testing.T, events consume.Source, r *madeRecord, from, to time.Time, want map[string]string) {
	t.Helper()
	j := &judge{
		trackers: map[consume.Log]*consume.Tracker{},
		table:    map[string]string{},
		ids:      map[string]bool{},
		last:     map[string]string{},
	}
	reader, err := events.Read(t.Context(), consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for {
		e, err := reader.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		j.take(e)
	}
	if diff := cmp.Diff(want, j.table); diff != "" {
		oracle.Fail(t, "table of a consumer (-state +table):\n%s", diff)
	}
	if len(j.wrong) > 0 {
		oracle.Fail(t, "out of order: %v", j.wrong)
	}
	missing, span := 0, 0
	all := fromfile.NewLines("", bytes.NewReader(r.lines.Bytes()), consume.Query{})
	for e, err := all.Next(t.Context()); err == nil; e, err = all.Next(t.Context()) {
		if e.Time.After(from) && !e.Time.After(to) {
			span++
			if !j.ids[e.ID] {
				missing++
			}
		}
	}
	if missing > 0 || span < 1000 {
		oracle.Fail(t, "%d of %d events of the span are missing", missing, span)
	}
}

// receivedLines are the received events, as a Source and as an HTTP receiver.
type receivedLines struct {
	mu   sync.Mutex
	text []byte
}

func (l *receivedLines) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(append(l.text, body...), '\n')
}

func (l *receivedLines) Traits() consume.Traits { return consume.Traits{OneLog: true} }

func (l *receivedLines) Read(_ context.Context, q consume.Query) (consume.Reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fromfile.NewLines("", bytes.NewReader(l.text), q), nil
}
