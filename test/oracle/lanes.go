package oracle

import (
	"fmt"
	"maps"
	"slices"
)

// Lanes of a bus that keeps order only within each of them, as Kafka does within a partition. An object is in one lane;
// a stream event is in all of them, since whoever reads one lane has to hear of it where it happened.
type Lanes struct {
	N  int
	Of func(ObjectKey) int
}

// Split is the records of each lane in their order.
func (l Lanes) Split(records []Record) [][]Record {
	list := make([][]Record, l.N)
	for i := range records {
		if lane := records[i].Lane; lane < l.N {
			list[lane] = append(list[lane], records[i])
		}
	}
	return list
}

// Judge judges each lane as a stream of its own, by what is wanted of its objects, and that each has all stream events.
func (l Lanes) Judge(want map[ObjectKey][]Expectation, records []Record, v View) Verdict {
	wants := make([]map[ObjectKey][]Expectation, l.N)
	for i := range wants {
		wants[i] = make(map[ObjectKey][]Expectation)
	}
	for key, list := range want {
		wants[l.Of(key)][key] = list
	}
	var sum Verdict
	gaps := make(map[string]bool)
	for i, lane := range l.Split(records) {
		got := Judge(wants[i], lane, v)
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
func (l Lanes) misplaced(records []Record) []Fault {
	var faults []Fault
	add := func(rec *Record, format string, args ...any) {
		faults = append(faults, Fault{
			Kind: "lane", Key: rec.Key, Rev: rec.Rev, Position: rec.Position, Lane: rec.Lane, Text: fmt.Sprintf(format, args...),
		})
	}
	type heard struct {
		rec *Record
		in  map[int]bool
	}
	events := make(map[string]*heard)
	last := make(map[string]*heard) // The newest progress of each scope, which may be on its way.
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
		if rec.Stream == Progress && (last[rec.Scope.Text] == nil || last[rec.Scope.Text].rec.Rev <= rec.Rev) {
			last[rec.Scope.Text] = events[rec.ID]
		}
	}
	for _, id := range slices.Sorted(maps.Keys(events)) {
		h := events[id]
		if len(h.in) < l.N && last[h.rec.Scope.Text] != h {
			add(h.rec, "%s is in %d of %d lanes: %v", id, len(h.in), l.N, slices.Sorted(maps.Keys(h.in)))
		}
	}
	return faults
}
