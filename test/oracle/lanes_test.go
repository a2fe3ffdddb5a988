package oracle

import (
	"hash/fnv"
	"slices"
	"testing"
)

// spread returns the records as on a bus with several lanes: those of an object in one lane, stream
// events in all.
func spread(records []Record, l Lanes) []Record {
	var all []Record
	next := make([]uint64, l.N)
	put := func(rec Record, lane int) {
		next[lane]++
		rec.Lane, rec.Position = lane, next[lane]
		all = append(all, rec)
	}
	for _, rec := range records {
		if rec.Stream == "" {
			put(rec, l.Of(rec.Key))
			continue
		}
		for lane := range l.N {
			put(rec, lane)
		}
	}
	return all
}

// TestOracleSeesEachFaultInLanes falsifies one lane of correct records and expects a fault of the
// right kind.
func TestOracleSeesEachFaultInLanes(t *testing.T) {
	const snapshotRev = 100
	w := newFakeWorld(t, 600)
	v := w.view(snapshotRev)
	want := Expect(w.history, v)
	l := Lanes{N: 3, Of: func(key ObjectKey) int {
		h := fnv.New32a()
		_, _ = h.Write([]byte(key.String())) // Never fails.
		return int(h.Sum32() % 3)
	}}
	good := spread(readAll(messages(t, w.events(t, want, snapshotRev))), l)
	// at is the n-th record for which is holds.
	at := func(n int, is func(*Record) bool) int {
		for i := range good {
			if is(&good[i]) {
				n--
				if n < 0 {
					return i
				}
			}
		}
		t.Fatal("the fake history has no such record")
		return 0
	}
	isOp := func(op string) func(*Record) bool { return func(rec *Record) bool { return rec.Op == op } }
	isStream := func(kind string, lane int) func(*Record) bool {
		return func(rec *Record) bool { return rec.Stream == kind && rec.Lane == lane }
	}
	without := func(i int) func([]Record) []Record {
		return func(list []Record) []Record { return slices.Delete(list, i, i+1) }
	}
	for _, tc := range []struct {
		name    string
		falsify func([]Record) []Record
		want    string // The kind of fault; "" for none.
	}{
		{"nothing", func(list []Record) []Record { return list }, ""},
		{"lanes apart", func(list []Record) []Record { // There is no order between lanes.
			slices.SortStableFunc(list, func(a, b Record) int { return b.Lane - a.Lane })
			return list
		}, ""},
		{"dropped update", without(at(5, isOp(Updated))), "missing"},
		{"dropped read", without(at(0, isOp(Read))), "snapshot"},
		{"started missing in a lane", without(at(0, isStream(SnapshotStarted, 1))), "lane"},
		{"completed missing in a lane", without(at(0, isStream(SnapshotCompleted, 2))), "lane"},
		{"wrong lane", func(list []Record) []Record {
			i := at(5, isOp(Updated))
			list[i].Lane = (list[i].Lane + 1) % l.N
			return list
		}, "lane"},
		{"lane that is none", func(list []Record) []Record {
			list[at(5, isOp(Updated))].Lane = l.N
			return list
		}, "lane"},
		{"swapped order", func(list []Record) []Record {
			i := at(0, isOp(Updated))
			j := at(0, func(rec *Record) bool { return rec.UID == list[i].UID && rec.Rev > list[i].Rev })
			list[i], list[j] = list[j], list[i]
			return list
		}, "order"},
		{"read behind completed", func(list []Record) []Record {
			i := at(0, isOp(Read))
			rec := list[i]
			return append(slices.Delete(list, i, i+1), rec)
		}, "snapshot"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			records := tc.falsify(slices.Clone(good))
			got := l.Judge(want, records, v)
			kinds := FaultKinds(append(got.Faults, JudgeSnapshots(l.Split(records)...)...))
			if tc.want == "" && len(kinds) > 0 {
				t.Fatalf("faults on a faultless bus: %v, the first: %v", kinds,
					append(got.Faults, JudgeSnapshots(l.Split(records)...)...)[0])
			}
			if tc.want != "" && kinds[tc.want] == 0 {
				t.Fatalf("faults %v, want one of kind %q", kinds, tc.want)
			}
		})
	}
}

// TestOracleKnowsDeadLetters checks that a gap with reason dead-letter excuses only the record in
// the dead letters.
func TestOracleKnowsDeadLetters(t *testing.T) {
	const snapshotRev = 100
	w := newFakeWorld(t, 600)
	v := w.view(snapshotRev)
	want := Expect(w.history, v)
	good := readAll(messages(t, w.events(t, want, snapshotRev)))
	dead := slices.IndexFunc(good, func(rec Record) bool { return rec.Op == Updated && rec.Rev > 300 })
	rec := good[dead]
	var sc Scope
	for i := range good {
		if good[i].Stream == SnapshotStarted && good[i].Scope.Has(rec.Key) {
			sc = good[i].Scope
		}
	}
	behind := Record{
		ID: "gap", Stream: Gap, Scope: sc, From: rec.PrevRev, To: rec.Rev, Reason: DeadLetter, Letter: rec.ID,
		Position: rec.Position,
	}
	other := slices.IndexFunc(good[dead+1:], func(o Record) bool {
		return o.Stream == "" && o.Op != Read && o.Key.Resource == rec.Key.Resource && o.Key != rec.Key
	}) + dead + 1
	for _, tc := range []struct {
		name    string
		replace []Record // For the record.
		dead    bool     // Whether the record is in the dead letters.
		drop    int      // Another record that is missing; 0: none.
		want    string
	}{
		{"dead letter and gap", []Record{behind}, true, 0, ""},
		{"no gap", nil, true, 0, "missing"},
		{"no dead letter", []Record{behind}, false, 0, "missing"},
		{"another record is missing, too", []Record{behind}, true, other, "missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			records := slices.Clone(good)
			if tc.drop > 0 {
				records = slices.Delete(records, tc.drop, tc.drop+1)
			}
			records = slices.Replace(records, dead, dead+1, tc.replace...)
			v := v
			if tc.dead {
				v.Dead = map[string]ObjectKey{rec.ID: rec.Key}
			}
			got := Judge(want, records, v)
			kinds := FaultKinds(got.Faults)
			if tc.want == "" && len(got.Faults) > 0 {
				t.Fatalf("faults: %v, the first: %v", kinds, got.Faults[0])
			}
			if tc.want != "" && kinds[tc.want] == 0 {
				t.Fatalf("faults %v, want one of kind %q", kinds, tc.want)
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
