package replay_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/relay/replay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// livedRecord is the record of an agent that observes Pods in two namespaces and ConfigMaps for
// twenty minutes. It has what happens to agents: interruptions, filters, gaps, restarts, ends of
// scopes. Some progress is missing or lags.
type livedRecord struct {
	t      rapid.TB
	lines  []storedLine
	run    string
	number int
	since  time.Time // when the run began
	scopes []*livedScope
}

type storedLine struct {
	at   time.Time // when it is stored
	text string
}

type livedScope struct {
	name  string
	away  []consume.Interruption
	hides []consume.HiddenSpan
	rv    int // of the last version
	ended bool
}

func (r *livedRecord) resource(s *livedScope) string {
	resource, _, _ := strings.Cut(s.name, "/")
	return resource
}

func (r *livedRecord) write(observed, stored time.Time, id, kind, attributes string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		r.t.Fatal(err)
	}
	r.lines = append(r.lines, storedLine{stored, fmt.Sprintf(
		`{"specversion":"1.0","id":%q,"source":"/kubernetes/c","type":"dev.kubecdc.%s","time":%q,"cluster":"c","clusteruid":"1",%s"data":%s}`+
			"\n",
		id, kind, observed.Format(time.RFC3339Nano), attributes, raw)})
}

func (r *livedRecord) stream(s *livedScope, at time.Time, kind string, data map[string]any) {
	attributes := fmt.Sprintf(`"apiversion":"v1","resource":%q,"scope":%q,"partitionkey":"c/core/%s",`, r.resource(s),
		s.name, r.resource(s))
	if kind != "gap" {
		data["writer"], data["run"] = "ffff", r.run
	}
	r.write(at, at, fmt.Sprintf("%s/%s/%d", s.name, kind, at.UnixNano()), kind, attributes, data)
}

// snapshot writes a snapshot with the object of the scope, if there is one.
func (r *livedRecord) snapshot(s *livedScope, at time.Time) {
	id := fmt.Sprint("s", at.Unix())
	bound := map[string]any{"snapshot": id, "resourceVersion": fmt.Sprint(s.rv), "objects": 1}
	r.stream(s, at, "snapshot.started", bound)
	r.object(s, at, at, "r", map[string]any{"snapshot": id})
	r.stream(s, at.Add(time.Millisecond), "snapshot.completed", bound)
}

func (r *livedRecord) object(s *livedScope, observed, stored time.Time, op string, more map[string]any) {
	_, namespace, _ := strings.Cut(s.name, "/")
	namespace = cmp.Or(namespace, "a")
	kind := map[string]string{"r": "read", "u": "updated"}[op]
	data := map[string]any{"op": op, "resourceVersion": fmt.Sprint(s.rv), "after": map[string]any{
		"metadata": map[string]any{"name": "n"},
	}}
	for key, value := range more {
		data[key] = value
	}
	r.write(observed, stored, fmt.Sprintf("%s/u-%s/%d/%s%d", r.resource(s), s.name, s.rv, op, observed.UnixNano()),
		"object."+kind, fmt.Sprintf(
			`"apiversion":"v1","resource":%q,"scope":%q,"namespace":%q,"name":"n","uid":"u-%s","op":%q,"resourceversion":"%d","sequence":"%020d",`,
			r.resource(s), s.name, namespace, s.name, op, s.rv, s.rv), data)
}

// progress writes the progress of the agent, which is complete up to a time.
func (r *livedRecord) progress(at, to time.Time, ends bool) {
	r.number++
	since := at.Add(-10 * time.Minute)
	if r.since.After(since) {
		since = r.since
	}
	p := map[string]any{"writer": "ffff", "run": r.run, "number": r.number, "since": since, "ends": ends}
	var entries []map[string]any
	for _, s := range r.scopes {
		if s.ended {
			continue
		}
		e := map[string]any{"resource": r.resource(s), "scope": s.name, "resourceVersion": fmt.Sprint(s.rv), "to": to}
		var away []consume.Interruption
		for _, i := range s.away {
			if i.Until.After(since) && i.Until.Before(at) {
				away = append(away, i)
			}
		}
		if away != nil {
			e["interruptions"] = away
		}
		var hides []consume.HiddenSpan
		for _, h := range s.hides {
			if h.Until.After(since) && h.Until.Before(at) {
				hides = append(hides, h)
			}
		}
		if hides != nil {
			e["hidden"] = hides
		}
		entries = append(entries, e)
	}
	p["scopes"] = entries
	if len(entries) > 0 {
		r.write(at, at, fmt.Sprintf("progress/ffff/%s/%d", r.run, r.number), "progress",
			`"partitionkey":"c/progress/ffff",`, p)
	}
}

// begin begins a run.
func (r *livedRecord) begin(at time.Time) {
	r.run = fmt.Sprintf("0-%d", at.UnixMilli())
	r.number = 0
	r.since = at
}

func livedRecordOf(t *rapid.T) string {
	r := &livedRecord{t: t}
	for _, name := range []string{"pods/a", "pods/b", "configmaps"} {
		r.scopes = append(r.scopes, &livedScope{name: name, rv: 100})
	}
	r.begin(minute(0))
	for _, s := range r.scopes {
		r.stream(s, minute(0), "scope.started", map[string]any{"resourceVersion": "100", "initial": true})
		r.snapshot(s, minute(0))
	}
	rv := 100
	for half := 1; half <= 40; half++ {
		at := minute(float64(half) / 2)
		for _, s := range r.scopes {
			if s.ended {
				continue
			}
			switch rapid.SampledFrom(
				[]string{"", "change", "change", "late", "away", "away", "hidden", "hidden", "gap", "snapshot", "end"}).
				Draw(t, s.name) {
			case "change":
				rv++
				s.rv = rv
				r.object(s, at, at, "u", nil)
			case "late": // the bus takes it after others
				rv++
				s.rv = rv
				r.object(s, at, at.Add(4*time.Second), "u", nil)
			case "away":
				s.away = append(s.away, consume.Interruption{
					Why:   consume.InterruptedCut,
					From:  at.Add(2 * time.Second),
					Until: at.Add(12 * time.Second),
				})
			case "hidden":
				s.hides = append(s.hides, consume.HiddenSpan{
					FromResourceVersion: fmt.Sprint(rv + 1), From: at.Add(2 * time.Second),
					UntilResourceVersion: fmt.Sprint(rv + 2), Until: at.Add(12 * time.Second),
				})
				rv += 2
				s.rv = rv
				r.object(s, at.Add(12*time.Second), at.Add(12*time.Second), "u", map[string]any{"skipped": 1})
			case "gap":
				from := s.rv
				rv++
				s.rv = rv
				r.stream(s, at, "gap", map[string]any{
					"reason":              "compacted",
					"recovered":           false,
					"since":               at.Add(-time.Second),
					"fromResourceVersion": fmt.Sprint(from),
					"toResourceVersion":   fmt.Sprint(rv),
				})
				r.snapshot(s, at.Add(5*time.Second))
			case "snapshot":
				r.snapshot(s, at)
			case "end":
				if half > 20 && rapid.IntRange(0, 4).Draw(t, "ends") == 0 {
					r.stream(s, at, "scope.ended", map[string]any{
						"resourceVersion": fmt.Sprint(s.rv),
						"end":             "deselected",
					})
					s.ended = true
				}
			}
		}
		if half%2 == 1 {
			continue
		}
		switch rapid.SampledFrom([]string{"", "", "", "", "lags", "missing", "restart"}).Draw(t, "progress") {
		case "lags":
			r.progress(at.Add(15*time.Second), at.Add(-time.Duration(rapid.IntRange(1, 60).Draw(t, "lag"))*time.Second),
				false)
		case "missing":
		case "restart":
			r.progress(at.Add(15*time.Second), at.Add(15*time.Second), true)
			begin := at.Add(20 * time.Second)
			r.begin(begin)
			for _, s := range r.scopes {
				if !s.ended {
					s.away = append(s.away, consume.Interruption{
						Why:   consume.InterruptedStart,
						From:  at.Add(15 * time.Second),
						Until: begin,
					})
					r.stream(s, begin, "scope.started", map[string]any{"resourceVersion": fmt.Sprint(s.rv)})
				}
			}
		default:
			r.progress(at.Add(15*time.Second), at.Add(14*time.Second), false)
		}
	}
	return r.record()
}

// record returns the lines in the order in which they are stored.
func (r *livedRecord) record() string {
	slices.SortStableFunc(r.lines, func(a, b storedLine) int { return a.at.Compare(b.at) })
	var out strings.Builder
	for _, line := range r.lines {
		out.WriteString(line.text)
	}
	return out.String()
}

// judged is what a record says of a scope at a moment, and which objects it has then.
type judged struct {
	certainty certainty.Level
	isClosed  bool   // inside a gap, or after the end of the scope
	words     string // the whole judgement
	objects   map[string]string
}

func judgedAt(t rapid.TB, events []*consume.Event, at timeline.Moment) map[string]judged {
	s := timeline.NewState(at, timeline.Options{})
	for _, e := range events {
		s.Add(e)
	}
	out := map[string]judged{}
	for _, scope := range s.Scopes() {
		words, err := json.Marshal(scope)
		if err != nil {
			t.Fatal(err)
		}
		isInGap := scope.Certainty == certainty.Uncertain && scope.Find(certainty.Filtered) == nil
		j := judged{scope.Certainty, isInGap || scope.Ended != nil, string(words), map[string]string{}}
		for _, v := range s.Objects() {
			if v.Scope == scope.Name {
				j.objects[v.UID] = v.ResourceVersion
			}
		}
		out[cmp.Or(scope.Name, scope.Resource)] = j
	}
	return out
}

// A file to which a part of a record is exported is never more certain than the record, and it has
// the same objects where it is exact. If everything was exported, its end is exact if that moment
// of the record is. It says nothing of later moments.
func TestExportIsAsCertainAsItsRecord(t *testing.T) {
	exact, lessExact := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		record := livedRecordOf(rt)
		source := parse(rt, record)
		span := rapid.IntRange(0, 1100).Draw(rt, "from")
		from := recordBegan.Add(time.Second + time.Duration(span)*time.Second)
		end := from.Add(time.Duration(rapid.IntRange(1, 1190-span).Draw(rt, "seconds")) * time.Second)
		o := replay.Options{From: timeline.At(from), To: timeline.At(end)}
		part := rapid.SampledFrom([]string{"all", "all", "one namespace", "no updates"}).Draw(rt, "part")
		switch part {
		case "one namespace":
			o.Match = func(e *consume.Event) bool { return e.Data == nil || e.Namespace == "a" }
			o.Whole = func(_, scope string) bool { return scope == "pods/a" }
		case "no updates": // as with --op
			o.Match = func(e *consume.Event) bool { return e.Data != nil && e.Op != consume.Updated }
			o.Whole = func(_, _ string) bool { return false }
		}
		text := replayOf(rt, record, o, false)
		export := parse(rt, text)
		atFrom := judgedAt(rt, source, timeline.At(from))
		var moments []time.Time
		for at := from; at.Before(end); at = at.Add(7 * time.Second) {
			moments = append(moments, at)
		}
		for _, at := range append(moments, end, end.Add(time.Nanosecond), end.Add(time.Minute)) {
			want, got := judgedAt(rt, source, timeline.At(at)), judgedAt(rt, export, timeline.At(at))
			for name, g := range got {
				w := want[name]
				isEnded := w.certainty == certainty.Exact && at.After(end) && hasEnded(source, name, end)
				switch {
				case at.After(end) && g.certainty == certainty.Exact && !isEnded:
					rt.Errorf("%s, %s: exact after the end %s", name, at, end)
				case g.certainty == certainty.Exact && w.certainty != certainty.Exact && !at.After(end):
					rt.Errorf("%s, %s of %s: %s, in the record %s", name, at, part, g.words, w.words)
				case g.certainty == certainty.Exact && !at.After(end):
					if diff := gocmp.Diff(w.objects, g.objects); diff != "" {
						rt.Errorf("%s, %s of %s is exact: -record +export\n%s", name, at, part, diff)
					}
				}
				if part != "all" || !at.Equal(end) || atFrom[name].isClosed { // not known up to its next snapshot
					continue
				}
				if (g.certainty == certainty.Exact) != (w.certainty == certainty.Exact) {
					rt.Errorf("%s at the end %s: %s, in the record %s", name, end, g.words, w.words)
				}
				if g.certainty == certainty.Exact {
					exact++
				} else {
					lessExact++
				}
			}
			if part == "all" && at.Equal(end) && len(got) != len(want) {
				rt.Errorf("at the end: %d scopes, in the record %d", len(got), len(want))
			}
		}
		if rt.Failed() {
			rt.Logf("record:\n%s\nexport from %s to %s:\n%s", record, from, end, text)
		}
	})
	if !testing.Short() && (exact < 30 || lessExact < 3) { // a short run has a fifth of the worlds
		t.Errorf("%d ends are exact, %d are not: the test shows little", exact, lessExact)
	}
}

// A scope that is inside a gap at the first moment is not exact in an export up to its next
// snapshot. The end of a scope that is exported in part does not make it exact.
func TestExportOfAGapAndOfAnEnd(t *testing.T) {
	r := &livedRecord{t: t}
	a, b := &livedScope{name: "pods/a", rv: 100}, &livedScope{name: "pods/b", rv: 100}
	r.scopes = []*livedScope{a, b}
	r.begin(minute(0))
	for _, s := range r.scopes {
		r.stream(s, minute(0), "scope.started", map[string]any{"resourceVersion": "100", "initial": true})
		r.snapshot(s, minute(0))
	}
	a.rv = 101
	r.stream(a, minute(3), "gap", map[string]any{
		"reason":              "compacted",
		"recovered":           false,
		"since":               minute(2.9),
		"fromResourceVersion": "100",
		"toResourceVersion":   "101",
	})
	r.snapshot(a, minute(4.5))
	r.stream(b, minute(5), "scope.ended", map[string]any{"resourceVersion": "101", "end": "deselected"})
	for m := 1.0; m <= 9; m++ {
		b.ended = m >= 5
		r.progress(minute(m+0.2), minute(m+0.1), false)
	}
	record := r.record()
	certaintiesOf := func(o replay.Options, at float64) string {
		o.From, o.To = timeline.At(minute(3.5)), timeline.At(minute(7))
		return certainties(t, replayOf(t, record, o, false), timeline.At(minute(at)))
	}
	all := replay.Options{}
	part := replay.Options{
		Match: func(e *consume.Event) bool { return e.Data == nil || e.Namespace == "a" },
		Whole: func(_, scope string) bool { return scope == "pods/a" },
	}
	for _, c := range []struct {
		name string
		o    replay.Options
		at   float64
		want string
	}{
		{"in the gap", all, 4, "pods/a unknown, pods/b exact"},
		{"after the snapshot", all, 4.9, "pods/a exact, pods/b late"},
		{"at the end", all, 7, "pods/a exact, pods/b exact"},
		{"at the end of a part", part, 7, "pods/a exact, pods/b unknown"},
	} {
		if got := certaintiesOf(c.o, c.at); got != c.want {
			t.Errorf("%s: want %s, got %s", c.name, c.want, got)
		}
	}
	if got := certainties(t, record, timeline.At(minute(4))); got != "pods/a uncertain, pods/b exact" {
		t.Errorf("the record: %s", got)
	}
}

// hasEnded reports whether a scope has ended by a time, so that it is known for ever.
func hasEnded(events []*consume.Event, scope string, by time.Time) bool {
	return slices.ContainsFunc(events, func(e *consume.Event) bool {
		return e.Type == consume.TypeScopeEnded && e.Scope == scope && !e.Time.After(by)
	})
}
