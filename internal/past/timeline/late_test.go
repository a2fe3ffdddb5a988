package timeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// lateOf returns the late spans of a record that end after since and begin before a moment, as they
// become known.
func lateOf(log []*consume.Event, since time.Time, m timeline.Moment) []timeline.Late {
	f := timeline.NewFold(m, timeline.Options{Late: true})
	var out []timeline.Late
	for _, e := range log {
		f.Add(e)
		if e.Progress != nil {
			out = append(out, f.Late(since, false)...)
		}
		if f.Done() {
			break
		}
	}
	return append(out, f.Late(since, true)...)
}

func TestLateSpans(t *testing.T) {
	const steady = `
		0 begin @10 initial
		0 started S1 @10
		0.1 completed S1 @10
		1 progress @20
		2 progress @30`
	for name, c := range map[string]struct{ record, since, until, want string }{
		"none": {steady, "-1", "20", ""},
		"a watch that had ended": {steady + `
			3 progress @40 away=closed/2.2-2.5
			4 progress @40 away=closed/2.2-2.5`, "-1", "20", "2.2-2.5 closed"},
		"after the span": {steady + `
			3 progress @40 away=closed/2.2-2.5`, "2.5", "20", ""},
		"before the span": {steady + `
			3 progress @40 away=closed/2.2-2.5`, "-1", "2.2", ""},
		"two, the first of which is said again": {steady + `
			3 progress @40 away=closed/2.2-2.5
			4 progress @40 away=closed/2.2-2.5 away=closed/3.2-3.5
			5 progress @40 away=closed/2.2-2.5 away=closed/3.2-3.5`, "-1", "20", "2.2-2.5 closed, 3.2-3.5 closed"},
		"two that overlap: the earlier one is the cause": {steady + `
			3 progress @40 away=cut/2.4-2.9 away=closed/2.2-2.5`, "-1", "20", "2.2-2.9 closed"},
		"one that began before the first report": {`
			0 begin @10 initial
			0 started S1 @10
			0.1 completed S1 @10
			3 progress @40 since=2 away=closed/1.5-2.5`, "-1", "20", "0.1-2.5 unheard"},
		"no claim before the end": {`
			0 begin @10 initial
			0 started S1 @10
			0.1 completed S1 @10
			4 progress since=3
			5 end deselected @45`, "-1", "20", "0.1-3 unheard, 3-5 ended"},
		"one that is not over": {steady + `
			3 progress @40 to=2.2 away=silent/2.2
			4 progress @40 to=2.2 away=silent/2.2`, "-1", "20", ""},
		"one that was none": {steady + `
			3 progress @40 to=2.2 away=silent/2.2
			4 progress @40`, "-1", "20", ""},
		"progress is missing": {steady + `
			14 progress @60 since=4.5`, "-1", "20", "2-4.5 unheard"},
		"an agent was killed": {steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000
			16 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "-1", "20", "2-14.2 start"},
		"the scope ended, and was started again": {steady + `
			3 progress @40 away=closed/2.2-2.5
			5 end deselected @45
			8 begin @60 initial
			8 started S2 @60
			8.1 completed S2 @60
			9 progress @60`, "-1", "20", "2.2-2.5 closed, 3-5 ended"},
		"another agent observed it": {steady + `
			2.1 begin @31 writer=v
			2.2 progress @32 writer=v since=2
			3 progress @40 away=closed/2.2-2.5
			3.2 progress @40 writer=v`, "-1", "20", ""},
		"another agent was away too": {steady + `
			2.1 begin @31 writer=v
			2.2 progress @32 writer=v since=2
			3 progress @40 away=closed/2.2-2.6
			3.2 progress @40 writer=v away=cut/2.4-2.9`, "-1", "20", "2.4-2.6 closed"},
		"another agent is silent": {steady + `
			0.5 begin @11 writer=v
			1.2 progress @22 writer=v since=0
			3 progress @40 away=closed/2.2-2.6
			20 progress @50 since=2 away=closed/2.2-2.6`, "-1", "30", "2.2-2.6 closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, l := range lateOf(record(c.record), minute(c.since), timeline.At(minute(c.until))) {
				got = append(got,
					fmt.Sprintf("%v-%v %s", l.Cause.From.Time.Sub(noon).Minutes(), l.Cause.To.Time.Sub(noon).Minutes(),
						l.Cause.Why))
			}
			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}

// A late span is returned at the first progress after which no writer may still report that it
// observed the scope.
func TestLateSpansAreReturnedWhenAllWritersHaveReported(t *testing.T) {
	t.Parallel()
	const steady = `
		0 begin @10 initial writer=v
		0 begin @10 initial
		0 started S1 @10
		0.1 completed S1 @10
		1 progress @20`
	const away = "\n3 progress @40 away=closed/2.2-2.5"
	for name, c := range map[string]struct{ record, want string }{
		"one writer": {
			strings.Replace(steady, "\n\t\t0 begin @10 initial writer=v", "", 1) + away, "at 3: 2.2-2.5",
		},
		"no other writer was heard of": {steady + away, "at 3: 2.2-2.5"},
		"the other one reports": {steady + `
			1 progress @20 writer=v` + away + `
			3.2 progress @40 writer=v away=cut/2-4`, "at 3.2: 2.2-2.5"},
		"the other one has ended": {steady + `
			1 progress @20 writer=v
			2 end removed @30 writer=v` + away, "at 3: 2.2-2.5"},
		"the other one is silent for long": {steady + `
			1 progress @20 writer=v` + away + `
			13 progress @40
			14 progress @40`, "at 14: 2.2-2.5"},
		"the scope ended, and began again": {steady + away + `
			5 end removed @45
			5 end removed @45 writer=v
			8 begin @60 initial
			8 started S2 @60
			8.1 completed S2 @60
			9 progress @60`, "at 3: 2.2-2.5, at 9: 3-5"},
	} {
		f := timeline.NewFold(timeline.At(minute("20")), timeline.Options{Late: true})
		var got []string
		for _, e := range record(c.record) {
			f.Add(e)
			if e.Progress == nil {
				continue
			}
			for _, l := range f.Late(minute("-1"), false) {
				got = append(got, fmt.Sprintf("at %v: %v-%v", e.Time.Sub(noon).Minutes(),
					l.Cause.From.Time.Sub(noon).Minutes(), l.Cause.To.Time.Sub(noon).Minutes()))
			}
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: got %q, want %q", name, text, c.want)
		}
	}
}

// If the answer about a moment is late, the moment is inside a late span. No moment inside one is
// exact. The worlds are those of TestState and of TestSurveyOfSuccessions.
func TestLateSpansAreThoseOfMoments(t *testing.T) {
	t.Parallel()
	met := 0
	check := func(t *rapid.T, log []*consume.Event) {
		since, until := span(t, log)
		spans := lateOf(log, since, timeline.At(until))
		met += len(spans)
		for _, at := range timesOf(log) {
			if !at.After(since) || !at.Before(until) { // the answer has the certainty of its ends
				continue
			}
			inside, touches := map[string]bool{}, map[string]bool{}
			for _, l := range spans {
				from, to := l.Cause.From.Time, l.Cause.To.Time
				inside[l.Scope] = inside[l.Scope] || from.Before(at) && at.Before(to)
				touches[l.Scope] = touches[l.Scope] || !at.Before(from) && !to.Before(at)
			}
			for name, scope := range stateAt(log, at) {
				isLateOutside := scope.Certainty == certainty.Late && !touches[name]
				isExactInside := scope.Certainty == certainty.Exact && scope.Ended == nil && inside[name]
				if isLateOutside || isExactInside {
					t.Fatalf("at %s: %s is %+v; from %s to %s, the late spans are %+v", at, name, scope, since, until,
						spans)
				}
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.live(t)
		defer w.logRecord()
		check(t, w.log)
	})
	rapid.Check(t, func(t *rapid.T) {
		x := newSuccession(t)
		x.live(t)
		if len(x.log) > 0 {
			check(t, x.log)
		}
	})
	if met == 0 {
		t.Error("no world has a late span: the test shows nothing")
	}
}
