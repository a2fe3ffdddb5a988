package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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
