package oracle

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestOracleJudgesProgress falsifies what a writer reports.
func TestOracleJudgesProgress(t *testing.T) {
	gapOf := func(f *fakeProgress, at float64, from, to uint64, recovered bool) {
		f.add(at, Record{
			ID: "gap", Stream: Gap, Scope: ParseScope("configmaps"), From: from, To: to, Recovered: recovered,
		})
	}
	hide := func(f *fakeProgress, span HiddenSpan) {
		for n := range 6 {
			f.entry(n+1, "configmaps").Hidden = []HiddenSpan{span}
		}
	}
	for _, tc := range []struct {
		name    string
		falsify func(f *fakeProgress)
		want    string // A part of the only kind of fault; "" for none.
	}{
		{"nothing", func(*fakeProgress) {}, ""},
		{"copies", func(f *fakeProgress) { f.records = append(f.records, f.records...) }, ""},

		// Changes before a report.
		{"a change after the report of its revision", func(f *fakeProgress) {
			f.changeAt(55).Stored = second(61)
		}, "complete up to revision"},
		{"a change that is missing", func(f *fakeProgress) {
			f.outside.Delay = 0
			f.remove(f.changeAt(45))
		}, "nowhere"},
		{"a missing change in a gap", func(f *fakeProgress) {
			rec := f.changeAt(45)
			gapOf(f, 50, rec.Rev-1, rec.Rev, false)
			f.remove(rec)
		}, ""},
		{"a missing change in a later gap", func(f *fakeProgress) {
			f.outside.Delay = 0
			rec := f.changeAt(45)
			gapOf(f, 62, rec.Rev-1, rec.Rev, false)
			f.remove(rec)
		}, "nowhere"},
		{"a change of a recovered gap after the report", func(f *fakeProgress) {
			f.outside.Delay = 0
			rec := f.changeAt(45)
			gapOf(f, 50, rec.Rev-1, rec.Rev, true)
			rec.Stored = second(61)
		}, "complete up to revision"},
		{"a missing change that filters withheld", func(f *fakeProgress) {
			rec := f.changeAt(45)
			hide(f, HiddenSpan{FromRev: rec.Rev, From: second(45), UntilRev: rec.Rev + 3, Until: second(60)})
			f.remove(rec)
		}, ""},
		{"a missing change outside of what filters withheld", func(f *fakeProgress) {
			f.outside.Delay = 0
			rec := f.changeAt(45)
			hide(f, HiddenSpan{FromRev: rec.Rev + 1, From: second(46), UntilRev: rec.Rev + 3, Until: second(60)})
			f.remove(rec)
		}, "nowhere"},
		{"a revision of another scope", func(f *fakeProgress) { // Of the first change that comes at 190.
			f.entry(3, "pods/shop").Rev = f.entry(3, "configmaps").Rev
		}, "complete up to revision"},
		{"a group with a scope that is behind", func(f *fakeProgress) {
			p := f.at(fakeRun1, 3).Report
			group := fakeGroup("pods", 2, p.Entries[0].Rev, 150, span1(InterruptedCut, 150, 0))
			p.Entries = []Entry{p.Entries[0], group}
		}, "complete up to revision"},

		// Changes before a time.
		{"a time with a change that is not there yet", func(f *fakeProgress) {
			e := f.entry(3, "pods/shop")
			e.To, e.Interruptions = second(177), nil
		}, "is known at"},
		{"the time of sending", func(f *fakeProgress) { // The bus takes a change 30 seconds late.
			f.changeAt(45).Stored = second(75)
			e := f.entry(1, "configmaps")
			e.Rev, e.To = f.changeAt(30).Rev, second(60)
		}, "is known at"},
		{"no interruption", func(f *fakeProgress) {
			f.entry(3, "pods/shop").Interruptions, f.entry(4, "pods/shop").Interruptions = nil, nil
			f.entry(5, "pods/shop").Interruptions, f.entry(6, "pods/shop").Interruptions = nil, nil
		}, "is known at"},
		{"an interruption that ends early", func(f *fakeProgress) {
			for n := 4; n <= 6; n++ {
				f.entry(n, "pods/shop").Interruptions[0].Until = second(188)
			}
		}, "is known at"},
		{"an interruption that begins late", func(f *fakeProgress) {
			f.entry(3, "pods/shop").Interruptions[0].From = second(172)
			for n := 4; n <= 6; n++ {
				f.entry(n, "pods/shop").Interruptions[0].From = second(172)
			}
		}, "is known at"},
		{"a change with a late time", func(f *fakeProgress) { f.changeAt(100).Time = second(101.5) }, "is known at"},
		{"a change with a time within the delay", func(f *fakeProgress) { f.changeAt(100).Time = second(100.9) }, ""},
		{"a restart without an interruption", func(f *fakeProgress) {
			for n := range 2 {
				for i := range f.at(fakeRun2, n+1).Report.Entries {
					f.at(fakeRun2, n+1).Report.Entries[i].Interruptions = nil
				}
			}
		}, "is known at"},
		{"a report is lost", func(f *fakeProgress) {
			f.outside.MayDrop = true
			f.entry(5, "pods/shop").Interruptions, f.entry(6, "pods/shop").Interruptions = nil, nil
			for n := 5; n <= 6; n++ {
				f.at(fakeRun1, n).Report.Since = second(200)
			}
			f.remove(f.at(fakeRun1, 4))
		}, ""},
		{"a clock 30 s ahead", func(f *fakeProgress) {
			f.outside.Clock = func(t time.Time) time.Time { return t.Add(-30 * time.Second) }
		}, "is known at"},

		// The form.
		{"too large", func(f *fakeProgress) { f.at(fakeRun1, 2).Size = 1<<19 + 1 }, "bytes"},
		{"a number twice", func(f *fakeProgress) {
			f.at(fakeRun1, 6).Report.Number = 5
		}, "number 5"},
		{"a number is missing", func(f *fakeProgress) { f.remove(f.at(fakeRun1, 2)) }, "number"},
		{"a number may be missing", func(f *fakeProgress) {
			f.outside.MayDrop = true
			f.remove(f.at(fakeRun1, 2))
		}, ""},
		{"since the future", func(f *fakeProgress) { f.at(fakeRun2, 1).Report.Since = second(481) }, "since"},
		{"to the future", func(f *fakeProgress) { f.entry(6, "configmaps").To = second(361) }, "to 2026"},
		{"an interruption ends before it begins", func(f *fakeProgress) {
			e := f.entry(6, "configmaps")
			e.Interruptions = append(e.Interruptions, span1(InterruptedCut, 300, 299))
		}, "ends before it begins"},
		{"interruptions in disorder", func(f *fakeProgress) {
			f.entry(6, "configmaps").Interruptions = []Interruption{
				span1(InterruptedCut, 300, 301), span1(InterruptedCut, 290, 291),
			}
		}, "begins before the previous one"},
		{"a hidden span ends before it begins", func(f *fakeProgress) {
			f.entry(6, "configmaps").Hidden = []HiddenSpan{{From: second(300), Until: second(299)}}
		}, "hidden span"},
		{"hidden spans in disorder", func(f *fakeProgress) {
			f.entry(6, "configmaps").Hidden = []HiddenSpan{
				{From: second(300), Until: second(301)}, {From: second(290), Until: second(291)},
			}
		}, "hidden span"},

		// From one report to the next.
		{"to goes back", func(f *fakeProgress) { f.entry(6, "configmaps").To = second(296) }, "goes back"},
		{"to goes back, with an interruption", func(f *fakeProgress) {
			e := f.entry(6, "configmaps")
			e.To, e.Interruptions = second(296), []Interruption{span1(InterruptedSilent, 296, 0)}
		}, ""},
		{"a scope joins its group", func(f *fakeProgress) {
			p := f.at(fakeRun1, 6).Report
			group := fakeGroup("pods", 2, p.Entries[0].Rev, 296, span1(InterruptedCut, 150, 190))
			p.Entries = []Entry{p.Entries[0], group}
		}, ""},
		{"the revision goes back", func(f *fakeProgress) { f.entry(6, "configmaps").Rev = 50 }, "revision goes back"},
		{"an interruption is forgotten", func(f *fakeProgress) {
			f.entry(6, "pods/shop").Interruptions = nil
		}, "lacks the interruption"},
		{"an old interruption is left out", func(f *fakeProgress) {
			f.entry(6, "pods/shop").Interruptions = nil
			f.at(fakeRun1, 6).Report.Since = second(200)
		}, ""},
		{"an open interruption was none", func(f *fakeProgress) {
			f.entry(2, "configmaps").Interruptions = []Interruption{span1(InterruptedClosed, 119, 0)}
		}, ""},

		// The scopes.
		{"a scope too many", func(f *fakeProgress) { f.entry(2, "pods").Count = 3 }, "said to be 3"},
		{"a scope too few", func(f *fakeProgress) { f.entry(2, "pods").Count = 1 }, "said to be 1"},
		{"a scope that was not started", func(f *fakeProgress) {
			p := f.at(fakeRun1, 2).Report
			p.Entries = append(p.Entries, fakeEntry("secrets", 1, 100))
		}, "observes 0"},
		{"a scope that was not started, and that nothing claims", func(f *fakeProgress) {
			p := f.at(fakeRun1, 2).Report
			p.Entries = append(p.Entries, Entry{Resource: "secrets", Scope: "secrets", Count: 1})
		}, ""},
		{"a scope that ended", func(f *fakeProgress) {
			f.add(100, Record{
				ID: "ended", Stream: ScopeEnded, Scope: ParseScope("pods/web"), Writer: fakeWriter, Run: fakeRun1,
			})
		}, "observes"},
		{"a scope twice", func(f *fakeProgress) {
			p := f.at(fakeRun1, 3).Report
			p.Entries = append(p.Entries, p.Entries[1])
		}, "named twice"},
		{"a snapshot of one namespace starts no scope", func(f *fakeProgress) {
			f.add(100, Record{
				ID: "part", Stream: SnapshotStarted, Scope: ParseScope("configmaps/shop"), Snapshot: "s2",
				Writer: fakeWriter, Run: fakeRun1,
			})
		}, ""},
		{"a snapshot that is not complete", func(f *fakeProgress) {
			f.remove(&Record{ID: "configmaps/s1/completed"})
		}, "no snapshot that is complete"},
		{"a snapshot that began later", func(f *fakeProgress) {
			f.entry(2, "configmaps").SnapshotBegan = second(2)
		}, "no snapshot that is complete"},
		{"nothing is said of a scope", func(f *fakeProgress) {
			f.outside.Delay = 0
			for n := 2; n <= 6; n++ {
				p := f.at(fakeRun1, n).Report
				p.Entries = slices.DeleteFunc(p.Entries, func(e Entry) bool { return e.Resource == "configmaps" })
			}
		}, "reports until"},

		// Runs.
		{"a report after the last one", func(f *fakeProgress) {
			f.at(fakeRun2, 1).Report.Ends = true
		}, "after the end of its run"},
		{"a scope ends after the last report", func(f *fakeProgress) {
			f.last().Report.Ends = true
			f.add(540, Record{
				ID:     "ended",
				Stream: ScopeEnded,
				Scope:  ParseScope("configmaps"),
				Writer: fakeWriter,
				Run:    fakeRun2,
				End:    "deselected",
			})
		}, "after the end of its run"},
		{"an operator ends a scope after the last report", func(f *fakeProgress) {
			f.last().Report.Ends = true
			f.add(540, Record{
				ID:     "ended",
				Stream: ScopeEnded,
				Scope:  ParseScope("configmaps"),
				Writer: fakeWriter,
				Run:    fakeRun2,
				End:    EndedByOperator,
			})
		}, ""},
		{"an earlier run comes back", func(f *fakeProgress) {
			f.report(530, fakeRun1, 7, fakeGroup("configmaps", 1, 1, 357))
			f.records[len(f.records)-1].Report.Since = second(300)
		}, "after a record of run"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeProgress()
			tc.falsify(f)
			faults := f.judge()
			if tc.want == "" && len(faults) > 0 {
				t.Fatalf("faults in faultless progress: %d, the first: %v", len(faults), faults[0])
			}
			found := slices.ContainsFunc(faults, func(x Fault) bool {
				return x.Kind == "progress" && strings.Contains(x.Text, tc.want)
			})
			if tc.want != "" && !found {
				t.Fatalf("faults %v, want one with %q", faults, tc.want)
			}
		})
	}
}
