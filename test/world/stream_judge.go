package world

import (
	"github.com/kubecdc/kubecdc/test/oracle"
)

// Judge compares the records with the expectations.
func (s *Stream) Judge(
	want map[oracle.ObjectKey][]oracle.Expectation, records []oracle.Record, v oracle.View,
) oracle.Verdict {
	if s.laneOf == nil {
		return oracle.Judge(want, records, v)
	}
	return s.lanes().Judge(want, records, v)
}

// lanes returns the lanes of the bus.
func (s *Stream) lanes() oracle.Lanes {
	if s.laneOf == nil {
		return oracle.Lanes{N: 1, Of: func(oracle.ObjectKey) int { return 0 }}
	}
	return oracle.Lanes{N: s.Lanes(), Of: s.laneOf}
}

// JudgeSnapshots checks the start and end events of snapshots.
func (s *Stream) JudgeSnapshots(records []oracle.Record) []oracle.Fault {
	letters := s.Dead()
	if s.laneOf == nil {
		return oracle.JudgeSnapshotsWith(letters, records)
	}
	return oracle.JudgeSnapshotsWith(letters, s.lanes().Split(records)...)
}

// judgeLetters checks the dead letters, and that each has a gap event and each such gap event has a
// dead letter.
func (s *Stream) judgeLetters() []oracle.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []oracle.Fault
	gaps := make(map[string]bool)
	for i := range s.records {
		rec := &s.records[i]
		if rec.Letter == "" {
			continue
		}
		gaps[rec.Letter] = true
		if _, ok := s.letters[rec.Letter]; !ok {
			faults = append(faults, oracle.Fault{
				Kind:     "dead letter",
				Position: rec.Position,
				Lane:     rec.Lane,
				Text:     rec.ID + ": no such dead letter",
			})
		}
	}
	for id, l := range s.letters {
		if !gaps[id] {
			faults = append(faults, oracle.Fault{
				Kind: "dead letter",
				Key:  l.Key,
				Rev:  l.Rev,
				Text: id + ": no gap says that it is missing",
			})
		}
		for _, p := range l.Problems {
			faults = append(faults, oracle.Fault{
				Kind: "dead letter",
				Key:  l.Key,
				Rev:  l.Rev,
				Text: p,
			})
		}
	}
	return faults
}
