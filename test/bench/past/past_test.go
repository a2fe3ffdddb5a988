package past_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/test/bench/past"
	"github.com/kubecdc/kubecdc/test/bench/sink"
	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
)

// options are those of a small record, with three runs of the agent and six snapshots.
func options() past.Options {
	end := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	return past.Options{
		Changes:    4_000,
		Objects:    400,
		Namespaces: 10,
		Resources:  20,
		Begin:      end.Add(-130 * time.Hour),
		Short:      end.Add(-40 * time.Hour),
		End:        end,
	}
}

// written is a record, and the bytes that it has on a JetStream.
type written struct {
	*past.Record

	events int
	sum    [sha256.Size]byte // of all events
	// objects, streams and progress are about the sizes by object, by resource, and of all.
	objects, streams map[string]int64
	progress         int64
	changes          map[string]int // by object, until the time until
}

// until is the last moment that is asked for: later ones are not certain yet.
func until(o past.Options) time.Time { return o.End.Add(-5 * time.Minute) }

// write writes a record, and calls f for each event.
func write(t *testing.T, o past.Options, f func(past.Event) error) *written {
	t.Helper()
	r, err := past.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w := &written{Record: r, objects: map[string]int64{}, streams: map[string]int64{}, changes: map[string]int{}}
	sum := sha256.New()
	err = r.Write(func(e past.Event) error {
		const frame = 250 // headers, and the subject for the position of the record
		size := int64(len(e.Body) + len(e.Subject) + frame)
		switch d := e.Delta; {
		case d.Report != nil:
			w.progress += size
		case d.Stream != nil:
			w.streams[d.Stream.Resource.String()] += size
		default:
			w.objects[d.Ref.Key] += size
			if d.Op != object.Read && !e.Time.After(until(o)) {
				w.changes[d.Ref.Key]++
			}
		}
		w.events++
		sum.Write(e.Body)
		return f(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	sum.Sum(w.sum[:0])
	return w
}

func (w *written) young(t *testing.T, o past.Options) []past.Of {
	t.Helper()
	all := w.Young(3, o.Short, o.End.Add(-time.Hour))
	if len(all) == 0 {
		t.Fatal("there is no young object")
	}
	return all
}

func nothing(past.Event) error { return nil }

// The oracle finds no fault in the progress of the record, and there is one of all scopes a minute.
func TestProgressIsThatOfAnAgent(t *testing.T) {
	o := options()
	reader := &oracle.Reader{Cluster: past.Cluster, ClusterUID: "11e0f2a4-0000-4000-8000-000000000000"}
	var records []oracle.Record
	reports, want := 0, make(map[oracle.ObjectKey][]oracle.Expectation)
	write(t, o, func(e past.Event) error {
		rec := reader.Read(oracle.Message{Position: uint64(len(records) + 1), Body: e.Body})
		records = append(records, rec)
		switch {
		case rec.Report != nil:
			reports++
			if len(rec.Problems) > 0 || e.Subject != "kubecdc.bench.progress."+rec.Writer {
				t.Errorf("%s, %s: %q", rec.ID, e.Subject, rec.Problems)
			}
		case rec.Stream == "" && rec.Op != oracle.Read: // Each change is observed at once.
			x := oracle.Expectation{ID: rec.ID, Op: rec.Op, Key: rec.Key, Rev: rec.Rev, Seen: rec.Time}
			want[rec.Key] = append(want[rec.Key], x)
		}
		return nil
	})
	for _, f := range oracle.JudgeProgress(want, records, oracle.Outside{Delay: time.Millisecond, Limit: 1 << 20}) {
		t.Error(f)
	}
	if minutes := int(o.End.Sub(o.Begin).Minutes()); reports < minutes-10 || reports > minutes+2 {
		t.Errorf("%d reports in %d minutes", reports, minutes)
	}
	if at := o.End.Add(-10 * time.Minute); !oracle.ObserversOf(records).Exact("pods", at) {
		t.Errorf("the state of pods is not known at %s", at)
	}
}

func TestTheSameOptionsMakeTheSameRecord(t *testing.T) {
	a, b := write(t, options(), nothing), write(t, options(), nothing)
	if a.sum != b.sum || a.events != b.events {
		t.Errorf("%d and %d events, which differ", a.events, b.events)
	}
}

// A record is written once, and its two lengths have the same end.
func TestARecordIsCached(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	o := options()
	written := 0
	open := func() *past.Cached {
		c, err := past.Open(t.Context(), "nats", o, t.Logf, func(dir string) (*past.Contents, error) {
			written++
			return past.FillJetStream(t.Context(), filepath.Join(dir, "whole"), filepath.Join(dir, "short"), o, t.Logf)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		return c
	}
	first, again := open(), open()
	if diff := cmp.Diff(first.Contents, again.Contents); diff != "" || written != 1 {
		t.Errorf("it was written %d times (-first +again):\n%s", written, diff)
	}
	for dir, want := range map[string]past.Count{"whole": first.Whole, "short": first.Short} {
		judgeTimes(t, serve(t, filepath.Join(first.Dir, dir)), want.Events)
	}
	if whole := first.Whole; whole.Changes < o.Changes-2 || whole.Progress <= first.Short.Progress {
		t.Errorf("the record has %+v, and the shorter one %+v", whole, first.Short)
	}
}

// judgeTimes checks that each record of a stream was stored when its event was observed.
func judgeTimes(t *testing.T, url string, want int) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	c, err := js.OrderedConsumer(t.Context(), "KUBECDC", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := c.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	for n := 1; ; n++ {
		m, err := messages.Next(jetstream.NextMaxWait(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		var e struct{ Time time.Time }
		if err := json.Unmarshal(m.Data(), &e); err != nil {
			t.Fatal(err)
		}
		if late := meta.Timestamp.Sub(e.Time); late < 0 || late > time.Second || meta.Sequence.Stream != uint64(n) {
			t.Fatalf("record %d of %s has sequence %d, and was stored at %s", n, e.Time, meta.Sequence.Stream,
				meta.Timestamp)
		}
		if meta.NumPending == 0 {
			if n != want {
				t.Errorf("%d records, want %d", n, want)
			}
			return
		}
	}
}

// serve runs a JetStream of a directory, and returns its URL.
func serve(t *testing.T, dir string) string {
	t.Helper()
	url := make(chan string, 1)
	var server errgroup.Group
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
	})
	server.Go(func() error {
		return sink.Run(ctx, dir, func(u string) error {
			url <- u
			return nil
		})
	})
	return <-url
}

func newWire(t *testing.T, server string) *Wire {
	t.Helper()
	w, err := NewWire(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// kubecdc runs a command and returns what it prints.
func kubecdc(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), build.SharedAgent(t), args...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubecdc %s: %v: %s", strings.Join(args, " "), err, &log)
	}
	return out
}

func versions(t *testing.T, history []byte) int {
	t.Helper()
	var h struct{ Versions []json.RawMessage }
	if err := json.Unmarshal(history, &h); err != nil {
		t.Fatal(err)
	}
	return len(h.Versions)
}

// The server sends only the records that a question needs, and the answers match the record.
func TestJetStreamSendsWhatIsAskedFor(t *testing.T) {
	o := options()
	r := write(t, o, nothing)
	dir := t.TempDir()
	contents, err := past.FillJetStream(t.Context(), filepath.Join(dir, "whole"), filepath.Join(dir, "short"), o,
		t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	bus := serve(t, filepath.Join(dir, "whole"))
	w := newWire(t, strings.TrimPrefix(bus, "nats://"))
	via := "nats://" + w.Addr()
	for _, of := range r.young(t, o) {
		object, streams := r.objects[of.Resource+"/"+of.Namespace+"/"+of.Name], r.streams[of.Resource]
		const rest = 30_000               // bytes of requests and their answers
		around := r.progress * 90 / 7_800 // of 90 minutes: around the end, and around the first record of the object
		w.Taken()
		got := versions(t, kubecdc(t, "history", of.Resource+"/"+of.Name, "-n", of.Namespace, "-o", "json", "--exact",
			"--until", until(o).Format(time.RFC3339), "--bus", via))
		if want := r.changes[of.Resource+"/"+of.Namespace+"/"+of.Name]; got != want {
			t.Errorf("%v: history has %d versions, the record %d", of, got, want)
		}
		if got, most := w.Taken(), 4*(object+streams)+3*around+rest; got > most {
			t.Errorf("%v: history took %d bytes, want %d at most", of, got, most)
		}
		kubecdc(t, "tail", of.Resource+"/"+of.Name, "-n", of.Namespace, "--since", "all", "--no-follow", "-o", "json",
			"--bus", via)
		if got, most := w.Taken(), object+streams+r.progress+rest; got > most {
			t.Errorf("%v: tail took %d bytes, want %d at most", of, got, most)
		}
	}
	namespaced := 0
	at := o.End.Add(-30 * time.Hour).Format(time.RFC3339)
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"get", "all"}, o.Objects},
		{[]string{"get", "all", "-n", "team-3"}, 0},
	} {
		for _, length := range []string{bus, serve(t, filepath.Join(dir, "short"))} {
			out := kubecdc(t, append(c.args, "--at", at, "-o", "name", "--exact", "--bus", length)...)
			got := strings.Count(string(out), "\n")
			if c.want == 0 { // the same on both lengths
				c.want, namespaced = got, got
			}
			if got != c.want {
				t.Errorf("%q has %d objects, want %d", c.args, got, c.want)
			}
		}
	}
	if least := o.Objects / o.Namespaces / 2; namespaced < least {
		t.Errorf("the namespace has %d objects, want %d at least", namespaced, least)
	}
	since := o.End.Add(-time.Hour).Format(time.RFC3339)
	hour := versions(t, kubecdc(t, "history", "all", "-n", "team-3", "--since", since, "-o", "json", "--bus", bus))
	if want := contents.LastHour["team-3"]; hour != want {
		t.Errorf("the last hour of the namespace has %d versions, want %d", hour, want)
	}
}

// On Kafka, the history of one object since a time is read from its partition, from that time on.
func TestKafkaSendsWhatIsAskedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Kafka broker, which takes seconds")
	}
	const partitions = 12
	o := options()
	// Enough that requests other than those for records do not matter.
	o.Changes, o.Begin = 30_000, o.End.Add(-12*time.Hour)
	o.Short = o.Begin
	var w *Wire
	c := kafka.Start(t, kafka.Options{Advertise: func(_ int, _ kafka.Listener, addr string) (string, error) {
		w = newWire(t, addr)
		return w.Addr(), nil
	}})
	if err := c.CreateTopic(t.Context(), "kubecdc", partitions, nil); err != nil {
		t.Fatal(err)
	}
	since := o.End.Add(-5 * time.Hour)
	sizes := make([]int64, partitions) // since then
	k := past.Kafka{Brokers: c.Inside(), Whole: "kubecdc", Partitions: partitions, Plain: true}
	k.OnPut = func(e past.Event, to []int) {
		for _, i := range to {
			if !e.Time.Before(since) {
				sizes[i] += int64(len(e.PartitionKey) + len(e.Body))
			}
		}
	}
	if _, err := k.Fill(t.Context(), o, t.Logf); err != nil {
		t.Fatal(err)
	}
	r := write(t, o, nothing)
	for _, of := range r.Young(3, o.Begin, since.Add(-time.Hour)) {
		ask := func(more ...string) int {
			return versions(t, kubecdc(t, append([]string{
				"history", of.Resource + "/" + of.Name, "-n", of.Namespace, "--cluster", past.Cluster, "-o", "json",
				"--exact",
				"--bus", "kafka://" + c.Brokers()[0] + "/kubecdc",
			}, more...)...))
		}
		w.Taken()
		late := ask("--since", since.Format(time.RFC3339), "--until", until(o).Format(time.RFC3339))
		if got, want := w.Taken(), sizes[past.Partition(of, partitions)]; float64(got) > 1.1*float64(want) {
			t.Errorf("%v: %d bytes were read, its partition has %d since then", of, got, want)
		}
		early := ask("--until", since.Format(time.RFC3339))
		want := r.changes[of.Resource+"/"+of.Namespace+"/"+of.Name]
		if late+early != want || late == 0 || early == 0 {
			t.Errorf("%v: %d versions until %s and %d since, want %d", of, early, since, late, want)
		}
	}
}
