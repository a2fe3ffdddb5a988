package store

import "testing"

// Each phase of a snapshot can be reached from the two in which one begins, and leads to an end.
// None leaves an end.
func TestTableOfSnapshotPhases(t *testing.T) {
	const last = snapshotDropped
	from := func(start snapshotPhase) map[snapshotPhase]bool {
		reached := map[snapshotPhase]bool{start: true}
		for range last {
			for p := range last + 1 {
				for next := range last + 1 {
					if reached[p] && p.leadsTo(next) {
						reached[next] = true
					}
				}
			}
		}
		return reached
	}
	offered, bound := from(snapshotOffered), from(snapshotBound)
	for p := range last + 1 {
		if !offered[p] && !bound[p] {
			t.Errorf("%s cannot be reached", p)
		}
		if p.mayBeGivenUp() != p.leadsTo(snapshotGivenUp) {
			t.Errorf("%s may be given up: %t", p, p.mayBeGivenUp())
		}
		ends := from(p)
		if !ends[snapshotCompleted] && !ends[snapshotGivenUp] && !ends[snapshotDropped] {
			t.Errorf("%s has no end", p)
		}
	}
	if bound[snapshotGivenUp] {
		t.Error("a snapshot that holds changes back can be given up")
	}
}
