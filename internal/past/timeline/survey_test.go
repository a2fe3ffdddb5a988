package timeline_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// surveyOf returns the parts of a span of a record, and the versions in it.
func surveyOf(log []*consume.Event, since, until time.Time) ([]timeline.Part, []*timeline.Version) {
	s := timeline.NewSurvey(since, until, timeline.Options{})
	var all []*timeline.Version
	for more := true; more; more = s.Next() {
		for _, e := range log {
			all = append(all, s.Add(e)...)
			if s.Done() {
				break
			}
		}
	}
	all = slices.DeleteFunc(all, func(v *timeline.Version) bool { return !v.Time.After(since) })
	return s.Parts(), all
}

// timesOf returns the times that a record names, and those a nanosecond before and after each.
func timesOf(log []*consume.Event) []time.Time {
	var out []time.Time
	add := func(times ...time.Time) {
		for _, t := range times {
			if !t.IsZero() {
				out = append(out, t.Add(-1), t, t.Add(1), t.Add(7*time.Second))
			}
		}
	}
	for _, e := range log {
		add(e.Time)
		if e.Stream != nil {
			add(e.Stream.Since)
		}
		if e.Progress == nil {
			continue
		}
		add(e.Progress.Since, consume.RunBegan(e.Progress.Run))
		for _, s := range e.Progress.Scopes {
			add(s.To)
			for _, i := range s.Interruptions {
				add(i.From, i.Until)
			}
			for _, h := range s.Hidden {
				add(h.From, h.Until)
			}
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.CompactFunc(out, time.Time.Equal)
}

// stateAt returns the certainty of each scope at a moment, as get says it.
func stateAt(log []*consume.Event, at time.Time) map[string]certainty.Scope {
	s := timeline.NewState(timeline.At(at), timeline.Options{})
	for _, e := range log {
		s.Add(e)
		if s.Done() {
			break
		}
	}
	out := map[string]certainty.Scope{}
	for _, scope := range s.Scopes() {
		out[scope.Name] = scope
	}
	return out
}

// checkSurvey compares the survey of a span with the answers about its moments. It returns whether
// the survey proves the span, and the versions in it.
func checkSurvey(
	t *rapid.T, log []*consume.Event, since, until time.Time,
) (isProven bool, versions []*timeline.Version) {
	parts, versions := surveyOf(log, since, until)
	if !parts[0].Since.Equal(since) || !parts[len(parts)-1].Until.Equal(until) {
		t.Fatalf("the parts of %s to %s are %+v", since, until, parts)
	}
	isProven = true
	for k, p := range parts {
		if k > 0 && !p.Since.Equal(parts[k-1].Until.Add(1)) || p.Until.Before(p.Since) {
			t.Fatalf("part %d of %s to %s begins at %s and ends at %s", k, since, until, p.Since, p.Until)
		}
		isProven = isProven && certainty.Worst(p.Scopes) == certainty.Exact
	}
	exact := true
	for _, at := range append(timesOf(log), since, until) {
		if at.Before(since) || at.After(until) {
			continue
		}
		k := slices.IndexFunc(parts, func(p timeline.Part) bool { return !p.Until.Before(at) })
		p := parts[k]
		of := stateAt(log, at)
		exact = exact && len(of) > 0
		for name, scope := range of {
			exact = exact && scope.Certainty == certainty.Exact
			k := slices.IndexFunc(p.Scopes, func(s certainty.Scope) bool { return s.Name == name })
			switch {
			case k < 0:
				t.Fatalf("at %s: %s is %+v, and the survey does not have it: %+v", at, name, scope, p)
			case p.Scopes[k].Certainty == certainty.Exact && scope.Certainty != certainty.Exact:
				t.Fatalf("at %s: %s is %+v, and the survey says %+v from %s to %s", at, name, scope, p.Scopes[k],
					p.Since, p.Until)
			case p.Scopes[k].Certainty == certainty.Exact && (p.Scopes[k].Ended != nil) != (scope.Ended != nil):
				t.Fatalf("at %s: %s has ended: %+v, and the survey says %+v", at, name, scope.Ended, p.Scopes[k].Ended)
			}
		}
	}
	if exact != isProven {
		t.Fatalf("from %s to %s: all moments are exact: %t, the survey proves them: %t: %+v", since, until, exact,
			isProven, parts)
	}
	return isProven, versions
}

// span draws a span between times that a record names.
func span(t *rapid.T, log []*consume.Event) (since, until time.Time) {
	times := timesOf(log)
	k := rapid.IntRange(0, len(times)-1).Draw(t, "since")
	n := rapid.IntRange(k, len(times)-1).Draw(t, "until")
	return times[k], times[n]
}

// The survey of a span agrees with the answer about each of its moments, in the generated worlds of
// TestState. If it proves the span, every change of etcd in it is among the versions, unless the
// change left a selection.
func TestSurvey(t *testing.T) {
	proven := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.live(t)
		defer w.logRecord()
		for range 6 {
			since, until := span(t, w.log)
			isProven, versions := checkSurvey(t, w.log, since, until)
			if isProven {
				proven++
				w.checkChanges(since, until, versions)
			}
		}
	})
	if proven == 0 && !testing.Short() { // a short run has few worlds
		t.Error("no span was proven")
	}
}

// checkChanges compares the versions of a proven span with the history of etcd.
func (w *world) checkChanges(since, until time.Time, versions []*timeline.Version) {
	has := map[string]bool{}
	for _, v := range versions {
		has[v.UID+" "+v.ResourceVersion] = true
	}
	for history, all := range w.etcd {
		was := map[string]thing{}
		for _, r := range all {
			before := was[r.key()]
			was[r.key()] = r.thing
			isCopy := history > 0 && slices.Contains(w.etcd[history-1], r)
			isIn := r.time.After(since) && !r.time.After(until) && !isCopy
			if isIn && (r.selected() || before.selected()) && !has[r.uid+" "+fmt.Sprint(r.rv)] {
				w.logRecord()
				w.t.Fatalf("from %s to %s: the change of %s to %s is not among the versions: %v", since, until, r.key(),
					fmt.Sprint(r.rv), has)
			}
		}
	}
}

// As TestSurvey, in the worlds of TestSuccession: several agents observe a scope, one after the
// other or together.
func TestSurveyOfSuccessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newSuccession(t)
		x.live(t)
		if len(x.log) == 0 {
			return
		}
		for range 6 {
			since, until := span(t, x.log)
			checkSurvey(t, x.log, since, until)
		}
	})
}

// A span is divided where its certainty changes: "from-until certainty, …", in minutes.
func TestPartsOfASpan(t *testing.T) {
	t.Parallel()
	const steady = `
		0 begin @10 initial
		0 started S1 @10 initial
		0 r web/1 @5 S1
		0.1 completed S1 @10
		1 progress @20
		2 progress @30
		3 progress @30
		4 progress @40`
	for _, c := range []struct {
		name, record string
		since, until string
		want         string
	}{
		{"nothing happens", steady, "1", "4", "1-4 exact"},
		{"the begin and the end", steady, "-5", "9", "-5-0.1 unknown, 0.1-4 exact, 4-9 unknown"},
		{"an interruption", steady + `
			5 progress @50 away=closed/4.2-4.5
			6 progress @60`, "1", "6", "1-4.2 exact, 4.2-4.5 late, 4.5-6 exact"},
		{"an interruption of objects without a namespace", strings.ReplaceAll(steady, "@5 S1", "@5 S1 ns= scope=pods") + `
			5 progress @50 away=closed/4.2-4.5
			6 progress @60`, "1", "6", "1-4.2 exact, 4.2-4.5 late, 4.5-6 exact"},
		{"two interruptions", steady + `
			5 progress @50 away=closed/4.2-4.5 away=cut/4.7-4.8
			6 progress @60`, "1", "6", "1-4.2 exact, 4.2-4.5 late, 4.5-4.7 exact, 4.7-4.8 late, 4.8-6 exact"},
		{"many interruptions", steady + `
			5 progress @50 away=closed/4.1-4.2 away=closed/4.3-4.4 away=closed/4.5-4.6 away=closed/4.7-4.8
			6 progress @60 away=closed/5.1-5.2 away=closed/5.3-5.4 away=closed/5.5-5.6 away=closed/5.7-5.8
			7 progress @70`, "4", "6", "4-4.1 exact, 4.1-4.2 late, 4.2-4.3 exact, 4.3-4.4 late, 4.4-4.5 exact, " +
			"4.5-4.6 late, 4.6-4.7 exact, 4.7-4.8 late, 4.8-5.1 exact, 5.1-5.2 late, 5.2-5.3 exact, " +
			"5.3-5.4 late, 5.4-5.5 exact, 5.5-5.6 late, 5.6-5.7 exact, 5.7-5.8 late, 5.8-6 exact"},
		{"a hidden span", steady + `
			5 progress @50 hidden=4.2/41-4.6/45
			6 progress @60`, "1", "6", "1-4.2 exact, 4.2-4.6 uncertain, 4.6-6 exact"},
		{"missing progress", steady + `
			9 progress @50 since=6
			10 progress @60`, "1", "10", "1-4 exact, 4-6 late, 6-10 exact"},
		{"a gap", steady + `
			5 gap compacted 40-60 since=4
			5.1 started S2 @60
			5.5 completed S2 @60
			6 progress @70
			7 progress @80`, "1", "7", "1-4 exact, 4-5.5 uncertain, 5.5-7 exact"},
		{"a scope that ends, and is begun again", steady + `
			5 end deselected @50
			7 begin @70 initial
			7 started S2 @70 initial
			7.2 completed S2 @70
			8 progress @80 since=7
			9 progress @90 since=7`, "1", "9", "1-4 exact, 4-5 late, 5-7 exact ended, 7-7.2 unknown, 7.2-9 exact"},
		{"another agent covers an interruption", `
			0 begin @10 initial writer=v
			0 begin @10 initial
			0 started S1 @10 initial
			0.1 completed S1 @10
			1 progress @20
			1 progress @20 writer=v
			5 progress @50 away=cut/2-3
			5 progress @50 writer=v away=cut/4-4.5`, "1", "5", "1-5 exact"},
		{"another agent covers a part of it", `
			0 begin @10 initial writer=v
			0 begin @10 initial
			0 started S1 @10 initial
			0.1 completed S1 @10
			1 progress @20
			1 progress @20 writer=v
			5 progress @50 away=cut/2-4
			5 progress @50 writer=v away=cut/3-4.5`, "1", "5", "1-3 exact, 3-4 late, 4-5 exact"},
		{"a dead letter, and the next event of its object", steady + `
			4.2 gap dead-letter 40-45 @45 since=4.2 letter=pods/1/45
			4.8 u web/1 @48 was=45
			5 progress @50
			6 progress @60`, "1", "6", "1-4.2 exact, 4.2-4.8 uncertain, 4.8-6 exact"},
	} {
		log := record(c.record)
		parts, _ := surveyOf(log, minute(c.since), minute(c.until))
		var got []string
		var begin, last string
		for k, p := range parts {
			until := p.Until
			if k < len(parts)-1 {
				until = until.Add(1)
			}
			text := certainty.Worst(p.Scopes).String()
			if slices.ContainsFunc(p.Scopes, func(s certainty.Scope) bool { return s.Ended != nil }) {
				text += " ended"
			}
			from := fmt.Sprint(p.Since.Sub(noon).Minutes())
			if n := len(got) - 1; n >= 0 && text == last { // adjacent parts of one certainty
				from, got = begin, got[:n]
			}
			begin, last = from, text
			got = append(got, fmt.Sprintf("%s-%g %s", from, until.Sub(noon).Minutes(), text))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, text, c.want)
		}
	}
}

// A reader may ask for the scopes of a survey, and then add more events. In this record, the gap
// seems to be over at the first progress, until a snapshot starts.
func TestQuestionDoesNotChangeTheParts(t *testing.T) {
	t.Parallel()
	log := record(`
		0 begin @10 initial
		0 started S1 @10 initial
		0.1 completed S1 @10
		1 progress @20
		4 progress @40
		5 gap expired 40-60 since=4
		6 progress @70
		6.1 started S2 @75
		6.5 completed S2 @75
		7 progress @80
		8 progress @90`)
	since, until := minute("1"), minute("8")
	want, _ := surveyOf(log, since, until)
	s := timeline.NewSurvey(since, until, timeline.Options{})
	for more := true; more; more = s.Next() {
		for _, e := range log {
			s.Add(e)
			if first, again := s.Scopes(), s.Scopes(); !reflect.DeepEqual(first, again) {
				t.Errorf("after %s: scopes are %+v, and then %+v", e.ID, first, again)
			}
		}
	}
	if got := s.Parts(); !reflect.DeepEqual(got, want) {
		t.Errorf("parts with questions:\n%+v\nwithout:\n%+v", got, want)
	}
}

// A scope may begin inside a span, while a larger one has its objects. It is a scope of the later
// part of the span.
func TestScopeThatBeginsInsideASpan(t *testing.T) {
	t.Parallel()
	const events = `
		0 begin @10 initial
		0 started S1 @10 initial
		0.1 completed S1 @10
		1 progress @20 scope=pods
		4 progress @40 scope=pods
		5 begin @50 initial scope=pods/shop
		5 started S2 @50 initial scope=pods/shop
		5.1 completed S2 @50 scope=pods/shop
		6 progress @60 scope=pods
		6 progress @60 scope=pods/shop
		9 progress @90 scope=pods
		9 progress @90 scope=pods/shop`
	parts, _ := surveyOf(record(events), minute("2"), minute("8"))
	first, last := parts[0], parts[len(parts)-1]
	if len(first.Scopes) != 1 || certainty.Worst(first.Scopes) != certainty.Exact {
		t.Errorf("before it began: %+v, want one exact scope", first)
	}
	if len(last.Scopes) != 2 || certainty.Worst(last.Scopes) != certainty.Exact {
		t.Errorf("after it has begun: %+v, want two exact scopes", last)
	}
}

// The first reading of a survey returns the versions of the span. The later ones only judge it.
func TestVersionsOfASurvey(t *testing.T) {
	t.Parallel()
	log := record(`
		0 begin @10 initial
		0 started S1 @10 initial
		0 r web/1 @5 S1
		0 r api/2 @6 S1
		0.1 completed S1 @10
		1 progress @20
		2 u web/1 @21
		2 u api/2 @22
		5 progress @50 away=closed/4.2-4.5
		6 progress @60`)
	s := timeline.NewSurvey(minute("1"), minute("6"), timeline.Options{})
	for reading, want := range []string{"web @5, api @6, web @21, api @22", ""} {
		var got []string
		for _, e := range log {
			for _, v := range s.Add(e) {
				got = append(got, v.Name+" @"+v.ResourceVersion)
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("reading %d: %q, want %q", reading, text, want)
		}
		if len(s.Scopes()) == 0 {
			t.Errorf("reading %d has no scopes", reading)
		}
		if isLast := want == ""; s.Next() == isLast {
			t.Errorf("reading %d is the last one: %t, want %t", reading, !isLast, isLast)
		}
	}
}

// A later reading needs the objects of a resource whose scopes the record does not name: they alone
// show that the resource was observed.
func TestSurveyNeedsObjectsOfAResourceWithoutScopes(t *testing.T) {
	t.Parallel()
	const named = `
		0 begin @10 initial
		0 started S1 @10 initial
		0 r web/1 @5 S1
		0.1 completed S1 @10
		1 progress @20
		5 progress @50 away=closed/4.2-4.5
		6 progress @60`
	for events, want := range map[string]bool{named: false, named + "\n5 c one/2 @45 resource=nodes ns=": true} {
		s := timeline.NewSurvey(minute("1"), minute("6"), timeline.Options{})
		for _, e := range record(events) {
			s.Add(e)
		}
		if !s.Next() {
			t.Fatal("there is no second reading")
		}
		if got := s.NeedsObjects(); got != want {
			t.Errorf("needs objects: %t, want %t, of the record%s", got, want, events)
		}
	}
}
