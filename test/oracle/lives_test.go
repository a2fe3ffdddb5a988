package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
)

// fakeLives makes the correct records of an agent that takes a second snapshot at secondRev. If
// lostFrom is not 0, the agent has lost the history between lostFrom and that snapshot.
type fakeLives struct {
	*fakeWorld
	lostFrom, secondRev uint64
	resources           []string
}

func (f *fakeLives) stream(kind, resource, end string, data map[string]any) map[string]any {
	plural, group := ObjectKey{Resource: resource}.Split()
	e := f.envelope(resource+"/"+end, kind, fakePath(group)+"/"+plural, data)
	e["scope"] = resource
	return e
}

func revOf(e map[string]any) uint64 {
	text, _ := e["resourceversion"].(string)
	rev, _ := strconv.ParseUint(text, 10, 64) // 0 for a stream event.
	return rev
}

// events returns the events of the whole stream.
func (f *fakeLives) events(t *testing.T) []map[string]any {
	first := f.view(1)
	all := f.fakeWorld.events(t, Expect(f.history, first), 1)
	cut := slices.IndexFunc(all, func(e map[string]any) bool { return revOf(e) > f.secondRev })
	var before []map[string]any
	for _, e := range all[:cut] {
		if rev := revOf(e); f.lostFrom == 0 || rev <= f.lostFrom {
			before = append(before, e)
		}
	}
	var between []map[string]any
	for _, resource := range f.resources {
		if f.lostFrom != 0 {
			between = append(between, f.gap(resource, f.lostFrom, f.secondRev, Compacted, false))
		}
		var reads []map[string]any
		for key, list := range Expect(f.history, View{Until: f.secondRev, Snapshot: func(ObjectKey) (Snapshot, bool) {
			return Snapshot{ID: "s2", Rev: f.secondRev}, true
		}}) {
			if key.Resource == resource && len(list) > 0 {
				reads = append(reads, f.event(t, list[0]))
			}
		}
		marks := map[string]any{"snapshot": "s2", "resourceVersion": FormatRev(f.secondRev), "objects": len(reads)}
		between = append(between, f.stream(SnapshotStarted, resource, "s2/started", marks))
		between = append(between, reads...)
		between = append(between, f.stream(SnapshotCompleted, resource, "s2/completed", marks))
	}
	return slices.Concat(before, between, all[cut:])
}

func (f *fakeLives) gap(resource string, from, to uint64, reason string, recovered bool) map[string]any {
	id := fmt.Sprintf("gap/%d-%d", from, to)
	if recovered {
		id += "/recovered"
	}
	return f.stream(Gap, resource, id, map[string]any{
		"fromResourceVersion": FormatRev(from), "toResourceVersion": FormatRev(to),
		"since": "2026-11-20T15:00:00Z", "reason": reason, "recovered": recovered,
	})
}

func (f *fakeLives) progress(resource string, rev uint64) map[string]any {
	at, _ := time.Parse(time.RFC3339Nano, "2026-11-20T15:00:00.123456789Z") // As in envelope.
	return f.stream(Progress, resource, fmt.Sprintf("progress/%d/%d", rev, at.Unix()), map[string]any{
		"resourceVersion": FormatRev(rev),
	})
}

// lives judges the events as the tests do.
func (f *fakeLives) judge(
	t *testing.T, events []map[string]any, losses []Loss, stored func(i int) time.Time,
) (Verdict, []Fault) {
	list := messages(t, events)
	if stored != nil {
		for i := range list {
			list[i].Stored = stored(i)
		}
	}
	records := readAll(list)
	v := LivesView(records, 0)
	want := Expect(f.history, v)
	got := Judge(want, records, v)
	return got, append(got.Faults, JudgeLives(want, records, losses, Outside{})...)
}

func drop(t *testing.T, events []map[string]any, n int, is func(map[string]any) bool) []map[string]any {
	i := find(t, events, n, is)
	return slices.Delete(events, i, i+1)
}

func hasType(kind string) func(map[string]any) bool {
	return func(e map[string]any) bool { return e["type"] == typePrefix+kind }
}

func ofSnapshot(id string) func(map[string]any) bool {
	return func(e map[string]any) bool {
		return e["op"] == Read && e["data"].(map[string]any)["snapshot"] == id
	}
}

// TestOracleJudgesLives falsifies the records of an agent that takes a second snapshot because
// history was lost.
func TestOracleJudgesLives(t *testing.T) {
	const from, to, revisions = 200, 400, 600
	gone := []Loss{{Rev: to, Final: true}}
	for _, tc := range []struct {
		name    string
		lost    bool
		losses  []Loss
		falsify func(*testing.T, *fakeLives, []map[string]any) []map[string]any
		want    string // The kind of fault; "" for none.
	}{
		{"nothing", true, gone, nil, ""},
		{"no loss that explains the gap", true, []Loss{{Rev: to}}, nil, "gap"},
		{"a search for the gap that took too long", true, []Loss{{
			Rev: to,
		}}, func(_ *testing.T, _ *fakeLives, e []map[string]any) []map[string]any {
			for i := range e {
				if e[i]["type"] == typePrefix+Gap {
					e[i]["data"].(map[string]any)["since"] = "2026-11-20T14:59:30Z"
				}
			}
			return e
		}, ""},
		{"a loss before the gap", true, []Loss{{Rev: from - 1, Final: true}}, nil, "gap"},
		{"second snapshot without a reason", false, nil, nil, "snapshot"},
		{
			"read of the second snapshot dropped", true, gone,
			func(t *testing.T, _ *fakeLives, e []map[string]any) []map[string]any {
				return drop(t, e, 3, ofSnapshot("s2"))
			}, "missing",
		},
		{
			"second snapshot not completed", true, gone,
			func(t *testing.T, _ *fakeLives, e []map[string]any) []map[string]any {
				return drop(t, e, 4, hasType(SnapshotCompleted))
			}, "snapshot",
		},
		{"gap not announced", true, gone, func(t *testing.T, _ *fakeLives, e []map[string]any) []map[string]any {
			return drop(t, e, 0, hasType(Gap))
		}, "missing"},
		{
			"continued under another id", true, gone,
			func(t *testing.T, _ *fakeLives, e []map[string]any) []map[string]any {
				i := find(t, e, 5, ofSnapshot("s2"))
				x := clone(t, e[i])
				x["data"].(map[string]any)["snapshot"] = "s3"
				x["id"] = fmt.Sprintf("%s/%s/%s/r/s3", x["resource"], x["uid"], x["resourceversion"])
				if x["resource"] == "widgets" {
					x["id"] = fmt.Sprintf("%s/%s/%s/r/s3", Widgets, x["uid"], x["resourceversion"])
				}
				e[i] = x
				return e
			}, "snapshot",
		},
		{"a late copy", true, gone, func(_ *testing.T, _ *fakeLives, e []map[string]any) []map[string]any {
			return append(e, e[len(e)/3])
		}, ""},
		{"a copy that differs", true, gone, func(t *testing.T, _ *fakeLives, e []map[string]any) []map[string]any {
			x := clone(t, e[find(t, e, 5, hasOp(Updated))])
			before := x["data"].(map[string]any)["before"].(map[string]any)
			before["metadata"].(map[string]any)["labels"] = map[string]any{
				"x": "y",
			}
			x["data"].(map[string]any)["patch"] = []any{map[string]any{
				"op":    "replace",
				"path":  "",
				"value": x["data"].(map[string]any)["after"],
			}}
			return append(e, x)
		}, "duplicate"},
		{"progress", true, gone, func(_ *testing.T, f *fakeLives, e []map[string]any) []map[string]any {
			return append(e, f.progress("configmaps", revisions))
		}, ""},
		{"progress too early", true, gone, func(t *testing.T, f *fakeLives, e []map[string]any) []map[string]any {
			i := find(t, e, 0, func(x map[string]any) bool { return revOf(x) > 500 && x["resource"] == "configmaps" })
			return slices.Insert(e, i, f.progress("configmaps", revOf(e[i])))
		}, "progress"},
		{"said to be recovered", true, gone, func(t *testing.T, f *fakeLives, e []map[string]any) []map[string]any {
			i := find(t, e, 0, hasType(Gap))
			e[i] = f.gap(e[i]["scope"].(string), from, to, Compacted, true)
			return e
		}, "missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fakeLives{fakeWorld: newFakeWorld(t, revisions), secondRev: to, resources: []string{
				"configmaps", "secrets", Widgets,
			}}
			if tc.lost {
				f.lostFrom = from
			}
			events := f.events(t)
			if tc.falsify != nil {
				events = tc.falsify(t, f, events)
			}
			got, faults := f.judge(t, events, tc.losses, nil)
			kinds := FaultKinds(faults)
			if tc.want == "" && len(faults) > 0 {
				t.Fatalf("faults in a faultless stream: %v, the first: %v", kinds, faults[0])
			}
			if tc.want != "" && kinds[tc.want] == 0 {
				t.Fatalf("faults %v, want one of kind %q", kinds, tc.want)
			}
			if tc.want == "" && (got.Swept == 0 || got.InGaps == 0) {
				t.Errorf("%d objects swept, %d records in gaps: the test shows nothing", got.Swept, got.InGaps)
			}
		})
	}
}

// TestOracleSeesTheDuplicateWindow publishes a second copy before and after the end of the
// duplicate window.
func TestOracleSeesTheDuplicateWindow(t *testing.T) {
	f := &fakeLives{fakeWorld: newFakeWorld(t, 300), secondRev: 200, lostFrom: 100, resources: []string{
		"configmaps", "secrets", Widgets,
	}}
	events := f.events(t)
	events = append(events, events[len(events)/2])
	for after, want := range map[time.Duration]int{duplicateWindow - time.Second: 1, duplicateWindow + time.Second: 0} {
		begin := time.Unix(1, 0)
		_, faults := f.judge(t, events, []Loss{{Rev: 200, Final: true}}, func(i int) time.Time {
			if i == len(events)-1 {
				return begin.Add(after)
			}
			return begin
		})
		if got := FaultKinds(faults)["duplicate"]; got != want || len(faults) != want {
			t.Errorf("second copy after %s: faults %v, want %d duplicate", after, FaultKinds(faults), want)
		}
	}
}

// TestOracleJudgesWalkingBack recovers all versions of a gap that can be found, then one fewer.
func TestOracleJudgesWalkingBack(t *testing.T) {
	const from, to = 200, 400
	w := newFakeWorld(t, 600)
	v := w.view(1)
	want := Expect(w.history, v)
	f := &fakeLives{fakeWorld: w, resources: []string{"configmaps", "secrets", Widgets}}
	j := &judgement{want: want}
	var events, inside []map[string]any
	for _, e := range w.events(t, want, 1) {
		if rev := revOf(e); rev > from && rev <= to {
			inside = append(inside, e)
		} else {
			events = append(events, e)
		}
	}
	at := slices.IndexFunc(events, func(e map[string]any) bool { return revOf(e) > to })
	ends := func(e map[string]any) bool { // Whether the object lived at an end of the gap.
		plural := e["resource"].(string)
		if plural == "widgets" {
			plural = Widgets
		}
		key := ObjectKey{Resource: plural, Namespace: e["namespace"].(string), Name: e["name"].(string)}
		for _, rev := range []uint64{from, to} {
			if ver := j.at(key, rev); ver != nil && ver.UID == e["uid"] {
				return true
			}
		}
		return false
	}
	var gaps, found, brief []map[string]any
	for _, resource := range f.resources {
		gaps = append(gaps, f.gap(resource, from, to, Expired, true))
	}
	for _, e := range inside {
		if ends(e) {
			found = append(found, e)
		} else {
			brief = append(brief, e)
		}
	}
	if len(found) < 20 || len(brief) == 0 {
		t.Fatalf("%d versions to be found, %d that cannot be: the test shows nothing", len(found), len(brief))
	}
	for name, tc := range map[string]struct {
		found []map[string]any
		want  string
	}{
		"all":         {found, ""},
		"one too few": {slices.Concat(found[:7], found[8:]), "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			records := readAll(messages(t, slices.Concat(events[:at], gaps, tc.found, events[at:])))
			got := Judge(want, records, v)
			faults := append(got.Faults, JudgeLives(want, records, []Loss{{Rev: to}}, Outside{})...)
			kinds := FaultKinds(faults)
			if tc.want == "" && len(faults) > 0 || tc.want != "" && kinds[tc.want] == 0 {
				t.Fatalf("faults %v (%v), want %q", kinds, faults[:min(1, len(faults))], tc.want)
			}
		})
	}
}

// TestOracleKnowsWhatNobodyCanTell has an agent with a selector infer changes whose op etcd can no
// longer show.
func TestOracleKnowsWhatNobodyCanTell(t *testing.T) {
	w := &fakeWorld{history: make(map[ObjectKey][]*Version), objects: make(map[uint64][]byte)}
	key := ObjectKey{Resource: "configmaps", Namespace: "shop", Name: "a"}
	inside := map[string]string{"team": "payments"}
	w.put(t, key, "1", inside, "x")
	w.put(t, key, "1", inside, "y")
	w.remove(key)
	w.put(t, key, "2", inside, "z")
	v := w.view(1)
	v.Selects = func(labels map[string]string) bool { return labels["team"] == "payments" }
	want := Expect(w.history, v)
	events := w.events(t, want, 1)
	for i, e := range events {
		data := e["data"].(map[string]any)
		switch e["op"] {
		case Deleted: // The agent only knows that the object left.
			e["id"] = "configmaps/1/3/l"
			e["op"] = Left
			e["type"] = typePrefix + "object.left"
			data["op"], data["inferred"] = Left, true
			delete(data, "after")
		case Created:
			e["op"], e["type"] = Entered, typePrefix+"object.entered"
			data["op"], data["inferred"] = Entered, true
			delete(data, "before")
			delete(data, "changedBy")
		}
		events[i] = e
	}
	records := readAll(messages(t, events))
	v.Forgotten = 4
	if got := Judge(want, records, v); len(got.Faults) > 0 || got.Untold != 2 {
		t.Errorf("%d untold, want 2; faults %v", got.Untold, got.Faults)
	}
	v.Forgotten = 0
	if got := Judge(want, records, v); FaultKinds(got.Faults)["unexpected"] == 0 ||
		FaultKinds(got.Faults)["inferred"] == 0 {
		t.Errorf("nothing was forgotten, and the faults are only %v", got.Faults)
	}
}

// A run publishes the creation of an object. The next run starts before that, and a gap hides the
// deletion. The agent can only report the next object with this name as entered.
func TestOracleJudgesWhatFollowsAGap(t *testing.T) {
	w := &fakeWorld{history: make(map[ObjectKey][]*Version), objects: make(map[uint64][]byte)}
	key := ObjectKey{Resource: "configmaps", Namespace: "shop", Name: "a"}
	w.put(t, key, "1", nil, "x")
	w.remove(key)
	w.put(t, key, "2", nil, "y")
	v := w.view(1)
	v.Selects = func(map[string]string) bool { return true }
	v.Forgotten = 3
	want := Expect(w.history, v)
	events := w.events(t, want, 1)
	sent, entered := events[:len(events)-2], events[len(events)-1] // without the deletion
	entered["op"], entered["type"] = Entered, typePrefix+"object.entered"
	data := entered["data"].(map[string]any)
	data["op"], data["inferred"] = Entered, true
	delete(data, "before")
	delete(data, "changedBy")
	gap := w.envelope("configmaps/gap/1-2", Gap, "/api/v1/configmaps", map[string]any{
		"fromResourceVersion": "1",
		"toResourceVersion":   "2",
		"since":               "2026-11-20T15:00:00Z",
		"reason":              "expired",
		"recovered":           false,
	})
	gap["scope"] = "configmaps"
	if got := Judge(want, readAll(messages(t, append(slices.Clone(sent), gap, entered))), v); len(got.Faults) > 0 {
		t.Errorf("faults %v", got.Faults)
	}
	if got := Judge(want, readAll(messages(t, append(slices.Clone(sent), entered))),
		v); FaultKinds(got.Faults)["chain"] != 1 {
		t.Errorf("there is no gap, and the faults are only %v", got.Faults)
	}
}

// TestOracleKnowsWhichSnapshotsAreReplaced judges a snapshot that follows another one. Snapshot n
// begins in minute n of an hour, and its id has the time of the next minute.
func TestOracleKnowsWhichSnapshotsAreReplaced(t *testing.T) {
	scope := Scope{Text: "secrets"}
	of := func(kind string, n int) Record {
		return Record{
			Stream: kind, Scope: scope, Snapshot: fmt.Sprintf("20261129T00%02d00.000Z-7", n+1),
			Time: time.Date(2026, 11, 29, 0, n, 0, 0, time.UTC),
		}
	}
	started := func(n int) Record { return of(SnapshotStarted, n) }
	completed := func(n int) Record { return of(SnapshotCompleted, n) }
	gap := Record{Stream: Gap, Scope: scope, Reason: SelectionChanged}
	for _, tc := range []struct {
		name    string
		restart int // in the middle of this minute
		records []Record
		faults  int
	}{
		{"after a gap and a restart", 2, []Record{
			started(1), completed(1), gap, started(2), started(3), completed(3),
		}, 0},
		{"complete, after a gap and a restart", 2, []Record{
			started(1), gap, started(2), completed(2), started(3), completed(3),
		}, 0},
		{"after a gap", 5, []Record{started(1), gap, started(2), completed(2), started(3), completed(3)}, 1},
		{"twice after one restart", 2, []Record{started(1), gap, started(2), started(3), started(4), completed(4)}, 1},
		{"the first one", 1, []Record{started(1), started(2), completed(2)}, 1},
		{"the first one, complete", 1, []Record{started(1), completed(1), started(2), completed(2)}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for i := range tc.records {
				tc.records[i].ID, tc.records[i].Position = strconv.Itoa(i), uint64(i)+1
			}
			restart := time.Date(2026, 11, 29, 0, tc.restart, 30, 0, time.UTC)
			restarted := func(from, to time.Time) bool { return from.Before(restart) && restart.Before(to) }
			if got := JudgeLives(nil, tc.records, nil, Outside{Restarted: restarted}); len(got) != tc.faults {
				t.Errorf("%d faults, want %d: %v", len(got), tc.faults, got)
			}
		})
	}
}
