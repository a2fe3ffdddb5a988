package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"
)

// This file is the oracle for an agent that is restarted. The expected records do not depend on the
// number of restarts: Expect derives them from etcd's history and the snapshots on the bus, and
// Judge compares. JudgeLives adds the checks that only concern such runs. A life is the time from a
// start of the agent to its end.

// Loss is an event that may remove history.
type Loss struct {
	// Rev is the revision up to which history may be lost.
	Rev uint64
	// Final is whether LISTs cannot read the lost history either. Otherwise, only WATCHes cannot
	// start there.
	Final bool
}

// began is a snapshot with its scope, which may be one namespace of a larger scope.
type began struct {
	Scope
	Snapshot
}

// SnapshotsOf returns the snapshots in the order in which they began, and marks the abandoned ones.
func SnapshotsOf(records []Record, history uint64) []began {
	var all []began
	seen := make(map[string]bool)
	completed := make(map[string]bool)
	for i := range records {
		rec := &records[i]
		if seen[rec.ID] || rec.History != history {
			continue
		}
		seen[rec.ID] = true
		switch rec.Stream {
		case SnapshotStarted:
			all = append(all, began{rec.Scope, Snapshot{ID: rec.Snapshot, Rev: rec.Rev}})
		case SnapshotCompleted:
			completed[rec.Scope.Text+"\n"+rec.Snapshot] = true
		}
	}
	last := make(map[string]bool)
	for i := len(all) - 1; i >= 0; i-- {
		b := &all[i]
		b.Abandoned = last[b.Text] && !completed[b.Text+"\n"+b.ID]
		last[b.Text] = true
	}
	return all
}

// LivesView returns the View of the agent that wrote the records, over all its lives.
func LivesView(records []Record, history uint64) View {
	all := SnapshotsOf(records, history)
	of := func(key ObjectKey) []Snapshot {
		var list []Snapshot
		for _, b := range all {
			if b.Has(key) {
				list = append(list, b.Snapshot)
			}
		}
		return list
	}
	return View{
		History: history,
		Snapshot: func(key ObjectKey) (Snapshot, bool) {
			list := of(key)
			if len(list) == 0 {
				return Snapshot{}, false
			}
			return list[0], true
		},
		Later: func(key ObjectKey) []Snapshot { return of(key)[1:] },
	}
}

// walkable is the number of revisions that the agent must be able to recover with LISTs. For a
// longer gap it may give up, to limit its load on the API server.
const walkable = 1500

// walkTime is the time after which the agent gives up recovering a gap. On a loaded machine, that
// may come before a gap of walkable revisions is searched.
const walkTime = 30 * time.Second

// JudgeLives checks the stream events of all lives of an agent. A snapshot must be continued under
// its id and completed with the announced number of objects. A further snapshot needs a reason: a
// gap, a request, or a restart after one that had a reason. A gap must have a Loss that explains
// it, and progress must be correct (JudgeProgress).
func JudgeLives(want map[ObjectKey][]Expectation, records []Record, losses []Loss, o Outside) []Fault {
	return judgeLives(want, records, losses, o, &snapshotReads{lanes: 1, of: map[string]*laneReads{}})
}

// Outside has what was done to the agent, which the records do not show.
type Outside struct {
	// Asked reports whether a snapshot was requested, and so needs no other reason. Nil: none was.
	Asked func(started *Record) bool
	// Restarted reports whether an agent was started between two times. Nil: none was.
	Restarted func(from, to time.Time) bool
	// Former reports that a release which sends neither starts nor ends of scopes has written some
	// of the records.
	Former bool
	// Delay is the longest time from a change in etcd until the agent observes it that is not an
	// interruption. 0: JudgeProgress judges no times.
	Delay time.Duration
	// Clock returns the agent's wall clock at a time of the test's. Nil: they are the same.
	Clock func(time.Time) time.Time
	// Limit is the size of the largest message that the bus takes. 0: it is not known.
	Limit int
	// MayDrop reports that the bus may have refused a progress, which the agent does not send
	// again.
	MayDrop bool
}

// snapshotReads counts the reads of snapshots over all lanes.
type snapshotReads struct {
	lanes int
	of    map[string]*laneReads // By the id of snapshot.completed.
}

type laneReads struct{ completed, reads int }

// judgeLives is JudgeLives for one lane.
func judgeLives(
	want map[ObjectKey][]Expectation, records []Record, losses []Loss, o Outside, reads *snapshotReads,
) []Fault {
	l := &livesJudgement{
		losses:  losses,
		outside: o,
		reads:   reads,
		scopes:  make(map[string]*scopeLives),
		first:   make(map[string]uint64),
	}
	for i := range records {
		rec := &records[i]
		if l.first[rec.ID] == 0 {
			l.first[rec.ID] = rec.Position
			l.record(rec)
		}
	}
	for _, s := range l.scopes {
		if last := s.snapshots[s.last]; last != nil && last.completed == nil {
			l.fault(last.started, "snapshot", "%s has no snapshot.completed", last.started.ID)
		}
	}
	l.judgeProgress(want)
	return append(l.faults, JudgeProgress(want, records, o)...)
}

type livesJudgement struct {
	losses   []Loss
	outside  Outside
	reads    *snapshotReads
	scopes   map[string]*scopeLives
	first    map[string]uint64 // The position of each id's first copy.
	progress []*Record
	faults   []Fault
}

// scopeLives is the state of a scope according to the records so far.
type scopeLives struct {
	scope     Scope
	snapshots map[string]*snapshotMarks
	last      string // The snapshot that began last.
	// The last gap since then. A recovered gap can also be followed by a snapshot: the previous run
	// may have published more than the checkpoint has stored.
	lost *Record
}

type snapshotMarks struct {
	started, completed *Record
	reads              int
	// replaceable reports that changes may not have waited for its start. If the agent ends before
	// a save shows that the bus has the start, the next run takes another snapshot, even if this
	// one is complete on the bus. The crash enumerator of the informers judges whether it may.
	replaceable bool
}

func (l *livesJudgement) fault(rec *Record, kind, format string, args ...any) {
	l.faults = append(l.faults, Fault{
		Kind:     kind,
		Key:      rec.Key,
		Rev:      rec.Rev,
		Position: rec.Position,
		Text:     fmt.Sprintf(format, args...),
	})
}

func (l *livesJudgement) of(sc Scope) *scopeLives {
	s := l.scopes[sc.Text]
	if s == nil {
		s = &scopeLives{scope: sc, snapshots: make(map[string]*snapshotMarks)}
		l.scopes[sc.Text] = s
	}
	return s
}

func (l *livesJudgement) record(rec *Record) {
	switch rec.Stream {
	case "":
		l.object(rec)
	case SnapshotStarted:
		l.started(rec)
	case SnapshotCompleted:
		l.completed(rec)
	case Gap:
		l.gap(rec)
	case Progress:
		if rec.Report == nil { // of a former release
			l.progress = append(l.progress, rec)
		}
	}
}

func (l *livesJudgement) object(rec *Record) {
	known, later := false, false
	for _, s := range l.scopes {
		if !s.scope.Has(rec.Key) {
			continue
		}
		m := s.snapshots[rec.Snapshot]
		switch {
		case rec.Op != Read:
			return
		case m == nil:
			known = true
		case m.completed != nil:
			l.fault(rec, "snapshot", "%s read after its snapshot was completed", rec.ID)
			return
		case s.last != rec.Snapshot:
			later = true
		default:
			m.reads++
			return
		}
	}
	switch {
	case later:
		l.fault(rec, "snapshot", "%s read after another snapshot was started", rec.ID)
	case known:
		l.fault(rec, "snapshot", "%s read before its snapshot was started", rec.ID)
	default:
		l.fault(rec, "snapshot", "op %s, %s, before anything was said of its scope", rec.Op, rec.ID)
	}
}

func (l *livesJudgement) started(rec *Record) {
	s := l.of(rec.Scope)
	m := &snapshotMarks{started: rec}
	last := s.snapshots[s.last]
	switch {
	case last == nil: // the first one
	case s.lost != nil, l.wasAsked(rec), last.replaceable && l.wasRestarted(last.started, rec):
		m.replaceable = true
	default:
		l.fault(rec, "snapshot", "%s, though nothing says that history was lost since the snapshot %s", rec.ID, s.last)
	}
	s.snapshots[rec.Snapshot] = m
	s.last, s.lost = rec.Snapshot, nil
}

func (l *livesJudgement) wasAsked(started *Record) bool {
	return l.outside.Asked != nil && l.outside.Asked(started)
}

// wasRestarted reports whether an agent was started after a snapshot began, and before the next
// one. The times in their ids do not show that: ids of one scope are a second apart, so an id may
// have a time that has not come yet.
func (l *livesJudgement) wasRestarted(last, next *Record) bool {
	return l.outside.Restarted != nil && l.outside.Restarted(last.Time, next.Time)
}

func (l *livesJudgement) completed(rec *Record) {
	s := l.of(rec.Scope)
	m := s.snapshots[rec.Snapshot]
	if m == nil {
		l.fault(rec, "snapshot", "completed before started: %s", rec.ID)
		return
	}
	m.completed = rec
	if rec.Rev != m.started.Rev {
		l.fault(rec, "snapshot", "%s: started at revision %d, completed at %d", rec.ID, m.started.Rev, rec.Rev)
	}
	sum := l.reads.of[rec.ID]
	if sum == nil {
		sum = new(laneReads)
		l.reads.of[rec.ID] = sum
	}
	sum.completed, sum.reads = sum.completed+1, sum.reads+m.reads
	if sum.completed == l.reads.lanes && (rec.Objects != sum.reads || m.started.Objects != sum.reads) {
		l.fault(rec, "snapshot", "%s: started says %d objects, completed %d, there are %d reads", rec.ID,
			m.started.Objects, rec.Objects, sum.reads)
	}
}

func (l *livesJudgement) gap(rec *Record) {
	if rec.Reason == ContentChanged && rec.Recovered {
		return // Nothing is missing.
	}
	l.of(rec.Scope).lost = rec
	if rec.Reason == Rewound || rec.Reason == SelectionChanged || rec.Reason == CheckpointLost ||
		rec.Reason == ContentChanged {
		return // etcd's history does not show these causes.
	}
	mayBeLeft := rec.To-rec.From > walkable || rec.Time.Sub(rec.Since) >= walkTime
	for _, x := range l.losses {
		if x.Rev >= rec.From && (rec.Recovered || x.Final || mayBeLeft) {
			return
		}
	}
	l.fault(rec, "gap", "%s (%s, recovered %t), though nothing took the history of these revisions away", rec.ID,
		rec.Reason, rec.Recovered)
}

// judgeProgress checks the progress of one scope, as former releases send it: no change up to its
// revision is first published after it.
func (l *livesJudgement) judgeProgress(want map[ObjectKey][]Expectation) {
	type at struct{ rev, position uint64 }
	byScope := make(map[string][]at)
	for _, p := range l.progress {
		list, ok := byScope[p.Scope.Text]
		if !ok {
			for key, expectations := range want {
				if !p.Scope.Has(key) {
					continue
				}
				for i := range expectations {
					e := &expectations[i]
					if position := l.first[e.ID]; position != 0 && e.Op != Read {
						list = append(list, at{e.Rev, position})
					}
				}
			}
			slices.SortFunc(list, func(a, b at) int { return cmp.Compare(a.rev, b.rev) })
			for i := 1; i < len(list); i++ { // The highest position of all changes up to this revision.
				list[i].position = max(list[i].position, list[i-1].position)
			}
			byScope[p.Scope.Text] = list
		}
		n := sort.Search(len(list), func(i int) bool { return list[i].rev > p.Rev })
		if n > 0 && list[n-1].position > p.Position {
			l.fault(p, "progress", "%s, and a change of revision %d or before comes later, record %d", p.ID, p.Rev,
				list[n-1].position)
		}
	}
}
