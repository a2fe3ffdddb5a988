package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Fault is one difference between the records on the bus and the expected ones.
type Fault struct {
	Kind     string // A few words, for counting.
	Key      ObjectKey
	Rev      uint64
	Position uint64 // That of the record; 0 if there is none.
	Lane     int
	Text     string
	// Content is set if a record's object differs: "before" or "after". ContentRev is the revision
	// that it should have.
	Content    string
	ContentRev uint64
}

func (f Fault) String() string {
	s := fmt.Sprintf("%s: %s revision %d", f.Kind, f.Key, f.Rev)
	if f.Position != 0 {
		s += fmt.Sprintf(", record %d", f.Position)
		if f.Lane != 0 {
			s += fmt.Sprintf(" of lane %d", f.Lane)
		}
	}
	if f.Text != "" {
		s += ": " + f.Text
	}
	return s
}

// Verdict is the outcome of a comparison.
type Verdict struct {
	Expected   int
	Records    int // Object events, without duplicates.
	Duplicates int
	Inferred   int
	Late       int // Versions of earlier objects with the same name that a later recovery of a gap found.
	Untold     int // Deltas under a selector whose op could not be determined.
	Swept      int // Objects that do not exist according to the end of a snapshot.
	InGaps     int // Expected records that a gap event accounts for.
	Shortened  int // Records without before, which would otherwise be too large.
	Gaps       []Record
	Faults     []Fault

	Changers, ChangersTold int // Entries of changedBy by the rule, and in the events.
}

// Judge compares the records of one lane, in its order, with the expectations. A gap event excuses
// missing records between its two revisions. A recovered gap only excuses those of objects that
// existed, and matched the selector, at neither revision. Instead, Judge then checks the inferred
// deltas and the final state.
func Judge(want map[ObjectKey][]Expectation, records []Record, v View) Verdict {
	j := &judgement{
		want:   want,
		byID:   make(map[string]*Expectation),
		seen:   make(map[string]*Record, len(records)),
		states: make(map[ObjectKey]*state),
		dead:   v.Dead,
		window: cmp.Or(v.Window, duplicateWindow),
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
	for _, key := range slices.SortedFunc(maps.Keys(want), CompareKeys) {
		j.end(want[key])
	}
	return j.Verdict
}

// CompareKeys orders keys by resource, namespace and name.
func CompareKeys(a, b ObjectKey) int {
	return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name))
}

type judgement struct {
	Verdict
	want   map[ObjectKey][]Expectation
	byID   map[string]*Expectation
	seen   map[string]*Record // The first copy of each.
	states map[ObjectKey]*state
	dead   map[string]ObjectKey
	window time.Duration // The time in which the bus discards duplicates.
}

// state is a consumer's view of an object.
type state struct {
	index int    // That of the last expectation that was met, for checking the order.
	rev   uint64 // That of the last record.
	uid   string
	// after is the last record's: Present, Absent after left, or Null after deleted.
	after    Presence
	digest   Digest
	gaps     int // The number of gaps up to the last record.
	position uint64
	snapshot string // The snapshot in which the object was last read.
}

func (j *judgement) fault(rec *Record, kind, format string, args ...any) *Fault {
	j.Faults = append(j.Faults, Fault{
		Kind:     kind,
		Key:      rec.Key,
		Rev:      rec.Rev,
		Position: rec.Position,
		Lane:     rec.Lane,
		Text:     fmt.Sprintf(format, args...),
	})
	return &j.Faults[len(j.Faults)-1]
}

func (j *judgement) record(rec *Record, v View) {
	for _, p := range rec.Problems {
		j.fault(rec, "contract", "%s: %s", rec.ID, p)
	}
	if first := j.seen[rec.ID]; first != nil {
		j.Duplicates++
		j.duplicate(rec, first)
		return
	}
	j.seen[rec.ID] = rec
	switch rec.Stream {
	case "":
	case Gap:
		j.Gaps = append(j.Gaps, *rec)
		return
	case SnapshotCompleted:
		j.sweep(rec)
		return
	default:
		return
	}
	e := j.byID[rec.ID]
	// An inferred deletion has the revision of a list, which may be after Until although the
	// deletion is not.
	if e == nil && !v.counts(rec.Rev) {
		return
	}
	j.Records++
	if rec.Inferred {
		j.Inferred++
	}
	if e == nil {
		e = j.inferredGone(rec)
		if e != nil && j.seen[e.ID] != nil {
			j.Duplicates++ // An agent with an older checkpoint did not know that the bus already has the left event.
			return
		}
	}
	forgotten := rec.Inferred && rec.Rev <= v.Forgotten
	untold := forgotten && j.gapAround(rec.Key, rec.Rev) == nil
	if e == nil && forgotten {
		e = j.untoldDeletion(rec)
		if e != nil && j.seen[e.ID] != nil {
			j.Duplicates++ // The bus already has the deletion.
			return
		}
		untold = e != nil // Also within a gap: after a crash, a watch from an older checkpoint can go through it.
	}
	if e == nil {
		j.fault(rec, "unexpected", "op %s, id %s: etcd knows no such change", rec.Op, rec.ID)
		return
	}
	s := j.states[rec.Key]
	if g := j.gapAround(rec.Key, rec.Rev); s != nil && e.index <= s.index && g != nil &&
		(e.UID != s.uid || strings.Contains(g.Scope.Text, "?")) {
		// After a crash, a second recovery of a gap, or a watch from an earlier revision, can find
		// versions that the first missed. They are of an earlier object with the same name or,
		// under a selector, of a time in which the object matched. They do not mislead a consumer
		// that keeps the highest revision.
		j.Late++
		j.seenOnWatch(rec, e)
		return
	}
	if s != nil && e.index <= s.index {
		j.fault(rec, "order", "op %s comes after the record of revision %d", rec.Op, s.rev)
	}
	switch {
	case untold:
		j.untold(rec, e)
	case rec.Inferred:
		j.inferred(rec, e, s)
	default:
		j.seenOnWatch(rec, e)
	}
	j.chain(rec, s)
	next := &state{
		index:    e.index,
		rev:      rec.Rev,
		uid:      rec.UID,
		after:    rec.After,
		digest:   rec.AfterDigest,
		gaps:     j.gapsOf(rec.Key),
		position: rec.Position,
		snapshot: rec.Snapshot,
	}
	if s != nil && next.snapshot == "" {
		next.snapshot = s.snapshot
	}
	j.states[rec.Key] = next
}

// duplicate compares a further copy of a record with the first. An inferred record may start from
// an older state than the bus had. In that case only the object must be the same.
func (j *judgement) duplicate(rec, first *Record) {
	switch {
	case rec.Op != first.Op && !rec.Inferred && !first.Inferred || rec.Stream != first.Stream:
		j.fault(rec, "duplicate", "%s: op is %s%s, that of the first copy %s%s", rec.ID, rec.Op, rec.Stream, first.Op,
			first.Stream)
	case rec.After != first.After || rec.AfterDigest != first.AfterDigest:
		j.fault(rec, "duplicate", "%s: after is not that of the first copy", rec.ID)
	case rec.Inferred || first.Inferred:
	case rec.Rev != first.Rev || rec.PrevRev != first.PrevRev || rec.Before != first.Before ||
		rec.BeforeDigest != first.BeforeDigest:
		j.fault(rec, "duplicate", "%s: differs from the first copy", rec.ID)
	}
	if !rec.Stored.IsZero() && rec.Stored.Sub(first.Stored) < j.window {
		j.fault(rec, "duplicate", "%s: both copies are within %s of each other", rec.ID, j.window)
	}
}

// duplicateWindow is the duplicate window of the stream that the agent creates.
const duplicateWindow = 2 * time.Minute

// sweep applies the contract's rule for the end of a snapshot: an object of the scope that was
// neither read nor changed during the snapshot does not exist.
func (j *judgement) sweep(completed *Record) {
	started := j.seen[strings.TrimSuffix(completed.ID, "/completed"+historyEnd(completed.History))+"/started"+
		historyEnd(completed.History)]
	if started == nil {
		return // JudgeSnapshots reports this.
	}
	for key, s := range j.states {
		if s.after == Present && s.position < started.Position && s.snapshot != completed.Snapshot &&
			completed.Scope.Has(key) {
			s.after, s.digest = Null, Digest{}
			j.Swept++
		}
	}
}

// seenOnWatch judges a record that must match one change of the history.
func (j *judgement) seenOnWatch(rec *Record, e *Expectation) {
	if rec.Op != e.Op {
		j.fault(rec, "op", "op is %s, want %s", rec.Op, e.Op)
	}
	if rec.Rev != e.Rev {
		j.fault(rec, "resourceVersion", "resourceversion is %d, want %d", rec.Rev, e.Rev)
	}
	var prevRev uint64
	before, after := Null, Present
	switch e.Op {
	case Read:
		before = Absent
	case Entered:
		// The agent need not know the version outside the selector. If before is present, it must
		// be that version.
		before = rec.Before
		if before == Null {
			before = Absent
		}
		if before == Present || rec.PrevRev != 0 {
			prevRev = e.Prev.Rev
		}
	case Updated:
		before, prevRev = Present, e.Prev.Rev
	case Deleted:
		before = Present
		after = Null
		prevRev = e.Prev.Rev
	case Left:
		before = Present
		after = Absent
		prevRev = e.Prev.Rev
	}
	if rec.PrevRev != prevRev {
		j.fault(rec, "previousResourceVersion", "op %s: previousResourceVersion is %d, want %d", rec.Op, rec.PrevRev,
			prevRev)
	}
	if rec.Skipped != 0 {
		j.fault(rec, "skipped", "op %s: skipped is %d, where nothing is withheld", rec.Op, rec.Skipped)
	}
	j.content(rec, "before", rec.Before, before, rec.BeforeDigest, e.Prev)
	j.content(rec, "after", rec.After, after, rec.AfterDigest, e.Next)
	if (e.Op == Created || e.Op == Updated) && rec.Op == e.Op {
		found := rec.ChangedBy == nil && j.gapAround(rec.Key, rec.Rev) != nil // Not known for every recovered version.
		if err := SaysChangedBy(e.Prev, e.Next, rec.ChangedBy); err != nil && !found {
			j.fault(rec, "changedBy", "op %s: %v", rec.Op, err)
		}
		j.Changers += len(changedBy(e.Prev, e.Next))
		j.ChangersTold += len(rec.ChangedBy)
	}
}

func (j *judgement) content(rec *Record, member string, got, want Presence, digest Digest, v *Version) {
	switch {
	case member == "before" && got == Absent && rec.Ref == "" && slices.Contains(rec.Truncated, member):
		j.Shortened++
	case got != want:
		j.fault(rec, member, "op %s: %s is %s, want %s", rec.Op, member, got, want)
	case got == Present && digest != v.Digest:
		f := j.fault(rec, member, "op %s: %s is not the object of revision %d", rec.Op, member, v.Rev)
		f.Content, f.ContentRev = member, v.Rev
	}
}

// chain compares a record with the previous one, as a consumer can that has only the bus. A gap in
// between breaks the chain, except for the gap's inferred deltas. These start from the last state
// on the bus, or from the state where the gap begins.
func (j *judgement) chain(rec *Record, s *state) {
	if s == nil {
		return
	}
	if s.gaps != j.gapsOf(rec.Key) {
		g := j.gapAround(rec.Key, rec.Rev)
		begins := rec.Op == Created || rec.Op == Entered
		if !rec.Inferred || g == nil && begins { // the latter is of a change after the gap
			return
		}
		if g != nil {
			base := j.at(rec.Key, g.From)
			if (base == nil || base.UID != rec.UID) && begins ||
				base != nil && rec.Before == Present && rec.BeforeDigest == base.Digest {
				return
			}
		}
	}
	if rec.Op == Read { // A read of a later snapshot must repeat the last state.
		if s.after != Present || rec.AfterDigest != s.digest {
			j.fault(rec, "chain", "read of revision %d, after the bus had revision %d (%s)", rec.Rev, s.rev, s.after)
		}
		return
	}
	switch {
	case s.after != Present:
		if rec.Op != Created && rec.Op != Entered {
			j.fault(rec, "chain", "op %s follows a record after which the object was %s", rec.Op, s.after)
		}
	case rec.Before == Absent && rec.Ref == "" && slices.Contains(rec.Truncated, "before"):
	case rec.Before != Present || rec.BeforeDigest != s.digest:
		j.fault(rec, "chain", "op %s: before (%s, %s) is not the after of the record before it, revision %d (%s)",
			rec.Op, rec.Before, rec.BeforeDigest, s.rev, s.digest)
	}
}

// last returns the last expectation that is not among the dead letters. It returns nil if there is
// none.
func (j *judgement) last(list []Expectation) *Expectation {
	for i := len(list) - 1; i >= 0; i-- {
		if _, dead := j.dead[list[i].ID]; !dead {
			return &list[i]
		}
	}
	return nil
}

// end judges the missing records of an object, and its final state on the bus.
func (j *judgement) end(list []Expectation) {
	key := list[0].Key
	s := j.states[key]
	for i := range list {
		e := &list[i]
		if j.seen[e.ID] != nil {
			continue
		}
		if j.excused(e) {
			j.InGaps++
			continue
		}
		rec := &Record{Key: key, Rev: e.Rev}
		j.fault(rec, "missing", "no record of op %s, id %s", e.Op, e.ID)
	}

	last := j.last(list)
	if last == nil {
		return
	}
	if j.seen[last.ID] != nil && s != nil && s.index == last.index ||
		s == nil && (last.Op == Deleted || last.Op == Left || last.Optional) {
		return
	}
	rec := &Record{Key: key, Rev: last.Rev}
	switch gone := last.Op == Deleted || last.Op == Left; {
	case s == nil:
		j.fault(rec, "final state", "the bus knows nothing of the object")
	case gone && s.after == Present:
		j.fault(rec, "final state", "%s at revision %d, on the bus it lives on as revision %d", last.Op, last.Rev,
			s.rev)
	case !gone && (s.after != Present || s.digest != last.Next.Digest):
		j.fault(rec, "final state", "on the bus it is %s, revision %d", s.after, s.rev)
	}
}

// Fail fails the test with a verdict. CI (.ci/gotest) never runs a test again whose output has its
// mark.
func Fail(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Errorf("VERDICT: %s", fmt.Sprintf(format, args...))
}

// NoGaps fails the test if there are gaps or inferred deltas. It is for tests in which no history
// may be lost.
func (v *Verdict) NoGaps(t testing.TB) {
	t.Helper()
	if len(v.Gaps) > 0 || v.Inferred > 0 {
		Fail(t, "%d gaps and %d inferred deltas, where no history was lost", len(v.Gaps), v.Inferred)
	}
}

// FaultKinds counts the faults by kind.
func FaultKinds(faults []Fault) map[string]int {
	kinds := make(map[string]int)
	for _, f := range faults {
		kinds[f.Kind]++
	}
	return kinds
}
