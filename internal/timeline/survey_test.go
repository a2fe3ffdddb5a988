package timeline_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/certainty"
	"github.com/kubecdc/kubecdc/internal/timeline"
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
func checkSurvey(t *rapid.T, log []*consume.Event, since, until time.Time) (isProven bool, versions []*timeline.Version) {
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
				t.Fatalf("at %s: %s is %+v, and the survey says %+v from %s to %s", at, name, scope, p.Scopes[k], p.Since, p.Until)
			case p.Scopes[k].Certainty == certainty.Exact && (p.Scopes[k].Ended != nil) != (scope.Ended != nil):
				t.Fatalf("at %s: %s has ended: %+v, and the survey says %+v", at, name, scope.Ended, p.Scopes[k].Ended)
			}
		}
	}
	if exact != isProven {
		t.Fatalf("from %s to %s: all moments are exact: %t, the survey proves them: %t: %+v", since, until, exact, isProven, parts)
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
	if proven == 0 {
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
				w.t.Fatalf("from %s to %s: the change of %s to %s is not among the versions: %v", since, until, r.key(), fmt.Sprint(r.rv), has)
			}
		}
	}
}

// The same in the worlds of TestSuccession, in which several agents observe scopes one after the
// other, or together.
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
