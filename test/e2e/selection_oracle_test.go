package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// chosen is a change that an agent of a configuration has to hear of: with a record on the bus, or withheld.
type chosen struct {
	ID     string
	Op     string
	Key    objectKey
	UID    string
	Rev    uint64
	Prev   *ancient // Nil where there was none.
	Before tree     // As sent. Of entered: as it would be, if it is known.
	After  tree
	Next   *ancient

	Reason  string // Why it is withheld, "": it is sent.
	Skipped uint64 // How many versions were withheld since the object's last record.

	index int
}

// choose derives from etcd's history what an agent of this configuration has to send, and what to withhold, per object in
// order. begins is the snapshot of the scope that an object is in.
func (c *picked) choose(a archive, begins func(objectKey) (snapshot, bool), until uint64) map[objectKey][]chosen {
	want := make(map[objectKey][]chosen)
	for key, versions := range a {
		if snap, ok := begins(key); ok && len(c.clauses(key.Resource)) > 0 {
			if list := c.chooseObject(key, versions, snap, until); len(list) > 0 {
				want[key] = list
			}
		}
	}
	return want
}

func (c *picked) chooseObject(key objectKey, versions []*ancient, snap snapshot, until uint64) []chosen {
	var list []chosen
	var skipped uint64
	add := func(op, id string, rule int, rev uint64, prev, next *ancient, before, after tree) {
		e := chosen{ID: id, Op: op, Key: key, Rev: rev, Prev: prev, Next: next, Before: before, After: after, index: len(list)}
		if next != nil {
			e.UID = next.UID
		} else {
			e.UID = prev.UID
		}
		e.Reason = c.withholds(rule, &moment{Op: op, Before: before, After: after, Key: key})
		switch {
		case e.Reason == "":
			e.Skipped, skipped = skipped, 0
		case op == deleted || op == left: // Whatever comes is another object, or is new to the scope.
			skipped = 0
		case op != read: // Nothing was missed: it is there as it is.
			skipped++
		}
		list = append(list, e)
	}
	id := func(v *ancient, end string) string { return key.Resource + "/" + v.UID + "/" + end }

	var current *ancient
	begun := false
	begin := func() {
		if rule := c.rule(current); !begun && rule >= 0 {
			end := formatRev(current.Rev) + "/r/" + snap.ID
			add(read, id(current, end), rule, current.Rev, nil, current, nil, c.treat(current, rule))
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
				add(created, id(next, formatRev(next.Rev)), is, next.Rev, nil, next, nil, c.treat(next, is))
			case was >= 0 && is >= 0:
				add(updated, id(next, formatRev(next.Rev)), is, next.Rev, current, next, c.treat(current, was), c.treat(next, is))
			case is >= 0:
				add(entered, id(next, formatRev(next.Rev)), is, next.Rev, current, next, c.treat(current, is), c.treat(next, is))
			case was >= 0 && next.Object == nil:
				add(deleted, id(current, "d"), was, next.Rev, current, nil, c.treat(current, was), nil)
			case was >= 0:
				add(left, id(next, formatRev(next.Rev)+"/l"), was, next.Rev, current, next, c.treat(current, was), nil)
			}
		}
		if current = next; next.Object == nil {
			current = nil
		}
	}
	begin()
	return list
}

// withholds is the reason for which a rule withholds a change, "" where it is sent.
func (c *picked) withholds(rule int, m *moment) string {
	r := &c.Rules[rule]
	operation := map[string]string{created: "created", updated: "updated", deleted: "deleted"}[m.Op]
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

// selectionVerdict is the outcome of a comparison.
type selectionVerdict struct {
	Sent, Withheld, Duplicates int
	Faults                     []selectionFault
}

// selectionFault is a fault and, where an object is not what it should be, that.
type selectionFault struct {
	fault
	Want tree
}

// judgeChosen compares the records with what is wanted. killed are the positions in the stream at which an agent was killed:
// the next one does not know what was withheld before, and may repeat what was sent.
func judgeChosen(want map[objectKey][]chosen, records []record, until uint64, killed ...uint64) selectionVerdict {
	j := &chosenJudgement{byID: make(map[string]*chosen), seen: make(map[string]*record), last: make(map[objectKey]*record), killed: killed}
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
	for _, key := range slices.SortedFunc(maps.Keys(want), compareKeys) {
		for i := range want[key] {
			if e := &want[key][i]; e.Reason == "" && j.seen[e.ID] == nil {
				j.fault(&record{Key: key, Rev: e.Rev}, "missing", nil, "no record of op %s, id %s; it changes (-before +after)\n%s",
					e.Op, e.ID, cmp.Diff(e.Before, e.After))
			}
		}
	}
	return j.selectionVerdict
}

type chosenJudgement struct {
	selectionVerdict
	byID   map[string]*chosen
	seen   map[string]*record
	last   map[objectKey]*record
	killed []uint64
}

func (j *chosenJudgement) fault(rec *record, kind string, want tree, format string, args ...any) {
	j.Faults = append(j.Faults, selectionFault{Want: want, fault: fault{
		Kind: kind, Key: rec.Key, Rev: rec.Rev, Position: rec.Position, Text: fmt.Sprintf(format, args...),
	}})
}

// between tells whether an agent was killed between two records.
func (j *chosenJudgement) between(from, to uint64) bool {
	return slices.ContainsFunc(j.killed, func(k uint64) bool { return from <= k && k < to })
}

func (j *chosenJudgement) record(rec *record, until uint64) {
	for _, p := range rec.Problems {
		j.fault(rec, "contract", nil, "%s: %s", rec.ID, p)
	}
	if rec.Stream == gap {
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

func (j *chosenJudgement) compare(rec *record, e *chosen, restarted bool) {
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
	before, after := null, present
	switch e.Op {
	case read:
		before = absent
	case entered: // What there was outside need not be known.
		if before = rec.Before; before == null {
			before = absent
		}
		if before == absent && rec.PrevRev == 0 {
			prev = 0
		}
	case updated:
		before = present
	case deleted:
		before, after = present, null
	case left:
		before, after = present, absent
	}
	if rec.PrevRev != prev {
		j.fault(rec, "previousResourceVersion", nil, "op %s: previousResourceVersion is %d, want %d", rec.Op, rec.PrevRev, prev)
	}
	j.content(rec, "before", rec.Before, before, rec.BeforeDigest, e.Before)
	j.content(rec, "after", rec.After, after, rec.AfterDigest, e.After)
	if e.Op == created || e.Op == updated {
		var was *version
		if e.Prev != nil {
			was = e.Prev.version
		}
		if err := saysChangedBy(was, e.Next.version, rec.ChangedBy); err != nil {
			j.fault(rec, "changedBy", nil, "op %s: %v", rec.Op, err)
		}
	}
}

func (j *chosenJudgement) content(rec *record, member string, got, want presence, d digest, object tree) {
	switch {
	case got != want:
		j.fault(rec, member, nil, "op %s: %s is %s, want %s", rec.Op, member, got, want)
	case got == present && d != exact(object):
		j.fault(rec, member, object, "op %s: %s is not the object as the rules have it", rec.Op, member)
		j.Faults[len(j.Faults)-1].Content = member
	}
}

// withheldCounts is how many changes are withheld, by resource and reason.
func withheldCounts(want map[objectKey][]chosen) map[string]int {
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

// compareFaults puts the faults of one kind together.
func compareFaults(a, b selectionFault) int { return strings.Compare(a.Kind, b.Kind) }
