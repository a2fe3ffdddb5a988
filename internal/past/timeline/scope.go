package timeline

import (
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// scope has the facts that the record states about one scope, and those around the moment.
//
// No event says how certain a state is. That follows from snapshots, gaps and the progress of all
// writers. The note… methods take these events in the order of the record and keep only what the
// answer about the moment needs. The judge… methods (judge.go) give that answer, at any time.
type scope struct {
	resource string
	// hasInformer: an agent observes the scope. Otherwise it may be a part of a scope, with a
	// snapshot of its own.
	hasInformer bool
	isRestarted bool // it had ended at the moment, and was started again after it
	isJoined    bool // see Options.Joined
	edges       *edges

	keepsLate   bool           // see Options.Late
	lateFrom    time.Time      // late spans count from here on
	earlierLate []interruption // late spans from before the scope was started again

	openSnapshot  string // the id of the snapshot under way; "": there is none
	snapshotStart mark   // of the last snapshot
	lastSnapshot  mark   // the last completed one
	// knownFrom is the end of the first snapshot that was read completely, with its
	// resourceVersion. Earlier moments cannot be judged.
	knownFrom  mark
	firstStart time.Time // when that snapshot started
	reached    mark      // the record is complete up to here
	claimed    mark      // the furthest claim of any progress
	lastEvent  mark      // of the last event about the scope

	former            mark // the last progress in the form of a former release
	isSnapshotCurrent bool // the snapshot under way is of an agent of this release
	isKnownCurrent    bool // knownFrom is of an agent of this release, and follows former

	observations map[string]*observation // by writer

	// claimBefore and claimAfter are around a moment that is a time: the last claim or snapshot up
	// to it, and the first claim after it.
	claimBefore, claimAfter mark
	openGaps                []*gap    // their end is not known yet
	gapAround               *gap      // the gap around the moment, after its end
	recoveredAround         *gap      // the recovered gaps around the moment, merged
	lagged                  time.Time // of the last progress whose claim was older than MaxLag
	isUnordered             bool      // resourceVersions are not numbers
	changesForm             bool      // after the moment, versions have another form
}

// noteEvent notes a stream event that is news. It returns the gap that the event announces or
// shows, nil if there is none.
func (s *scope) noteEvent(m Moment, e *consume.Event) (announced *consume.Event) {
	if s.isRestarted {
		return nil
	}
	now := mark{e.Time, pointOf(e)}
	switch e.Type {
	case consume.TypeScopeStarted:
		s.hasInformer = true
		s.noteWriterStarted(m, e)
		return nil
	case consume.TypeScopeEnded:
		s.hasInformer = true
		s.noteWriterEnded(e, now)
		return nil
	case consume.TypeSnapshotStarted:
		if !s.noteWriterStarted(m, e) {
			return nil
		}
		if g := s.noteSnapshotStarted(m, e, now); g != nil {
			announced = g.event(e)
		}
	case consume.TypeSnapshotCompleted:
		s.noteSnapshotCompleted(m, e, now)
	case consume.TypeGap:
		s.hasInformer = true
		s.noteGap(m, e, now)
		announced = e
	case consume.TypeProgress:
		return nil
	default: // of a later release
		return nil
	}
	s.lastEvent = s.lastEvent.max(now)
	return announced
}

// noteSnapshotStarted notes the start of a snapshot. It returns the gap that the start shows, nil
// if it shows none.
//
// A snapshot may be started, interrupted, and continued. It counts only if its first start was
// read. Otherwise the reads before a later start may be missing too.
func (s *scope) noteSnapshotStarted(m Moment, e *consume.Event, now mark) *gap {
	isPart := e.Stream.Continued && s.openSnapshot != e.Stream.Snapshot
	shown := s.gapShownBy(e, now, isPart)
	if shown != nil {
		if shown.reason == consume.ReasonRewound && m.Includes(e) {
			s.edges.noteTimes(e.Time)
			s.knownFrom, s.reached.at = mark{}, point{}
		}
		s.openGaps = append(s.openGaps, shown)
	}
	if isPart {
		return shown
	}
	s.openSnapshot = strings.Clone(e.Stream.Snapshot)
	s.snapshotStart = now
	s.isSnapshotCurrent = e.Stream.Writer != ""
	for _, g := range s.openGaps {
		g.noteSnapshotStarted()
	}
	return shown
}

// noteSnapshotCompleted notes the end of a snapshot, unless its start was not read.
func (s *scope) noteSnapshotCompleted(m Moment, e *consume.Event, now mark) {
	if s.openSnapshot != e.Stream.Snapshot {
		return
	}
	s.openSnapshot = ""
	completed := mark{e.Time, s.snapshotStart.at}
	if s.knownFrom.isZero() || s.isOfFormerRelease() && s.isSnapshotCurrent {
		s.knownFrom = completed
		s.firstStart = s.snapshotStart.time
		s.isKnownCurrent = s.isSnapshotCurrent && !s.former.isZero()
		s.edges.noteTimes(s.knownFrom.time)
		s.noteLateFrom()
	}
	s.lastSnapshot, s.reached = s.lastSnapshot.max(completed), s.reached.max(now)
	if m.kind == atTime && !e.Time.After(m.begin()) {
		s.claimBefore = s.claimBefore.max(completed)
	}
	s.closeGaps(m, func(g *gap) bool { return g.noteSnapshotCompleted(now) })
}

// isOfFormerRelease reports whether agents of a former release wrote the record of the scope.
func (s *scope) isOfFormerRelease() bool {
	return !s.isKnownCurrent && s.former.time.After(s.knownFrom.time)
}

// noteFormerProgress notes a progress event as agents of former releases sent it.
func (s *scope) noteFormerProgress(now mark) {
	s.hasInformer = true
	s.former, s.lastEvent = s.former.max(now), s.lastEvent.max(now)
}

// lastProgress returns the time of the last progress about the scope.
func (s *scope) lastProgress() (last time.Time) {
	for _, o := range s.observations {
		last = latest(last, o.lastTime)
	}
	return last
}

// complete returns up to where the record is known to be complete.
func (s *scope) complete() mark {
	return mark{latest(s.claimed.time, s.lastSnapshot.time), s.reached.at}
}

// noteProgress notes the entry of a progress that is about the scope.
func (s *scope) noteProgress(m Moment, e *consume.Event, run string, entry *consume.ScopeProgress) {
	if s.isRestarted {
		return
	}
	o := s.observation(e.Progress.Writer)
	isCopy := o.run == run && e.Progress.Number <= o.number
	if o.end != nil || isCopy {
		return // it comes late, or again
	}
	if !o.isDecided {
		o.noteUnreported(m, e.Progress, run, entry, mark{s.firstStart, s.knownFrom.at})
		at := s.knownFrom.max(mark{at: o.claimedPoint}).at
		if entry.ResourceVersion != "" && at.seq > 0 && at.history < entry.History {
			// etcd was restored since: hidden spans do not name their history
			o.noteUnreportedVersions(m, at, point{})
		}
		o.noteReported(m, entry)
	}
	o.run = run
	o.number = e.Progress.Number
	o.lastTime = e.Time
	o.isFinal = e.Progress.Ends
	o.hasSilentRun = false
	if entry.ResourceVersion == "" {
		return
	}
	claim := claimOf(entry)
	o.claimedTime = latest(o.claimedTime, claim.time)
	if o.claimedPoint.isBefore(claim.at) {
		o.claimedPoint = claim.at
	}
	s.noteClaim(m, e, claim)
	o.noteOpenHidden(m)
	o.noteDecided(m, claim)
	o.noteSettled()
}

// observation returns what a writer says about the scope.
func (s *scope) observation(writer string) *observation {
	o := s.observations[writer]
	if o == nil {
		o = &observation{edges: s.edges, keepsLate: s.keepsLate}
		if s.observations == nil {
			s.observations = map[string]*observation{}
		}
		s.observations[strings.Clone(writer)] = o
	}
	return o
}

// noteClaim notes up to where a progress says that the log has everything.
func (s *scope) noteClaim(m Moment, e *consume.Event, claim mark) {
	s.isUnordered = claim.at.seq == 0
	if e.Time.Sub(claim.time) > MaxLag {
		s.lagged = latest(s.lagged, e.Time)
	}
	isFirst := s.knownFrom.isZero() && s.isJoined
	isFirstAfterFormer := !s.knownFrom.isZero() && s.isOfFormerRelease()
	if isFirst || isFirstAfterFormer {
		s.knownFrom = claim
		s.firstStart = claim.time
		s.isKnownCurrent = !s.former.isZero()
		s.edges.noteTimes(claim.time)
		s.noteLateFrom()
	}
	if !claim.at.isBefore(s.reached.at) { // an agent that was killed may claim less than before
		s.reached = s.reached.max(claim)
	}
	now := mark{e.Time, claim.at}
	s.lastEvent, s.claimed = s.lastEvent.max(now), s.claimed.max(claim)
	s.closeGaps(m, func(g *gap) bool { return g.noteClaim(now, e.Progress.Run) })
	if m.kind != atTime {
		return
	}
	isFirstAfter := s.claimAfter.isZero() || claim.time.Before(s.claimAfter.time)
	switch {
	case !claim.time.After(m.begin()):
		s.claimBefore = s.claimBefore.max(claim)
	case claim.time.After(m.time) && isFirstAfter:
		s.claimAfter = claim
	}
}

// noteWriterStarted notes that a writer observes the scope. It returns false if the event is to be
// ignored: it is after the moment, and the scope had ended before.
func (s *scope) noteWriterStarted(m Moment, e *consume.Event) bool {
	s.edges.noteTimes(e.Time)
	if s.end() != nil {
		isSnapshot := e.Type == consume.TypeSnapshotStarted
		switch {
		case !isSnapshot && m.kind == atVersion && !e.Stream.Continued:
			return true // a snapshot follows, which has a resourceVersion
		case !m.Includes(e):
			s.isRestarted = true
			return false
		case isSnapshot || !e.Stream.Continued:
			s.restart()
		}
	}
	if e.Stream.Writer != "" {
		s.observation(e.Stream.Writer).noteStarted(m, e)
	}
	return true
}

// restart removes all that was noted before the scope was started again, except its late spans.
func (s *scope) restart() {
	*s = scope{
		resource:    s.resource,
		isJoined:    s.isJoined,
		hasInformer: s.hasInformer,
		edges:       s.edges,
		keepsLate:   s.keepsLate,
		earlierLate: s.lateUpToEnd(),
	}
}

// noteWriterEnded notes that a writer does not observe the scope any more.
func (s *scope) noteWriterEnded(e *consume.Event, now mark) {
	s.edges.noteScopeEnd(e.Time)
	said := certainty.End{Bound: now.bound(), Reason: cloneText(e.Stream.End)}
	for _, successor := range e.Stream.Successors {
		said.Successors = append(said.Successors, strings.Clone(successor))
	}
	end := &scopeEnd{End: said, at: now}
	if e.Stream.Writer != "" {
		s.observation(e.Stream.Writer).end = end
		return
	}
	s.observation("").end = end
	for _, o := range s.observations {
		o.end = end
	}
}

// scopeEnd is the end of a scope, as the event of a writer states it.
type scopeEnd struct {
	certainty.End

	at mark
}

// end returns the end of the scope, nil if a writer may still observe it.
func (s *scope) end() *scopeEnd {
	var last *scopeEnd
	for _, o := range s.observations {
		if o.end == nil {
			return nil
		}
		if last == nil || last.Time.Before(o.end.Time) {
			last = o.end
		}
	}
	return last
}

// hasEndedBy reports whether the scope has ended at a moment or before it.
func (s *scope) hasEndedBy(m Moment) bool {
	end := s.end()
	return end != nil && end.isBy(m)
}

// isBy reports whether the end is at a moment or before it.
func (e *scopeEnd) isBy(m Moment) bool {
	hasPoint := m.kind != atVersion || e.at.at.seq > 0
	return !e.at.isAfter(m) && hasPoint
}
