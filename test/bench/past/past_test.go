package past_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/bench/past"
	"github.com/kubecdc/kubecdc/test/bench/sink"
	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
)

// options are those of a small record.
func options() past.Options {
	end := time.Now().Truncate(time.Second)
	return past.Options{Events: 4_000, Objects: 400, Namespaces: 10, Begin: end.Add(-2 * time.Hour), End: end}
}

func newRecord(t *testing.T, o past.Options) *past.Record {
	t.Helper()
	r, err := past.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The oracle finds no fault in the progress of the record, and there is one of all scopes a minute.
func TestProgressIsThatOfAnAgent(t *testing.T) {
	o := options()
	reader := &oracle.Reader{Cluster: past.Cluster, ClusterUID: "11e0f2a4-0000-4000-8000-000000000000"}
	var records []oracle.Record
	reports, want := 0, make(map[oracle.ObjectKey][]oracle.Expectation)
	err := newRecord(t, o).Write(func(e past.Event) error {
		rec := reader.Read(oracle.Message{Position: uint64(len(records) + 1), Body: e.Body})
		records = append(records, rec)
		switch {
		case rec.Report != nil:
			reports++
			if len(rec.Problems) > 0 || e.Subject != "kubecdc.bench.progress."+rec.Writer {
				t.Errorf("%s, %s: %q", rec.ID, e.Subject, rec.Problems)
			}
		case rec.Stream == "" && rec.Op != oracle.Read: // Each change is observed at once.
			want[rec.Key] = append(want[rec.Key], oracle.Expectation{ID: rec.ID, Op: rec.Op, Key: rec.Key, Rev: rec.Rev, Seen: rec.Time})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range oracle.JudgeProgress(want, records, oracle.Outside{Delay: time.Millisecond, Limit: 1 << 20}) {
		t.Error(f)
	}
	if minutes := int(o.End.Sub(o.Begin).Minutes()); reports < minutes-2 || reports > minutes+1 {
		t.Errorf("%d reports in %d minutes", reports, minutes)
	}
	if at := o.End.Add(-10 * time.Minute); !oracle.ObserversOf(records).Exact("pods", at) {
		t.Errorf("the state of pods is not known at %s", at)
	}
}

func newWire(t *testing.T, server string) *past.Wire {
	t.Helper()
	w, err := past.NewWire(server)
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
	r := newRecord(t, o)
	url, dir := make(chan string, 1), t.TempDir()
	var server errgroup.Group
	t.Cleanup(func() {
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
	})
	server.Go(func() error {
		return sink.Run(t.Context(), dir, func(u string) error {
			url <- u
			return nil
		})
	})
	bus := <-url
	if err := past.FillJetStream(t.Context(), bus, r); err != nil {
		t.Fatal(err)
	}
	w := newWire(t, strings.TrimPrefix(bus, "nats://"))
	via := "nats://" + w.Addr()
	for _, i := range []int{0, 5, 399} {
		of := r.Object(i)
		object, scope, progress := r.Size(of), r.Size(past.Of{Resource: of.Resource}), r.Size(past.Of{})
		// Each record is framed with a subject for its position, which is as long as a small record.
		frames := object.Versions + scope.Versions + progress.Versions + 30
		most := object.Bytes + scope.Bytes + progress.Bytes + int64(frames)*150 + 30_000
		w.Taken()
		if got := versions(t, kubecdc(t, "history", of.Resource+"/"+of.Name, "-n", of.Namespace, "-o", "json", "--bus", via)); got != object.Versions {
			t.Errorf("%v: history has %d versions, the record %d", of, got, object.Versions)
		}
		if got := w.Taken(); got > most {
			t.Errorf("%v: history took %d bytes, want %d at most", of, got, most)
		}
		kubecdc(t, "tail", of.Resource+"/"+of.Name, "-n", of.Namespace, "--since", "all", "--no-follow", "-o", "json", "--bus", via)
		if got := w.Taken(); got > most {
			t.Errorf("%v: tail took %d bytes, want %d at most", of, got, most)
		}
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"get", "all"}, o.Objects},
		{[]string{"get", "all", "-n", "team-3"}, o.Objects / o.Namespaces},
		{[]string{"get", "pods"}, o.Objects / 4},
	} {
		at := o.End.Add(-10 * time.Minute).Format(time.RFC3339)
		out := kubecdc(t, append(c.args, "--at", at, "-o", "name", "--exact", "--bus", bus)...)
		if got := strings.Count(string(out), "\n"); got != c.want {
			t.Errorf("%q has %d objects, want %d", c.args, got, c.want)
		}
	}
}

// On Kafka, the history of one object since a time is read from its partition, from that time on.
func TestKafkaSendsWhatIsAskedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Kafka broker, which takes seconds")
	}
	const partitions = 12
	o := options()
	o.Events, o.Begin = 30_000, o.End.Add(-12*time.Hour) // enough that requests other than those for records do not matter
	var w *past.Wire
	c := kafka.Start(t, kafka.Options{Advertise: func(_ int, _ kafka.Listener, addr string) (string, error) {
		w = newWire(t, addr)
		return w.Addr(), nil
	}})
	if err := c.CreateTopic(t.Context(), "kubecdc", partitions, nil); err != nil {
		t.Fatal(err)
	}
	since := o.End.Add(-5 * time.Hour)
	r := newRecord(t, o)
	sizes, err := past.FillKafka(t.Context(), c.Inside(), "kubecdc", partitions, since, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 5, 399} {
		of := r.Object(i)
		w.Taken()
		ask := func(more ...string) int {
			return versions(t, kubecdc(t, append([]string{
				"history", of.Resource + "/" + of.Name, "-n", of.Namespace, "--cluster", past.Cluster, "-o", "json", "--exact",
				"--bus", "kafka://" + c.Brokers()[0] + "/kubecdc",
			}, more...)...))
		}
		late := ask("--since", since.Format(time.RFC3339))
		if got, want := w.Taken(), sizes[past.Partition(of, partitions)]; float64(got) > 1.1*float64(want) {
			t.Errorf("%v: %d bytes were read, its partition has %d since then", of, got, want)
		}
		early := ask("--until", since.Format(time.RFC3339))
		if got, want := late+early, r.Size(of).Versions; got != want || late == 0 || early == 0 {
			t.Errorf("%v: %d versions until %s and %d since, want %d", of, early, since, late, want)
		}
	}
}
