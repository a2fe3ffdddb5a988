package oracle

import (
	"fmt"
	"maps"
	"slices"
)

// Lanes describes a bus that keeps order only within a lane, as Kafka does within a partition. All
// records of an object are in one lane. A stream event is in all lanes, so that a consumer of one
// lane reads it at its place in the order.
type Lanes struct {
	N  int
	Of func(ObjectKey) int
}

// Split returns the records of each lane in their order.
func (l Lanes) Split(records []Record) [][]Record {
	list := make([][]Record, l.N)
	for i := range records {
		if lane := records[i].Lane; lane < l.N {
			list[lane] = append(list[lane], records[i])
		}
	}
	return list
}

// Judge judges each lane as a separate stream, and checks that each lane has all stream events.
func (l Lanes) Judge(want map[ObjectKey][]Expectation, records []Record, v View) Verdict {
	var sum Verdict
	for i, lane := range l.Split(records) {
		sum.add(Judge(l.wants(i, want), lane, v))
	}
	sum.Faults = append(sum.Faults, l.misplaced(records)...)
	return sum
}

// JudgeLives judges each lane with Judge, JudgeLives and JudgeScopes, over all lives of the agent.
// view derives the expectations of all lanes, and the View, from the records of one lane.
func (l Lanes) JudgeLives(
	records []Record, view func([]Record) (map[ObjectKey][]Expectation, View), losses []Loss, o Outside,
) (Verdict, []Fault) {
	var sum Verdict
	var faults []Fault
	reads := snapshotReads{lanes: l.N, of: map[string]*laneReads{}}
	for i, lane := range l.Split(records) {
		want, v := view(lane)
		want = l.wants(i, want)
		sum.add(Judge(want, lane, v))
		faults = append(faults, judgeLives(want, lane, losses, o, &reads)...)
		if !o.Former {
			faults = append(faults, JudgeScopes(lane)...)
		}
	}
	return sum, append(slices.Clone(sum.Faults), faults...)
}

// JudgeProgress judges each lane with JudgeProgress.
func (l Lanes) JudgeProgress(want map[ObjectKey][]Expectation, records []Record, o Outside) []Fault {
	var faults []Fault
	for i, lane := range l.Split(records) {
		faults = append(faults, JudgeProgress(l.wants(i, want), lane, o)...)
	}
	return faults
}

// wants returns the expectations of a lane.
func (l Lanes) wants(lane int, want map[ObjectKey][]Expectation) map[ObjectKey][]Expectation {
	out := make(map[ObjectKey][]Expectation)
	for key, list := range want {
		if l.Of(key) == lane {
			out[key] = list
		}
	}
	return out
}

// add adds the verdict of another lane.
func (v *Verdict) add(w Verdict) {
	v.Expected += w.Expected
	v.Records += w.Records
	v.Duplicates += w.Duplicates
	v.Inferred += w.Inferred
	v.Late += w.Late
	v.Untold += w.Untold
	v.Swept += w.Swept
	v.InGaps += w.InGaps
	v.Shortened += w.Shortened
	v.Changers += w.Changers
	v.ChangersTold += w.ChangersTold
	v.Faults = append(v.Faults, w.Faults...)
	for _, g := range w.Gaps {
		if !slices.ContainsFunc(v.Gaps, func(known Record) bool { return known.ID == g.ID }) {
			v.Gaps = append(v.Gaps, g)
		}
	}
}

// misplaced reports the objects in a wrong lane, and the stream events that are not in all lanes.
func (l Lanes) misplaced(records []Record) []Fault {
	var faults []Fault
	add := func(rec *Record, format string, args ...any) {
		faults = append(faults, Fault{
			Kind:     "lane",
			Key:      rec.Key,
			Rev:      rec.Rev,
			Position: rec.Position,
			Lane:     rec.Lane,
			Text:     fmt.Sprintf(format, args...),
		})
	}
	type heard struct {
		rec *Record
		in  map[int]bool
	}
	events := make(map[string]*heard)
	last := make(map[string]*heard) // The newest progress of each scope or run, which may still be in flight.
	for i := range records {
		rec := &records[i]
		if rec.Lane >= l.N {
			add(rec, "%s is in a lane that should not be there", rec.ID)
			continue
		}
		if rec.Stream == "" {
			if lane := l.Of(rec.Key); rec.Op != "" && lane != rec.Lane {
				add(rec, "%s belongs to lane %d", rec.ID, lane)
			}
			continue
		}
		if events[rec.ID] == nil {
			events[rec.ID] = &heard{rec: rec, in: make(map[int]bool)}
		}
		events[rec.ID].in[rec.Lane] = true
		if rec.Stream == Progress && (last[progressOf(rec)] == nil || !isOlder(rec, last[progressOf(rec)].rec)) {
			last[progressOf(rec)] = events[rec.ID]
		}
	}
	for _, id := range slices.Sorted(maps.Keys(events)) {
		h := events[id]
		if len(h.in) < l.N && last[progressOf(h.rec)] != h {
			add(h.rec, "%s is in %d of %d lanes: %v", id, len(h.in), l.N, slices.Sorted(maps.Keys(h.in)))
		}
	}
	return faults
}

// progressOf returns whose progress the record is: that of a run, or of a scope.
func progressOf(rec *Record) string {
	if rec.Report != nil {
		return rec.Writer + " " + rec.Run
	}
	return rec.Scope.Text
}

// isOlder compares two records of one progressOf.
func isOlder(a, b *Record) bool {
	if a.Report != nil && b.Report != nil {
		return a.Report.Number < b.Report.Number
	}
	return a.Rev < b.Rev
}
