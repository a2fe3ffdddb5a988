package e2e_test

import (
	"hash/fnv"
	"slices"
	"testing"
)

// spread is what a bus of several lanes would hold: each object in one of them, stream events in all.
func spread(records []record, l lanes) []record {
	var all []record
	next := make([]uint64, l.n)
	put := func(rec record, lane int) {
		next[lane]++
		rec.Lane, rec.Position = lane, next[lane]
		all = append(all, rec)
	}
	for _, rec := range records {
		if rec.Stream == "" {
			put(rec, l.of(rec.Key))
			continue
		}
		for lane := range l.n {
			put(rec, lane)
		}
	}
	return all
}

// TestOracleSeesEachFaultInLanes falsifies one lane of a faultless bus and wants to hear of just that.
func TestOracleSeesEachFaultInLanes(t *testing.T) {
	const snapshotRev = 100
	w := newFakeWorld(t, 600)
	v := w.view(snapshotRev)
	want := expect(w.history, v)
	l := lanes{n: 3, of: func(key objectKey) int {
		h := fnv.New32a()
		_, _ = h.Write([]byte(key.String())) // Never fails.
		return int(h.Sum32() % 3)
	}}
	good := spread(readAll(messages(t, w.events(t, want, snapshotRev))), l)
	// at is the n-th record for which is holds.
	at := func(n int, is func(*record) bool) int {
		for i := range good {
			if is(&good[i]) {
				if n--; n < 0 {
					return i
				}
			}
		}
		t.Fatal("the fake history has no such record")
		return 0
	}
	isOp := func(op string) func(*record) bool { return func(rec *record) bool { return rec.Op == op } }
	isStream := func(kind string, lane int) func(*record) bool {
		return func(rec *record) bool { return rec.Stream == kind && rec.Lane == lane }
	}
	without := func(i int) func([]record) []record {
		return func(list []record) []record { return slices.Delete(list, i, i+1) }
	}
	for _, tc := range []struct {
		name    string
		falsify func([]record) []record
		want    string // The kind of fault; "" for none.
	}{
		{"nothing", func(list []record) []record { return list }, ""},
		{"lanes apart", func(list []record) []record { // Between lanes there is no order.
			slices.SortStableFunc(list, func(a, b record) int { return b.Lane - a.Lane })
			return list
		}, ""},
		{"dropped update", without(at(5, isOp(updated))), "missing"},
		{"dropped read", without(at(0, isOp(read))), "snapshot"},
		{"started missing in a lane", without(at(0, isStream(snapshotStarted, 1))), "lane"},
		{"completed missing in a lane", without(at(0, isStream(snapshotCompleted, 2))), "lane"},
		{"wrong lane", func(list []record) []record {
			i := at(5, isOp(updated))
			list[i].Lane = (list[i].Lane + 1) % l.n
			return list
		}, "lane"},
		{"lane that is none", func(list []record) []record {
			list[at(5, isOp(updated))].Lane = l.n
			return list
		}, "lane"},
		{"swapped order", func(list []record) []record {
			i := at(0, isOp(updated))
			j := at(0, func(rec *record) bool { return rec.UID == list[i].UID && rec.Rev > list[i].Rev })
			list[i], list[j] = list[j], list[i]
			return list
		}, "order"},
		{"read behind completed", func(list []record) []record {
			i := at(0, isOp(read))
			rec := list[i]
			return append(slices.Delete(list, i, i+1), rec)
		}, "snapshot"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			records := tc.falsify(slices.Clone(good))
			got := l.judge(want, records, v)
			kinds := faultKinds(append(got.Faults, judgeSnapshots(l.split(records)...)...))
			if tc.want == "" && len(kinds) > 0 {
				t.Fatalf("faults on a faultless bus: %v, the first: %v", kinds, append(got.Faults, judgeSnapshots(l.split(records)...)...)[0])
			}
			if tc.want != "" && kinds[tc.want] == 0 {
				t.Fatalf("faults %v, want one of kind %q", kinds, tc.want)
			}
		})
	}
}

// TestOracleKnowsDeadLetters: a gap behind a dead letter excuses just the record that is there.
func TestOracleKnowsDeadLetters(t *testing.T) {
	const snapshotRev = 100
	w := newFakeWorld(t, 600)
	v := w.view(snapshotRev)
	want := expect(w.history, v)
	good := readAll(messages(t, w.events(t, want, snapshotRev)))
	dead := slices.IndexFunc(good, func(rec record) bool { return rec.Op == updated && rec.Rev > 300 })
	rec := good[dead]
	var sc scope
	for i := range good {
		if good[i].Stream == snapshotStarted && good[i].Scope.has(rec.Key) {
			sc = good[i].Scope
		}
	}
	behind := record{
		ID: "gap", Stream: gap, Scope: sc, From: rec.PrevRev, To: rec.Rev, Reason: deadLetter, Letter: rec.ID,
		Position: rec.Position,
	}
	other := slices.IndexFunc(good[dead+1:], func(o record) bool {
		return o.Stream == "" && o.Op != read && o.Key.Resource == rec.Key.Resource && o.Key != rec.Key
	}) + dead + 1
	for _, tc := range []struct {
		name    string
		replace []record // For the record.
		dead    bool     // It is in the dead letters.
		drop    int      // Another record that is missing; 0: none.
		want    string
	}{
		{"dead letter and gap", []record{behind}, true, 0, ""},
		{"no gap", nil, true, 0, "missing"},
		{"no dead letter", []record{behind}, false, 0, "missing"},
		{"another record is missing, too", []record{behind}, true, other, "missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			records := slices.Clone(good)
			if tc.drop > 0 {
				records = slices.Delete(records, tc.drop, tc.drop+1)
			}
			records = slices.Replace(records, dead, dead+1, tc.replace...)
			v := v
			if tc.dead {
				v.Dead = map[string]objectKey{rec.ID: rec.Key}
			}
			got := judge(want, records, v)
			kinds := faultKinds(got.Faults)
			if tc.want == "" && len(got.Faults) > 0 {
				t.Fatalf("faults: %v, the first: %v", kinds, got.Faults[0])
			}
			if tc.want != "" && kinds[tc.want] == 0 {
				t.Fatalf("faults %v, want one of kind %q", kinds, tc.want)
			}
		})
	}
}
