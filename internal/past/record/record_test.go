package record_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

var (
	seeks     = consume.Traits{OneLog: true, Seeks: true}
	oneLog    = consume.Traits{OneLog: true}
	inSeveral = consume.Traits{Merges: true}
)

// as is a source with given traits.
type as struct {
	consume.Source
	traits consume.Traits
}

func (a as) Traits() consume.Traits { return a.traits }

// seeking returns a source of one log, with the given Seeks.
func seeking(s consume.Source, seeks bool) consume.Source {
	return as{s, consume.Traits{OneLog: true, Seeks: seeks}}
}

// away is a bus that goes away after its first record, and comes back after a while; 0: it does
// not.
type away struct {
	q    consume.Query
	back time.Duration
}

func (a *away) Traits() consume.Traits { return oneLog }

func (a *away) Read(_ context.Context, q consume.Query) (consume.Reader, error) {
	a.q = q
	return a, nil
}

func (a *away) Next(ctx context.Context) (*consume.Event, error) {
	a.q.OnRetry(errors.New("the connection is lost"))
	var back <-chan time.Time
	if a.back > 0 {
		back = time.After(a.back)
	}
	for {
		select {
		case <-time.After(time.Second):
			a.q.OnRetry(errors.New("nobody listens"))
		case <-back:
			a.q.OnResume()
			return nil, io.EOF
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (a *away) Positions() []consume.Position { return nil }
func (a *away) CaughtUp() bool                { return false }
func (a *away) Close() error                  { return nil }

func (a *away) Whole(_ context.Context, e *consume.Event) (*consume.Event, error) { return e, nil }

// An answer is not waited for longer than a bus may be away, and there is none then.
func TestBusThatGoesAway(t *testing.T) {
	for _, c := range []struct {
		name string
		back time.Duration
		want string
	}{
		{
			"for good", 0,
			"the bus was unreachable for 30s, so the answer is incomplete: repeat the command when the bus is back: the connection is lost",
		},
		{"for a while", record.MaxOutage - time.Second, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				retries, resumed := 0, 0
				r := &record.Record{
					Source:  &away{back: c.back},
					OnRetry: func(error) { retries++ }, OnResume: func() { resumed++ },
				}
				states, _, err := r.States(t.Context(), &record.Selection{}, timeline.Now(time.Now()))
				switch {
				case c.want == "" && (err != nil || len(states) != 1 || resumed != 1):
					t.Errorf("got %v, %d states, %d times back", err, len(states), resumed)
				case c.want != "" && (err == nil || err.Error() != c.want || states != nil):
					t.Errorf("got %v, %v", states, err)
				}
				if retries != 1 {
					t.Errorf("OnRetry was called %d times, want once", retries)
				}
			})
		})
	}
}

// missing is a bus that removes records while they are read.
type missing struct{ away }

func (m *missing) Read(context.Context, consume.Query) (consume.Reader, error) { return m, nil }

func (m *missing) Next(context.Context) (*consume.Event, error) {
	return nil, &consume.MissedError{Log: consume.Log{Name: "KUBECDC"}, From: 1, To: 5}
}

func TestRecordsThatAreRemovedWhileTheyAreRead(t *testing.T) {
	r := &record.Record{Source: &missing{}}
	_, _, err := r.States(t.Context(), &record.Selection{}, timeline.Now(time.Now()))
	if err == nil || !strings.Contains(err.Error(), "the answer is incomplete: repeat the command") {
		t.Errorf("got %v", err)
	}
}

func TestSelectionOfWords(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"pods/a/b", "the namespace goes to --namespace"},
		{"pods/", "want one name after the slash"},
		{"pods/a deploy", "cannot be combined"},
		{"po[ds", "want a resource"},
		{"pods a[", "want an object's name"},
		{"all,pods", "cannot be combined"},
	} {
		if _, err := record.NewSelection(strings.Fields(c.args), "", "", ""); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, got %v", c.args, c.want, err)
		}
	}
}

// partitions is a topic of Kafka with two partitions. One is read before the other.
type partitions struct {
	away
	events []*consume.Event
}

func (p *partitions) Traits() consume.Traits { return inSeveral }

func (p *partitions) Read(context.Context, consume.Query) (consume.Reader, error) { return p, nil }

func (p *partitions) Next(context.Context) (*consume.Event, error) {
	if len(p.events) == 0 {
		return nil, io.EOF
	}
	e := p.events[0]
	p.events = p.events[1:]
	return e, nil
}

// If one partition has passed the moment, another partition may still have events from before it.
func TestEachPartitionIsRead(t *testing.T) {
	raw, err := os.ReadFile("../../../cmd/agent/testdata/record.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	source := &partitions{}
	r := &record.Record{Source: as{source, consume.Traits{}}}
	if _, _, err := r.States(t.Context(), &record.Selection{}, timeline.AtVersion(145, 0)); err == nil ||
		!strings.Contains(err.Error(), "several logs") {
		t.Errorf("a bus that says nothing about its logs was read: %v", err)
	}
	for partition := range 2 {
		for line := range strings.Lines(string(raw)) {
			e, err := consume.Parse([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			if e.Data != nil && (e.Resource == "deployments") != (partition == 1) {
				continue // stream events are in both
			}
			e.Position = consume.Position{Log: consume.Log{Name: "topic", Partition: partition}, Next: 1}
			source.events = append(source.events, e)
		}
	}
	r.Source = source
	states, _, err := r.States(t.Context(), &record.Selection{}, timeline.AtVersion(145, 0))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range states[0].Objects() {
		names = append(names, v.Name)
	}
	if got, want := strings.Join(names, " "), "settings widgets.demo.example.com web token gear"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if worst := certainty.Worst(states[0].Scopes()); worst != certainty.Exact {
		t.Errorf("got %s", worst)
	}
}

// podRecord is a record of pods, each line with its seconds after 14:00.
type podRecord struct{ strings.Builder }

func (r *podRecord) add(seconds float64, typ, id string, rv int, attributes, data string) {
	at := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
	fmt.Fprintf(r,
		`{"specversion":"1.0","id":%q,"source":"/kubernetes/x","type":"dev.kubecdc.%s","time":%q,"cluster":"x","apiversion":"v1",`+
			`"kind":"Pod","resource":"pods",%s"resourceversion":"%d","sequence":"%020d","partitionkey":"k","data":%s}`+
			"\n",
		id, typ, at.Format(time.RFC3339Nano), attributes, rv, rv, data)
}

func (r *podRecord) stream(seconds float64, typ, id string, rv int) {
	r.add(seconds, typ, id, rv, `"scope":"pods",`,
		fmt.Sprintf(`{"snapshot":"s1","resourceVersion":"%d","objects":2,"writer":"w","run":"0-1"}`, rv))
}

// progress adds the progress of all scopes of pods, complete up to a time.
func (r *podRecord) progress(seconds, to float64, number, rv int) {
	at := func(seconds float64) string {
		return time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second))).
			Format(time.RFC3339Nano)
	}
	fmt.Fprintf(r,
		`{"specversion":"1.0","id":"progress/w/0-1/%[1]d","source":"/kubernetes/x","type":"dev.kubecdc.progress","time":%[2]q,"cluster":"x","data":`+
			`{"writer":"w","run":"0-1","number":%[1]d,"since":%[3]q,"to":%[4]q,"scopes":[{"resource":"pods","resourceVersion":"%[5]d"}]}}`+
			"\n",
		number, at(seconds), at(seconds-600), at(to), rv)
}

func (r *podRecord) object(seconds float64, typ, op, name string, rv int) {
	r.add(seconds, typ, fmt.Sprintf("pods/%s/%d", name, rv), rv,
		fmt.Sprintf(`"namespace":"shop","name":%q,"uid":%[1]q,"op":%q,`, name, op),
		fmt.Sprintf(`{"op":%q,"snapshot":"s1","resourceVersion":"%d","after":{"metadata":{"name":%q}}}`, op, rv, name))
}

// file writes the record to a file and returns its path.
func (r *podRecord) file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(path, []byte(r.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An agent that ended inside a snapshot sends its start again with the same id, and does not read
// objects again that have changed since. So the state is read from the first start. A file can be
// read from a position, as a JetStream can.
func TestStateOfAContinuedSnapshot(t *testing.T) {
	var r podRecord
	r.stream(0, "snapshot.started", "pods/s1/started", 100)
	r.object(1, "object.read", "r", "web", 90)
	// the checkpoint is at 105; the first object of the snapshot is not acknowledged
	r.object(2, "object.updated", "u", "web", 105)
	// A crash and a restart, after the duplicate window of JetStream.
	r.stream(200, "snapshot.started", "pods/s1/started", 100)
	r.object(201, "object.read", "r", "api", 80)
	r.stream(202, "snapshot.completed", "pods/s1/completed", 100)
	r.progress(203, 203, 1, 110)
	r.progress(263, 263, 2, 110)
	path := r.file(t)
	for _, seek := range []bool{false, true} {
		r := &record.Record{Source: seeking(&fromfile.File{Path: path}, seek)}
		states, _, err := r.States(t.Context(), &record.Selection{Resources: []record.Resource{{
			Plural: "pods",
		}}}, timeline.AtVersion(108, 0))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, v := range states[0].Objects() {
			names = append(names, v.Name)
		}
		if got := strings.Join(names, " "); got != "api web" {
			t.Errorf("seek %t: the state has %q, want api and web; it says that it is %s", seek, got,
				certainty.Worst(states[0].Scopes()))
		}
	}
}

// If retention has removed the first start of a continued snapshot, nobody knows which reads are
// gone with it.
func TestStateOfAContinuedSnapshotWithoutItsBeginning(t *testing.T) {
	var r podRecord
	r.add(200, "snapshot.started", "pods/s1/started", 100, `"scope":"pods",`,
		`{"snapshot":"s1","resourceVersion":"100","objects":2,"writer":"w","run":"0-1","continued":true}`)
	r.object(201, "object.read", "r", "api", 80)
	r.stream(202, "snapshot.completed", "pods/s1/completed", 100)
	r.progress(203, 203, 1, 110)
	r.progress(263, 263, 2, 110)
	path := r.file(t)
	for _, seek := range []bool{false, true} {
		r := &record.Record{Source: seeking(&fromfile.File{Path: path}, seek)}
		states, _, err := r.States(t.Context(), &record.Selection{Resources: []record.Resource{{
			Plural: "pods",
		}}}, timeline.AtVersion(108, 0))
		if err != nil {
			t.Fatal(err)
		}
		if worst := certainty.Worst(states[0].Scopes()); worst != certainty.Unknown {
			t.Errorf("seek %t: the state is %s, want unknown", seek, worst)
		}
	}
}

// A change that was observed before the moment may be stored after a progress that is sent after
// it, and that does not claim it. The answer has the change. Reading ends at the first progress
// that claims the moment.
func TestEventStoredAfterTheFirstProgressAfterTheMoment(t *testing.T) {
	var written podRecord
	written.stream(0, "snapshot.started", "pods/s1/started", 100)
	written.object(1, "object.read", "r", "web", 90)
	written.stream(2, "snapshot.completed", "pods/s1/completed", 100)
	written.progress(60, 60, 1, 110)
	const moment = 100 * time.Second
	written.progress(120, 98, 2, 110)
	written.object(99, "object.updated", "u", "web", 115)
	written.progress(180, 180, 3, 120)
	last := strings.Count(written.String(), "\n")
	written.object(190, "object.updated", "u", "web", 125)
	path := written.file(t)
	at := timeline.At(time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC).Add(moment))
	pods := &record.Selection{Resources: []record.Resource{{Plural: "pods"}}}

	for _, seek := range []bool{false, true} {
		r := &record.Record{Source: seeking(&fromfile.File{Path: path}, seek)}
		states, _, err := r.States(t.Context(), pods, at)
		if err != nil {
			t.Fatal(err)
		}
		if o := states[0].Objects(); len(o) != 1 || o[0].ResourceVersion != "115" {
			t.Errorf("seek %t: the state has %d objects, want web at 115", seek, len(o))
		}
		if worst := certainty.Worst(states[0].Scopes()); worst != certainty.Exact {
			t.Errorf("seek %t: the state is %s, want exact", seek, worst)
		}
	}

	r := &record.Record{Source: &fromfile.File{Path: path}}
	var versions []string
	if _, _, err := r.Versions(t.Context(), pods, nil, at, func(v *timeline.Version, _ *consume.Event) error {
		versions = append(versions, v.ResourceVersion)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(versions, " "); got != "90 115" {
		t.Errorf("versions %s, want 90 115", got)
	}
	if got := int(r.Events()); got != last {
		t.Errorf("%d events were read, want the %d up to the progress that claims the moment", got, last)
	}
}

// The CRDs of a cluster say what a word means for this cluster, also if another cluster has a CRD
// of the same name or word.
func TestWordsAreThoseOfTheCluster(t *testing.T) {
	var lines strings.Builder
	add := func(cluster, group, plural, short string, rv int) {
		fmt.Fprintf(&lines,
			`{"specversion":"1.0","id":"crd/%[1]s/%[5]d","source":"/kubernetes/%[1]s","type":"dev.kubecdc.object.updated","time":"2026-11-20T14:00:00Z",`+
				`"cluster":%[1]q,"apiversion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","resource":"customresourcedefinitions","name":"%[3]s.%[2]s",`+
				`"uid":"%[1]s-%[3]s","op":"u","resourceversion":"%[5]d","sequence":"%020[5]d","partitionkey":"k","data":{"op":"u","resourceVersion":"%[5]d",`+
				`"after":{"spec":{"group":%[2]q,"names":{"plural":%[3]q,"kind":"K","shortNames":[%[4]q]}}}}}`+"\n",
			cluster,
			group, plural, short, rv)
	}
	add("a", "demo.example.com", "widgets", "wi", 1)
	add("b", "demo.example.com", "widgets", "wg", 2)
	add("b", "other.example.com", "wires", "wi", 3)
	path := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ cluster, word, want string }{
		{"a", "wi", "widgets.demo.example.com"},
		{"b", "wi", "wires.other.example.com"},
		{"b", "wg", "widgets.demo.example.com"},
		{"a", "wg", "wg is not in the record, which has customresourcedefinitions.apiextensions.k8s.io"},
		{"", "wi", "widgets.demo.example.com wires.other.example.com"},
		{"", "widgets", "widgets.demo.example.com"},
	} {
		s, err := record.NewSelection([]string{c.word}, "", "", c.cluster)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := (&record.Record{Source: &fromfile.File{Path: path}}).Resolve(t.Context(), s); err != nil {
			got = err.Error()
		}
		for _, r := range s.Resources {
			got = strings.TrimPrefix(got+" "+r.String(), " ")
		}
		if got != c.want {
			t.Errorf("%s in cluster %q: got %s, want %s", c.word, c.cluster, got, c.want)
		}
	}
}

// A word that names no resource costs one event for each resource of the record.
func TestResourcesOfALongRecord(t *testing.T) {
	bus, err := server.NewServer(&server.Options{
		Host:      "127.0.0.1",
		Port:      server.RANDOM_PORT,
		JetStream: true,
		StoreDir:  t.TempDir(),
		NoSigs:    true,
		NoLog:     true,
	})
	if err != nil {
		t.Fatal(err)
	}
	bus.Start()
	defer bus.WaitForShutdown()
	defer bus.Shutdown()
	if !bus.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not come up")
	}
	nc, err := nats.Connect(bus.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: fromnats.DefaultStream, Subjects: []string{
		"kubecdc.>",
	}}); err != nil {
		t.Fatal(err)
	}
	known := []string{"configmaps", "pods", "widgets.example.com"}
	for rv := range 200 {
		for _, resource := range known {
			plural, group, _ := strings.Cut(resource, ".")
			event := fmt.Sprintf(
				`{"specversion":"1.0","id":"%[1]s/progress/%[4]d","source":"/kubernetes/x","type":"dev.kubecdc.progress","time":"2026-11-20T14:00:00Z",`+
					`"cluster":"x","apiversion":%[2]q,"kind":"K","resource":%[3]q,"scope":%[3]q,"resourceversion":"%[4]d","sequence":"%020[4]d","partitionkey":"k",`+
					`"data":{"resourceVersion":"%[4]d"}}`, resource, strings.TrimPrefix(group+"/v1", "/"), plural, rv+1)
			if _, err := js.PublishMsg(t.Context(), &nats.Msg{
				Subject: "kubecdc.x.stream." + cmp.Or(strings.ReplaceAll(group, ".", "%2E"), "core") + "." + plural,
				Data:    []byte(event),
				Header:  nats.Header{"content-type": {"application/cloudevents+json"}},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := &record.Record{Source: &fromnats.JetStream{
		URL: bus.ClientURL(),
		Choose: func(_ context.Context, _ jetstream.Stream, q *consume.Query) []string {
			if q.Events == consume.StreamEvents {
				return []string{"kubecdc.*.stream.*.*"}
			}
			return []string{"kubecdc.*.object.>"}
		},
	}}
	words, err := record.NewSelection([]string{"podz"}, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	var unknown *record.UnknownResourceError
	if err := r.Resolve(t.Context(), words); !errors.As(err, &unknown) || !slices.Equal(unknown.Known, known) {
		t.Errorf("got %v, want that podz is not in the record, which has %v", err, known)
	}
	if got := int(r.Events()); got != len(known) {
		t.Errorf("%d events were delivered, want %d", got, len(known))
	}
}

// The version of the API server at a moment is in a progress before the snapshot that a state is
// read from.
func TestVersionOfTheServerBeforeTheSnapshot(t *testing.T) {
	var r podRecord
	says := func(seconds float64, number, rv int, version string) {
		var one podRecord
		one.progress(seconds, seconds, number, rv)
		r.WriteString(
			strings.Replace(one.String(), `"since"`, fmt.Sprintf(`"apiServerVersion":%q,"since"`, version), 1))
	}
	r.stream(0, "snapshot.started", "pods/s0/started", 100)
	r.object(1, "object.read", "r", "web", 90)
	r.stream(2, "snapshot.completed", "pods/s0/completed", 100)
	says(10, 1, 101, "v1.36.4")
	r.progress(70, 70, 2, 102)
	r.stream(1000, "snapshot.started", "pods/s1/started", 110)
	r.object(1001, "object.read", "r", "web", 90)
	r.stream(1002, "snapshot.completed", "pods/s1/completed", 110)
	r.progress(1030, 1030, 3, 111)
	says(1090, 4, 120, "v1.37.1")
	r.progress(1150, 1150, 5, 121)
	of := &record.Record{Source: seeking(&fromfile.File{Path: r.file(t)}, true)}
	began := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		at   timeline.Moment
		want string
	}{
		{timeline.AtVersion(101, 0), "v1.36.4"},
		{timeline.AtVersion(115, 0), "v1.36.4"},
		{timeline.AtVersion(121, 0), "v1.37.1"},
		{timeline.At(began.Add(5 * time.Second)), "v1.36.4"}, // the first progress of the run follows
		{timeline.At(began.Add(1080 * time.Second)), "v1.36.4"},
		{timeline.At(began.Add(1100 * time.Second)), "v1.37.1"},
		{timeline.At(began.Add(3 * time.Hour)), ""}, // it would have been said again
	} {
		if got, err := of.APIServerVersion(t.Context(), &record.Selection{}, c.at); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.at, got, err, c.want)
		}
	}
	of.Source = seeking(of.Source, false)
	if got, err := of.APIServerVersion(t.Context(), &record.Selection{}, timeline.AtVersion(115, 0)); err != nil ||
		got != "" {
		t.Errorf("a source that cannot send progress alone was read: %q, %v", got, err)
	}
}

// fixed is a bus with some events, and without the store for large objects.
type fixed struct {
	away

	events []*consume.Event
}

func (f *fixed) Read(context.Context, consume.Query) (consume.Reader, error) {
	return &fixed{events: f.events}, nil
}

func (f *fixed) Next(context.Context) (*consume.Event, error) {
	if len(f.events) == 0 {
		return nil, io.EOF
	}
	e := f.events[0]
	f.events = f.events[1:]
	return e, nil
}

func (f *fixed) Whole(context.Context, *consume.Event) (*consume.Event, error) {
	return nil, errors.New("the store does not have it")
}

// A version that lacks its object lowers the replay of a span only if it is shown: in the state at
// its beginning, or after that.
func TestReplayOfObjectsThatWereIncomplete(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 20, 14, minute, 0, 0, time.UTC) }
	version := func(minute int, op consume.Op, isWhole bool) *consume.Event {
		rv := strconv.Itoa(100 + minute)
		e := &consume.Event{
			ID:              "pods/u/" + rv,
			Source:          "/kubernetes/x",
			APIVersion:      "v1",
			Kind:            "Pod",
			Resource:        "pods",
			Namespace:       "shop",
			Name:            "web",
			UID:             "u",
			Time:            at(minute),
			ResourceVersion: rv,
			Sequence:        rv,
			Op:              op,
			Data: &consume.Data{
				Op:              op,
				ResourceVersion: rv,
			},
		}
		if isWhole {
			e.Data.After = json.RawMessage(`{}`)
		} else {
			e.Data.Truncated, e.DataRef = []string{"after"}, "claim:x"
		}
		return e
	}
	for name, c := range map[string]struct {
		from, to int
		want     int
	}{
		"before it alone":     {from: 3, to: 5, want: 0},
		"at its beginning":    {from: 2, to: 5, want: 1},
		"inside":              {from: 1, to: 5, want: 1},
		"after its end alone": {from: 3, to: 5, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			events := []*consume.Event{
				version(1, consume.Created, true), version(2, consume.Updated, false),
				version(3, consume.Updated, true),
			}
			if name == "after its end alone" {
				events = []*consume.Event{version(1, consume.Created, true), version(6, consume.Updated, false)}
			}
			r := &record.Record{Source: &fixed{events: events}}
			_, _, reading, err := r.Span(t.Context(), &record.Selection{}, timeline.At(at(c.from)),
				timeline.At(at(c.to)), func(*timeline.Version) {})
			if err != nil || len(reading.Incomplete) != c.want {
				t.Errorf("%v: %+v, want %d", err, reading, c.want)
			}
		})
	}
}

// --namespace is not about objects without one, if their resource is named: as for kubectl.
func TestNamespaceOfClusterScopedResources(t *testing.T) {
	event := func(resource, namespace, name string) *consume.Event {
		return &consume.Event{
			ID:         "x",
			Source:     "/kubernetes/x",
			APIVersion: "v1",
			Resource:   resource,
			Namespace:  namespace,
			Name:       name,
			UID:        "u",
			Op:         consume.Created,
			Data:       &consume.Data{Op: consume.Created, After: json.RawMessage(`{}`)},
		}
	}
	for args, want := range map[string]string{
		"pvc/x pv/y": "persistentvolumeclaims shop x, persistentvolumes  y",
		"pvc,pv":     "persistentvolumeclaims shop x, persistentvolumes  y, persistentvolumes  z",
		"pvc":        "persistentvolumeclaims shop x",
		"all":        "persistentvolumeclaims shop x",
	} {
		s, err := record.NewSelection(strings.Fields(args), "shop", "", "")
		if err != nil {
			t.Fatal(err)
		}
		source := &fixed{}
		if err := (&record.Record{Source: source}).Resolve(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range []*consume.Event{
			event("persistentvolumeclaims", "shop", "x"), event("persistentvolumeclaims", "bank", "x"),
			event("persistentvolumes", "", "y"), event("persistentvolumes", "", "z"),
		} {
			if s.Takes(e) {
				got = append(got, e.Resource+" "+e.Namespace+" "+e.Name)
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: got %s, want %s", args, text, want)
		}
	}
}
