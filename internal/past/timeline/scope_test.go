package timeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// steady is the record of an agent that observes a scope without an interruption.
const steady = `
		0 started S1 @10
		0 r web/1 @5 S1
		0.1 completed S1 @10
		1 progress @20
		2 progress @30
		3 progress @30
		4 progress @40`

// scopeCase is a record, a moment, and the certainty of each scope of the record at the moment.
type scopeCase struct{ name, record, at, want string }

func testScopes(t *testing.T, cases []scopeCase) {
	for _, c := range cases {
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

func TestScopes(t *testing.T) {
	testScopes(t, []scopeCase{
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
			"a snapshot by time", steady + `
			4.5 started S2 @60
			4.6 completed S2 @60
			5 progress @70`, "rv:50", "exact",
		},
		{
			"the first snapshot, after one that was not read", `
			0 started S1 @10 initial
			1 started S2 @20 initial
			1.1 completed S2 @20
			2 progress @30`, "rv:20", "exact",
		},
		{
			"a snapshot whose start was not read", `
			0 r web/1 @5 S1
			0.1 completed S1 @10
			1 progress @20`, "rv:15", "unknown",
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
		{"an end without a resourceVersion, by time", steady + "\n5 end deselected", "6", "exact ended deselected"},
		{"an end without a resourceVersion, before it", steady + "\n5 end deselected", "rv:25", "exact"},
		{
			"a snapshot of this release, before its first progress", `
			0 started S1 @10 writer=
			0.1 completed S1 @10 writer=
			1 former @20
			2 former @30
			3 begin @30 continued
			3 started S2 @40
			3.5 completed S2 @40
			5 progress @50 since=2.9
			6 progress @60 since=2.9`, "rv:45", "exact",
		},
		{
			"a progress of the time at which a scope was started is not about it", `
			0 begin @10 initial scope=pods/dev
			0 started S1 @10 initial scope=pods/dev
			0.1 completed S1 @10 scope=pods/dev
			2 begin @25 initial scope=pods/shop
			2 progress @30
			2.1 started S2 @25 initial scope=pods/shop
			2.2 completed S2 @25 scope=pods/shop`, "rv:28", "exact, unknown from 25",
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
			"resourceVersions that are no numbers",
			strings.NewReplacer("@10", "@x", "@20", "@y", "@30", "@z", "@40", "@z").Replace(steady),
			"rv:15", "unknown",
		},
		{"a resource of another etcd", strings.ReplaceAll(steady, "@", "resource=events @"), "rv:15", "unknown"},
		{
			"a resource whose etcd is not known, before the record", strings.ReplaceAll(steady, "@", "resource=endpoints @"),
			"rv:9", "unknown to 10",
		},
		{
			"a resource whose etcd is not known, in a gap", strings.ReplaceAll(steady+`
			14 gap expired 40-60 @60 since=4
			15 progress @70
			16 progress @80`, "@", "resource=endpoints @"), "rv:50", "unknown, of an etcd that is not known",
		},
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
	})
}

// A state of now is known up to the last claim of any agent. An agent that was killed may claim
// less than before; its claim moves no resourceVersion.
func TestUpToWhereAStateIsKnown(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{"now 5.5": "5", "rv:35": "4"} {
		s := timeline.NewState(parse(t, at), timeline.Options{})
		for _, e := range record(steady + "\n5 progress @35") {
			s.Add(e)
		}
		from := s.Scopes()[0].From
		if !from.Time.Equal(minute(want)) || from.ResourceVersion != "40" {
			t.Errorf("at %s: known up to %+v, want minute %s and resourceVersion 40", at, from, want)
		}
	}
}

// A scope has ended, and was started again later. The snapshot of the second start reads objects
// that had not changed for long. No agent observed the scope in between, so the state of that time
// does not have them.
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

// No progress precedes the first snapshot of a scope. So a record that is read from its middle is
// certain from its first progress on.
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
	wants := []string{"unknown", "rv:10", "unknown", "rv:10", "rv:12", "rv:15", "rv:15", "rv:40"}
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
		got := "unknown"
		if m, ok := f.Complete(consume.ClusterKey{Source: source}, "pods"); ok {
			got = m.String()
		}
		if got != wants[n] {
			t.Errorf("after record %d: complete up to %s, want %s", n, got, wants[n])
		}
	}
	if _, ok := f.Complete(consume.ClusterKey{Source: source}, "nodes"); ok {
		t.Error("complete, and nothing is known of it")
	}
}

// After the end of the record, the answer says when a claim was last much older than its progress.
func TestLagIsReported(t *testing.T) {
	t.Parallel()
	for progress, want := range map[string]time.Time{
		"\n9 progress @40 to=8":                  {},
		"\n9 progress @40 to=4":                  minute("9"),
		"\n9 progress @40 to=4\n10 progress @40": minute("9"),
	} {
		s := timeline.NewState(parse(t, "rv:50"), timeline.Options{})
		for _, e := range record(steady + progress) {
			s.Add(e)
		}
		cause := s.Scopes()[0].Find(certainty.AfterRecord)
		if cause == nil || !cause.Lagged.Equal(want) {
			t.Errorf("after%s: the cause is %+v, want one that lagged at %s", progress, cause, want)
		}
	}
}
