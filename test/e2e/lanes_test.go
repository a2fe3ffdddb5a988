package e2e_test

import (
	"fmt"
	"maps"
	"slices"
)

// lanes of a bus that keeps order only within each of them, as Kafka does within a partition. An object is in one lane;
// a stream event is in all of them, since whoever reads one lane has to hear of it where it happened.
type lanes struct {
	n  int
	of func(objectKey) int
}

// split is the records of each lane in their order.
func (l lanes) split(records []record) [][]record {
	list := make([][]record, l.n)
	for i := range records {
		if lane := records[i].Lane; lane < l.n {
			list[lane] = append(list[lane], records[i])
		}
	}
	return list
}

// judge judges each lane as a stream of its own, by what is wanted of its objects, and that each has all stream events.
func (l lanes) judge(want map[objectKey][]expectation, records []record, v view) verdict {
	wants := make([]map[objectKey][]expectation, l.n)
	for i := range wants {
		wants[i] = make(map[objectKey][]expectation)
	}
	for key, list := range want {
		wants[l.of(key)][key] = list
	}
	var sum verdict
	gaps := make(map[string]bool)
	for i, lane := range l.split(records) {
		got := judge(wants[i], lane, v)
		sum.Expected += got.Expected
		sum.Records += got.Records
		sum.Duplicates += got.Duplicates
		sum.Inferred += got.Inferred
		sum.Late += got.Late
		sum.Untold += got.Untold
		sum.Swept += got.Swept
		sum.InGaps += got.InGaps
		sum.Shortened += got.Shortened
		sum.Changers += got.Changers
		sum.ChangersTold += got.ChangersTold
		sum.Faults = append(sum.Faults, got.Faults...)
		for _, g := range got.Gaps {
			if !gaps[g.ID] {
				gaps[g.ID] = true
				sum.Gaps = append(sum.Gaps, g)
			}
		}
	}
	sum.Faults = append(sum.Faults, l.misplaced(records)...)
	return sum
}

// misplaced is the objects that are in the wrong lane, and the stream events that are not in all of them.
func (l lanes) misplaced(records []record) []fault {
	var faults []fault
	add := func(rec *record, format string, args ...any) {
		faults = append(faults, fault{
			Kind: "lane", Key: rec.Key, Rev: rec.Rev, Position: rec.Position, Lane: rec.Lane, Text: fmt.Sprintf(format, args...),
		})
	}
	type heard struct {
		rec *record
		in  map[int]bool
	}
	events := make(map[string]*heard)
	last := make(map[string]*heard) // The newest progress of each scope, which may be on its way.
	for i := range records {
		rec := &records[i]
		if rec.Lane >= l.n {
			add(rec, "%s is in a lane that should not be there", rec.ID)
			continue
		}
		if rec.Stream == "" {
			if lane := l.of(rec.Key); rec.Op != "" && lane != rec.Lane {
				add(rec, "%s belongs to lane %d", rec.ID, lane)
			}
			continue
		}
		if events[rec.ID] == nil {
			events[rec.ID] = &heard{rec: rec, in: make(map[int]bool)}
		}
		events[rec.ID].in[rec.Lane] = true
		if rec.Stream == progress && (last[rec.Scope.Text] == nil || last[rec.Scope.Text].rec.Rev <= rec.Rev) {
			last[rec.Scope.Text] = events[rec.ID]
		}
	}
	for _, id := range slices.Sorted(maps.Keys(events)) {
		h := events[id]
		if len(h.in) < l.n && last[h.rec.Scope.Text] != h {
			add(h.rec, "%s is in %d of %d lanes: %v", id, len(h.in), l.n, slices.Sorted(maps.Keys(h.in)))
		}
	}
	return faults
}

// judge judges all that has been read.
func (s *stream) judge(want map[objectKey][]expectation, records []record, v view) verdict {
	if s.laneOf == nil {
		return judge(want, records, v)
	}
	return lanes{s.lanes(), s.laneOf}.judge(want, records, v)
}

// judgeSnapshots judges the marks in all that has been read.
func (s *stream) judgeSnapshots(records []record) []fault {
	letters := s.dead()
	if s.laneOf == nil {
		return judgeSnapshotsWith(letters, records)
	}
	return judgeSnapshotsWith(letters, lanes{s.lanes(), s.laneOf}.split(records)...)
}
