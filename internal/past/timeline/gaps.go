package timeline

import (
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// gap is a span of history that an agent could not read, so that versions may be missing. In a gap
// of reason content-changed, none is missing, but the form of each is not known.
//
// The state is not right yet at the end of that history: an object that was deleted inside still
// seems to exist. A gap therefore lasts until the state is known to be right again:
//
//   - at the end of a snapshot that starts after the gap, or
//   - at a progress, if the next one of the same run shows that no snapshot follows (noteClaim).
//
// An event announces a gap, or the start of a snapshot shows one that no event announced.
type gap struct {
	from, to mark // in the record; to is the end of the history that is missing
	// announced is the begin of the gap as its event says. from may be later: the bus may have more
	// than the checkpoint of an agent that was killed.
	announced     point
	end           mark // from here on, the state is right again; zero: it is not yet
	reason        consume.GapReason
	isRecovered   bool   // all versions inside were found
	needsSnapshot bool   // only a snapshot makes the state right again
	hasSnapshot   bool   // a snapshot has started after the gap
	claimedBy     string // the run that has claimed the end of the gap; "": none has, or a snapshot started since
}

// isAround reports whether a moment is inside the gap.
func (g *gap) isAround(m Moment) bool { return g.hasBegunBy(m) && (g.end.isZero() || g.end.isAfter(m)) }

// hasBegunBy reports whether the gap begins before a moment.
func (g *gap) hasBegunBy(m Moment) bool {
	switch m.kind {
	case atTime:
		return g.from.time.Before(m.time)
	case atVersion:
		return g.from.at.isBefore(m.rv)
	}
	return true
}

// cause returns why a state inside the gap is not certain. The gap is given to begin at from. end
// is that of its scope, nil if the scope has not ended.
func (g *gap) cause(kind certainty.Kind, from mark, end *scopeEnd) *certainty.Cause {
	c := &certainty.Cause{
		Kind:   kind,
		Reason: g.reason,
		From:   from.bound(),
		To:     g.end.bound(),
	}
	if end != nil && g.end.isZero() {
		c.ScopeEnded = end.Time
	}
	return c
}

// event returns the gap in the form of an event. start is that of the snapshot that shows the gap.
func (g *gap) event(start *consume.Event) *consume.Event {
	e := *start
	e.ID, e.Type = "gap/"+start.ID, consume.TypeGap
	e.Stream = &consume.Stream{
		Reason:              g.reason,
		Since:               g.from.time,
		FromResourceVersion: g.from.bound().ResourceVersion,
		ToResourceVersion:   start.Stream.ResourceVersion,
	}
	return &e
}

// noteClaim notes the claim of a run that the record is complete up to now. It returns true if the
// claim shows that the state after the gap is right.
//
// One claim does not show it. If the gap begins at a restart, a snapshot follows the gap, because
// objects may have been created and deleted inside. A progress may be sent before that snapshot
// starts. The second claim shows that no snapshot follows. It must be of the same run: if that run
// ends first, the agent takes the snapshot after its restart.
func (g *gap) noteClaim(now mark, run string) bool {
	if g.needsSnapshot || g.hasSnapshot || now.at.isBefore(g.to.at) {
		return false
	}
	if g.claimedBy == run {
		return true
	}
	g.claimedBy, g.end = strings.Clone(run), mark{now.time, g.to.at}
	return false
}

// noteSnapshotStarted notes that a snapshot starts after the gap. The gap lasts until its end.
func (g *gap) noteSnapshotStarted() {
	g.hasSnapshot = true
	g.claimedBy = ""
	g.end = mark{}
}

// noteSnapshotCompleted notes the end of a snapshot. It returns true if that is the end of the gap.
func (g *gap) noteSnapshotCompleted(now mark) bool {
	if g.hasSnapshot {
		g.end = mark{now.time, g.to.at}.max(now)
	}
	return g.hasSnapshot
}

// mergedWith returns a gap that includes another one, which may be nil. If an agent is killed
// before it has sent the versions that it found in a gap, its next run finds a longer gap.
func (g *gap) mergedWith(other *gap) *gap {
	if other == nil {
		return g
	}
	both := *g
	if other.announced.isBefore(both.announced) {
		both.announced = other.announced
	}
	if other.from.time.Before(both.from.time) {
		both.from.time = other.from.time
	}
	both.end = g.end.max(other.end)
	if g.end.isZero() || other.end.isZero() {
		both.end = mark{}
	}
	return &both
}

// noteGap notes a gap that an event announces.
func (s *scope) noteGap(m Moment, e *consume.Event, now mark) {
	isOlder := now.at == s.reached.at && now.time.Before(s.lastEvent.time)
	if now.at.isBefore(s.reached.at) || isOlder {
		return // a late copy whose id the Tracker has dropped
	}
	g := &gap{to: now, reason: cloneText(e.Stream.Reason), isRecovered: e.Stream.Recovered}
	from := mark{e.Stream.Since, point{e.History(), number(e.Stream.FromResourceVersion)}}
	switch g.reason {
	case consume.ReasonDeadLetter:
		return // one event is missing: see noteDeadLetter
	case consume.ReasonContentChanged:
		if g.isRecovered {
			return // versions have the form that the rules of their time gave them
		}
		// No version is missing. But it is not known which form the versions had inside the gap.
		g.announced = from.at
		g.from = from
		g.needsSnapshot = true
		s.changesForm = s.changesForm || !g.hasBegunBy(m)
		s.openGaps = append(s.openGaps, g)
		return
	case consume.ReasonRewound:
		from.at.history = max(from.at.history, 1) - 1
		g.needsSnapshot = true
	case consume.ReasonCompacted, consume.ReasonCheckpointLost:
		g.needsSnapshot = true
	case consume.ReasonExpired, consume.ReasonSelectionChanged, consume.ReasonForbidden:
	}
	g.announced = from.at
	g.from = from.max(mark{at: s.reached.at}) // the checkpoint of an agent that was killed may be older
	g.from.time = latest(g.from.time, s.complete().time)
	// A late copy whose id the Tracker has dropped may be older than the snapshot under way.
	g.hasSnapshot = s.openSnapshot != "" && now.time.Before(s.snapshotStart.time) &&
		!s.snapshotStart.at.isBefore(now.at)
	s.openGaps = append(s.openGaps, g)
}

// gapShownBy returns the gap that the start of a snapshot shows, nil if it shows none. isPart: the
// start continues a snapshot whose first start was not read.
func (s *scope) gapShownBy(e *consume.Event, now mark, isPart bool) *gap {
	var reason consume.GapReason
	switch {
	case s.reached.isZero():
		return nil
	case isPart && !e.Stream.Initial: // its resourceVersion may be older than the position of another agent
		return nil
	case now.at.isBefore(s.reached.at): // resourceVersions began again, and no agent has reported that
		reason = consume.ReasonRewound
	case e.Stream.Initial: // the agent lost its position, and could not ask the bus for it
		reason = consume.ReasonCheckpointLost
	default:
		return nil
	}
	return &gap{
		from:          s.complete(),
		to:            now,
		reason:        reason,
		needsSnapshot: true,
	}
}

// closeGaps removes the gaps that are over from the open ones, and keeps those around the moment.
// isOver may set the end of a gap.
func (s *scope) closeGaps(m Moment, isOver func(*gap) bool) {
	open := s.openGaps[:0]
	for _, g := range s.openGaps {
		if isOver(g) {
			s.noteGapAround(m, g)
		} else {
			open = append(open, g)
		}
	}
	clear(s.openGaps[len(open):])
	s.openGaps = open
}

// noteGapAround notes a gap if the moment is inside it.
func (s *scope) noteGapAround(m Moment, g *gap) {
	s.edges.noteTimes(g.from.time, g.end.time)
	switch {
	case !g.isAround(m):
	case g.isRecovered:
		s.recoveredAround = g.mergedWith(s.recoveredAround)
	case s.gapAround == nil:
		s.gapAround = g
	}
}
