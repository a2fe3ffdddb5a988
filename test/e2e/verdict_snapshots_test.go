package e2e_test

import (
	"fmt"
)

// judgeSnapshots checks the marks of the snapshots: each object is read between started and completed, nothing of a
// scope comes before started, and the counts are right.
func judgeSnapshots(records []record) []fault {
	type marks struct {
		started, completed *record
		reads              int
	}
	var faults []fault
	add := func(rec *record, format string, args ...any) {
		faults = append(faults, fault{
			Kind: "snapshot", Key: rec.Key, Rev: rec.Rev, Position: rec.Position, Text: fmt.Sprintf(format, args...),
		})
	}
	scopes := make(map[string]*marks) // By scope and snapshot.
	seen := make(map[string]bool, len(records))
	find := func(rec *record) *marks {
		for _, m := range scopes {
			if m.started.Scope.has(rec.Key) && (rec.Op != read || m.started.Snapshot == rec.Snapshot) {
				return m
			}
		}
		return nil
	}
	for i := range records {
		rec := &records[i]
		if seen[rec.ID] {
			continue
		}
		seen[rec.ID] = true
		id := rec.Scope.Text + "\n" + rec.Snapshot
		switch {
		case rec.Stream == snapshotStarted:
			scopes[id] = &marks{started: rec}
		case rec.Stream == snapshotCompleted:
			m := scopes[id]
			if m == nil {
				add(rec, "completed before started: %s", rec.ID)
				continue
			}
			m.completed = rec
			if rec.Objects != m.reads || m.started.Objects != m.reads {
				add(rec, "%s: started says %d objects, completed %d, there are %d reads", rec.Scope.Text, m.started.Objects, rec.Objects, m.reads)
			}
			if rec.Rev != m.started.Rev {
				add(rec, "%s: started at revision %d, completed at %d", rec.Scope.Text, m.started.Rev, rec.Rev)
			}
		case rec.Stream != "":
		default:
			m := find(rec)
			if m == nil {
				add(rec, "op %s, %s, before snapshot.started", rec.Op, rec.ID)
				continue
			}
			if rec.Op == read {
				m.reads++
				if m.completed != nil {
					add(rec, "%s read after snapshot.completed", rec.ID)
				}
			}
		}
	}
	for _, m := range scopes {
		if m.completed == nil {
			add(m.started, "%s has no snapshot.completed", m.started.ID)
		}
	}
	return faults
}
