package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/relay/replay"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// After a replay, a consumer without history that follows the rules has the state of the replay's
// end. This holds for any record and any two moments, also if the replay is interrupted and
// continued.
func TestTableOfAReplayIsTheStateAtItsEnd(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		record := generate(rt)
		from, to := moments(rt, record)
		want := timeline.NewState(to, timeline.Options{})
		fold := timeline.NewFold(to, timeline.Options{})
		span := map[string]bool{}   // ids that must be sent
		before := map[string]bool{} // ids that the span may repeat
		for _, e := range parse(rt, record) {
			want.Add(e)
			news := slices.ContainsFunc(fold.Add(e), func(v *timeline.Version) bool { return v.ID == e.ID })
			before[e.ID] = before[e.ID] || from.Includes(e)
			if to.Includes(e) && !from.Includes(e) &&
				(news || e.Stream != nil && !before[e.ID] && e.Type != consume.TypeSnapshotCompleted) {
				span[e.ID] = true
			}
		}
		kills := rapid.SliceOfN(rapid.IntRange(0, 40), 0, 3).Draw(rt, "killed after")
		out := run(rt, dir, record, replay.Options{From: from, To: to}, kills)

		table := newTable()
		last := map[string]string{}
		seen := map[string]bool{}
		for _, e := range parse(rt, out) {
			table.apply(e)
			if e.Data != nil && !seen[e.ID] && !before[e.ID] {
				if e.Sequence < last[e.UID] {
					rt.Errorf("%s comes after version %s of its object", e.ID, last[e.UID])
				}
				last[e.UID] = e.Sequence
			}
			seen[e.ID] = true
			delete(span, e.ID)
		}
		if len(span) > 0 {
			rt.Errorf("not sent: %v", slices.Sorted(maps.Keys(span)))
		}
		if diff := cmp.Diff(stateOf(want), table.objects); diff != "" {
			rt.Fatalf("table of a consumer of the replay from %s to %s (-state +table):\n%s\nrecord:\n%s\nreplay:\n%s",
				from, to, diff, summary(rt, record), summary(rt, out))
		}
	})
}

// A replay that is interrupted after any line, in its snapshot or later, omits nothing when it is
// continued.
func TestContinuedReplayLeavesOutNothing(t *testing.T) {
	raw, err := os.ReadFile("../../../cmd/agent/testdata/record.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	record := string(raw)
	var o replay.Options
	for text, moment := range map[string]*timeline.Moment{
		"2026-11-20T14:02:00Z": &o.From,
		"2026-11-20T14:30:00Z": &o.To,
	} {
		*moment, err = timeline.ParseMoment(text, time.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
	ids := func(out string) map[string]bool {
		all := map[string]bool{}
		for _, e := range parse(t, out) {
			all[string(e.Type)+" "+e.ID] = true
		}
		return all
	}
	whole := run(t, t.TempDir(), record, o, nil)
	want := ids(whole)
	for after := range strings.Count(whole, "\n") {
		if diff := cmp.Diff(want, ids(run(t, t.TempDir(), record, o, []int{after}))); diff != "" {
			t.Errorf("ended after %d lines: -whole +continued\n%s", after, diff)
		}
	}
}

// run runs a replay. It interrupts the replay after each number of lines in kills, and continues
// it.
func run(tb rapid.TB, dir, record string, o replay.Options, kills []int) string {
	file := filepath.Join(dir, "position")
	_ = os.Remove(file)
	var out bytes.Buffer
	for _, lines := range append(kills, -1) {
		before, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			tb.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		err = once(ctx, file, record, o, &limited{w: &out, lines: lines, end: cancel})
		cancel()
		switch {
		case err == nil:
			return out.String()
		case lines < 0 || !errors.Is(err, context.Canceled):
			tb.Fatal(err)
		}
		if before != nil && lines%2 == 0 { // lose the last save
			if err := os.WriteFile(file, before, 0o600); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return out.String()
}

func once(ctx context.Context, file, jsonl string, o replay.Options, w io.Writer) error {
	var err error
	o.Position, err = replay.OpenPosition(ctx, file, map[string]string{"--to": o.To.String()}, nil, "", "")
	if err != nil {
		return err
	}
	defer o.Position.Close()
	o.Record, o.Selection = &record.Record{Source: lines(jsonl)}, &record.Selection{}
	r, err := replay.Prepare(ctx, o)
	if err != nil {
		return err
	}
	return r.Run(ctx, stdout.New(w, nil), slog.New(slog.DiscardHandler))
}

// limited calls end after a number of lines.
type limited struct {
	w     io.Writer
	lines int
	end   func()
}

func (l *limited) Write(p []byte) (int, error) {
	if l.lines == 0 {
		l.end()
	}
	l.lines--
	return l.w.Write(p)
}

// lines is a record as a Source.
type lines string

func (l lines) Traits() consume.Traits { return consume.Traits{OneLog: true} }

func (l lines) Read(_ context.Context, q consume.Query) (consume.Reader, error) {
	return fromfile.NewLines("record", strings.NewReader(string(l)), q), nil
}

func parse(tb rapid.TB, record string) []*consume.Event {
	var out []*consume.Event
	r := fromfile.NewLines("record", strings.NewReader(record), consume.Query{})
	for {
		e, err := r.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, e)
	}
}

func summary(tb rapid.TB, record string) string {
	var b strings.Builder
	for _, e := range parse(tb, record) {
		fmt.Fprintf(&b, "%s %s %s\n", e.Time.Format("05.000000000"), e.ID, e.Sequence)
	}
	return b.String()
}

// table is the state of a consumer: the resourceVersion of each object.
type table struct {
	tracker consume.Tracker
	objects map[string]string
}

func newTable() *table { return &table{objects: map[string]string{}} }

func (t *table) apply(e *consume.Event) {
	v := t.tracker.Apply(e)
	for _, o := range v.Gone {
		delete(t.objects, o.UID)
	}
	switch {
	case !v.News || e.Data == nil:
	case e.Op == consume.Deleted || e.Op == consume.Left:
		delete(t.objects, e.UID)
	default:
		t.objects[e.UID] = e.ResourceVersion + " " + string(e.Data.After)
	}
}

func stateOf(s *timeline.State) map[string]string {
	out := map[string]string{}
	for _, v := range s.Objects() {
		out[v.UID] = v.ResourceVersion + " " + string(v.After)
	}
	return out
}

func moments(t *rapid.T, record string) (from, to timeline.Moment) {
	events := parse(t, record)
	at := func(label string) time.Time {
		e := events[rapid.IntRange(0, len(events)-1).Draw(t, label)]
		return e.Time.Add(time.Duration(rapid.IntRange(-1, 0).Draw(t, label+" before")))
	}
	a, b := at("from"), at("to")
	if b.Before(a) {
		a, b = b, a
	}
	return timeline.At(a), timeline.At(b)
}

// world writes a record as an agent does.
type world struct {
	t      *rapid.T
	out    bytes.Buffer
	now    time.Time
	rv     int
	number int
	scopes []*observed
	last   map[string]time.Time // of the last event of an object
}

// observed is a scope, with the state of the agent for it.
type observed struct {
	name, namespace string
	objects         map[string]*thing // existing objects, by name
	known           map[string]*thing // objects that the agent has sent
	snapshot        string            // under way
	listed          int               // its resourceVersion
	reads           []thing           // reads that are still to be sent
	sent            []map[string]any  // changes that a restart sends again
	latest          time.Time         // of its events of objects
}

type thing struct {
	name, uid string
	rv        int
	left      bool
}

// generate makes a record of two scopes of a resource and one of another.
func generate(t *rapid.T) string {
	w := &world{t: t, now: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC), rv: 100, last: map[string]time.Time{}}
	for _, name := range []string{"pods/a", "pods/b", "configmaps"} {
		_, namespace, _ := strings.Cut(name, "/")
		w.scopes = append(w.scopes, &observed{
			name:      name,
			namespace: namespace,
			objects:   map[string]*thing{},
			known:     map[string]*thing{},
		})
	}
	for range rapid.IntRange(1, 120).Draw(t, "steps") {
		w.step(w.scopes[rapid.IntRange(0, len(w.scopes)-1).Draw(t, "scope")])
	}
	for _, s := range w.scopes {
		w.stream(s, consume.TypeScopeStarted, fmt.Sprintf("started/%d/%d", w.rv, w.now.Unix()), map[string]any{
			"resourceVersion": fmt.Sprint(w.rv),
		})
	}
	return w.out.String()
}

func (w *world) step(s *observed) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(1, 3).Draw(w.t, "ms")) * time.Millisecond)
	name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(w.t, "name")
	switch rapid.SampledFrom(
		[]string{
			"change", "change", "change", "delete", "left", "snapshot", "read", "read", "read", "away", "restart",
			"start",
		}).Draw(w.t, "step") {
	case "change":
		w.change(s, name, true)
	case "delete":
		w.remove(s, name, true)
	case "left":
		if o := s.objects[name]; o != nil && !o.left {
			w.rv++
			w.readFirst(s, o, true)
			o.rv, o.left = w.rv, true
			w.object(s, o, consume.Left, nil)
		}
	case "snapshot":
		w.list(s)
	case "read":
		w.read(s)
	case "away": // unobserved changes, followed by a snapshot
		for _, n := range []string{"x", "y", "z"} {
			switch rapid.IntRange(0, 2).Draw(w.t, "meanwhile") {
			case 1:
				w.change(s, n, false)
			case 2:
				w.remove(s, n, false)
			}
		}
		s.reads = nil
		s.snapshot = ""
		s.sent = nil
		w.stream(s, consume.TypeGap, fmt.Sprintf("gap/%d-%d", w.rv-1, w.rv), map[string]any{
			"reason":            "compacted",
			"recovered":         false,
			"toResourceVersion": fmt.Sprint(w.rv),
		})
		w.list(s)
	case "restart": // the last changes are sent again; a snapshot in progress is abandoned or continued
		copies := s.sent[max(0, len(s.sent)-rapid.IntRange(0, 5).Draw(w.t, "copies")):]
		for _, e := range copies {
			w.now = w.now.Add(time.Millisecond)
			again, uid := maps.Clone(e), e["uid"].(string)
			if !w.now.After(w.last[uid]) {
				w.now = w.last[uid].Add(1)
			}
			w.last[uid] = w.now
			again["time"] = w.now.Format(time.RFC3339Nano)
			w.write(again)
		}
		switch {
		case s.snapshot == "":
		case rapid.Bool().Draw(w.t, "goes on"):
			w.started(s)
		default:
			s.reads, s.snapshot = nil, ""
		}
	case "start":
		if s.snapshot == "" {
			w.stream(s, consume.TypeScopeStarted, fmt.Sprintf("started/%d/%d", w.rv, w.now.UnixNano()), map[string]any{
				"resourceVersion": fmt.Sprint(w.rv),
			})
		}
	}
}

func (w *world) change(s *observed, name string, seen bool) {
	w.rv++
	o, op := s.objects[name], consume.Updated
	if o == nil {
		w.number++
		o, op = &thing{name: name, uid: fmt.Sprintf("u%d", w.number)}, consume.Created
		s.objects[name] = o
	} else if o.left {
		op = consume.Entered
	}
	w.readFirst(s, o, seen)
	o.rv, o.left = w.rv, false
	if seen {
		w.object(s, o, op, nil)
	}
}

func (w *world) remove(s *observed, name string, seen bool) {
	o := s.objects[name]
	if o == nil {
		return
	}
	w.rv++
	w.readFirst(s, o, seen)
	delete(s.objects, name)
	o.rv = w.rv
	if seen && !o.left {
		w.object(s, o, consume.Deleted, nil)
	}
}

// readFirst sends the read of an object before its change, as an agent does.
func (w *world) readFirst(s *observed, o *thing, seen bool) {
	for i, r := range s.reads {
		if r.uid == o.uid && seen {
			w.object(s, &r, consume.Read, map[string]any{"snapshot": s.snapshot})
			s.reads = slices.Delete(s.reads, i, i+1)
			return
		}
	}
}

func (w *world) list(s *observed) {
	w.number++
	s.snapshot = fmt.Sprintf("s%d", w.number)
	s.listed = w.rv
	s.reads = nil
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if o := s.objects[name]; !o.left {
			s.reads = append(s.reads, *o)
		}
	}
	w.started(s)
}

func (w *world) started(s *observed) {
	w.stream(s, consume.TypeSnapshotStarted, s.snapshot+"/started",
		map[string]any{"snapshot": s.snapshot, "resourceVersion": fmt.Sprint(s.listed), "objects": len(s.reads)})
}

func (w *world) read(s *observed) {
	switch {
	case s.snapshot == "":
	case len(s.reads) > 0:
		w.object(s, &s.reads[0], consume.Read, map[string]any{"snapshot": s.snapshot})
		s.reads = s.reads[1:]
	default:
		w.stream(s, consume.TypeSnapshotCompleted, s.snapshot+"/completed",
			map[string]any{"snapshot": s.snapshot, "resourceVersion": fmt.Sprint(s.listed), "objects": 0})
		s.snapshot = ""
	}
}

func (w *world) object(s *observed, o *thing, op consume.Op, data map[string]any) {
	resource, _, _ := strings.Cut(s.name, "/")
	if data == nil {
		data = map[string]any{}
	}
	data["op"], data["resourceVersion"] = op, fmt.Sprint(o.rv)
	id := fmt.Sprintf("%s/%s/%d", resource, o.uid, o.rv)
	verb := map[consume.Op]string{
		"c": "created",
		"u": "updated",
		"d": "deleted",
		"r": "read",
		"e": "entered",
		"l": "left",
	}[op]
	switch op {
	case consume.Deleted:
		id = fmt.Sprintf("%s/%s/d", resource, o.uid)
		data["after"] = nil
	case consume.Left:
		id += "/l"
	case consume.Read:
		id += "/r/" + s.snapshot
		fallthrough
	default:
		data["after"] = map[string]any{"metadata": map[string]any{"name": o.name, "resourceVersion": fmt.Sprint(o.rv)}}
	}
	e := w.event(resource, id, "object."+verb, data)
	// Events of several objects overtake each other on their way to the bus.
	at := w.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(w.t, "ahead")) * time.Millisecond)
	if !at.After(w.last[o.uid]) {
		at = w.last[o.uid].Add(1)
	}
	w.last[o.uid] = at
	if at.After(s.latest) {
		s.latest = at
	}
	e["time"] = at.Format(time.RFC3339Nano)
	e["name"] = o.name
	e["uid"] = o.uid
	e["op"] = op
	e["resourceversion"], e["sequence"] = fmt.Sprint(o.rv), fmt.Sprintf("%020d", o.rv)
	if s.namespace != "" {
		e["namespace"] = s.namespace
	}
	e["partitionkey"] = strings.Join([]string{"test", "core", resource, s.namespace, o.name}, "/")
	w.write(e)
	if op != consume.Read {
		s.sent = append(s.sent, e)
	}
}

func (w *world) stream(s *observed, typ consume.EventType, id string, data map[string]any) {
	resource, _, _ := strings.Cut(s.name, "/")
	if w.now.Before(s.latest) { // it is emitted after the bus has acknowledged them
		w.now = s.latest
	}
	e := w.event(resource, s.name+"/"+id, typ.Name(), data)
	e["scope"] = s.name
	if rv, ok := data["resourceVersion"]; ok {
		e["resourceversion"], e["sequence"] = rv, fmt.Sprintf("%020s", rv)
	}
	w.write(e)
}

func (w *world) event(resource, id, typ string, data map[string]any) map[string]any {
	return map[string]any{
		"specversion": "1.0",
		"id":          id,
		"source":      "/kubernetes/test",
		"type":        consume.TypePrefix + typ,
		"time":        w.now.Format(time.RFC3339Nano),
		"cluster":     "test",
		"clusteruid":  "c",
		"apiversion":  "v1",
		"kind":        "Kind",
		"resource":    resource,
		"data":        data,
	}
}

func (w *world) write(e map[string]any) {
	line, err := json.Marshal(e)
	if err != nil {
		w.t.Fatal(err)
	}
	w.out.Write(append(line, '\n'))
}
