package e2e_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// fault is one way in which the bus differs from what it should hold.
type fault struct {
	Kind     string // A few words, to count by.
	Key      objectKey
	Rev      uint64
	Position uint64 // Of the record, 0 where there is none.
	Text     string
	// Content is set where a record's object differs: "before" or "after", and the revision that it should be.
	Content    string
	ContentRev uint64
}

func (f fault) String() string {
	s := fmt.Sprintf("%s: %s revision %d", f.Kind, f.Key, f.Rev)
	if f.Position != 0 {
		s += fmt.Sprintf(", record %d", f.Position)
	}
	if f.Text != "" {
		s += ": " + f.Text
	}
	return s
}

// verdict is the outcome of a comparison.
type verdict struct {
	Expected   int
	Records    int // Object events, without duplicates.
	Duplicates int
	Inferred   int
	InGaps     int // Expected records that a gap event accounts for.
	Gaps       []record
	Faults     []fault

	Changers, ChangersTold int // Entries of changedBy that the rule gives, and that events have.
}

// judge compares the records, in stream order, with what is wanted. Gap events excuse what is missing between their two
// revisions; inferred deltas and the final state are then judged instead.
func judge(want map[objectKey][]expectation, records []record, v view) verdict {
	j := &judgement{
		byID:   make(map[string]*expectation),
		seen:   make(map[string]bool, len(records)),
		states: make(map[objectKey]*state),
	}
	for _, list := range want {
		for i := range list {
			j.byID[list[i].ID] = &list[i]
			j.Expected++
		}
	}
	for i := range records {
		j.record(&records[i], v)
	}
	for _, key := range slices.SortedFunc(maps.Keys(want), compareKeys) {
		j.end(want[key])
	}
	return j.verdict
}

func compareKeys(a, b objectKey) int {
	return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

type judgement struct {
	verdict
	byID   map[string]*expectation
	seen   map[string]bool
	states map[objectKey]*state
}

// state is what a consumer knows of an object.
type state struct {
	index int    // Of the last expectation that was met, to tell the order.
	rev   uint64 // Of the last record.
	uid   string
	// after is the last record's: present, or absent behind left and null behind deleted.
	after  presence
	digest digest
	gaps   int // How many gaps there had been.
}

func (j *judgement) fault(rec *record, kind, format string, args ...any) *fault {
	j.Faults = append(j.Faults, fault{
		Kind: kind, Key: rec.Key, Rev: rec.Rev, Position: rec.Position, Text: fmt.Sprintf(format, args...),
	})
	return &j.Faults[len(j.Faults)-1]
}

func (j *judgement) record(rec *record, v view) {
	for _, p := range rec.Problems {
		j.fault(rec, "contract", "%s: %s", rec.ID, p)
	}
	if j.seen[rec.ID] {
		j.Duplicates++
		return
	}
	j.seen[rec.ID] = true
	if rec.Stream != "" {
		if rec.Stream == gap {
			j.Gaps = append(j.Gaps, *rec)
		}
		return
	}
	e := j.byID[rec.ID]
	// A deletion that counts may be inferred from a list behind what counts.
	if e == nil && !v.counts(rec.Rev) {
		return
	}
	j.Records++
	if rec.Inferred {
		j.Inferred++
	}
	if e == nil {
		j.fault(rec, "unexpected", "op %s, id %s: etcd knows no such change", rec.Op, rec.ID)
		return
	}
	s := j.states[rec.Key]
	if s != nil && e.index <= s.index {
		j.fault(rec, "order", "op %s comes after the record of revision %d", rec.Op, s.rev)
	}
	if rec.Inferred {
		j.inferred(rec, e, s)
	} else {
		j.seenOnWatch(rec, e)
	}
	j.chain(rec, s)
	j.states[rec.Key] = &state{
		index: e.index, rev: rec.Rev, uid: rec.UID, after: rec.After, digest: rec.AfterDigest, gaps: j.gapsOf(rec.Key),
	}
}

func (j *judgement) gapsOf(key objectKey) int {
	n := 0
	for i := range j.Gaps {
		if j.Gaps[i].Scope.has(key) {
			n++
		}
	}
	return n
}

// gapAround is the gap in which the change happened, nil if none.
func (j *judgement) gapAround(key objectKey, rev uint64) *record {
	for i := range j.Gaps {
		if g := &j.Gaps[i]; g.Scope.has(key) && g.From < rev && rev <= g.To {
			return g
		}
	}
	return nil
}

// seenOnWatch judges a record that claims to be one change of the history.
func (j *judgement) seenOnWatch(rec *record, e *expectation) {
	if rec.Op != e.Op {
		j.fault(rec, "op", "op is %s, want %s", rec.Op, e.Op)
	}
	if rec.Rev != e.Rev {
		j.fault(rec, "resourceVersion", "resourceversion is %d, want %d", rec.Rev, e.Rev)
	}
	var prevRev uint64
	before, after := null, present
	switch e.Op {
	case read:
		before = absent
	case entered:
		// The version outside need not be known; where it is, it is the right one.
		if before = rec.Before; before == null {
			before = absent
		}
		if before == present || rec.PrevRev != 0 {
			prevRev = e.Prev.Rev
		}
	case updated:
		before, prevRev = present, e.Prev.Rev
	case deleted:
		before, after, prevRev = present, null, e.Prev.Rev
	case left:
		before, after, prevRev = present, absent, e.Prev.Rev
	}
	if rec.PrevRev != prevRev {
		j.fault(rec, "previousResourceVersion", "op %s: previousResourceVersion is %d, want %d", rec.Op, rec.PrevRev, prevRev)
	}
	j.content(rec, "before", rec.Before, before, rec.BeforeDigest, e.Prev)
	j.content(rec, "after", rec.After, after, rec.AfterDigest, e.Next)
	if (e.Op == created || e.Op == updated) && rec.Op == e.Op {
		if err := saysChangedBy(e.Prev, e.Next, rec.ChangedBy); err != nil {
			j.fault(rec, "changedBy", "op %s: %v", rec.Op, err)
		}
		j.Changers += len(changedBy(e.Prev, e.Next))
		j.ChangersTold += len(rec.ChangedBy)
	}
}

func (j *judgement) content(rec *record, member string, got, want presence, digest digest, v *version) {
	switch {
	case got != want:
		j.fault(rec, member, "op %s: %s is %s, want %s", rec.Op, member, got, want)
	case got == present && digest != v.Digest:
		f := j.fault(rec, member, "op %s: %s is not the object of revision %d", rec.Op, member, v.Rev)
		f.Content, f.ContentRev = member, v.Rev
	}
}

// inferred judges a record that a comparison of lists gave: it leads from what the consumer knew to a version that was.
func (j *judgement) inferred(rec *record, e *expectation, s *state) {
	g := j.gapAround(rec.Key, e.Rev)
	if g == nil {
		j.fault(rec, "inferred", "op %s is inferred, and no gap event before it has revision %d in it", rec.Op, e.Rev)
		return
	}
	known := s != nil && s.after == present
	switch rec.Op {
	case deleted:
		if !known || s.uid != rec.UID {
			j.fault(rec, "inferred", "deletion of an object that the bus does not know")
		}
		if rec.Rev < e.Rev || rec.Rev > g.To {
			j.fault(rec, "inferred", "deletion at %d, but it was at %d and the gap ends at %d", rec.Rev, e.Rev, g.To)
		}
		j.content(rec, "after", rec.After, null, rec.AfterDigest, nil)
	case created, updated, entered:
		if known != (rec.Op == updated) {
			j.fault(rec, "inferred", "op %s, but whether the bus knows the object is %t", rec.Op, known)
		}
		if rec.Op == updated && known && s.uid != rec.UID {
			j.fault(rec, "inferred", "update of %s from an object with the uid %s", rec.UID, s.uid)
		}
		j.content(rec, "after", rec.After, present, rec.AfterDigest, e.Next)
	case left:
		j.content(rec, "after", rec.After, absent, rec.AfterDigest, nil)
	default:
		j.fault(rec, "inferred", "op %s cannot be inferred", rec.Op)
	}
	if known && rec.Op != created && rec.PrevRev != s.rev {
		j.fault(rec, "previousResourceVersion", "inferred op %s: previousResourceVersion is %d, the last record has %d", rec.Op, rec.PrevRev, s.rev)
	}
}

// chain compares a record with the one before it, as a consumer would who has nothing but the bus. A gap in between
// breaks the chain, except for inferred deltas, which start from what was known.
func (j *judgement) chain(rec *record, s *state) {
	if s == nil || (s.gaps != j.gapsOf(rec.Key) && !rec.Inferred) {
		return
	}
	switch {
	case s.after != present:
		if rec.Op != created && rec.Op != entered {
			j.fault(rec, "chain", "op %s follows a record after which the object was %s", rec.Op, s.after)
		}
	case rec.Before != present || rec.BeforeDigest != s.digest:
		j.fault(rec, "chain", "op %s: before (%s, %s) is not the after of the record before it, revision %d (%s)",
			rec.Op, rec.Before, rec.BeforeDigest, s.rev, s.digest)
	}
}

// end judges what is missing, and the state in which the bus leaves the object.
func (j *judgement) end(list []expectation) {
	key := list[0].Key
	s := j.states[key]
	for i := range list {
		e := &list[i]
		if j.seen[e.ID] {
			continue
		}
		if j.gapAround(key, e.Rev) != nil {
			j.InGaps++
			continue
		}
		rec := &record{Key: key, Rev: e.Rev}
		j.fault(rec, "missing", "no record of op %s, id %s", e.Op, e.ID)
	}

	last := &list[len(list)-1]
	if j.seen[last.ID] || (s == nil && last.Op == deleted) {
		return
	}
	rec := &record{Key: key, Rev: last.Rev}
	switch gone := last.Op == deleted || last.Op == left; {
	case s == nil:
		j.fault(rec, "final state", "the bus knows nothing of the object")
	case gone && s.after == present:
		j.fault(rec, "final state", "%s at revision %d, on the bus it lives on as revision %d", last.Op, last.Rev, s.rev)
	case !gone && (s.after != present || s.digest != last.Next.Digest):
		j.fault(rec, "final state", "on the bus it is %s, revision %d", s.after, s.rev)
	}
}

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
