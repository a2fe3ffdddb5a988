package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// term is what the bus has of one leader.
type term struct {
	Epoch       uint64
	First, Last *record // Without what came late.
	Records     int     // Without what came late, too.
	Late        int     // Records that came when the bus had some of a later leader.
}

// mostInFlight is how many records of an agent may be on their way to NATS at a time.
const mostInFlight = 1024

// judgeEpochs checks who wrote what. Epochs only rise. Behind the first record of a later leader none of an earlier one may
// come, but for those that were on their way when it was paused: late has, by epoch, the revision that there was then. Each of
// them is a copy of one that somebody has written while they led.
func judgeEpochs(records []record, late map[uint64]uint64) ([]term, []fault) {
	var faults []fault
	add := func(rec *record, kind, format string, args ...any) {
		faults = append(faults, fault{Kind: kind, Key: rec.Key, Rev: rec.Rev, Position: rec.Position, Text: fmt.Sprintf(format, args...)})
	}
	var terms []term
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
			terms = append(terms, term{Epoch: rec.Epoch, First: rec})
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

// silences are for how long nothing was written from each leader to the next, by the bus' clock.
func silences(terms []term) []time.Duration {
	var list []time.Duration
	for i := 1; i < len(terms); i++ {
		list = append(list, terms[i].First.Stored.Sub(terms[i-1].Last.Stored))
	}
	return list
}

// judgeCheckpoints checks, of all versions of the checkpoint that etcd ever had, that the epoch does not go back, and that a
// leader has saved its own before its first record was on the bus.
func (e *election) judgeCheckpoints(t testing.TB, terms []term) []fault {
	t.Helper()
	key := objectKey{Resource: "configmaps", Namespace: e.own, Name: checkpointName}
	var faults []fault
	var last uint64
	first := make(map[uint64]time.Time) // When it was saved, by epoch.
	for _, v := range e.history.of("configmaps")[key] {
		if v.Deleted {
			continue
		}
		epoch, saved, err := e.checkpointAt(t.Context(), key, v.Rev)
		if err != nil {
			t.Fatal(err)
		}
		if epoch < last {
			faults = append(faults, fault{Kind: "checkpoint", Key: key, Rev: v.Rev, Text: fmt.Sprintf("its epoch goes from %d to %d", last, epoch)})
		}
		if last = epoch; first[epoch].IsZero() {
			first[epoch] = saved
		}
	}
	for _, term := range terms {
		switch saved := first[term.Epoch]; {
		case saved.IsZero():
			faults = append(faults, fault{Kind: "checkpoint", Key: key, Text: fmt.Sprintf("none of epoch %d was saved", term.Epoch)})
		case saved.After(term.First.Stored): // Both by this machine's clock.
			faults = append(faults, fault{
				Kind: "checkpoint", Key: key, Position: term.First.Position,
				Text: fmt.Sprintf("that of epoch %d was saved %s after its first record was stored", term.Epoch, saved.Sub(term.First.Stored)),
			})
		}
	}
	return faults
}

// checkpointAt reads the checkpoint as etcd had it at a revision.
func (e *election) checkpointAt(ctx context.Context, key objectKey, rev uint64) (epoch uint64, saved time.Time, err error) {
	object, err := e.history.object(ctx, key, rev)
	if err != nil {
		return 0, time.Time{}, err
	}
	data, _ := object["data"].(map[string]any)
	text, _ := data["checkpoint.json"].(string)
	var doc struct {
		Epoch uint64    `json:"epoch"`
		Saved time.Time `json:"saved"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return 0, time.Time{}, fmt.Errorf("%s at %d: %w", key, rev, err)
	}
	return doc.Epoch, doc.Saved, nil
}
