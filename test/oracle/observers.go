package oracle

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Observers reads from the records of one lane, in their order, which scopes each writer observes,
// and when it did not. Like a consumer, it has nothing but the records.
type Observers struct {
	runs   map[string]*observer // By writer and run.
	latest map[string]*observer // The last run of each writer.
	scopes map[string]*Observation
	whole  map[string]time.Time // When a snapshot was first completed, by scope.
}

// observer is one run of a writer.
type observer struct {
	writer, run string
	scopes      map[string]*member // By text: those that it has started and not ended.
	report      *Report            // The last one; nil: there is none yet.
	reported    time.Time          // The time of report.
	ended       bool               // A report has said so.
}

// member is a scope of a run.
type member struct {
	Scope
	since   time.Time // When the run started it.
	covered time.Time // When a report last covered it.
}

// Observation is what the reports of a writer say about one scope.
type Observation struct {
	Scope
	Writer string
	// Said has every interruption that a report has listed, and that was over. Open is one that was
	// not, in the last report.
	Said []Interruption
	Open *Interruption
	// Rev and History are the last revision up to which the records have everything, and To is the
	// latest time.
	Rev, History uint64
	To           time.Time

	run     string
	at      time.Time // Of the last report that covers the scope.
	unknown []span    // Said, and what follows from runs and from missing reports.
	hidden  []HiddenSpan
}

// span is a span of time. It has its end, but not its beginning.
type span struct{ from, until time.Time }

// forever is later than any time of a record.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// NewObservers returns the observers of no record.
func NewObservers() *Observers {
	return &Observers{
		runs:   make(map[string]*observer),
		latest: make(map[string]*observer),
		scopes: make(map[string]*Observation),
		whole:  make(map[string]time.Time),
	}
}

// ObserversOf returns the observers of the records of one lane.
func ObserversOf(records []Record) *Observers {
	o, seen := NewObservers(), make(map[string]bool)
	for i := range records {
		rec := &records[i]
		if rec.ID == "" || seen[rec.ID] {
			continue
		}
		seen[rec.ID] = true
		o.Add(rec)
	}
	return o
}

// Add takes the next record.
func (o *Observers) Add(rec *Record) {
	switch {
	case rec.Report != nil:
		for _, c := range o.Resolve(rec) {
			for _, m := range c.members {
				o.of(rec.Writer, m).add(rec, c.Entry, m.since)
				m.covered = rec.Time
			}
		}
		r := o.run(rec)
		r.report = rec.Report
		r.reported = rec.Time
		r.ended = r.ended || rec.Report.Ends
	case rec.Stream == SnapshotCompleted:
		_, ok := o.whole[rec.Scope.Text]
		if !ok {
			o.whole[rec.Scope.Text] = rec.Time
		}
	case rec.Writer == "":
	case rec.Stream == ScopeEnded:
		for _, r := range o.runs {
			if r.writer == rec.Writer {
				delete(r.scopes, rec.Scope.Text)
			}
		}
	default:
		o.start(rec)
	}
}

// start takes the start of a scope or of a snapshot. A snapshot of one namespace of a scope starts
// no scope.
func (o *Observers) start(rec *Record) {
	r := o.run(rec)
	if r.scopes[rec.Scope.Text] != nil {
		return
	}
	for _, m := range r.scopes {
		if rec.Stream != ScopeStarted && rec.Scope.isPartOf(m.Scope) {
			return
		}
	}
	r.scopes[rec.Scope.Text] = &member{Scope: rec.Scope, since: rec.Time}
}

// isPartOf reports whether s is one namespace of another scope.
func (s Scope) isPartOf(scope Scope) bool {
	_, selectors, _ := strings.Cut(s.Text, "?")
	_, others, _ := strings.Cut(scope.Text, "?")
	if s.Resource != scope.Resource || s.Text == scope.Text || selectors != others {
		return false
	}
	isOne := s.Namespaces != "" && !strings.ContainsAny(s.Namespaces, "*?[,!")
	return isOne && scope.Has(ObjectKey{Resource: s.Resource, Namespace: s.Namespaces})
}

func (o *Observers) run(rec *Record) *observer {
	key := rec.Writer + " " + rec.Run
	r := o.runs[key]
	if r == nil {
		r = &observer{writer: rec.Writer, run: rec.Run, scopes: make(map[string]*member)}
		o.runs[key] = r
	}
	last := o.latest[rec.Writer]
	if last == nil || compareRuns(last.run, rec.Run) < 0 {
		o.latest[rec.Writer] = r
	}
	return r
}

// compareRuns orders the runs of a writer.
func compareRuns(a, b string) int {
	epochA, beganA := runOf(a)
	epochB, beganB := runOf(b)
	return cmp.Or(cmp.Compare(epochA, epochB), cmp.Compare(beganA, beganB))
}

// covered is an entry of a report with its scopes.
type covered struct {
	*Entry
	members []*member
}

// Resolve returns the scopes of each entry of a report, by what was started and ended before it.
func (o *Observers) Resolve(rec *Record) []covered {
	r := o.run(rec)
	named := make(map[string]bool)
	for i := range rec.Report.Entries {
		named[rec.Report.Entries[i].Scope] = true
	}
	var all []covered
	for i := range rec.Report.Entries {
		c := covered{Entry: &rec.Report.Entries[i]}
		for text, m := range r.scopes {
			isKnown := m.since.Before(rec.Time) // otherwise it was started while the report was on its way
			if c.Scope == text || c.Scope == "" && m.Resource == c.Resource && !named[text] && isKnown {
				c.members = append(c.members, m)
			}
		}
		slices.SortFunc(c.members, func(a, b *member) int { return cmp.Compare(a.Text, b.Text) })
		all = append(all, c)
	}
	return all
}

func (o *Observers) of(writer string, m *member) *Observation {
	key := writer + " " + m.Text
	s := o.scopes[key]
	if s == nil {
		s = &Observation{Scope: m.Scope, Writer: writer}
		o.scopes[key] = s
	}
	return s
}

// add takes what a report says about the scope, which its run started at a time.
func (s *Observation) add(rec *Record, e *Entry, started time.Time) {
	p := rec.Report
	switch {
	case s.run == "":
		s.unknown = append(s.unknown, span{until: started})
	case s.run != p.Run:
		until := p.Since
		for _, x := range e.Interruptions {
			switch {
			case x.Why != InterruptedStart:
			case x.Until.IsZero():
				until = forever
			default:
				until = x.Until
			}
		}
		s.lose(s.To, until)
		if s.Open != nil {
			s.lose(s.Open.From, until)
		}
	case p.Since.After(s.at): // A report is missing.
		s.lose(s.To, p.Since)
	}
	s.run = p.Run
	s.at = rec.Time
	s.Open = nil
	for i, x := range e.Interruptions {
		if x.Until.IsZero() {
			s.Open = &e.Interruptions[i]
			continue
		}
		if !slices.Contains(s.Said, x) {
			s.Said = append(s.Said, x)
			s.lose(x.From, x.Until)
		}
	}
	s.To = later(s.To, e.To)
	if e.Rev != 0 {
		s.Rev, s.History = e.Rev, e.History
	}
	s.hide(e.Hidden)
}

func (s *Observation) lose(from, until time.Time) {
	if from.Before(until) {
		s.unknown = append(s.unknown, span{from, until})
	}
}

// hide adds hidden spans. A later report may close one that was open.
func (s *Observation) hide(all []HiddenSpan) {
	s.hidden = slices.DeleteFunc(s.hidden, func(h HiddenSpan) bool {
		return h.isOpen() && slices.ContainsFunc(all, func(now HiddenSpan) bool {
			return !now.From.After(h.From) && now.FromRev <= h.FromRev
		})
	})
	for _, h := range all {
		if !slices.Contains(s.hidden, h) {
			s.hidden = append(s.hidden, h)
		}
	}
}

// lost returns the spans without any claim, in order and without overlaps.
func (s *Observation) lost() []span {
	all := slices.Clone(s.unknown)
	if s.Open != nil {
		all = append(all, span{s.Open.From, forever})
	}
	for _, h := range s.hidden {
		switch {
		case h.isOpen():
			all = append(all, span{h.From, forever})
		case !h.Until.IsZero():
			all = append(all, span{h.From, h.Until})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	var merged []span
	for _, x := range all {
		n := len(merged)
		if n > 0 && !x.from.After(merged[n-1].until) {
			merged[n-1].until = later(merged[n-1].until, x.until)
			continue
		}
		merged = append(merged, x)
	}
	return merged
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// knows returns the end of the first span after from, and not after until, that is in none of the
// merged spans. It returns false if there is none.
func knows(lost []span, from, until time.Time) (time.Time, bool) {
	for _, x := range lost {
		if !x.from.After(from) && from.Before(x.until) {
			from = x.until
		}
	}
	if !from.Before(until) {
		return time.Time{}, false
	}
	return from, true
}

// hides reports whether the last version of an object may have been withheld at a revision.
func (s *Observation) hides(rev uint64) bool {
	return slices.ContainsFunc(s.hidden, func(h HiddenSpan) bool {
		return h.FromRev <= rev && (h.UntilRev == 0 || rev <= h.UntilRev)
	})
}

// Of returns what is said of a scope, by each writer that observes it.
func (o *Observers) Of(scope string) []*Observation {
	var all []*Observation
	for _, s := range o.scopes {
		if s.Text == scope {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *Observation) int { return strings.Compare(a.Writer, b.Writer) })
	return all
}

// All returns what is said of all scopes.
func (o *Observers) All() []*Observation {
	var all []*Observation
	for _, s := range o.scopes {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Observation) int {
		return cmp.Or(strings.Compare(a.Text, b.Text), strings.Compare(a.Writer, b.Writer))
	})
	return all
}

// Exact reports whether the records prove that they have the state of the scope at a time. A
// snapshot of the scope must be complete, a report must reach the time, and no interruption may
// contain it.
func (o *Observers) Exact(scope string, at time.Time) bool {
	whole, ok := o.whole[scope]
	if !ok || at.Before(whole) {
		return false
	}
	return slices.ContainsFunc(o.Of(scope), func(s *Observation) bool {
		return !at.After(s.To) && !isIn(s.lost(), at)
	})
}

// isIn reports whether a time is in one of the spans, their ends included.
func isIn(spans []span, at time.Time) bool {
	return slices.ContainsFunc(spans, func(x span) bool { return !at.Before(x.from) && !at.After(x.until) })
}
