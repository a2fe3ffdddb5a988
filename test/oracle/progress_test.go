package oracle

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fakeProgress makes the correct records of a writer in two runs. The first one is killed after its
// sixth report. Seconds count from its beginning.
//
//	  0  run 1 observes configmaps, pods/shop and pods/web. Each has a change every 15 seconds.
//	150  The watch of pods/shop is cut. Its changes up to 190 come at 190.
//	390  Run 1 is killed.
//	450  Run 2 begins. The changes since then come at 451. Its start interruption ends at 452.
//	540  Run 2 ends with a report.
type fakeProgress struct {
	records []Record
	want    map[ObjectKey][]Expectation
	outside Outside
	rev     uint64
}

const (
	fakeWriter = "3f0a5c1e9b7d2846"
	fakeRun1   = "0-1795186800000"
	fakeRun2   = "0-1795187250000"
)

var fakeScopes = []string{"configmaps", "pods/shop", "pods/web"}

func second(s float64) time.Time {
	return time.UnixMilli(1795186800000).UTC().Add(time.Duration(s * float64(time.Second)))
}

// add adds a record that the bus has at a time.
func (f *fakeProgress) add(at float64, rec Record) {
	rec.Stored = second(at)
	if rec.Time.IsZero() {
		rec.Time = second(at)
	}
	f.records = append(f.records, rec)
}

// last returns the last report.
func (f *fakeProgress) last() (last *Record) {
	for i := range f.records {
		if f.records[i].Report != nil {
			last = &f.records[i]
		}
	}
	return last
}

func (f *fakeProgress) begin(at float64, run string) {
	for _, scope := range fakeScopes {
		f.add(at, Record{
			ID: scope + "/started/" + run, Stream: ScopeStarted, Scope: ParseScope(scope),
			Writer: fakeWriter, Run: run, Rev: f.rev + 1,
		})
	}
}

func (f *fakeProgress) change(at, shown float64, scope string) {
	f.rev++
	resource, namespace, _ := strings.Cut(scope, "/")
	key := ObjectKey{Resource: resource, Namespace: namespace, Name: "a"}
	v := &Version{Key: key, Rev: f.rev, UID: scope, Seen: second(at)}
	e := Expectation{ID: ChangeID(v), Op: Updated, Key: key, UID: v.UID, Rev: f.rev, Seen: v.Seen}
	e.index = len(f.want[key])
	f.want[key] = append(f.want[key], e)
	f.add(shown, Record{ID: e.ID, Op: Updated, Key: key, Rev: f.rev})
}

func (f *fakeProgress) report(at float64, run string, number int, entries ...Entry) {
	f.add(at, Record{
		ID:     fmt.Sprintf("progress/%s/%s/%d", fakeWriter, run, number),
		Stream: Progress, Writer: fakeWriter, Run: run, Size: 1000,
		Report: &Report{Writer: fakeWriter, Run: run, Number: number, Since: second(0), Entries: entries},
	})
}

// fakeEntry returns an entry of one scope.
func fakeEntry(scope string, rev uint64, to float64, x ...Interruption) Entry {
	return Entry{
		Resource: ParseScope(scope).Resource, Scope: scope, Count: 1, Rev: rev, To: second(to),
		SnapshotBegan: second(1), Interruptions: x,
	}
}

func fakeGroup(resource string, count int, rev uint64, to float64, x ...Interruption) Entry {
	e := fakeEntry(resource, rev, to, x...)
	e.Scope, e.Count = "", count
	return e
}

func span1(why string, from, until float64) Interruption {
	x := Interruption{Why: why, From: second(from)}
	if until > 0 {
		x.Until = second(until)
	}
	return x
}

func newFakeProgress() *fakeProgress {
	f := &fakeProgress{want: make(map[ObjectKey][]Expectation), outside: Outside{Delay: time.Second, Limit: 1 << 20}}
	f.begin(0.5, fakeRun1)
	for _, scope := range fakeScopes {
		started := Record{
			Stream: SnapshotStarted, Scope: ParseScope(scope), Snapshot: "s1", ID: scope + "/s1/started",
			Writer: fakeWriter, Run: fakeRun1,
		}
		f.add(1, started)
		started.Stream = SnapshotCompleted
		started.ID = scope + "/s1/completed"
		started.Writer = ""
		started.Run = ""
		f.add(2, started)
	}
	cut, open := span1(InterruptedCut, 150, 190), span1(InterruptedCut, 150, 0)
	var atCut uint64 // The revision of pods/shop when its watch was cut.
	for at := 5.0; at < 540; at += 5 {
		scope := fakeScopes[int(at/5)%3]
		shown := at + 0.2
		switch {
		case at > 150 && at < 190 && scope == "pods/shop":
			shown = 190
		case at >= 390 && at < 451:
			shown = 451
		}
		f.change(at, shown, scope)
		rev := f.rev
		switch minute := int(at+5) / 60; {
		case int(at+5)%60 != 0:
			if at == 150 {
				atCut = rev
			}
		case minute == 3:
			f.report(180, fakeRun1, 3,
				fakeGroup("configmaps", 1, rev, 177), fakeGroup("pods", 1, rev, 177),
				fakeEntry("pods/shop", atCut, 150, open))
		case minute < 3:
			f.report(at+5, fakeRun1, minute, fakeGroup("configmaps", 1, rev, at+2), fakeGroup("pods", 2, rev, at+2))
		case minute <= 6:
			f.report(at+5, fakeRun1, minute,
				fakeGroup("configmaps", 1, rev, at+2), fakeGroup("pods", 1, rev, at+2),
				fakeEntry("pods/shop", rev, at+2, cut))
		case minute == 8:
			start := span1(InterruptedStart, 357, 452)
			f.report(480, fakeRun2, 1,
				fakeGroup("configmaps", 1, rev, 477, start), fakeGroup("pods", 2, rev, 477, start))
		case minute == 9:
			start := span1(InterruptedStart, 357, 452)
			f.report(540, fakeRun2, 2,
				fakeGroup("configmaps", 1, rev, 539, start), fakeGroup("pods", 2, rev, 539, start))
			f.records[len(f.records)-1].Report.Ends = true
		}
	}
	f.begin(450, fakeRun2)
	for i := range f.records {
		p := f.records[i].Report
		if p != nil && p.Run == fakeRun2 {
			p.Since = second(450)
		}
	}
	return f
}

// judge orders the records by the time at which the bus has them, and judges them.
func (f *fakeProgress) judge() []Fault {
	slices.SortStableFunc(f.records, func(a, b Record) int { return a.Stored.Compare(b.Stored) })
	for i := range f.records {
		f.records[i].Position = uint64(i + 1)
	}
	return JudgeProgress(f.want, f.records, f.outside)
}

// at returns a report.
func (f *fakeProgress) at(run string, number int) *Record {
	for i := range f.records {
		p := f.records[i].Report
		if p != nil && p.Run == run && p.Number == number {
			return &f.records[i]
		}
	}
	panic("no report " + run + " " + strconv.Itoa(number))
}

// entry returns an entry of a report of the first run, by its scope or its resource.
func (f *fakeProgress) entry(number int, name string) *Entry {
	return entryOf(f.at(fakeRun1, number), name)
}

func entryOf(rec *Record, name string) *Entry {
	for i := range rec.Report.Entries {
		e := &rec.Report.Entries[i]
		if e.Scope == name || e.Scope == "" && e.Resource == name {
			return e
		}
	}
	panic("no entry " + name)
}

// changeAt returns the record of a change.
func (f *fakeProgress) changeAt(at float64) *Record {
	for _, list := range f.want {
		for i := range list {
			if list[i].Seen.Equal(second(at)) {
				return &f.records[slices.IndexFunc(f.records, func(r Record) bool { return r.ID == list[i].ID })]
			}
		}
	}
	panic("no change")
}

func (f *fakeProgress) remove(rec *Record) {
	id := rec.ID
	f.records = slices.DeleteFunc(f.records, func(r Record) bool { return r.ID == id })
}

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
		{"a scope that was not started, of which nothing is claimed", func(f *fakeProgress) {
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

// TestOracleKnowsWhenAScopeIsObserved asks for moments of a run that is cut, killed and started
// again.
func TestOracleKnowsWhenAScopeIsObserved(t *testing.T) {
	f := newFakeProgress()
	f.judge() // Orders the records.
	whole := ObserversOf(f.records)
	for _, tc := range []struct {
		scope string
		at    float64
		want  bool
	}{
		{"pods/shop", 1.5, false}, // Its snapshot is not complete.
		{"pods/shop", 2.5, true},
		{"pods/shop", 149, true},
		{"pods/shop", 151, false},
		{"pods/shop", 189, false},
		{"pods/shop", 191, true},
		{"pods/web", 170, true},
		{"pods/web", 356, true},
		{"pods/web", 358, false}, // Run 1 claims nothing of the scope.
		{"pods/web", 451, false},
		{"pods/web", 453, true},
		{"pods/web", 539, true},
		{"pods/web", 539.5, false},
		{"secrets", 300, false},
	} {
		got := whole.Exact(tc.scope, second(tc.at))
		if got != tc.want {
			t.Errorf("%s at %.1f s: exact is %t, want %t", tc.scope, tc.at, got, tc.want)
		}
	}

	last, rev := whole.Of("pods/shop"), entryOf(f.at(fakeRun2, 2), "pods").Rev
	if len(last) != 1 || last[0].Rev != rev || !last[0].To.Equal(second(539)) {
		t.Errorf("the last claims of pods/shop: %+v", last)
	}

	at := slices.IndexFunc(f.records, func(r Record) bool { return r.Report != nil && r.Report.Number == 4 })
	cut := ObserversOf(f.records[:at])
	if cut.Exact("pods/shop", second(191)) || cut.Exact("pods/web", second(191)) ||
		!cut.Exact("pods/web", second(177)) {
		t.Error("at 180 s, a scope is known up to another time than the reports say")
	}
	all := []Interruption{span1(InterruptedCut, 150, 190), span1(InterruptedStart, 357, 452)}
	for n, want := range map[int][]Interruption{at: nil, len(f.records): all} {
		all := ObserversOf(f.records[:n]).Of("pods/shop")
		if len(all) != 1 || !slices.Equal(all[0].Said, want) || (all[0].Open != nil) != (want == nil) {
			t.Errorf("after %d records, the interruptions of pods/shop are not %v: %v", n, want, all)
		}
	}

	rec := f.at(fakeRun1, 6) // Without it and the report before it, nothing is known from 237 to its since.
	lost := slices.DeleteFunc(slices.Clone(f.records), func(r Record) bool { return r.ID == f.at(fakeRun1, 5).ID })
	rec.Report.Since = second(290)
	o := ObserversOf(lost)
	if o.Exact("pods/web", second(250)) || !o.Exact("pods/web", second(291)) ||
		!o.Exact("pods/web", second(236)) {
		t.Error("a lost report hides another span than the one since the last report")
	}
}

// TestOracleReadsProgress falsifies a progress event.
func TestOracleReadsProgress(t *testing.T) {
	text, err := os.ReadFile("../../internal/encode/testdata/golden/progress-interrupted.structured.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "\n\n")
	read := func(t *testing.T, falsify func(e, data map[string]any), m Message) Record {
		var e map[string]any
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatal(err)
		}
		falsify(e, e["data"].(map[string]any))
		m.Body, err = json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return (&Reader{Cluster: "prod-eu-1", ClusterUID: "11e0c3a4-7d0b-4c0e-9a53-3a1f5e0f6a77"}).Read(m)
	}
	same := func(_, _ map[string]any) {}
	scope := func(data map[string]any, i int) map[string]any { return data["scopes"].([]any)[i].(map[string]any) }
	rec := read(t, same, Message{})
	p := rec.Report
	if p == nil || len(rec.Problems) > 0 || p.Number != 8 || !p.Ends || rec.Writer != fakeWriter ||
		len(p.Entries) != 2 {
		t.Fatalf("a correct event: %+v, %+v", rec, p)
	}
	e := p.Entries[1]
	if e.Rev != 48300 || len(e.Interruptions) != 2 || !e.Interruptions[1].Until.IsZero() ||
		len(e.Hidden) != 2 || e.Hidden[0].UntilRev != 48250 {
		t.Errorf("entry %+v", e)
	}
	if !p.Reaches("pods", 48300) || p.Reaches("pods", 48301) || p.Reaches("deployments.apps", 1) ||
		p.Reaches("secrets", 0) {
		t.Error("the event reaches other revisions than it says")
	}
	shared := read(t, func(_, data map[string]any) {
		delete(scope(data, 1), "to")
		delete(scope(data, 1), "snapshotBegan")
	}, Message{}).Report
	none, some := shared.Entries[0], shared.Entries[1]
	if some.To.IsZero() || some.SnapshotBegan.IsZero() || !none.To.IsZero() || !none.SnapshotBegan.IsZero() {
		t.Errorf("to and snapshotBegan are not those of the entries with a revision alone: %+v", shared.Entries)
	}

	for _, tc := range []struct {
		name    string
		message Message
		falsify func(e, data map[string]any)
	}{
		{"id", Message{}, func(e, _ map[string]any) { e["id"] = "progress/3f0a5c1e9b7d2846/0-1795186799000/9" }},
		{"subject", Message{}, func(e, _ map[string]any) { e["subject"] = "/progress" }},
		{"schema", Message{}, func(e, _ map[string]any) { e["dataschema"] = "https://kubecdc.dev/schema/stream/v1" }},
		{"partition key", Message{}, func(e, _ map[string]any) { e["partitionkey"] = "prod-eu-1/pods" }},
		{"attribute of an object", Message{}, func(e, _ map[string]any) { e["resource"] = "pods" }},
		{"epoch", Message{}, func(_, data map[string]any) { data["run"] = "1-1795186799000" }},
		{"writer", Message{}, func(_, data map[string]any) { data["writer"] = "agent" }},
		{"run", Message{}, func(_, data map[string]any) { data["run"] = "1795186799000" }},
		{"number", Message{}, func(_, data map[string]any) { data["number"] = 0 }},
		{"since", Message{}, func(_, data map[string]any) { delete(data, "since") }},
		{"reason", Message{}, func(_, data map[string]any) {
			scope(data, 1)["interruptions"].([]any)[0].(map[string]any)["why"] = "tired"
		}},
		{"scope of another resource", Message{}, func(_, data map[string]any) {
			scope(data, 1)["resource"] = "secrets"
		}},
		{"no resource", Message{}, func(_, data map[string]any) {
			delete(scope(data, 1), "resource")
			delete(scope(data, 1), "scope")
		}},
		{"revision", Message{}, func(_, data map[string]any) { scope(data, 1)["resourceVersion"] = "x" }},
		{"data", Message{}, func(_, data map[string]any) { data["scopes"] = 1 }},
		{"NATS subject", Message{Subject: "kubecdc.prod-eu-1.stream.core.pods"}, same},
		{"Kafka key", Message{Key: "prod-eu-1/progress/3f0a5c1e9b7d2846/1"}, same}, // It is of another partition.
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := read(t, tc.falsify, tc.message)
			if len(rec.Problems) == 0 {
				t.Errorf("no problem: %+v", rec)
			}
		})
	}
}

// TestOracleKnowsWhichLanesHaveProgress loses a report in one lane.
func TestOracleKnowsWhichLanesHaveProgress(t *testing.T) {
	f := newFakeProgress()
	f.judge()
	var both []Record
	for _, rec := range f.records {
		for rec.Lane = range 2 {
			if rec.Stream != "" || rec.Lane == 0 {
				both = append(both, rec)
			}
		}
	}
	lanes := Lanes{N: 2, Of: func(ObjectKey) int { return 0 }}
	got := lanes.JudgeProgress(f.want, both, f.outside)
	if len(got) > 0 {
		t.Errorf("faults %v", got)
	}
	others := Lanes{N: 2, Of: func(ObjectKey) int { return 1 }} // Which has no change.
	got = others.JudgeProgress(f.want, both, f.outside)
	if len(got) == 0 {
		t.Error("a report is in a lane that lacks the changes, and there is no fault")
	}
	got = lanes.misplaced(both)
	if len(got) > 0 {
		t.Fatalf("faults %v", got)
	}
	for number, want := range map[int]int{3: 1, 6: 0} { // The last one of a run may be on its way when it ends.
		id := f.at(fakeRun1, number).ID
		list := slices.DeleteFunc(slices.Clone(both), func(r Record) bool { return r.ID == id && r.Lane == 1 })
		got := lanes.misplaced(list)
		if len(got) != want {
			t.Errorf("report %d is in one of two lanes: faults %v, want %d", number, got, want)
		}
	}
}

// TestOracleBuildsTheTableOfATime has an object that is replaced, a late copy and a late time.
func TestOracleBuildsTheTableOfATime(t *testing.T) {
	of := func(at float64, name, uid, op string, rev uint64) Record {
		return Record{Time: second(at), Key: ObjectKey{"configmaps", "shop", name}, UID: uid, Op: op, Rev: rev}
	}
	records := []Record{
		of(1, "a", "1", Read, 10), of(2, "a", "1", Updated, 11), of(1, "a", "1", Read, 10), // A copy.
		of(3, "a", "1", Deleted, 12), of(4, "a", "2", Created, 13), of(3, "a", "1", Deleted, 12),
		of(9, "b", "3", Created, 14), // It was observed late.
		{Time: second(1), Key: ObjectKey{"configmaps", "other", "c"}, UID: "4", Op: Created, Rev: 5},
	}
	for at, want := range map[float64]map[string]uint64{
		0: {}, 1: {"a": 10}, 2.5: {"a": 11}, 3.5: {}, 5: {"a": 13}, 9: {"a": 13, "b": 14},
	} {
		got := TableAt(records, ParseScope("configmaps/shop"), second(at))
		ok := len(got) == len(want)
		for name, rev := range want {
			ok = ok && got[ObjectKey{"configmaps", "shop", name}] == rev
		}
		if !ok {
			t.Errorf("at %.1f s: %v, want %v", at, got, want)
		}
	}
}
