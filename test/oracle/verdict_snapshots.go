package oracle

import (
	"fmt"
)

// snapshotJudgement checks the start and end events of snapshots. On a bus with several lanes, each
// lane has all of them.
type snapshotJudgement struct {
	scopes map[string]*scopeMarks // By scope and snapshot.
	faults []Fault
}

type scopeMarks struct {
	started, completed *Record // In the last lane read.
	reads              int     // In all lanes.
}

// JudgeSnapshots checks the start and end events of snapshots. Each object must be read between
// started and completed, no record of a scope may come before started, and the counts must be
// correct.
func JudgeSnapshots(lanes ...[]Record) []Fault { return JudgeSnapshotsWith(nil, lanes...) }

// JudgeSnapshotsWith is JudgeSnapshots where some reads are in the dead letters.
func JudgeSnapshotsWith(letters []Letter, lanes ...[]Record) []Fault {
	j := &snapshotJudgement{scopes: make(map[string]*scopeMarks)}
	for _, records := range lanes {
		for _, m := range j.scopes {
			m.started, m.completed = nil, nil
		}
		j.lane(records)
	}
	for i := range letters {
		if m := j.find(&letters[i].Record); m != nil && letters[i].Op == Read {
			m.reads++
		}
	}
	for _, m := range j.scopes {
		if m.completed == nil {
			continue // lane reports this.
		}
		if rec := m.completed; rec.Objects != m.reads || m.started.Objects != m.reads {
			j.add(rec, "%s: started says %d objects, completed %d, there are %d reads", rec.Scope.Text,
				m.started.Objects, rec.Objects, m.reads)
		}
	}
	return j.faults
}

func (j *snapshotJudgement) add(rec *Record, format string, args ...any) {
	j.faults = append(j.faults, Fault{
		Kind:     "snapshot",
		Key:      rec.Key,
		Rev:      rec.Rev,
		Position: rec.Position,
		Lane:     rec.Lane,
		Text:     fmt.Sprintf(format, args...),
	})
}

// find returns the start and end events, in this lane so far, of the snapshot that the record
// belongs to.
func (j *snapshotJudgement) find(rec *Record) *scopeMarks {
	for _, m := range j.scopes {
		if m.started != nil && m.started.Scope.Has(rec.Key) && (rec.Op != Read || m.started.Snapshot == rec.Snapshot) {
			return m
		}
	}
	return nil
}

func (j *snapshotJudgement) lane(records []Record) {
	seen := make(map[string]bool, len(records))
	for i := range records {
		rec := &records[i]
		if seen[rec.ID] {
			continue
		}
		seen[rec.ID] = true
		id := rec.Scope.Text + "\n" + rec.Snapshot
		switch {
		case rec.Stream == SnapshotStarted:
			if j.scopes[id] == nil {
				j.scopes[id] = &scopeMarks{}
			}
			j.scopes[id].started = rec
		case rec.Stream == SnapshotCompleted:
			j.completed(rec, j.scopes[id])
		case rec.Stream != "":
		default:
			j.object(rec)
		}
	}
	for _, m := range j.scopes {
		if m.started != nil && m.completed == nil {
			j.add(m.started, "%s has no snapshot.completed", m.started.ID)
		}
	}
}

func (j *snapshotJudgement) completed(rec *Record, m *scopeMarks) {
	if m == nil || m.started == nil {
		j.add(rec, "completed before started: %s", rec.ID)
		return
	}
	m.completed = rec
	if rec.Rev != m.started.Rev {
		j.add(rec, "%s: started at revision %d, completed at %d", rec.Scope.Text, m.started.Rev, rec.Rev)
	}
}

func (j *snapshotJudgement) object(rec *Record) {
	m := j.find(rec)
	if m == nil {
		j.add(rec, "op %s, %s, before snapshot.started", rec.Op, rec.ID)
		return
	}
	if rec.Op == Read {
		m.reads++
		if m.completed != nil {
			j.add(rec, "%s read after snapshot.completed", rec.ID)
		}
	}
}
