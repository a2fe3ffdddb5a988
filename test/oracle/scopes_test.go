package oracle

import (
	"strconv"
	"testing"
)

func TestOracleKnowsWhichScopesAreObserved(t *testing.T) {
	of := func(kind, scope string) Record { return Record{Stream: kind, Scope: ParseScope(scope)} }
	object := Record{Op: Created, Key: ObjectKey{Resource: "pods", Namespace: "shop", Name: "web"}}
	left := Record{Op: Left, Key: object.Key}
	gap := of(Gap, "pods")
	started := of(ScopeStarted, "pods")
	ended := of(ScopeEnded, "pods")
	for _, tc := range []struct {
		name    string
		records []Record
		faults  int
	}{
		{"started, ended and started", []Record{started, object, ended, started, object}, 0},
		{"a gap before the start", []Record{gap, started, object}, 0},
		{"a snapshot of a part", []Record{
			started, of(SnapshotStarted, "pods/shop"), of(SnapshotCompleted, "pods/shop"),
		}, 0},
		{"an object before the start", []Record{object, started}, 1},
		{"an object after the end", []Record{started, ended, object}, 1},
		{"left after the end", []Record{started, ended, left}, 0},
		{"left of another scope than the one that has ended", []Record{
			of(ScopeStarted, "secrets"), of(ScopeEnded, "secrets"), left,
		}, 1},
		{"an object of another namespace", []Record{of(ScopeStarted, "pods/other"), object}, 1},
		{"progress after the end", []Record{started, ended, of(Progress, "pods")}, 1},
		{"an end without a start", []Record{ended}, 1},
		{"of another resource", []Record{of(ScopeStarted, "secrets"), of(SnapshotStarted, "pods")}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for i := range tc.records {
				tc.records[i].ID = strconv.Itoa(i)
			}
			if got := JudgeScopes(tc.records); len(got) != tc.faults {
				t.Errorf("%d faults, want %d: %v", len(got), tc.faults, got)
			}
			if again := JudgeScopes(append(tc.records, tc.records...)); len(again) != tc.faults {
				t.Errorf("with copies: %d faults, want %d: %v", len(again), tc.faults, again)
			}
		})
	}
}
