package oracle

import (
	"fmt"
	"time"
)

// Term describes the records of one leader on the bus.
type Term struct {
	Epoch       uint64
	First, Last *Record // Without late records.
	Records     int     // Without late records.
	Late        int     // Records that arrived after the first record of a later leader.
}

// mostInFlight is how many records an agent may have in flight to NATS at a time.
const mostInFlight = 1024

// JudgeEpochs checks that only one leader writes at a time. Epochs only rise. After the first
// record of a later leader, the only records of an earlier one may be those that were in flight
// when it was paused. Each must be a copy of a record that a leader wrote during its term. late
// has, by epoch, the revision at the pause.
func JudgeEpochs(records []Record, late map[uint64]uint64) ([]Term, []Fault) {
	var faults []Fault
	add := func(rec *Record, kind, format string, args ...any) {
		faults = append(faults, Fault{
			Kind:     kind,
			Key:      rec.Key,
			Rev:      rec.Rev,
			Position: rec.Position,
			Text:     fmt.Sprintf(format, args...),
		})
	}
	var terms []Term
	at := make(map[uint64]int)    // By epoch.
	told := make(map[string]bool) // By id: whether a leader wrote it during its term.
	for i, latest := 0, uint64(0); i < len(records); i++ {
		if rec := &records[i]; rec.Epoch >= latest {
			latest, told[rec.ID] = rec.Epoch, true
		}
	}
	for i := range records {
		rec := &records[i]
		if len(terms) == 0 || rec.Epoch > terms[len(terms)-1].Epoch {
			at[rec.Epoch] = len(terms)
			terms = append(terms, Term{Epoch: rec.Epoch, First: rec})
		}
		leader := &terms[len(terms)-1]
		if rec.Epoch == leader.Epoch {
			leader.Last = rec
			leader.Records++
			continue
		}
		n, known := at[rec.Epoch]
		if !known {
			add(rec, "epoch", "%s is of epoch %d, which had no record before epoch %d", rec.ID, rec.Epoch,
				leader.Epoch)
			continue
		}
		terms[n].Late++
		switch frozen, ok := late[rec.Epoch]; {
		case !ok:
			add(rec, "late", "%s, of epoch %d, comes when the leader of epoch %d writes", rec.ID, rec.Epoch,
				leader.Epoch)
		case rec.Rev > frozen:
			add(rec, "late",
				"%s, of epoch %d, comes when the leader of epoch %d writes; it cannot have been on its way at revision %d",
				rec.ID, rec.Epoch, leader.Epoch, frozen)
		case !told[rec.ID]:
			add(rec, "late", "%s, of epoch %d, comes when the leader of epoch %d writes, and no leader has told of it",
				rec.ID, rec.Epoch, leader.Epoch)
		case terms[n].Late == mostInFlight+1:
			add(rec, "late", "more than %d records of epoch %d come late", mostInFlight, rec.Epoch)
		}
	}
	return terms, faults
}

// Silences returns the time between the last record of each leader and the first of the next, by
// the clock of the bus.
func Silences(terms []Term) []time.Duration {
	var list []time.Duration
	for i := 1; i < len(terms); i++ {
		list = append(list, terms[i].First.Stored.Sub(terms[i-1].Last.Stored))
	}
	return list
}
