package oracle

import (
	"fmt"
	"time"
)

// Term is what the bus has of one leader.
type Term struct {
	Epoch       uint64
	First, Last *Record // Without what came late.
	Records     int     // Without what came late, too.
	Late        int     // Records that came when the bus had some of a later leader.
}

// mostInFlight is how many records of an agent may be on their way to NATS at a time.
const mostInFlight = 1024

// JudgeEpochs checks who wrote what. Epochs only rise. Behind the first record of a later leader none of an earlier one may
// come, but for those that were on their way when it was paused: late has, by epoch, the revision that there was then. Each of
// them is a copy of one that somebody has written while they led.
func JudgeEpochs(records []Record, late map[uint64]uint64) ([]Term, []Fault) {
	var faults []Fault
	add := func(rec *Record, kind, format string, args ...any) {
		faults = append(faults, Fault{Kind: kind, Key: rec.Key, Rev: rec.Rev, Position: rec.Position, Text: fmt.Sprintf(format, args...)})
	}
	var terms []Term
	at := make(map[uint64]int)    // By epoch.
	told := make(map[string]bool) // By id: whether a leader has written it while it led.
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
			add(rec, "epoch", "%s is of epoch %d, of which there was nothing before epoch %d", rec.ID, rec.Epoch, leader.Epoch)
			continue
		}
		terms[n].Late++
		switch frozen, ok := late[rec.Epoch]; {
		case !ok:
			add(rec, "late", "%s, of epoch %d, comes when the leader of epoch %d writes", rec.ID, rec.Epoch, leader.Epoch)
		case rec.Rev > frozen:
			add(rec, "late", "%s, of epoch %d, comes when the leader of epoch %d writes; it cannot have been on its way at revision %d",
				rec.ID, rec.Epoch, leader.Epoch, frozen)
		case !told[rec.ID]:
			add(rec, "late", "%s, of epoch %d, comes when the leader of epoch %d writes, and no leader has told of it", rec.ID, rec.Epoch, leader.Epoch)
		case terms[n].Late == mostInFlight+1:
			add(rec, "late", "more than %d records of epoch %d come late", mostInFlight, rec.Epoch)
		}
	}
	return terms, faults
}

// Silences are for how long nothing was written from each leader to the next, by the bus' clock.
func Silences(terms []Term) []time.Duration {
	var list []time.Duration
	for i := 1; i < len(terms); i++ {
		list = append(list, terms[i].First.Stored.Sub(terms[i-1].Last.Stored))
	}
	return list
}
