package publish_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var allOversize = []string{publish.GiveUpPatch, publish.GiveUpBefore, publish.Reference}

// With both objects, an update of 10 KB has about 20 KB, and 30 KB with its patch.
func TestOversizeIsGivenUpInOrder(t *testing.T) {
	for _, tc := range []struct {
		limit    int
		oversize []string
		want     string
		counted  string
	}{
		{40_000, allOversize, "bus web-1/7", ""},
		{25_000, allOversize, "bus web-1/7 without patch", "patch"},
		{15_000, allOversize, "bus web-1/7 without before,patch", "before"},
		{5_000, allOversize, "bus web-1/7 without before,after,patch", "reference"},
		{25_000, []string{publish.GiveUpBefore, publish.GiveUpPatch}, "bus web-1/7 without before", "before"},
		{15_000, []string{publish.GiveUpBefore, publish.GiveUpPatch}, "bus web-1/7 without before,patch", "patch"},
		{25_000, []string{
			publish.Reference, publish.GiveUpPatch,
		}, "bus web-1/7 without before,after,patch", "reference"},
	} {
		for _, own := range []bool{false, true} { // the dispatcher's limit, or one that only the bus applies
			for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
				t.Run(fmt.Sprintf("%d %v own=%t %s", tc.limit, tc.oversize, own, mode), func(t *testing.T) {
					j := newJournal()
					reg := prometheus.NewRegistry()
					log := new(logBuffer)
					bus := &recorder{j: j, name: "bus"}
					o := publish.Options{Oversize: tc.oversize, Claims: &claimStore{j: j}}
					if own {
						o.MaxEventBytes = tc.limit
					} else {
						bus.refuse = tooLarge(tc.limit)
					}
					d := change(j, "web-1", 7, 10_000)
					if err := dispatchAll(t, bus, o, mode, reg, log, d); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff([]string{tc.want, "ack web-1/7"}, j.entries); diff != "" {
						t.Fatal(diff)
					}
					e := j.events[tc.want]
					for _, step := range allOversize {
						want := 0.0
						if step == tc.counted {
							want = 1
						}
						got := bustest.Metric(t, reg, "kubecdc_publish_oversize_events_total", step)
						if got != want {
							t.Errorf("%s was counted %v times, want %v", step, got, want)
						}
					}
					if tc.counted == "" && log.String() != "" ||
						tc.counted != "" && lines(log.String(), "given_up="+tc.counted) != 1 {
						t.Errorf("log:\n%s", log)
					}
					if tc.counted != publish.Reference {
						if e.DataRef != "" || len(j.claims) != 0 {
							t.Errorf("reference %q, %d claims", e.DataRef, len(j.claims))
						}
						return
					}
					checkClaim(t, j, e, d)
				})
			}
		}
	}
}

// checkClaim compares a claim with the whole event.
func checkClaim(tb testing.TB, j *journal, e *consume.Event, d *object.Delta) {
	tb.Helper()
	var whole encode.Event
	if err := newEncoder(encode.Structured).Encode(&whole, d); err != nil {
		tb.Fatal(err)
	}
	body := j.claims[strings.TrimPrefix(e.DataRef, "claim:")]
	if e.Data.DataRef != e.DataRef || string(body) != string(whole.Body) {
		tb.Errorf("reference %s (in data %s) leads to %d bytes, want %d", e.DataRef, e.Data.DataRef, len(body),
			len(whole.Body))
	}
}

// An event is not published again for steps that would remove nothing from it.
func TestOversizeSkipsWhatIsNotThere(t *testing.T) {
	j := newJournal()
	offered := 0
	bus := &recorder{j: j, name: "bus", refuse: func(e *consume.Event, size int) error {
		offered++
		return tooLarge(5_000)(e, size)
	}}
	d := change(j, "web-1", 7, 10_000)
	d.Op = object.Created
	d.Before = nil
	d.Previous = 0
	if err := dispatchAll(t, bus, publish.Options{Oversize: allOversize, Claims: &claimStore{
		j: j,
	}}, encode.Structured, nil, nil, d); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bus web-1/7 without after", "ack web-1/7"}, j.entries); diff != "" || offered != 2 {
		t.Errorf("offered %d times\n%s", offered, diff)
	}
}

// A deletion, and a left, have only the object before. The claim store keeps it, unless it rejects
// the event or is not to be used.
func TestLargeDeletionKeepsItsObjectInTheClaimStore(t *testing.T) {
	lost := func(string) error { return publish.ErrRefused }
	for name, tc := range map[string]struct {
		oversize []string
		claims   func(string) error
		none     bool // there is no claim store
		stored   bool
	}{
		"by default": {oversize: allOversize, stored: true},
		"before first": {oversize: []string{
			publish.GiveUpBefore, publish.Reference, publish.GiveUpPatch,
		}, stored: true},
		"the claim store rejects it":   {oversize: allOversize, claims: lost},
		"there is no claim store":      {oversize: allOversize, none: true},
		"a reference is not permitted": {oversize: allOversize[:2]},
	} {
		for _, op := range []object.Op{object.Deleted, object.Left} {
			t.Run(name+" "+string(op), func(t *testing.T) {
				j, reg := newJournal(), prometheus.NewRegistry()
				o := publish.Options{Oversize: tc.oversize}
				if !tc.none {
					o.Claims = &claimStore{j: j, err: tc.claims}
				}
				d := change(j, "web-1", 7, 10_000)
				d.Op, d.After = op, nil
				if err := dispatchAll(t, &recorder{j: j, name: "bus", refuse: tooLarge(5_000)}, o, encode.Structured,
					reg, nil, d); err != nil {
					t.Fatal(err)
				}
				const want = "bus web-1/7 without before"
				if diff := cmp.Diff([]string{want, "ack web-1/7"}, j.entries); diff != "" {
					t.Fatal(diff)
				}
				e, given := j.events[want], publish.GiveUpBefore
				if tc.stored {
					given = publish.Reference
				}
				if got := bustest.Metric(t, reg, "kubecdc_publish_oversize_events_total", given); got != 1 {
					t.Errorf("%s was counted %v times", given, got)
				}
				if (e.DataRef != "") != tc.stored {
					t.Fatalf("reference %q", e.DataRef)
				}
				if tc.stored {
					checkClaim(t, j, e, d)
				}
			})
		}
	}
}

const letterID = "pods/uid-web-1/7"

func TestDeadLetters(t *testing.T) {
	refused := fmt.Errorf("%w: HTTP 422", publish.ErrRefused)
	for name, tc := range map[string]struct {
		oversize  []string
		claims    error
		bus, dead func(*consume.Event, int) error // refusals; those of the bus do not apply to stream events
		damage    func(*object.Delta)
		letter    string
		reason    string // the beginning of the attribute
		reference bool
	}{
		"refused": {
			oversize: allOversize,
			bus:      func(*consume.Event, int) error { return refused },
			letter:   "web-1/7", reason: "refused: publish " + letterID + ": the bus rejects the event: HTTP 422",
		},
		"refused, and too large for the dead letters": {
			bus: func(*consume.Event, int) error { return refused }, dead: tooLarge(15_000),
			letter: "web-1/7 without before,patch", reason: "refused: ",
		},
		"too large, and nothing may be given up": {
			bus:    tooLarge(25_000),
			letter: "web-1/7",
			reason: "too_large: publish " + letterID +
				": the bus rejects the event: it is too large: more than 25000 bytes",
		},
		"too large without patch and before": {
			oversize: allOversize[:2],
			bus:      tooLarge(5_000),
			dead:     tooLarge(5_000),
			letter:   "web-1/7 without before,after,patch",
			reason:   "too_large: ",
		},
		"too large, and no place for the whole": {
			oversize: allOversize, claims: publish.ErrRefused, bus: tooLarge(5_000), dead: tooLarge(15_000),
			letter: "web-1/7 without before,patch", reason: "too_large: ",
		},
		"too large whatever is given up": {
			oversize:  allOversize,
			bus:       tooLarge(50),
			letter:    "web-1/7 without before,after,patch",
			reason:    "too_large: ",
			reference: true,
		},
		"shortened, and then refused": {
			oversize: allOversize,
			bus: func(e *consume.Event, size int) error {
				if err := tooLarge(15_000)(e, size); err != nil {
					return err
				}
				return refused
			},
			letter: "web-1/7 without before,patch", reason: "refused: ",
		},
		"cannot be made": {
			damage: func(d *object.Delta) { d.After = object.New(d.Ref, 7, 0, nil, []byte(`{"x" }`)) },
			letter: "web-1/7 without before,after,patch",
			reason: "encode: encode pods/shop/web-1 rv=7: patch: malformed JSON",
		},
	} {
		for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				j := newJournal()
				reg := prometheus.NewRegistry()
				log := new(logBuffer)
				bus := &recorder{j: j, name: "bus", refuse: func(e *consume.Event, size int) error {
					if e.Data == nil || tc.bus == nil || e.ResourceVersion != "7" {
						return nil
					}
					return tc.bus(e, size)
				}}
				o := publish.Options{Oversize: tc.oversize, DeadLetters: &recorder{
					j:      j,
					name:   "dead",
					refuse: tc.dead,
				}, Claims: &claimStore{j: j, err: func(string) error { return tc.claims }}}
				d, next := change(j, "web-1", 7, 10_000), change(j, "web-1", 8, 10)
				d.History = 3
				if tc.damage != nil {
					tc.damage(d)
				}
				if err := dispatchAll(t, bus, o, mode, reg, log, d, next); err != nil {
					t.Fatal(err)
				}
				want := []string{
					"dead " + tc.letter, "bus gap " + letterID + "/h3", "ack web-1/7", "bus web-1/8", "ack web-1/8",
				}
				if diff := cmp.Diff(want, j.entries); diff != "" {
					t.Fatal(diff)
				}
				letter, gap := j.events[want[0]], j.events[want[1]]
				if !strings.HasPrefix(letter.DeadLetterReason,
					strings.ReplaceAll(tc.reason, letterID, letterID+"/h3")) || letter.ID != gap.Stream.DeadLetter {
					t.Errorf("dead letter %s because %q", letter.ID, letter.DeadLetterReason)
				}
				if tc.reference != (letter.DataRef != "") {
					t.Errorf("reference %q", letter.DataRef)
				}
				if diff := cmp.Diff(
					&consume.Stream{
						FromResourceVersion: "6",
						ToResourceVersion:   "7",
						Since:               time.Unix(0, 0).UTC(),
						Reason:              consume.ReasonDeadLetter,
						DeadLetter:          letter.ID,
					}, gap.Stream); diff != "" {
					t.Error(diff)
				}
				if gap.Scope != "pods/shop" || gap.ID != "pods/shop/gap/6-7/"+letterID+"/h3" || gap.History() != 3 {
					t.Errorf("gap %s of %s", gap.ID, gap.Scope)
				}
				label, _, _ := strings.Cut(tc.reason, ":")
				if got := bustest.Metric(t, reg, "kubecdc_publish_dead_letters_total", label); got != 1 {
					t.Errorf("%v dead letters of reason %s were counted", got, label)
				}
				if lines(log.String(), "level=ERROR") != 1 ||
					lines(log.String(), "namespace=shop name=web-1 rv=7") == 0 {
					t.Errorf("log:\n%s", log)
				}
			})
		}
	}
}

func TestNoDeadLettersEndRun(t *testing.T) {
	refused := fmt.Errorf("%w: HTTP 422", publish.ErrRefused)
	progress := func(j *journal) *object.Delta {
		return &object.Delta{Stream: &object.StreamEvent{
			Kind:            object.ScopeStarted,
			Resource:        pods,
			Scope:           "pods/shop",
			ResourceVersion: 9,
		}, Acker: j}
	}
	for name, tc := range map[string]struct {
		bus, dead func(*consume.Event, int) error // nil dead: no dead letters
		delta     func(*journal) *object.Delta
		want      []string // in the error
	}{
		"refused": {
			bus: func(*consume.Event, int) error {
				return refused
			}, want: []string{letterID, "HTTP 422", "set deadLetter in the configuration"},
		},
		"too large": {
			bus: tooLarge(10), want: []string{
				letterID, "it is too large", "set deadLetter in the configuration", "claimCheck",
			},
		},
		"cannot be made": {
			delta: func(j *journal) *object.Delta {
				d := change(j, "web-1", 7, 10)
				d.After = object.New(d.Ref, 7, 0, nil, []byte(`{"x" }`))
				return d
			},
			want: []string{letterID, "malformed JSON", "set deadLetter in the configuration"},
		},
		"cannot be told at all": {
			dead: tooLarge(1 << 20),
			delta: func(j *journal) *object.Delta {
				d := change(j, "web-1", 7, 10)
				d.Ref.UID = ""
				return d
			},
			want: []string{"pods/shop/web-1", "no uid"},
		},
		"the dead letters refuse it too": {
			bus:  func(*consume.Event, int) error { return refused },
			dead: func(*consume.Event, int) error { return fmt.Errorf("%w: no such topic", publish.ErrRefused) },
			want: []string{
				letterID, "HTTP 422", "the dead letters reject it too",
				"no such topic: check why, or make the bus accept it",
			},
		},
		"the dead letters are gone": {
			bus:  func(*consume.Event, int) error { return refused },
			dead: func(*consume.Event, int) error { return publish.ErrClosed },
			want: []string{letterID, publish.ErrClosed.Error()},
		},
		"the gap is refused": {
			bus:  func(e *consume.Event, _ int) error { return refused },
			dead: tooLarge(1 << 20), want: []string{"pods/shop/gap/6-7", "HTTP 422"},
		},
		"a stream event": {
			bus: func(*consume.Event, int) error { return refused }, dead: tooLarge(1 << 20), delta: progress,
			want: []string{"pods/shop/started/0", "HTTP 422"},
		},
		"a stream event that is too large": {
			bus: tooLarge(10), dead: tooLarge(1 << 20), delta: progress, want: []string{
				"pods/shop/started/0", "it is too large",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal()
			o := publish.Options{Oversize: allOversize[:2]}
			if tc.dead != nil {
				o.DeadLetters = &recorder{j: j, name: "dead", refuse: tc.dead}
			}
			d := change(j, "web-1", 7, 10)
			if tc.delta != nil {
				d = tc.delta(j)
			}
			err := dispatchAll(t, &recorder{j: j, name: "bus", refuse: tc.bus}, o, encode.Structured, nil, nil, d)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %s in it", err, want)
				}
			}
			for _, entry := range j.entries {
				if strings.HasPrefix(entry, "ack ") {
					t.Errorf("%s, though it is not on the bus", entry)
				}
			}
		})
	}
}

// A claim store that is closed for good ends Run: nothing else shows that the agent is about to
// end.
func TestClosedClaimStoreEndsRun(t *testing.T) {
	j := newJournal()
	o := publish.Options{Oversize: allOversize, MaxEventBytes: 5_000, Claims: &claimStore{
		j:   j,
		err: func(string) error { return publish.ErrClosed },
	}, DeadLetters: &recorder{j: j, name: "dead"}}
	if err := dispatchAll(t, &recorder{j: j, name: "bus"}, o, encode.Structured, nil, nil,
		change(j, "web-1", 7, 10_000)); !errors.Is(err, publish.ErrClosed) || len(j.entries) > 0 {
		t.Errorf("got %v, journal %v", err, j.entries)
	}
}

// A gap reports a read of a snapshot that goes to the dead letters. The gap comes before the read's
// acknowledgement, which snapshot.completed waits for. A read of the next snapshot causes another
// gap.
func TestDeadLetterOfASnapshot(t *testing.T) {
	j := newJournal()
	var ds []*object.Delta
	for _, snapshot := range []string{"s1", "s2"} {
		d := change(j, "web-1", 7, 10)
		d.Op = object.Read
		d.Before = nil
		d.Previous = 0
		d.Snapshot = snapshot
		d.Scope = ""
		ds = append(ds, d)
	}
	bus := &recorder{j: j, name: "bus", refuse: func(e *consume.Event, _ int) error {
		if e.Data != nil {
			return publish.ErrRefused
		}
		return nil
	}}
	if err := dispatchAll(t, bus, publish.Options{DeadLetters: &recorder{
		j:    j,
		name: "dead",
	}}, encode.Structured, nil, nil, ds...); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"dead web-1/7", "bus gap " + letterID + "/r/s1", "ack web-1/7",
		"dead web-1/7", "bus gap " + letterID + "/r/s2", "ack web-1/7",
	}
	if diff := cmp.Diff(want, j.entries); diff != "" {
		t.Error(diff)
	}
	if gap := j.events[want[1]]; gap.ID != "pods/gap/0-7/"+letterID+"/r/s1" || gap.Scope != "pods" {
		t.Errorf("gap %s of %q", gap.ID, gap.Scope)
	}
}

// Bus's contract: there are never two events of one key in flight, even if gaps for dead letters
// coincide with each other and with stream events of their scope.
func TestOneStreamEventOfAScopeAtATime(t *testing.T) {
	j := newJournal()
	var mu sync.Mutex
	var under int
	var most int
	entered := make(chan struct{}, 100)
	bus := busFunc(func(_ context.Context, ev *encode.Event) error {
		if ev.Delta.Stream == nil {
			return publish.ErrRefused
		}
		mu.Lock()
		under++
		most = max(most, under)
		mu.Unlock()
		entered <- struct{}{}
		for range 1000 { // give others time to arrive
			runtime.Gosched()
		}
		mu.Lock()
		under--
		mu.Unlock()
		return nil
	})
	ds := []*object.Delta{{Stream: &object.StreamEvent{
		Kind:            object.ScopeStarted,
		Resource:        pods,
		Scope:           "pods/shop",
		ResourceVersion: 9,
	}, Acker: j}}
	for i := range 20 {
		ds = append(ds, change(j, fmt.Sprintf("web-%d", i), 7, 10))
	}
	if err := dispatchAll(t, bus, publish.Options{DeadLetters: &recorder{
		j:    j,
		name: "dead",
	}}, encode.Structured, nil, nil, ds...); err != nil {
		t.Fatal(err)
	}
	if most != 1 || len(entered) != 21 {
		t.Errorf("%d stream events, %d at a time", len(entered), most)
	}
}

// Events are too large, poisoned or out of reach. Each delta ends as exactly one of the whole
// event, a shortened one, or a dead letter and a gap, in order per object. It is acknowledged after
// that.
func TestEveryDeltaEndsOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := newJournal()
		mode := rapid.SampledFrom([]encode.Mode{encode.Structured, encode.Binary}).Draw(rt, "mode")
		o := publish.Options{
			MaxEventBytes: rapid.SampledFrom([]int{0, 3_000, 30_000}).Draw(rt, "own limit"),
			Oversize: rapid.SampledFrom([][]string{nil, allOversize[:1], allOversize[:2], allOversize, {
				"before", "patch",
			}, {"reference"}}).Draw(rt, "oversize"),
		}
		limit := rapid.SampledFrom([]int{2_500, 10_000, 1 << 20}).Draw(rt, "limit of the bus")
		if rapid.Bool().Draw(rt, "claims") {
			lost := rapid.Bool().Draw(rt, "claims refused")
			o.Claims = &claimStore{j: j, err: func(name string) error {
				if lost && name[0] < '8' {
					return publish.ErrRefused
				}
				return nil
			}}
		}
		poisoned := map[string]bool{}
		var ds []*object.Delta
		want := map[string][]string{} // by name: versions
		for _, name := range []string{"a", "b", "c"} {
			for rv := range rapid.IntRange(0, 4).Draw(rt, "changes of "+name) {
				d := change(j, name, rv+2, rapid.SampledFrom([]int{10, 1_000, 5_000, 20_000}).Draw(rt, "size"))
				switch rapid.IntRange(0, 5).Draw(rt, "poison") {
				case 0:
					poisoned[fmt.Sprintf("%s/%d", name, d.ResourceVersion)] = true
				case 1:
					d.After = object.New(d.Ref, d.ResourceVersion, 0, nil, []byte(`{"x" }`))
				}
				ds = append(ds, d)
				want[name] = append(want[name], fmt.Sprint(d.ResourceVersion))
			}
		}
		bus := &recorder{j: j, name: "bus", refuse: func(e *consume.Event, size int) error {
			if e.Data != nil && poisoned[e.Name+"/"+e.ResourceVersion] {
				return publish.ErrRefused
			}
			return tooLarge(limit)(e, size)
		}}
		o.DeadLetters = &recorder{j: j, name: "dead", refuse: tooLarge(limit)}
		if err := dispatchAll(t, bus, o, mode, nil, nil, ds...); err != nil {
			rt.Fatal(err)
		}

		got := map[string][]string{}
		letters := map[string]string{} // letters whose gap is still to come: "name/version" by id
		due := map[string]bool{}       // objects whose acknowledgement is still to come
		end := func(object string) {
			if due[object] {
				rt.Fatalf("%s ended twice", object)
			}
			due[object] = true
		}
		for _, entry := range j.entries {
			e := j.events[entry]
			switch kind, rest, _ := strings.Cut(entry, " "); {
			case kind == "ack":
				if !due[rest] {
					rt.Fatalf("%s is acknowledged before it has ended", rest)
				}
				delete(due, rest)
				name, version, _ := strings.Cut(rest, "/")
				got[name] = append(got[name], version)
			case kind == "dead":
				if letters[e.ID] != "" || e.DeadLetterReason == "" {
					rt.Fatalf("%s again, or without a reason", entry)
				}
				letters[e.ID] = e.Name + "/" + e.ResourceVersion
			case e.Data == nil:
				object := letters[e.Stream.DeadLetter]
				if object == "" {
					rt.Fatalf("%s without a letter", entry)
				}
				end(object)
			case letters[e.ID] != "" || poisoned[e.Name+"/"+e.ResourceVersion]:
				rt.Fatalf("%s is on the bus and a dead letter", entry)
			default:
				end(e.Name + "/" + e.ResourceVersion)
				if e.DataRef != "" {
					body := j.claims[strings.TrimPrefix(e.DataRef, "claim:")]
					var whole struct{ ID string }
					if err := json.Unmarshal(body, &whole); err != nil || whole.ID != e.ID {
						rt.Fatalf("%s refers to %q, %v", entry, whole.ID, err)
					}
				} else if slices.Contains(e.Data.Truncated, "after") {
					rt.Fatalf("%s has nothing, and no reference", entry)
				}
			}
		}
		if len(due) > 0 {
			rt.Fatalf("not acknowledged: %v", slices.Collect(maps.Keys(due)))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatal(diff)
		}
	})
}

// deniesOne hands back one object's events, to be sent alone, and accepts the rest.
type deniesOne struct {
	*recorder
	denied string
}

func (b deniesOne) Publish(e *publish.Event) {
	if e.Delta.Stream == nil && !e.DeadLetter && e.Delta.Ref.Name() == b.denied {
		e.Done(&publish.RetryError{Reason: publish.ReasonUnauthorized, Alone: true, Err: errors.New("status 403")})
		return
	}
	b.recorder.Publish(e)
}

// An operator moves an event that the bus denies to the dead letters: a gap takes its place, and
// its object resumes.
func TestOperatorPutsAnEventAmongTheDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, reg := newJournal(), prometheus.NewRegistry()
		bus := deniesOne{&recorder{j: j, name: "bus"}, "web-1"}
		q := newQueue()
		for _, d := range []*object.Delta{change(j, "web-1", 7, 10), change(j, "web-2", 8, 10)} {
			if err := q.Lane("pods").Put(t.Context(), d.Ref.Key, 1, d); err != nil {
				t.Fatal(err)
			}
		}
		d := publish.NewDispatcher(q, value, newEncoder(encode.Structured), bus,
			publish.Options{DeadLetters: &recorder{j: j, name: "dead"}}, discard, publish.NewMetrics(reg))
		done := make(chan error, 1)
		go func() { done <- d.Run(t.Context()) }()
		isolated := func() float64 { return bustest.Metric(t, reg, "kubecdc_publish_isolated_events", "") }
		pause(time.Minute)
		synctest.Wait()
		stuck := d.Stuck()
		if len(stuck) != 1 || stuck[0].ID != letterID || !stuck[0].Alone || stuck[0].Failures < 4 ||
			stuck[0].Namespace != "shop" || stuck[0].Name != "web-1" || isolated() != 1 {
			t.Fatalf("stuck: %+v, isolated: %v", stuck, isolated())
		}
		if err := d.DeadLetter("pods/uid-web-1/8"); !errors.Is(err, publish.ErrNotStuck) {
			t.Errorf("another event: got %v, want %v", err, publish.ErrNotStuck)
		}
		if err := d.DeadLetter(letterID); err != nil {
			t.Fatal(err)
		}
		q.Close()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := []string{"bus web-2/8", "ack web-2/8", "dead web-1/7", "bus gap " + letterID, "ack web-1/7"}
		if diff := cmp.Diff(want, j.entries); diff != "" {
			t.Error(diff)
		}
		if reason := j.events["dead web-1/7"].DeadLetterReason; !strings.Contains(reason,
			"moved to the dead letters by an operator") || !strings.Contains(reason, "status 403") {
			t.Errorf("reason: %s", reason)
		}
		if len(d.Stuck()) != 0 || isolated() != 0 {
			t.Errorf("still stuck: %+v, isolated: %v", d.Stuck(), isolated())
		}
	})
}
