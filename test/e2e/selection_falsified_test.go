package e2e_test

import (
	"slices"
	"testing"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/oracle/selection"
)

// falsify changes a faultless run in one place after the other, in the rules or in the records. The
// judges must detect each change. It returns the number of changes.
func (r *selectionRun) falsify(
	t *testing.T, want map[oracle.ObjectKey][]selection.Chosen, records []oracle.Record, until uint64,
	begins func(oracle.ObjectKey) (oracle.Snapshot, bool),
) int {
	t.Helper()
	noticed := r.falsifyRecords(t, want, records, until)
	if len(r.killed) > 0 {
		return noticed // After a crash, the only difference may be in records that the judge must accept either way.
	}
	a := selection.ReadArchive(t, r.History, r.from, until, r.watched...)
	for name, other := range r.config.Mutations() {
		wrong := other.Choose(a, begins, until)
		if selection.SameChoice(want, wrong) {
			continue // The mutation changes nothing in this run.
		}
		if got := selection.Judge(wrong, records, until); len(got.Faults) == 0 {
			t.Errorf("rules that are not those of the agent (%s), and the records fit them", name)
		}
		noticed++
	}
	return noticed
}

// falsifyRecords changes some of the records, one at a time.
func (r *selectionRun) falsifyRecords(
	t *testing.T, want map[oracle.ObjectKey][]selection.Chosen, records []oracle.Record, until uint64,
) int {
	t.Helper()
	expected := make(map[string]*selection.Chosen)
	for _, list := range want {
		for i := range list {
			expected[list[i].ID] = &list[i]
		}
	}
	var of []int
	for i := range records {
		if e := expected[records[i].ID]; e != nil && e.Reason == "" {
			of = append(of, i)
		}
	}
	noticed := 0
	try := func(name, kind string, list []oracle.Record) {
		t.Helper()
		got := selection.Judge(want, list, until, r.killed...)
		if !slices.ContainsFunc(got.Faults, func(f selection.Fault) bool { return f.Kind == kind }) {
			t.Errorf("%s: no fault of kind %q, of %d", name, kind, len(got.Faults))
		}
		noticed++
	}
	edit := func(i int, do func(*oracle.Record)) []oracle.Record {
		list := slices.Clone(records)
		do(&list[i])
		return list
	}
	first := records[of[0]]
	try("one more version withheld", "skipped", edit(of[0], func(rec *oracle.Record) { rec.Skipped += 3 }))
	try("dropped", "missing", slices.Delete(slices.Clone(records), of[0], of[0]+1))
	try("sent again", "duplicate", slices.Insert(slices.Clone(records), of[0], first))
	try("inferred", "inferred", edit(of[0], func(rec *oracle.Record) { rec.Inferred = true }))
	try("another revision before", "previousResourceVersion", edit(of[0], func(rec *oracle.Record) {
		rec.PrevRev += 7
	}))
	try("another op", "op", edit(of[0], func(rec *oracle.Record) { rec.Op = "x" }))
	try("a gap", "gap", edit(of[0], func(rec *oracle.Record) { rec.Stream = oracle.Gap }))
	for _, i := range of {
		if records[i].After == oracle.Present {
			try("another object", "after", edit(i, func(rec *oracle.Record) { rec.AfterDigest[3]++ }))
			break
		}
	}
	for _, i := range of {
		if records[i].Before == oracle.Present {
			try("another object before", "before", edit(i, func(rec *oracle.Record) { rec.BeforeDigest[3]++ }))
			break
		}
	}
	for n, i := range of {
		j := slices.IndexFunc(of[n+1:], func(j int) bool { return records[j].Key == records[i].Key })
		if j >= 0 {
			list := slices.Clone(records)
			j = of[n+1+j]
			list[i], list[j] = list[j], list[i]
			try("the other way round", "order", list)
			break
		}
	}
	for id, e := range expected {
		if e.Reason != "" {
			try("not withheld", "not withheld", append(slices.Clone(records), oracle.Record{
				ID:       id,
				Op:       e.Op,
				Key:      e.Key,
				Rev:      e.Rev,
				Position: 1 << 40,
			}))
			break
		}
	}
	return noticed
}
