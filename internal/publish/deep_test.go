package publish_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// nested is one version of web-1 that has that many levels, as an informer reads it.
func nested(tb testing.TB, rv, levels int) *object.Object {
	tb.Helper()
	raw := fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"web-1","resourceVersion":"%d"},"spec":%s%d%s}`, rv,
		strings.Repeat(`[`, levels-1), rv, strings.Repeat(`]`, levels-1))
	out, m, err := object.NewScanner(nil).Scan(nil, []byte(raw), "", "")
	if err != nil {
		tb.Fatal(err)
	}
	return object.NewScanned(object.NewRef(pods, "shop", "web-1", "uid-web-1"), uint64(rv), m, nil, out)
}

// nestedChange is an update of web-1 from an object with that many levels to another.
func nestedChange(tb testing.TB, j *journal, before, after int) *object.Delta {
	d := change(j, "web-1", 7, 10)
	d.Before, d.After = nested(tb, 6, before), nested(tb, 7, after)
	return d
}

// Parsers of consumers do not bear thousands of levels. So no record has a deeper object than the
// limit: it is left out like one that is too large, and the claim store has the whole event.
func TestDeepObjectIsSentLikeOneThatIsTooLarge(t *testing.T) {
	const most = 9_999 // of what an API server accepts
	for _, tc := range []struct {
		name          string
		before, after int
		op            object.Op
		noClaims      bool
		want          []string
		counted       string
	}{
		{name: "at the limit", before: object.MaxLevels, after: object.MaxLevels, want: []string{"bus web-1/7"}},
		{
			name: "above", before: object.MaxLevels + 1, after: object.MaxLevels + 1,
			want: []string{"bus web-1/7 without before,after,patch"}, counted: "reference",
		},
		{name: "by far", before: most, after: most, want: []string{
			"bus web-1/7 without before,after,patch",
		}, counted: "reference"},
		{name: "before only", before: most, after: 3, want: []string{
			"bus web-1/7 without before,patch",
		}, counted: "before"},
		{name: "after only", before: 3, after: most, want: []string{
			"bus web-1/7 without before,after,patch",
		}, counted: "reference"},
		{name: "deleted", before: most, after: 3, op: object.Deleted, want: []string{
			"bus web-1/7 without before",
		}, counted: "reference"},
		{
			name: "deleted, without a claim store", before: most, after: 3, op: object.Deleted, noClaims: true,
			want: []string{"bus web-1/7 without before"}, counted: "before",
		},
		{name: "created", before: 3, after: most, op: object.Created, want: []string{
			"bus web-1/7 without after",
		}, counted: "reference"},
		{
			name: "without a claim store", before: most, after: most, noClaims: true,
			want: []string{"dead web-1/7 without before,after,patch", "bus gap " + letterID},
		},
		{
			name: "without a claim store, after only", before: 3, after: most, noClaims: true,
			want: []string{"dead web-1/7 without before,after,patch", "bus gap " + letterID},
		},
	} {
		for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
			t.Run(tc.name+" "+string(mode), func(t *testing.T) {
				j, reg := newJournal(), prometheus.NewRegistry()
				bodies := new(bytes.Buffer)
				bus, dead := &recorder{j: j, name: "bus"}, &recorder{j: j, name: "dead"}
				for _, r := range []*recorder{bus, dead} {
					r.refuse = func(e *consume.Event, _ int) error {
						line, err := e.MarshalJSON()
						fmt.Fprintf(bodies, "%s\n", line)
						return err
					}
				}
				o := publish.Options{Oversize: allOversize, Claims: &claimStore{j: j}, DeadLetters: dead}
				if tc.noClaims {
					o.Oversize, o.Claims = allOversize[:2], nil
				}
				d := nestedChange(t, j, tc.before, tc.after)
				switch tc.op {
				case object.Deleted:
					d.Op, d.After = tc.op, nil
				case object.Created:
					d.Op, d.Before = tc.op, nil
				case object.Updated, object.Read, object.Entered, object.Left:
				}
				if err := dispatchAll(t, bus, o, mode, reg, nil, d); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(append(slices.Clone(tc.want), "ack web-1/7"), j.entries); diff != "" {
					t.Fatal(diff)
				}
				for _, step := range allOversize {
					want := 0.0
					if step == tc.counted {
						want = 1
					}
					if got := bustest.Metric(t, reg, "kubecdc_publish_oversize_events_total", step); got != want {
						t.Errorf("%s was counted %v times, want %v", step, got, want)
					}
				}
				checkPython(t, bodies)
				if tc.counted == publish.Reference {
					checkDeepClaim(t, j, j.events[tc.want[0]], d)
				}
			})
		}
	}
}

// checkPython reads records, one a line, with the parser of Python.
func checkPython(t *testing.T, records *bytes.Buffer) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("no python3")
		return
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", "import json, sys\nfor line in sys.stdin: json.loads(line)")
	cmd.Stdin = records
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("Python cannot read what was sent: %v\n%s", err, out)
	}
}

// checkDeepClaim reads a claim as consumers do, and compares its objects.
func checkDeepClaim(t *testing.T, j *journal, e *consume.Event, d *object.Delta) {
	t.Helper()
	checkClaim(t, j, e, d)
	whole, err := consume.Parse(j.claims[strings.TrimPrefix(e.DataRef, "claim:")])
	if err != nil {
		t.Fatal(err)
	}
	sent, got := d.After, whole.Data.After
	if d.Op == object.Deleted {
		sent, got = d.Before, whole.Data.Before
	}
	want, err := sent.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) || whole.Data.Truncated != nil {
		t.Errorf("the whole has an object of %d bytes, want %d, and lacks %v", len(got), len(want),
			whole.Data.Truncated)
	}
}

// Without a claim store and without dead letters, the agent ends instead of losing a deep object.
// Its error says why.
func TestDeepObjectWithoutDeadLetters(t *testing.T) {
	j := newJournal()
	err := dispatchAll(t, &recorder{j: j, name: "bus"}, publish.Options{Oversize: allOversize[:2]}, encode.Structured,
		nil, nil,
		nestedChange(t, j, object.MaxLevels+1, object.MaxLevels+1))
	const want = "has more than 500 levels"
	if err == nil || !strings.Contains(err.Error(), want) || len(j.entries) > 0 {
		t.Errorf("got %v after %q, want an error with %q", err, j.entries, want)
	}
}

// The bus has an event whose patch would cost too much without it, counted and logged like a patch
// that is too large.
func TestCostlyPatchIsCounted(t *testing.T) {
	j := newJournal()
	reg := prometheus.NewRegistry()
	log := new(logBuffer)
	d := change(j, "web-1", 7, 10)
	texts := strings.Repeat(`,"`+strings.Repeat("x", 1<<10)+`"`, 24<<10)
	version := func(rv int, last string) *object.Object {
		return object.New(d.Ref, uint64(rv), 0, nil, []byte(`{"a":[0`+texts+`],"`+last+`":1}`))
	}
	d.Before, d.After = version(6, "y"), version(7, "z")
	if err := dispatchAll(t, &recorder{j: j, name: "bus"}, publish.Options{Oversize: allOversize}, encode.Structured,
		reg, log, d); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bus web-1/7 without patch", "ack web-1/7"}, j.entries); diff != "" {
		t.Fatal(diff)
	}
	if got := bustest.Metric(t, reg, "kubecdc_publish_oversize_events_total", publish.GiveUpPatch); got != 1 {
		t.Errorf("counted %v times, want 1", got)
	}
	if lines(log.String(), "given_up=patch") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

// Updates of deep objects are before another object's in the queue. Until its event is on the bus,
// the encoders have visited each byte of the deep objects a constant number of times. The bus
// acknowledges the deep objects only after it.
func TestDeepObjectsDelayNoOtherKey(t *testing.T) {
	const (
		deep      = 8
		levels    = 97
		maxVisits = 10
	)
	q := queue.New[*object.Delta](queue.Options{Events: 100, Bytes: 1 << 30}, nil)
	put := func(name, before, after string) {
		ref := object.NewRef(pods, "shop", name, "uid-"+name)
		d := &object.Delta{
			Op: object.Updated, Ref: ref, Scope: "pods", ResourceVersion: 8, Previous: 7, Observed: 1,
			Before: object.New(ref, 7, 0, nil, []byte(before)),
			After:  object.New(ref, 8, 0, nil, []byte(after)),
		}
		if err := q.Lane("pods").Put(t.Context(), ref.Key, d.Size(), d); err != nil {
			t.Fatal(err)
		}
	}
	// Each level has another last member.
	text := strings.Repeat(`{"spec":`, levels) + `[0` + strings.Repeat(`,"abcdefghijklmnopqrstuvwxyz"`, 300_000/29) +
		`]`
	before, after := text+strings.Repeat(`,"y":1}`, levels), text+strings.Repeat(`,"z":1}`, levels)
	for n := range deep {
		put(fmt.Sprintf("deep-%d", n), before, after)
	}
	put("other", `{"a":1}`, `{"a":2}`)
	q.Close()

	encoder := &countingEncoder{Encoder: newEncoder(encode.Structured)}
	bus := &waitingBus{encoder: encoder}
	if err := publish.NewDispatcher(q, value, encoder, bus, publish.Options{}, slog.New(slog.DiscardHandler), nil).
		Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if total := deep * (len(before) + len(after)); bus.visited > int64(maxVisits*total) {
		t.Errorf("the encoders visited %d bytes before the other object's event, of %d in the queue", bus.visited,
			total)
	}
}

type countingEncoder struct {
	*encode.Encoder
	visited atomic.Int64
}

func (e *countingEncoder) Encode(ev *encode.Event, d *object.Delta) error {
	err := e.Encoder.Encode(ev, d)
	e.visited.Add(int64(ev.Visited()))
	return err
}

// waitingBus acknowledges the events of deep objects after that of the other one.
type waitingBus struct {
	encoder *countingEncoder

	mu      sync.Mutex
	visited int64 // when the other event came
	came    bool
	held    []*publish.Event
}

func (b *waitingBus) Publish(e *publish.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = append(b.held, e)
	if e.Delta.Ref.Name() == "other" {
		b.came, b.visited = true, b.encoder.visited.Load()
	}
	if !b.came {
		return
	}
	for _, e := range b.held {
		e.Done(nil)
	}
	b.held = nil
}

func (*waitingBus) Run(context.Context) error { return nil }

func (*waitingBus) Ready() error { return nil }
