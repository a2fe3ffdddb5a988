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

// record reads a record, an event in a line, after the minute at which it was observed:
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

func TestScopes(t *testing.T) {
	const steady = `
		0 started S1 @10
		0 r web/1 @5 S1
		0.1 completed S1 @10
		1 progress @20
		2 progress @30
		3 progress @30
		4 progress @40`
	const reformed = `
		4.5 gap content-changed 32-41 since=3.2
		5 started S2 @50
		5 r web/1 @5 S2
		6 completed S2 @50
		7 progress @60
		8 progress @70`
	for _, c := range []struct{ name, record, at, want string }{
		{"before the first snapshot", steady, "rv:9", "unknown to 10"},
		{"at the first snapshot", steady, "rv:10", "exact"},
		{"between", steady, "rv:25", "exact"},
		{"after the last progress", steady, "rv:41", "unknown from 40"},
		{"of a history that is to come", steady, "rv:25/h1", "unknown from 40"},
		{"by time, inside the first snapshot", steady, "0.05", "unknown to 10"},
		{"by time", steady, "2.5", "exact from 30 to 30"},
		{"by time, at a progress", steady, "3", "exact from 30 to 40"},
		{"by time, after the last progress", steady, "4.5", "unknown from 40"},
		{"now", steady, "now 5", "exact from 40"},
		{"now, and the agent is silent", steady, "now 6.5", "unknown from 40"},
		{"the end, however old", steady, "", "exact from 40"},
		{
			"a run that ended the scope and began it again, while another agent was killed", `
			0 begin @10 initial
			0 started S1 @10 initial
			0.1 completed S1 @10
			0.2 begin @12 initial writer=v
			1 progress @20
			1.1 end taken-over @20 writer=v
			6 begin @40 continued writer=v
			7 progress @50 writer=v
			8 progress @60 writer=v`, "3", "late from 1 to 6: unheard",
		},
		{
			"the same, and its progress had spoken of the scope", `
			0 begin @10 initial
			0 started S1 @10 initial
			0.1 completed S1 @10
			0.2 begin @12 initial writer=v
			1 progress @20
			1.05 progress @20 writer=v
			1.1 end taken-over @20 writer=v
			6 begin @40 continued writer=v
			7 progress @50 writer=v
			8 progress @60 writer=v`, "3", "late from 1.05 to 6: start",
		},
		{
			"a snapshot that was continued", `
			0 started S1 @10
			1 started S1 @10 continued run=1-1795176000001
			2 completed S1 @10
			3 progress @20 run=1-1795176000001`, "", "exact from 20",
		},
		{
			"a snapshot that was continued, whose first start is gone", `
			1 started S1 @10 continued run=1-1795176000001
			2 completed S1 @10
			3 progress @20 run=1-1795176000001`, "", "unknown",
		},
		{
			"a snapshot of another agent was continued, whose first start is gone", `
			0 started S2 @50
			0.5 started S1 @40 continued writer=v run=1-1795176000001
			1 completed S2 @50
			1.5 completed S1 @40 writer=v run=1-1795176000001
			2 progress @60`, "", "exact from 60",
		},
		{
			"a position that was lost, and the first start of the snapshot is gone", steady + `
			5 started S2 @50 initial continued run=1-1795176000001
			6 completed S2 @50
			7 progress @60 run=1-1795176000001`, "rv:55", "uncertain from 40: checkpoint-lost",
		},
		{
			"an agent that was killed says less", steady + `
			5 progress @25
			6 gap expired 25-50 since=5
			7 progress @60
			8 progress @60`, "rv:35", "exact",
		},
		{
			"the agent was away", steady + `
			14 progress @60 away=closed/4.2-13.9
			15 progress @60 away=closed/4.2-13.9`, "9", "late from 4.2 to 13.9: closed",
		},
		{
			"before the agent was away", steady + `
			14 progress @60 away=closed/4.2-13.9`, "4.1", "exact from 40 to 60",
		},
		{
			"after the agent was away", steady + `
			14 progress @60 away=closed/4.2-13.9`, "13.9", "exact from 40 to 60",
		},
		{
			"the agent is still away", steady + `
			5 progress @40 to=4.2 away=blocked/4.2
			6 progress @40 to=4.2 away=blocked/4.2`, "4.5", "unknown from 40",
		},
		{
			"an interruption that was not over at first", steady + `
			5 progress @50 away=silent/4.2
			6 progress @60 away=silent/4.2-5.5`, "4.5", "late from 4.2 to 5.5: silent",
		},
		{
			"an interruption that was not over at first, and was before the moment", steady + `
			5 progress @40 to=4.2 away=blocked/4.2
			6 progress @60 away=blocked/4.2-4.4`, "4.5", "exact from 40 to 60",
		},
		{
			"two interruptions around the moment", steady + `
			5 progress @50 away=silent/4.1-4.6 away=cut/4.3-4.8`, "4.5", "late from 4.1 to 4.8: silent",
		},
		{
			"progress that comes late says what was before", steady + `
			14 progress @60 since=4`, "9", "exact from 40 to 60",
		},
		{
			"progress is missing", steady + `
			14 progress @60 since=4.5`, "4.2", "late from 4 to 4.5: unheard",
		},
		{
			"after progress that is missing", steady + `
			14 progress @60 since=4.5`, "4.6", "exact from 40 to 60",
		},
		{
			"progress is missing, and an interruption was not over before", steady + `
			5 progress @50 away=silent/4.5
			20 progress @60 since=10`, "4.7", "late from 4.5 to 10: silent",
		},
		{
			"an agent was killed", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "9", "late from 4 to 14.2: start",
		},
		{
			"an agent was killed, and began again", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "14.3", "exact from 40 to 60",
		},
		{
			"an agent was killed, and begins again", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8 run=1-1795176830000
			16 progress @60 since=13.8 away=start/13.8-15.5 run=1-1795176830000`, "9", "late from 4 to 15.5: start",
		},
		{
			"a run that does not say how it began", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=5 run=1-1795176830000`, "9", "late from 4 to 14: start",
		},
		{
			"a run that had ended", steady + `
			4.5 progress @42 ends
			4.8 begin @40 continued run=1-1795176280000
			5 progress @60 since=4.6 away=start/4.5-4.9 run=1-1795176280000`, "4.7",
			"late from 4.5 to 4.9: start, stopped at 4.5",
		},
		{
			"before the end of that run", steady + `
			4.5 progress @42 ends
			4.8 begin @40 continued run=1-1795176280000
			5 progress @60 since=4.6 away=start/4.5-4.9 run=1-1795176280000`, "4.4", "exact from 40 to 42",
		},
		{
			"what a former run says late counts for nothing", steady + `
			14 begin @40 continued run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000
			16 progress @99 since=4`, "rv:70", "unknown from 60",
		},
		{
			"a copy of progress", steady + `
			14 progress @60 away=closed/4.2-13.9
			14 progress @60 since=13.9`, "9", "late from 4.2 to 13.9: closed",
		},
		{
			"progress that claims nothing", steady + `
			5 progress away=listed/4.1-4.4
			6 progress @60`, "4.2", "late from 4.1 to 4.4: listed",
		},
		{
			"filters hide a version", steady + `
			5 progress @50 hidden=4.2/42`, "4.5", "uncertain from 42: filtered",
		},
		{
			"filters hide a version, by resourceVersion", steady + `
			5 progress @50 hidden=4.2/42`, "rv:45", "uncertain from 42: filtered",
		},
		{
			"filters hide a version later", steady + `
			5 progress @50 hidden=4.2/42`, "rv:41", "exact",
		},
		{
			"filters hide a version later, by time", steady + `
			5 progress @50 hidden=4.2/42`, "4.1", "exact from 40 to 50",
		},
		{
			"filters hid a version", steady + `
			5 progress @50 hidden=4.2/42
			6 progress @60 hidden=4.2/42-5.5/55`, "rv:52", "uncertain from 42 to 55: filtered",
		},
		{
			"the filters hide nothing any more", steady + `
			5 progress @50 hidden=4.2/42
			6 progress @60 hidden=4.2/42-5.5/55`, "rv:55", "exact",
		},
		{
			"filters hide a version now", steady + `
			5 progress @50 hidden=4.2/42`, "now 5", "uncertain from 42: filtered",
		},
		{
			"filters hide a version at the end", steady + `
			5 progress @50 hidden=4.2/42`, "", "uncertain from 42: filtered",
		},
		{
			"filters hide nothing now", steady + `
			5 progress @50 hidden=4.2/42
			6 progress @60 hidden=4.2/42-5.5/55`, "now 6", "exact from 60",
		},
		{
			"filters hid a version, and progress is missing", steady + `
			5 progress @50 hidden=4.2/42
			20 progress @60 since=10`, "rv:55", "uncertain from 42 to 60: filtered",
		},
		{
			"filters hid a version, and a snapshot has read it", steady + `
			5 progress @50 hidden=4.2/42
			5.1 started S2 @55
			5.2 completed S2 @55`, "rv:55", "exact",
		},
		{
			"an agent with filters was killed, and nobody says what they withheld at its end", steady + `
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:43",
			"uncertain from 41 to 45: filtered",
		},
		{
			"from where its next run goes on, that run says it", steady + `
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:45", "exact",
		},
		{
			"an agent was killed while its filters hid a version", steady + `
			5 progress @43 hidden=4.2/42
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:44",
			"uncertain from 44 to 45: filtered",
		},
		{
			"the next run of an agent that was killed hides nothing", steady + `
			5 progress @43 hidden=4.2/42
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:45", "exact",
		},
		{
			"the next run of an agent that was killed hides nothing, by time", steady + `
			5 progress @43 hidden=4.2/42
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "14.5", "exact from 43 to 60",
		},
		{
			"the next run of an agent that was killed hides something still", steady + `
			5 progress @43 hidden=4.2/42
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 hidden=13.7/45 run=1-1795176830000`, "rv:50",
			"uncertain from 45: filtered",
		},
		{
			"an agent with filters ended in good order", steady + `
			4.5 progress @42 ends
			14 begin @42 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:43", "exact",
		},
		{
			"an agent with filters ended in good order, and its next run was killed before its first progress",
			steady + `
			4.5 progress @42 ends
			10 begin @42 continued noise run=1-1795176590000
			14 begin @45 continued noise run=1-1795176830000
			15 progress @60 since=13.8 away=start/13.8-14.2 run=1-1795176830000`, "rv:43",
			"uncertain from 43 to 45: filtered",
		},
		{
			"progress of an agent with filters is missing", steady + `
			4.1 begin @40 continued noise
			20 progress @60 since=10`, "rv:50", "uncertain from 41 to 60: filtered",
		},
		{
			"another agent shows what the filters of the first one hide", steady + `
			2 begin @30 writer=v
			5 progress @50 hidden=4.2/42
			5 progress @50 writer=v`, "4.5", "exact from 40 to 50",
		},
		{
			"another agent observed while the first one was away", steady + `
			2 begin @30 writer=v
			5 progress @50 away=cut/4.2-4.8
			5 progress @50 writer=v`, "4.5", "exact from 40 to 50",
		},
		{
			"another agent has begun to observe later", steady + `
			14 begin @60 writer=v
			14.5 progress @60 since=14 writer=v`, "9", "late from 4 to 14: unheard",
		},
		{
			"the scope has ended", steady + `
			5 end deselected @50`, "6", "exact from 50 ended deselected",
		},
		{
			"the scope has ended, long ago", steady + `
			5 end deselected @50`, "now 600", "exact from 50 ended deselected",
		},
		{
			"the scope has ended, by resourceVersion", steady + `
			5 end removed @50`, "rv:50", "exact ended removed",
		},
		{
			"before the end of the scope", steady + `
			5 end removed @50`, "3.5", "exact from 30 to 40",
		},
		{
			"a gap that was open at the end of the scope", steady + `
			4.5 gap expired 40-45
			5 end deselected @50`, "4.4", "uncertain from 40: expired, open at its end at 5",
		},
		{
			"between the last progress and the end of the scope", steady + `
			5 end removed @50`, "4.5", "late from 4 to 5: ended",
		},
		{
			"an operator has ended the scope", steady + `
			5 end forgotten @50`, "6", "unknown from 40 ended forgotten",
		},
		{
			"another agent has the scope", steady + `
			4.5 begin @40 continued writer=v
			4.6 end taken-over @45
			5 progress @50 writer=v`, "4.8", "exact from 40 to 50",
		},
		{
			"the scope was started again: before", steady + `
			5 end deselected @50
			9 begin initial
			9 started S2 @90 initial
			9.1 completed S2 @90
			10 progress @95
			11 progress @99`, "8", "exact from 50 ended deselected",
		},
		{
			"the scope was started again: after", steady + `
			5 end deselected @50
			9 begin initial
			9 started S2 @90 initial
			9.1 completed S2 @90
			10 progress @95
			11 progress @99`, "10.5", "exact from 95 to 99",
		},
		{
			"the scope was started again, by resourceVersion", steady + `
			5 end deselected @50
			9 begin initial
			9 started S2 @90 initial
			9.1 completed S2 @90
			10 progress @95
			11 progress @99`, "rv:95", "exact",
		},
		{
			"the scope was started again, before by resourceVersion", steady + `
			5 end deselected @50
			9 begin initial
			9 started S2 @90 initial
			9.1 completed S2 @90
			10 progress @95
			11 progress @99`, "rv:60", "exact ended deselected",
		},
		{
			"the scope was started again, before its end", steady + `
			5 end deselected @50
			9 begin initial
			9 started S2 @90 initial
			9.1 completed S2 @90
			10 progress @95
			11 progress @99`, "4.5", "late from 4 to 5: ended",
		},
		{
			"a record of a former release", `
			0 started S1 @10
			0.1 completed S1 @10
			1 former @20
			2 former @30`, "1.5", "unknown from 30 former",
		},
		{
			"a record that a former release began", `
			0 started S1 @10
			0.1 completed S1 @10
			1 former @20
			2 former @30
			3 begin @30 continued
			4 progress @40 since=2.9 away=start/2.9-3.2
			5 progress @50 since=2.9`, "1.5", "unknown to 40 former",
		},
		{
			"the rest of that record", `
			0 started S1 @10
			0.1 completed S1 @10
			1 former @20
			2 former @30
			3 begin @30 continued
			4 progress @40 since=2.9 away=start/2.9-3.2
			5 progress @50 since=2.9`, "4.5", "exact from 40 to 50",
		},
		{
			"the agent was away, by resourceVersion", steady + `
			14 progress @60 away=closed/4.2-13.9
			15 progress @60`, "rv:50", "exact",
		},
		{
			"a gap", steady + `
			14 gap expired 40-60 since=4
			15 progress @70
			16 progress @80`, "rv:50", "uncertain from 40 to 60: expired",
		},
		{
			"the end of a gap", steady + `
			14 gap expired 40-60 since=4
			15 progress @70
			16 progress @80`, "rv:60", "exact",
		},
		{
			"a gap, by time", steady + `
			14 gap expired 40-60 since=4
			15 progress @70
			16 progress @80`, "14.5", "uncertain from 40 to 60: expired",
		},
		{
			"a gap that was recovered", steady + `
			14 gap expired 40-60 since=4 recovered
			15 progress @70
			16 progress @80`, "rv:50", "uncertain from 40 to 60: expired recovered",
		},
		{
			"a gap that was recovered, of an agent that was killed and remembers less than the bus has", steady + `
			14 gap expired 30-60 since=3 recovered
			15 progress @70
			16 progress @80`, "rv:50", "uncertain from 30 to 60: expired recovered",
		},
		{
			"up to what the bus had before that gap", steady + `
			14 gap expired 30-60 since=3 recovered
			15 progress @70
			16 progress @80`, "rv:40", "exact",
		},
		{
			"two gaps that were recovered, with an agent killed in between", steady + `
			14 gap expired 40-60 since=4 recovered
			15 gap expired 30-70 since=3 recovered
			16 progress @80
			17 progress @90`, "rv:50", "uncertain from 30 to 70: expired recovered",
		},
		{
			"content that is read otherwise", steady + `
			4.5 gap content-changed 40-40 since=4 recovered
			5 progress @70`, "rv:50", "exact",
		},
		{
			"another form: where the last one was known", steady + reformed, "rv:32", "exact",
		},
		{
			"another form: until a snapshot has it", steady + reformed, "rv:33",
			"uncertain from 32 to 50: content-changed",
		},
		{
			"another form: after the snapshot", steady + reformed, "rv:50", "exact",
		},
		{
			"another form: a claim says nothing of it", steady + reformed, "3.5",
			"uncertain from 32 to 50: content-changed",
		},
		{
			"another form: before, by time", steady + reformed, "3.1", "exact from 30 to 40",
		},
		{
			"another form: after, by time", steady + reformed, "6.5", "exact from 50 to 60",
		},
		{
			"another form, and no snapshot", steady + `
			5 gap content-changed 32-41 since=3.2
			6 progress @60
			7 progress @70`, "6.5", "uncertain from 32: content-changed",
		},
		{
			"a gap that comes again during the snapshot after it", steady + `
			14 gap compacted 40-60 since=4
			15 started S2 @65
			14 gap compacted 40-60 since=4
			16 completed S2 @65
			17 progress @70`, "rv:66", "exact",
		},
		{
			"compacted: nothing is right before the next snapshot", steady + `
			14 gap compacted 40-60 since=4
			15 progress @70
			16 progress @80`, "rv:75", "uncertain from 40: compacted",
		},
		{
			"compacted", steady + `
			14 gap compacted 40-60 since=4
			15 started S2 @65
			16 completed S2 @65
			17 progress @80`, "rv:62", "uncertain from 40 to 65: compacted",
		},
		{
			"restored, before", steady + `
			14 gap rewound 45-20 since=4 h1
			14 started S2 @21 h1
			15 completed S2 @21 h1
			17 progress @30 h1`, "rv:40", "exact",
		},
		{
			"restored, lost", steady + `
			14 gap rewound 45-20 since=4 h1
			14 started S2 @21 h1
			15 completed S2 @21 h1
			17 progress @30 h1`, "rv:46", "uncertain from 45 to 21/h1: rewound",
		},
		{
			"restored, after", steady + `
			14 gap rewound 45-20 since=4 h1
			14 started S2 @21 h1
			15 completed S2 @21 h1
			17 progress @30 h1`, "rv:21/h1", "exact",
		},
		{
			"restored, and no agent knew it", steady + `
			14 started S2 @21
			15 completed S2 @21
			17 progress @30`, "14.5", "unknown to 21",
		},
		{
			"a snapshot by time", steady + `
			4.5 started S2 @60
			4.6 completed S2 @60
			5 progress @70`, "rv:50", "exact",
		},
		{
			"the position was lost, on a bus that cannot be asked", steady + `
			4.5 started S2 @60 initial
			4.6 completed S2 @60
			5 progress @70`, "rv:50", "uncertain from 40 to 60: checkpoint-lost",
		},
		{
			"before the position was lost", steady + `
			4.5 started S2 @60 initial
			4.6 completed S2 @60
			5 progress @70`, "rv:40", "exact",
		},
		{
			"after the position was lost", steady + `
			4.5 started S2 @60 initial
			4.6 completed S2 @60
			5 progress @70`, "rv:60", "exact",
		},
		{
			"the position was lost, by time", steady + `
			4.5 started S2 @60 initial
			4.6 completed S2 @60
			5 progress @70`, "4.3", "uncertain from 40 to 60: checkpoint-lost",
		},
		{
			"after the position was lost, by time", steady + `
			4.5 started S2 @60 initial
			4.6 completed S2 @60
			5 progress @70`, "4.8", "exact from 60 to 70",
		},
		{
			"the position was lost, and the snapshot was started again", steady + `
			4.5 started S2 @60 initial
			4.6 gap compacted 60-80 since=4.5
			4.7 started S3 @80 initial
			4.8 completed S3 @80
			5 progress @90`, "rv:50", "uncertain from 40 to 80: checkpoint-lost",
		},
		{
			"the position was lost, and the bus lacks the first snapshot that says so", steady + `
			4.6 gap compacted 60-80 since=4.5
			4.7 started S3 @80 initial
			4.8 completed S3 @80
			5 progress @90`, "rv:50", "uncertain from 40 to 80: checkpoint-lost",
		},
		{
			"a long silence, and the position was lost", steady + `
			14 started S2 @60 initial
			15 completed S2 @60
			16 progress @70`, "9", "uncertain from 40 to 60: checkpoint-lost",
		},
		{
			"the first snapshot, after one that was not read", `
			0 started S1 @10 initial
			1 started S2 @20 initial
			1.1 completed S2 @20
			2 progress @30`, "rv:20", "exact",
		},
		{
			"a snapshot of which the start was not read", `
			0 r web/1 @5 S1
			0.1 completed S1 @10
			1 progress @20`, "rv:15", "unknown",
		},
		{
			"a dead letter", steady + `
			4.1 c api/2 @41
			4.2 gap dead-letter 41-42 since=4.2 letter=pods/2/42
			5 progress @45`, "rv:45", "uncertain from 41 to 42: dead-letter [pods/2/42]",
		},
		{
			"a dead letter, and an event after it", steady + `
			4.1 c api/2 @41
			4.2 gap dead-letter 41-42 since=4.2 letter=pods/2/42
			4.3 u api/2 @43 was=42
			5 progress @45`, "rv:45", "exact",
		},
		{
			"a dead letter that is a deletion", steady + `
			4.1 c api/2 @41
			4.2 gap dead-letter 41-42 since=4.2 letter=pods/2/d
			5 progress @45`, "rv:45", "exact",
		},
		{
			"resourceVersions that are no numbers",
			strings.NewReplacer("@10", "@x", "@20", "@y", "@30", "@z", "@40", "@z").Replace(steady),
			"rv:15", "unknown",
		},
		{"a resource of another etcd", strings.ReplaceAll(steady, "@", "resource=events @"), "rv:15", "unknown"},
		{
			"a resource whose etcd is not known", strings.ReplaceAll(steady, "@", "resource=endpoints @"), "rv:15",
			"unknown, of an etcd that is not known",
		},
		{
			"a resource whose etcd is not known, by time", strings.ReplaceAll(steady, "@", "resource=endpoints @"),
			"3.5", "exact from 30 to 40",
		},
		{"objects without stream events", "0 c web/1 @10", "rv:10", "unknown"},
		{
			"versions that were withheld", steady + `
			3.5 u web/1 @35 was=34 skipped=2
			4.5 u web/1 @45 was=44 skipped=3
			4.6 u web/1 @48 was=47 skipped=9
			5 progress @50`, "rv:40", "exact skipped 5",
		},
		{
			"versions that were withheld after the first event after the moment", steady + `
			4.5 u web/1 @45 was=5
			4.6 u web/1 @48 was=47 skipped=9
			5 progress @50`, "rv:40", "exact",
		},
		{
			"versions that were withheld, and a copy after the moment", steady + `
			3.4 u web/1 @35 was=34 skipped=2
			3.6 u web/1 @35 was=34 skipped=2
			5 progress @50`, "3.5", "exact from 30 to 40 skipped 2",
		},
		{
			"left, and another object has the name", steady + `
			3.5 l web/1 @35
			3.5 c web/2 @36
			5 progress @50`, "rv:40", "exact",
		},
		{
			"left, and redacted", steady + `
			3.5 l web/1 @35
			3.5 c api/2 @36 after={"key":"hmac-sha256:00c0ffee:x"}
			3.5 c db/3 @36
			5 progress @50`, "rv:40", "exact left 1 redacted 1",
		},
		{
			"a part of a scope has no certainty of its own", steady + `
			4.1 started S2 @42 scope=pods/shop
			4.2 completed S2 @42 scope=pods/shop
			5 progress @50`, "rv:45", "exact",
		},
		{
			"each scope has its own", `
			0 started S1 @10 scope=pods/a
			0 completed S1 @10 scope=pods/a
			1 progress @20 scope=pods/a
			5 started S2 @30 scope=pods/b
			5 completed S2 @30 scope=pods/b
			6 progress @40 scope=pods/b`, "rv:15", "exact, unknown to 30",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := timeline.NewState(parse(t, c.at), timeline.Options{
				Etcd: func(_ consume.ClusterKey, resource string) timeline.Etcd {
					switch resource {
					case "events":
						return timeline.OtherEtcd
					case "endpoints":
						return timeline.UnknownEtcd
					}
					return timeline.SameEtcd
				},
			})
			for _, e := range record(c.record) {
				s.Add(e)
			}
			var got []string
			for _, scope := range s.Scopes() {
				got = append(got, describe(&scope, strings.HasPrefix(c.at, "rv:")))
			}
			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("at %s: %s, want %s", c.at, text, c.want)
			}
		})
	}
}

// A run that was killed has sent a Job, which is deleted before the next run lists. No gap that is
// recovered shows the deletion: the Job is shown until the snapshot after the gap.
func TestObjectThatCameAndWentInARecoveredGap(t *testing.T) {
	const all = `
		0 started S1 @10
		0.1 completed S1 @10
		1 progress @20
		1.2 c job/1 @22
		3 gap expired 20-60 since=1 recovered
		4 started S2 @70
		4.1 completed S2 @70
		5 progress @80`
	for at, want := range map[string]string{
		"rv:21": "0 uncertain",
		"rv:30": "1 uncertain",
		"rv:59": "1 uncertain",
		"rv:70": "0 exact",
	} {
		s := timeline.NewState(parse(t, at), timeline.Options{})
		for _, e := range record(all) {
			s.Add(e)
		}
		if got := fmt.Sprint(s.Len(), " ", s.Scopes()[0].Certainty); got != want {
			t.Errorf("at %s: %s, want %s", at, got, want)
		}
	}
}

// A scope has ended, and was started again later. The snapshot of the second start reads objects
// that had not changed for long. They are not in the state of a version at which nobody observed
// the scope.
func TestObjectsReadAfterAScopeWasStartedAgain(t *testing.T) {
	const ended = `
		0 begin initial
		0 started S1 @10 initial
		0.1 completed S1 @10
		1 progress @20
		4 progress @40
		4.5 c web/1 @42
		5 gap selection-changed 42-50 since=4.5
		5 l web/1 @50 was=42
		5 end deselected @50
		9 gap selection-changed 50-90 since=5`
	for name, again := range map[string]string{
		"of the scope": `
			9 begin @90
			9 started S2 @90
			9 r web/1 @55 S2
			9 r api/2 @60 S2
			9.1 completed S2 @90`,
		"another one of the scope": `
			9 begin @90
			9 started S2 @90
			9.1 completed S2 @90
			9.2 started S3 @91
			9.2 r web/1 @55 S3
			9.2 r api/2 @60 S3
			9.3 completed S3 @91`,
		"of a part of the scope": `
			9 begin @90
			9 started S2 @90
			9.1 completed S2 @90
			9.2 started S3 @91 scope=pods/shop
			9.2 r web/1 @55 S3
			9.2 r api/2 @60 S3
			9.3 completed S3 @91 scope=pods/shop`,
	} {
		for at, want := range map[string]string{
			"rv:49": "1 uncertain",
			"rv:60": "0 exact ended",
			"rv:89": "0 exact ended",
			"rv:91": "2 exact",
		} {
			s := timeline.NewState(parse(t, at), timeline.Options{})
			for _, e := range record(ended + again + `
				10 progress @95
				11 progress @99`) {
				s.Add(e)
			}
			scope := s.Scopes()[0]
			got := fmt.Sprint(s.Len(), " ", scope.Certainty)
			if scope.Ended != nil {
				got += " ended"
			}
			if got != want {
				t.Errorf("a snapshot %s, at %s: %s, want %s", name, at, got, want)
			}
		}
	}
}

// A changed selection replaces a scope by another one. A moment before that is exact if the earlier
// scope had all objects of the later one.
func TestScopesThatReplaceAnother(t *testing.T) {
	const replaced = `
		0 begin initial scope=%[1]s
		0 started S1 @10 initial scope=%[1]s
		0.1 completed S1 @10 scope=%[1]s
		1 progress @20 scope=%[1]s
		4 progress @40 scope=%[1]s
		4.5 end replaced @41 scope=%[1]s
		5 begin @42 scope=%[2]s
		5 started S2 @42 scope=%[2]s
		5.1 completed S2 @42 scope=%[2]s
		6 progress @50 scope=%[2]s
		7 progress @60 scope=%[2]s`
	for _, c := range []struct{ was, is, before, after string }{
		{"pods", "pods?labelSelector=a=b", "exact", "exact"},
		{"pods", "pods/shop", "exact", "exact"},
		{"pods/shop", "pods/shop?labelSelector=a=b", "exact", "exact"},
		{"pods/shop", "pods", "unknown", "exact"}, // nobody observed other namespaces
		{"pods?labelSelector=a=b", "pods", "unknown", "exact"},
		{"pods/shop", "pods/mall", "unknown", "exact"},
	} {
		for at, want := range map[string]string{"2": c.before, "rv:30": c.before, "6.5": c.after, "rv:55": c.after} {
			f := timeline.NewFold(parse(t, at), timeline.Options{})
			for _, e := range record(fmt.Sprintf(replaced, c.was, c.is)) {
				f.Add(e)
			}
			if got := certainty.Worst(f.Scopes()).String(); got != want {
				t.Errorf("%s replaces %s, at %s: %s, want %s: %+v", c.is, c.was, at, got, want, f.Scopes())
			}
		}
	}
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

// A record that is read from its middle is certain from its first progress event on: there is none
// before the first snapshot.
func TestScopesOfARecordReadFromItsMiddle(t *testing.T) {
	const middle = `
		3.5 u web/1 @35 was=30
		4 progress @40
		5 progress @50
		6 gap expired 50-60 since=5
		7 progress @70
		8 progress @80`
	for _, c := range []struct {
		at     timeline.Moment
		joined bool
		want   certainty.Level
	}{
		{timeline.At(minute("3.9")), true, certainty.Unknown},
		{timeline.At(minute("4.5")), true, certainty.Exact},
		{timeline.At(minute("4.5")), false, certainty.Unknown},
		{timeline.At(minute("5.5")), true, certainty.Uncertain},
		{timeline.At(minute("7.5")), true, certainty.Exact},
		{timeline.AtVersion(75, 0), true, certainty.Exact},
		{timeline.AtVersion(39, 0), true, certainty.Unknown},
	} {
		f := timeline.NewFold(c.at, timeline.Options{Joined: c.joined})
		for _, e := range record(middle) {
			f.Add(e)
		}
		if got := certainty.Worst(f.Scopes()); got != c.want {
			t.Errorf("at %s, joined %t: %s, want %s", c.at, c.joined, got, c.want)
		}
	}
}

func TestComplete(t *testing.T) {
	f := timeline.NewFold(timeline.Moment{}, timeline.Options{})
	for n, e := range record(`
		0 started S1 @10 scope=pods/a
		0 completed S1 @10 scope=pods/a
		0 started S1 @12 scope=pods/b
		0 completed S1 @12 scope=pods/b
		1 progress @20 scope=pods/a
		1 progress @15 scope=pods/b
		2 progress @30 scope=pods/a
		4 progress @40 scope=pods/a`) {
		f.Add(e)
		m, ok := f.Complete(consume.ClusterKey{Source: source}, "pods")
		if got, want := fmt.Sprint(m, ok),
			strings.Split("now false|rv:10 true|now false|rv:10 true|rv:12 true|rv:15 true|rv:15 true|rv:40 true",
				"|")[n]; got != want && ok {
			t.Errorf("after record %d: complete up to %s, want %s", n, got, want)
		}
	}
	if _, ok := f.Complete(consume.ClusterKey{Source: source}, "nodes"); ok {
		t.Error("complete, and nothing is known of it")
	}
}
