package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// silence is the longest time for which the reports of a run may leave out a scope that it
// observes.
const silence = 150 * time.Second

// JudgeProgress checks the reports of writers in the records of one lane. The records before a
// report must have all changes of a scope up to its revision, and all up to its time.
// Interruptions, hidden spans and gaps are exceptions. Outside.Delay bounds what a time means.
func JudgeProgress(want map[ObjectKey][]Expectation, records []Record, o Outside) []Fault {
	j := &progressJudgement{
		want:      want,
		outside:   o,
		observers: NewObservers(),
		first:     make(map[string]*Record),
		snapshots: make(map[string]*snapshotTimes),
		said:      make(map[string]claim),
		index:     make(map[string]*changes),
		numbers:   make(map[string]map[int]bool),
	}
	for i := range records {
		rec := &records[i]
		if j.first[rec.ID] == nil {
			j.first[rec.ID] = rec
		}
	}
	for i := range records {
		rec := &records[i]
		if rec.ID != "" && j.first[rec.ID] == rec {
			j.record(rec)
		}
	}
	j.end()
	return j.faults
}

type progressJudgement struct {
	want      map[ObjectKey][]Expectation
	outside   Outside
	observers *Observers
	first     map[string]*Record // The first copy of each record, by id.
	gaps      []*Record          // So far.
	snapshots map[string]*snapshotTimes
	said      map[string]claim        // By writer, run and scope.
	index     map[string]*changes     // By writer, scope and history.
	numbers   map[string]map[int]bool // Of the reports so far, by writer and run.
	faults    []Fault
}

// snapshotTimes has when the snapshots of a scope began, and the latest begin of one that is
// complete.
type snapshotTimes struct {
	began  map[string]time.Time // By id.
	latest time.Time
}

// claim is what the last report of a run says about a scope.
type claim struct {
	to            time.Time
	rev, history  uint64
	grouped       bool // By an entry for several scopes.
	interruptions []Interruption
}

// changes are the changes of a scope.
type changes struct {
	byRev   []change
	checked int // How many of byRev a report has covered.
	byTime  []change
}

type change struct {
	*Expectation
	rec *Record // Nil: it is not in the records.
}

// isBefore reports whether the change is in the records before another record.
func (c change) isBefore(rec *Record) bool { return c.rec != nil && c.rec.Position < rec.Position }

func (j *progressJudgement) fault(rec *Record, format string, args ...any) {
	j.faults = append(j.faults, Fault{
		Kind:     "progress",
		Position: rec.Position,
		Lane:     rec.Lane,
		Text:     rec.ID + ": " + fmt.Sprintf(format, args...),
	})
}

func (j *progressJudgement) record(rec *Record) {
	if rec.Writer != "" {
		last := j.observers.latest[rec.Writer]
		if last != nil {
			order := compareRuns(last.run, rec.Run)
			if order > 0 {
				j.fault(rec, "of run %s, after a record of run %s", rec.Run, last.run)
			}
			if last.run == rec.Run && last.ended && rec.End != EndedByOperator {
				j.fault(rec, "after the end of its run")
			}
		}
	}
	if rec.Report != nil {
		j.report(rec)
		return
	}
	j.observers.Add(rec)
	switch rec.Stream {
	case Gap:
		j.gaps = append(j.gaps, rec)
	case SnapshotStarted:
		j.timesOf(rec.Scope).began[rec.Snapshot] = rec.Time
	case SnapshotCompleted:
		s := j.timesOf(rec.Scope)
		s.latest = later(s.latest, s.began[rec.Snapshot])
	}
}

func (j *progressJudgement) timesOf(sc Scope) *snapshotTimes {
	s := j.snapshots[sc.Text]
	if s == nil {
		s = &snapshotTimes{began: make(map[string]time.Time)}
		j.snapshots[sc.Text] = s
	}
	return s
}

func (j *progressJudgement) report(rec *Record) {
	j.form(rec)
	all := j.observers.Resolve(rec)
	j.resolution(rec, all)
	for _, c := range all {
		j.continuity(rec, c)
	}
	j.observers.Add(rec)
	for _, c := range all {
		for _, m := range c.members {
			if c.Rev == 0 {
				continue
			}
			j.revision(rec, c.Entry, m.Scope)
			j.time(rec, c.Entry, m.Scope)
			s := j.snapshots[m.Text]
			if !c.SnapshotBegan.IsZero() && (s == nil || s.latest.Before(c.SnapshotBegan)) {
				j.fault(rec, "a snapshot of %s began at %s; no snapshot that is complete before it began then or later",
					m.Text, c.SnapshotBegan)
			}
		}
	}
}

// form checks what shows in the report alone, and its number.
func (j *progressJudgement) form(rec *Record) {
	p := rec.Report
	limit := j.outside.Limit
	if limit > 0 && rec.Size > limit/2 {
		j.fault(rec, "has %d bytes, and the bus takes %d", rec.Size, limit)
	}
	if p.Since.After(rec.Time) {
		j.fault(rec, "since %s, which is after its time %s", p.Since, rec.Time)
	}
	run := rec.Writer + " " + rec.Run
	if j.numbers[run] == nil {
		j.numbers[run] = make(map[int]bool)
	}
	n := len(j.numbers[run])
	if p.Number != n+1 && !j.outside.MayDrop || j.numbers[run][p.Number] {
		j.fault(rec, "number %d follows %d others of its run", p.Number, n)
	}
	j.numbers[run][p.Number] = true
	for i := range p.Entries {
		e := &p.Entries[i]
		name := cmp.Or(e.Scope, e.Resource)
		if e.To.After(rec.Time) {
			j.fault(rec, "%s: to %s, which is after its time %s", name, e.To, rec.Time)
		}
		for k, x := range e.Interruptions {
			if !x.Until.IsZero() && x.Until.Before(x.From) || k > 0 && x.From.Before(e.Interruptions[k-1].From) {
				j.fault(rec, "%s: interruption %d ends before it begins, or begins before the previous one: %v",
					name, k, e.Interruptions)
			}
		}
		for k, h := range e.Hidden {
			ends := !h.Until.IsZero() && h.Until.Before(h.From) || h.UntilRev != 0 && h.UntilRev < h.FromRev
			if ends || k > 0 && h.From.Before(e.Hidden[k-1].From) {
				j.fault(rec, "%s: hidden span %d ends before it begins, or begins before the previous one: %v",
					name, k, e.Hidden)
			}
		}
	}
}

// resolution checks that each entry is of scopes that the run observes. An entry that claims
// nothing may name a scope whose start or end is not in the records yet.
func (j *progressJudgement) resolution(rec *Record, all []covered) {
	names := make(map[string]bool)
	for _, c := range all {
		name := cmp.Or(c.Scope, "the scopes of "+c.Resource)
		if names[name] {
			j.fault(rec, "%s are named twice", name)
		}
		names[name] = true
		isNamed := c.Scope != "" && c.Rev == 0
		if len(c.members) != c.Count && !isNamed {
			var texts []string
			for _, m := range c.members {
				texts = append(texts, m.Text)
			}
			j.fault(rec, "%s are said to be %d, and its run observes %d: %s",
				name, c.Count, len(c.members), strings.Join(texts, " "))
		}
	}
}

// continuity compares an entry with what the previous report of the run says about its scopes.
func (j *progressJudgement) continuity(rec *Record, c covered) {
	// A scope that joins a group may lower what is claimed of the group.
	joined := false
	key := func(m *member) string { return rec.Writer + " " + rec.Run + " " + m.Text }
	for _, m := range c.members {
		last, ok := j.said[key(m)]
		joined = joined || !ok || last.grouped != (c.Scope == "")
	}
	for _, m := range c.members {
		last, ok := j.said[key(m)]
		switch {
		case !ok:
		case !joined && c.Rev != 0 && c.To.Before(last.to) && !overlap(c.Interruptions, c.To, last.to):
			j.fault(rec, "%s: to goes back from %s to %s, without an interruption", m.Text, last.to, c.To)
		case !joined && c.Rev != 0 && c.Rev < last.rev && c.History == last.history:
			j.fault(rec, "%s: the revision goes back from %d to %d", m.Text, last.rev, c.Rev)
		}
		for _, x := range last.interruptions {
			if !x.Until.IsZero() && !x.Until.Before(rec.Report.Since) && !covers(c.Interruptions, x) {
				j.fault(rec, "%s: lacks the interruption from %s until %s (%s), since %s",
					m.Text, x.From, x.Until, x.Why, rec.Report.Since)
			}
		}
		now := claim{
			to:            c.To,
			rev:           c.Rev,
			history:       c.History,
			grouped:       c.Scope == "",
			interruptions: c.Interruptions,
		}
		if c.Rev == 0 {
			now.to = last.to
			now.rev = last.rev
			now.history = last.history
		}
		j.said[key(m)] = now
	}
}

// overlap reports whether an interruption has a moment of the time between two times.
func overlap(all []Interruption, from, until time.Time) bool {
	return slices.ContainsFunc(all, func(x Interruption) bool {
		return !x.From.After(until) && (x.Until.IsZero() || !x.Until.Before(from))
	})
}

// covers reports whether the interruptions have all of another one.
func covers(all []Interruption, x Interruption) bool {
	var s Observation
	for _, y := range all {
		s.lose(y.From, cmp.Or(y.Until, forever))
	}
	_, ok := knows(s.lost(), x.From, x.Until)
	return !ok
}

// changesOf returns the changes of a scope in a history of etcd.
func (j *progressJudgement) changesOf(writer string, sc Scope, history uint64) *changes {
	key := writer + " " + sc.Text + " " + strconv.FormatUint(history, 10)
	all := j.index[key]
	if all != nil {
		return all
	}
	all = new(changes)
	selects := strings.Contains(sc.Text, "?")
	for object, list := range j.want {
		if !sc.Has(object) {
			continue
		}
		for i := range list {
			e := &list[i]
			c := change{e, j.first[e.ID]}
			if e.Op == Read || e.Optional || historyOf(e.ID) != history {
				continue
			}
			// Only a record says which of several selectors an object matches.
			if selects && (c.rec == nil || c.rec.Scope.Text != sc.Text) {
				continue
			}
			all.byRev = append(all.byRev, c)
			if !e.Seen.IsZero() {
				all.byTime = append(all.byTime, c)
			}
		}
	}
	slices.SortFunc(all.byRev, func(a, b change) int { return cmp.Compare(a.Rev, b.Rev) })
	slices.SortFunc(all.byTime, func(a, b change) int { return a.Seen.Compare(b.Seen) })
	j.index[key] = all
	return all
}

// historyOf returns the number of restores in an event's id.
func historyOf(id string) uint64 {
	i := strings.LastIndex(id, "/h")
	if i < 0 {
		return 0
	}
	n, _ := strconv.ParseUint(id[i+2:], 10, 64) // 0 if it is not a number.
	return n
}

// revision checks the claim that the records before the report have all changes up to a revision.
func (j *progressJudgement) revision(rec *Record, e *Entry, sc Scope) {
	all := j.changesOf(rec.Writer, sc, e.History)
	s := j.observers.scopes[rec.Writer+" "+sc.Text]
	for ; all.checked < len(all.byRev) && all.byRev[all.checked].Rev <= e.Rev; all.checked++ {
		c := all.byRev[all.checked]
		if !c.isBefore(rec) && !s.hides(c.Rev) && !j.excuses(c) {
			j.fault(rec, "%s is complete up to revision %d, and lacks %s at %d%s",
				sc.Text, e.Rev, c.ID, c.Rev, c.where())
		}
	}
}

// where says where the change is in the records.
func (c change) where() string {
	if c.rec == nil {
		return ", which is nowhere"
	}
	return fmt.Sprintf(", which is record %d", c.rec.Position)
}

// time checks the claim that the records show the state of the scope at each moment up to a time,
// except in interruptions. The record of a change must precede the report, and its time must not be
// later than the change.
func (j *progressJudgement) time(rec *Record, e *Entry, sc Scope) {
	if j.outside.Delay == 0 || e.To.IsZero() {
		return
	}
	all := j.changesOf(rec.Writer, sc, e.History)
	s := j.observers.scopes[rec.Writer+" "+sc.Text]
	lost := s.lost()
	open := all.byTime[:0]
	for _, c := range all.byTime {
		from := j.wall(c.Seen).Add(j.outside.Delay)
		if !from.Before(e.To) {
			open = append(open, c)
			continue
		}
		shown := forever
		if c.isBefore(rec) {
			shown = c.rec.Time
		}
		until := shown
		if until.After(e.To) {
			until = e.To
			open = append(open, c) // A later report may say more.
		}
		at, ok := knows(lost, from, until)
		if !ok || s.hides(c.Rev) || j.excuses(c) {
			continue
		}
		j.fault(rec, "%s is known at %s, and lacks %s, which etcd had at %s and the records show at %s%s",
			sc.Text, at, c.ID, j.wall(c.Seen), shown, c.where())
		open = slices.DeleteFunc(open, func(x change) bool { return x == c }) // Say it once.
	}
	all.byTime = open
}

// wall returns the agent's wall clock at a time of the test's.
func (j *progressJudgement) wall(t time.Time) time.Time {
	if j.outside.Clock == nil {
		return t
	}
	return j.outside.Clock(t)
}

// excuses reports whether a gap before the report accounts for a change that is not before it.
func (j *progressJudgement) excuses(c change) bool {
	return slices.ContainsFunc(j.gaps, func(g *Record) bool {
		switch {
		case !g.Scope.Has(c.Key), g.Reason == ContentChanged: // No version is missing.
			return false
		case g.Reason == DeadLetter:
			return g.Letter == c.ID
		default:
			return g.From < c.Rev && c.Rev <= g.To && (c.rec == nil || !g.Recovered)
		}
	})
}

// end checks that the reports of each run leave out none of its scopes.
func (j *progressJudgement) end() {
	for _, r := range j.observers.runs {
		if r.report == nil {
			continue
		}
		for _, m := range r.scopes {
			last := later(m.since, m.covered)
			if r.reported.Sub(last) > silence {
				text := fmt.Sprintf("run %s of %s reports until %s, and on %s until %s only",
					r.run, r.writer, r.reported, m.Text, last)
				j.faults = append(j.faults, Fault{Kind: "progress", Text: text})
			}
		}
	}
}
