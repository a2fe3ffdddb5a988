package timeline

import (
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Survey judges every moment of a span. A Fold for each moment would read the record too often. So
// a Survey divides the span into parts, each with one certainty for each scope.
//
// A Fold judges a part as it judges a moment: Between(since, until) is as certain as the worst of
// its moments, or less. So a part that is exact proves all of its moments. A part that is not exact
// is divided at its edges (see edges), and the record is read again:
//
//	for more := true; more; more = s.Next() {
//		… s.Add(e) for each event, until s.Done()
//	}
//	for _, part := range s.Parts() { … }
//
// A record without gaps and interruptions is read once. The limits of the work, mostParts and
// mostReadings, make parts longer, and never more certain.
type Survey struct {
	opts     Options
	parts    []*surveyed // in order; one begins a nanosecond after the end of the one before
	readings int         // that are over

	deadLetters map[objectKey]bool // the objects that have dead letters
	hasObject   map[place]bool     // the places of objects that this reading has added
	hasUnnamed  bool               // see NeedsObjects
}

const (
	// mostParts limits the parts that one reading judges.
	mostParts = 256
	// mostReadings limits how many times the record is read.
	mostReadings = 5
)

// surveyed is a part of the span.
type surveyed struct {
	since, until time.Time
	fold         *Fold // nil: it is judged
	scopes       []certainty.Scope
	isDone       bool
}

// Part is a span in which no change of the certainty is known.
type Part struct {
	Since, Until time.Time // both included
	Scopes       []certainty.Scope
}

// NewSurvey returns the Survey of a span, to which the events of a record are to be added.
func NewSurvey(since, until time.Time, o Options) *Survey {
	s := &Survey{opts: o, deadLetters: map[objectKey]bool{}, hasObject: map[place]bool{}}
	s.parts = []*surveyed{s.part(since, until)}
	return s
}

func (s *Survey) part(since, until time.Time) *surveyed {
	return &surveyed{since: since, until: until, fold: NewFold(Between(since, until), s.opts)}
}

// Add applies the next event of a log. In the first reading, it returns the versions of objects
// that the event adds up to the end of the span, as Fold.Add.
func (s *Survey) Add(e *consume.Event) (versions []*Version) {
	if s.readings > 0 {
		if !s.isNeeded(e) {
			return nil
		}
		s.noteObject(e)
	}
	s.noteDeadLetter(e)
	for _, p := range s.parts {
		if p.fold == nil || p.isDone {
			continue
		}
		versions = p.fold.Add(e)
	}
	if s.readings > 0 {
		return nil
	}
	return versions
}

// noteDeadLetter notes the object of a dead letter.
func (s *Survey) noteDeadLetter(e *consume.Event) {
	if e.Stream == nil || e.Stream.DeadLetter == "" {
		return
	}
	uid, _ := splitDeadLetter(e.Stream.DeadLetter)
	key := objectKey{e.ClusterKey(), e.GroupResource(), uid}
	if !s.deadLetters[key] {
		s.deadLetters[key.clone()] = true
	}
}

// isNeeded reports whether a later reading needs an event. It needs the objects that have dead
// letters, and one object of each place: that shows a resource without events about scopes.
func (s *Survey) isNeeded(e *consume.Event) bool {
	return e.Data == nil || s.deadLetters[objectOf(e)] || !s.hasObject[placeOf(e)]
}

// noteObject notes the place of an object without dead letters.
func (s *Survey) noteObject(e *consume.Event) {
	if e.Data == nil || s.deadLetters[objectOf(e)] {
		return
	}
	if at := placeOf(e); !s.hasObject[at] {
		s.hasObject[at.clone()] = true
	}
}

// Done reports whether the record has passed the span, so that reading on changes nothing. Add then
// skips the parts that the record has passed.
func (s *Survey) Done() bool {
	isDone := true
	for _, p := range s.parts {
		p.isDone = p.isDone || p.fold == nil || p.fold.Done()
		isDone = isDone && p.isDone
	}
	return isDone
}

// DoneIn is Done for one log of several.
func (s *Survey) DoneIn(log consume.Log) bool {
	return !slices.ContainsFunc(s.parts, func(p *surveyed) bool { return p.fold != nil && !p.fold.DoneIn(log) })
}

// NoteLog notes a log, as Fold.NoteLog.
func (s *Survey) NoteLog(log consume.Log) {
	for _, p := range s.parts {
		if p.fold != nil {
			p.fold.NoteLog(log)
		}
	}
}

// Scopes returns the scopes of this reading, of each part.
func (s *Survey) Scopes() []certainty.Scope {
	var out []certainty.Scope
	for _, p := range s.parts {
		if p.fold != nil {
			out = append(out, p.fold.Scopes()...)
		}
	}
	return out
}

// NeedsObjects reports whether the next reading needs events of objects: some have dead letters, or
// the record has no events about scopes of their resource.
func (s *Survey) NeedsObjects() bool {
	return len(s.deadLetters) > 0 || s.hasUnnamed
}

// Next ends a reading. It returns false if all parts are judged; otherwise the record has to be
// read again.
func (s *Survey) Next() bool {
	s.readings++
	clear(s.hasObject)
	divisible := 0
	for _, p := range s.parts {
		if p.fold == nil {
			continue
		}
		p.scopes = p.fold.Scopes()
		p.fold.noteOpenEdges()
		if p.isDivisible() && s.readings < mostReadings {
			divisible++
		} else {
			p.fold = nil
		}
	}
	if divisible == 0 {
		return false
	}
	var parts []*surveyed
	for _, p := range s.parts {
		if p.fold == nil {
			parts = append(parts, p)
			continue
		}
		since := p.since
		isUnnamed := func(of certainty.Scope) bool { return of.Name == "" }
		s.hasUnnamed = s.hasUnnamed || slices.ContainsFunc(p.scopes, isUnnamed)
		for _, at := range p.fold.edges.sorted(max(mostParts/divisible-1, 1)) {
			parts = append(parts, s.part(since, at.Add(-1)))
			since = at
		}
		parts = append(parts, s.part(since, p.until))
	}
	s.parts = parts
	return true
}

// isDivisible reports whether the certainty or the scopes may differ inside the part.
func (p *surveyed) isDivisible() bool {
	isExact := certainty.Worst(p.scopes) == certainty.Exact
	return len(p.fold.edges.times) > 0 && (!isExact || p.fold.edges.hasScopeEnd)
}

// Parts returns the parts of the span, in order.
func (s *Survey) Parts() []Part {
	var out []Part
	for _, p := range s.parts {
		out = append(out, Part{p.since, p.until, p.scopes})
	}
	return out
}
