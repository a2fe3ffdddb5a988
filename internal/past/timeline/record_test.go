package timeline_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// The tests write records in a small language, and read the certainty of a scope as a text.

// record reads a record. Each line is an event, and begins with the minute at which it was
// observed:
//
//	0 begin @10 continued · 9 end removed @90 · 0 started S1 @20 · 0 completed S1 @20 · scope=… · h1 · writer=v · run=1-5
//	5 progress @20 to=4.9 since=-5 away=closed/3-4 hidden=3/15-4/18 ends · 5 former @20 · 5 gap expired 10-20 since=3 recovered
//	1 c web/1 @10 · u web/1 @12 was=10 skipped=2 · r web/1 @10 S1 · resource=secrets · ns=other · letter=pods/1/12
//
// Progress without scope= is about all scopes of the resource.
func record(lines string) []*consume.Event {
	var out []*consume.Event
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		out = append(out, recordLine(strings.Fields(line), len(out)))
	}
	return out
}

func recordLine(f []string, n int) *consume.Event {
	e := &consume.Event{
		Source:     source,
		APIVersion: "v1",
		Kind:       "Pod",
		Resource:   "pods",
		Namespace:  "shop",
		Time:       minute(f[0]),
	}
	st := &consume.Stream{Writer: "w", Run: "1-1795176000000"}
	p := &consume.Progress{Writer: "w", Run: st.Run, Number: n + 1, Since: e.Time.Add(-10 * time.Minute)}
	entry := consume.ScopeProgress{To: e.Time}
	for _, x := range f[2:] {
		key, value, _ := strings.Cut(x, "=")
		switch {
		case x[0] == '@':
			e.ResourceVersion, e.Sequence = x[1:], x[1:]
		case key == "scope":
			e.Scope, entry.Scope = value, value
		case key == "resource":
			e.Resource = value
		case key == "cluster":
			e.Cluster, e.ClusterUID = "x", value
		case key == "group":
			e.APIVersion = value + "/v1"
		case key == "ns":
			e.Namespace = value
		case key == "since":
			st.Since, p.Since = minute(value), minute(value)
		case key == "letter":
			st.DeadLetter = value
		case key == "writer":
			st.Writer, p.Writer = value, value
		case key == "run":
			st.Run, p.Run = value, value
		case key == "to":
			entry.To = minute(value)
		case key == "away":
			entry.Interruptions = append(entry.Interruptions, interruption(value))
		case key == "hidden":
			entry.Hidden = append(entry.Hidden, hidden(value))
		case x == "ends":
			p.Ends = true
		case x == "recovered":
			st.Recovered = true
		case x == "initial":
			st.Initial = true
		case x == "noise":
			st.Rules = []consume.Rule{{Noise: []string{"status-only"}}}
		case x == "where":
			st.Rules = []consume.Rule{{Where: "after.spec.suspend != true"}}
		case x == "continued":
			st.Continued = true
		case len(x) == 2 && x[0] == 'h':
			e.ID, entry.History = "/"+x, uint32(number(x[1:]))
		}
	}
	e.ID = fmt.Sprintf("%s/%s/%d%s", f[1], f[2], n, e.ID)
	st.ResourceVersion = e.ResourceVersion
	entry.ResourceVersion = e.ResourceVersion
	entry.Resource = e.GroupResource()
	switch f[1] {
	case "started", "completed":
		e.Type = consume.EventType(consume.TypePrefix + "snapshot." + f[1])
		e.Stream = st
		st.Snapshot = f[2]
	case "begin":
		e.Type, e.Stream = consume.TypeScopeStarted, st
	case "end":
		e.Type = consume.TypeScopeEnded
		e.Stream = st
		st.End = consume.EndReason(f[2])
	case "former":
		e.Type, e.Stream = consume.TypeProgress, &consume.Stream{ResourceVersion: e.ResourceVersion}
	case "progress":
		p.Scopes = []consume.ScopeProgress{entry}
		return &consume.Event{
			ID:         e.ID,
			Type:       consume.TypeProgress,
			Source:     e.Source,
			ClusterUID: e.ClusterUID,
			Time:       e.Time,
			Progress:   p,
		}
	case "gap":
		e.Type = consume.TypeGap
		e.Stream = st
		st.Reason = consume.GapReason(f[2])
		st.FromResourceVersion, st.ToResourceVersion, _ = strings.Cut(f[3], "-")
		st.ResourceVersion = ""
	default:
		recordObject(e, f)
	}
	if e.Stream != nil {
		e.Namespace = ""
		if e.Scope == "" {
			e.Scope = e.GroupResource()
		}
	}
	return e
}

// recordObject completes the event of an object.
func recordObject(e *consume.Event, f []string) {
	e.Op, e.Data = consume.Op(f[1]), &consume.Data{Op: consume.Op(f[1])}
	e.Name, e.UID, _ = strings.Cut(f[2], "/")
	if e.Op != consume.Deleted && e.Op != consume.Left {
		e.Data.After = json.RawMessage(`{"kind":"Pod"}`)
	}
	for _, x := range f[3:] {
		switch key, value, _ := strings.Cut(x, "="); {
		case key == "was":
			e.Data.PreviousResourceVersion = value
		case key == "skipped":
			e.Data.Skipped = int(number(value))
		case key == "after":
			e.Data.After = json.RawMessage(value)
		case x[0] == 'S':
			e.Data.Snapshot = x
		}
	}
}

// interruption reads "why/from-until"; without until it is not over.
func interruption(s string) consume.Interruption {
	why, span, _ := strings.Cut(s, "/")
	from, until, over := strings.Cut(span, "-")
	i := consume.Interruption{Why: consume.InterruptionReason(why), From: minute(from)}
	if over {
		i.Until = minute(until)
	}
	return i
}

// hidden reads "minute/resourceVersion-minute/resourceVersion"; without the second half it is not
// over.
func hidden(s string) consume.HiddenSpan {
	from, until, over := strings.Cut(s, "-")
	at, rv, _ := strings.Cut(from, "/")
	h := consume.HiddenSpan{From: minute(at), FromResourceVersion: rv}
	if over {
		at, rv, _ = strings.Cut(until, "/")
		h.Until, h.UntilResourceVersion = minute(at), rv
	}
	return h
}

// minute is a time so many minutes after noon.
func minute(s string) time.Time {
	d, err := time.ParseDuration(s + "m")
	if err != nil {
		panic(err)
	}
	return noon.Add(d)
}

// parse is a moment: "rv:10", minutes after noon, "now 5", or "" for the end.
func parse(t *testing.T, s string) timeline.Moment {
	now, isNow := strings.CutPrefix(s, "now ")
	switch {
	case s == "":
		return timeline.Moment{}
	case isNow:
		return timeline.Now(minute(now))
	case !strings.HasPrefix(s, "rv:"):
		return timeline.At(minute(s))
	}
	m, err := timeline.ParseMoment(s, noon)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// lettersOf returns the dead letters that the state of a scope lacks.
func lettersOf(s *certainty.Scope) []string {
	if c := s.Find(certainty.DeadLetter); c != nil {
		return c.DeadLetters
	}
	return nil
}

func describe(s *certainty.Scope, byVersion bool) string {
	text := s.Certainty.String()
	bound := func(name string, b certainty.Bound) {
		if b.ResourceVersion == "" || byVersion && s.Certainty == certainty.Exact {
			return
		}
		text += " " + name + " " + b.ResourceVersion
		if b.History > 0 {
			text += fmt.Sprint("/h", b.History)
		}
	}
	bound("from", s.From)
	bound("to", s.To)
	for _, c := range s.Causes {
		bound("from", c.From)
		bound("to", c.To)
		switch c.Kind {
		case certainty.Interrupted:
			text += fmt.Sprintf(" from %v to %v: %s", c.From.Time.Sub(noon).Minutes(), c.To.Time.Sub(noon).Minutes(),
				c.Why)
			if !c.Stopped.IsZero() {
				text += fmt.Sprintf(", stopped at %v", c.Stopped.Sub(noon).Minutes())
			}
		case certainty.EtcdNotKnown:
			text += ", of an etcd that is not known"
		case certainty.FormerRelease:
			text += " former"
		case certainty.Gap, certainty.RecoveredGap:
			text += ": " + string(c.Reason)
			if !c.ScopeEnded.IsZero() {
				text += fmt.Sprintf(", open at its end at %v", c.ScopeEnded.Sub(noon).Minutes())
			}
		case certainty.Filtered, certainty.DeadLetter:
			text += ": " + string(c.Kind)
		}
		if c.Kind == certainty.RecoveredGap {
			text += " recovered"
		}
	}
	if s.Ended != nil {
		text += " ended " + string(s.Ended.Reason)
	}
	for _, c := range []struct {
		name string
		n    int
	}{{"skipped", s.Skipped}, {"left", s.Left}, {"redacted", s.Redacted}} {
		if c.n > 0 {
			text += fmt.Sprint(" ", c.name, " ", c.n)
		}
	}
	if letters := lettersOf(s); len(letters) > 0 {
		text += fmt.Sprint(" ", letters)
	}
	return text
}
