package selection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// Chosen is a change that an agent with a given configuration must publish as a record or withhold.
type Chosen struct {
	ID     string
	Op     string
	Key    oracle.ObjectKey
	UID    string
	Rev    uint64
	Prev   *Version // Nil if there was none.
	Before Tree     // As sent; for entered, as sent if the agent knows it.
	After  Tree
	Next   *Version

	Redacted bool // Whether After lacks values that are redacted, or has others for them.

	Reason  string // Why it is withheld; "": it is sent.
	Skipped uint64 // The number of versions withheld since the object's last record.

	index int
}

// Choose derives from etcd's history the changes that an agent with this configuration must send or
// withhold, for each object in order. begins returns the snapshot of the scope that an object is
// in.
func (c *Config) Choose(
	a archive, begins func(oracle.ObjectKey) (oracle.Snapshot, bool), until uint64,
) map[oracle.ObjectKey][]Chosen {
	want := make(map[oracle.ObjectKey][]Chosen)
	for key, versions := range a {
		if snap, ok := begins(key); ok && len(c.Clauses(key.Resource)) > 0 {
			if list := c.chooseObject(key, versions, snap, until); len(list) > 0 {
				want[key] = list
			}
		}
	}
	return want
}

func (c *Config) chooseObject(key oracle.ObjectKey, versions []*Version, snap oracle.Snapshot, until uint64) []Chosen {
	var list []Chosen
	var skipped uint64
	add := func(op, id string, rule int, rev uint64, prev, next *Version, before, after Tree) {
		e := Chosen{
			ID:     id,
			Op:     op,
			Key:    key,
			Rev:    rev,
			Prev:   prev,
			Next:   next,
			Before: before,
			After:  after,
			index:  len(list),
		}
		if after != nil {
			_, e.Redacted = c.treatWith(next, rule)
		}
		if next != nil {
			e.UID = next.UID
		} else {
			e.UID = prev.UID
		}
		e.Reason = c.withholds(rule, &moment{
			Op:     op,
			Before: before,
			After:  after,
			Key:    key,
		})
		switch {
		case e.Reason == "":
			e.Skipped, skipped = skipped, 0
		case op == oracle.Deleted || op == oracle.Left:
			// The next record is of another object, or of one that is new to the scope.
			skipped = 0
		case op != oracle.Read: // A withheld read is not a skipped version.
			skipped++
		}
		list = append(list, e)
	}
	id := func(v *Version, end string) string { return key.Resource + "/" + v.UID + "/" + end }

	var current *Version
	begun := false
	begin := func() {
		if rule := c.rule(current); !begun && rule >= 0 {
			end := oracle.FormatRev(current.Rev) + "/r/" + snap.ID
			add(oracle.Read, id(current, end), rule, current.Rev, nil, current, nil, c.treat(current, rule))
		}
		begun = true
	}
	for _, next := range versions {
		if next.Rev > until {
			break
		}
		if next.Rev > snap.Rev {
			begin()
			was, is := c.rule(current), c.rule(next)
			switch {
			case current == nil && is >= 0:
				add(oracle.Created, id(next, oracle.FormatRev(next.Rev)), is, next.Rev, nil, next, nil,
					c.treat(next, is))
			case was >= 0 && is >= 0:
				add(oracle.Updated, id(next, oracle.FormatRev(next.Rev)), is, next.Rev, current, next,
					c.treat(current, was), c.treat(next, is))
			case is >= 0:
				add(oracle.Entered, id(next, oracle.FormatRev(next.Rev)), is, next.Rev, current, next,
					c.treat(current, is), c.treat(next, is))
			case was >= 0 && next.Object == nil:
				add(oracle.Deleted, id(current, "d"), was, next.Rev, current, nil, c.treat(current, was), nil)
			case was >= 0:
				add(oracle.Left, id(next, oracle.FormatRev(next.Rev)+"/l"), was, next.Rev, current, next,
					c.treat(current, was), nil)
			}
		}
		current = next
		if next.Object == nil {
			current = nil
		}
	}
	begin()
	return list
}

// withholds returns the reason why a rule withholds a change, or "" if it is sent.
func (c *Config) withholds(rule int, m *moment) string {
	r := &c.Rules[rule]
	operation := map[string]string{
		oracle.Created: "created",
		oracle.Updated: "updated",
		oracle.Deleted: "deleted",
	}[m.Op]
	if operation != "" && len(r.Operations) > 0 && !slices.Contains(r.Operations, operation) {
		return "operations"
	}
	removes := c.Redaction.Key == nil && (len(r.Redact) > 0 || m.Key.Resource == "secrets" && !c.Redaction.Off)
	for _, name := range c.Noise {
		if isNoise(name, m, removes) {
			return "noise:" + name
		}
	}
	if r.Where == nil {
		return ""
	}
	holds, err := r.Where.Holds(m)
	switch {
	case err != nil && r.Drop:
		return "error"
	case err == nil && !holds:
		return "where"
	}
	return ""
}

// Verdict is the outcome of a comparison.
type Verdict struct {
	Sent, Withheld, Duplicates int
	Faults                     []Fault
}

// Fault is a fault of the records. Want is the expected object if an object differs.
type Fault struct {
	oracle.Fault
	Want Tree
}

// Judge compares the records with the choice. killed has the positions in the stream at which an
// agent was killed: the next agent has lost the count of skipped versions, and may repeat records.
func Judge(want map[oracle.ObjectKey][]Chosen, records []oracle.Record, until uint64, killed ...uint64) Verdict {
	j := &judgement{
		byID:   make(map[string]*Chosen),
		seen:   make(map[string]*oracle.Record),
		last:   make(map[oracle.ObjectKey]*oracle.Record),
		killed: killed,
	}
	for _, list := range want {
		for i := range list {
			j.byID[list[i].ID] = &list[i]
			if list[i].Reason == "" {
				j.Sent++
			} else {
				j.Withheld++
			}
		}
	}
	for i := range records {
		j.record(&records[i], until)
	}
	for _, key := range slices.SortedFunc(maps.Keys(want), oracle.CompareKeys) {
		for i := range want[key] {
			if e := &want[key][i]; e.Reason == "" && j.seen[e.ID] == nil {
				j.fault(&oracle.Record{Key: key, Rev: e.Rev}, "missing", nil,
					"no record of op %s, id %s; it changes (-before +after)\n%s",
					e.Op, e.ID, cmp.Diff(e.Before, e.After))
			}
		}
	}
	return j.Verdict
}

type judgement struct {
	Verdict
	byID   map[string]*Chosen
	seen   map[string]*oracle.Record
	last   map[oracle.ObjectKey]*oracle.Record
	killed []uint64
}

func (j *judgement) fault(rec *oracle.Record, kind string, want Tree, format string, args ...any) {
	j.Faults = append(j.Faults, Fault{Want: want, Fault: oracle.Fault{
		Kind:     kind,
		Key:      rec.Key,
		Rev:      rec.Rev,
		Position: rec.Position,
		Text:     fmt.Sprintf(format, args...),
	}})
}

// between reports whether an agent was killed between two positions.
func (j *judgement) between(from, to uint64) bool {
	return slices.ContainsFunc(j.killed, func(k uint64) bool { return from <= k && k < to })
}

func (j *judgement) record(rec *oracle.Record, until uint64) {
	for _, p := range rec.Problems {
		j.fault(rec, "contract", nil, "%s: %s", rec.ID, p)
	}
	if rec.Stream == oracle.Gap {
		j.fault(rec, "gap", nil, "%s (%s), where no history was lost", rec.ID, rec.Reason)
	}
	if rec.Stream != "" {
		return
	}
	if first := j.seen[rec.ID]; first != nil {
		j.Duplicates++
		if !j.between(first.Position, rec.Position) {
			j.fault(rec, "duplicate", nil, "%s, though no agent ended in between", rec.ID)
		}
		return
	}
	j.seen[rec.ID] = rec
	e := j.byID[rec.ID]
	switch {
	case e == nil && rec.Rev > until:
		return
	case e == nil:
		j.fault(rec, "unexpected", nil, "op %s, id %s: no rule takes it, or etcd knows no such change", rec.Op, rec.ID)
		return
	case e.Reason != "":
		j.fault(rec, "not withheld", nil, "op %s, id %s: it is to be withheld (%s)", rec.Op, rec.ID, e.Reason)
		return
	}
	prev := j.last[rec.Key]
	if prev != nil {
		if p := j.byID[prev.ID]; p.index >= e.index {
			j.fault(rec, "order", nil, "op %s comes after the record of revision %d", rec.Op, prev.Rev)
		}
	}
	j.last[rec.Key] = rec
	var from uint64
	if prev != nil {
		from = prev.Position
	}
	j.compare(rec, e, j.between(from, rec.Position))
}

func (j *judgement) compare(rec *oracle.Record, e *Chosen, restarted bool) {
	if rec.Op != e.Op {
		j.fault(rec, "op", nil, "op is %s, want %s", rec.Op, e.Op)
	}
	if rec.Rev != e.Rev {
		j.fault(rec, "resourceVersion", nil, "op %s: resourceversion is %d, want %d", rec.Op, rec.Rev, e.Rev)
	}
	if rec.Inferred {
		j.fault(rec, "inferred", nil, "op %s is inferred, where no history was lost", rec.Op)
	}
	if rec.Skipped != e.Skipped && !(restarted && rec.Skipped < e.Skipped) {
		j.fault(rec, "skipped", nil, "op %s: skipped is %d, want %d", rec.Op, rec.Skipped, e.Skipped)
	}
	var prev uint64
	if e.Prev != nil {
		prev = e.Prev.Rev
	}
	before, after := oracle.Null, oracle.Present
	switch e.Op {
	case oracle.Read:
		before = oracle.Absent
	case oracle.Entered: // The agent need not know the version outside the selector.
		before = rec.Before
		if before == oracle.Null {
			before = oracle.Absent
		}
		if before == oracle.Absent && rec.PrevRev == 0 {
			prev = 0
		}
	case oracle.Updated:
		before = oracle.Present
	case oracle.Deleted:
		before, after = oracle.Present, oracle.Null
	case oracle.Left:
		before, after = oracle.Present, oracle.Absent
	}
	if rec.PrevRev != prev {
		j.fault(rec, "previousResourceVersion", nil, "op %s: previousResourceVersion is %d, want %d", rec.Op,
			rec.PrevRev, prev)
	}
	j.content(rec, "before", rec.Before, before, rec.BeforeDigest, e.Before)
	j.content(rec, "after", rec.After, after, rec.AfterDigest, e.After)
	says := rec.Redacted != nil
	if says != (e.After != nil && (e.Redacted || e.Key.Resource == "secrets")) || says && *rec.Redacted != e.Redacted {
		j.fault(rec, "redacted", nil, "op %s: redacted is there: %v, want %v", rec.Op, says, e.Redacted)
	}
	if e.Op == oracle.Created || e.Op == oracle.Updated {
		var was *oracle.Version
		if e.Prev != nil {
			was = e.Prev.version
		}
		if err := oracle.SaysChangedBy(was, e.Next.version, rec.ChangedBy); err != nil {
			j.fault(rec, "changedBy", nil, "op %s: %v", rec.Op, err)
		}
	}
}

func (j *judgement) content(
	rec *oracle.Record, member string, got, want oracle.Presence, d oracle.Digest, object Tree,
) {
	switch {
	case got != want:
		j.fault(rec, member, nil, "op %s: %s is %s, want %s", rec.Op, member, got, want)
	case got == oracle.Present && d != Exact(object):
		j.fault(rec, member, object, "op %s: %s is not the object as the rules have it", rec.Op, member)
		j.Faults[len(j.Faults)-1].Content = member
	}
}

// WithheldCounts counts the withheld changes by resource and reason.
func WithheldCounts(want map[oracle.ObjectKey][]Chosen) map[string]int {
	counts := make(map[string]int)
	for key, list := range want {
		for i := range list {
			if list[i].Reason != "" {
				counts[key.Resource+" "+list[i].Reason]++
			}
		}
	}
	return counts
}

// CompareFaults orders faults by kind.
func CompareFaults(a, b Fault) int { return strings.Compare(a.Kind, b.Kind) }
