package timeline

import (
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// observation has the reports of one writer about its observation of a scope.
//
// The writer reports interruptions and hidden spans, and repeats each for ten minutes. What no
// progress reports counts as not observed: the time between two runs, or between two progress
// events if one is missing.
//
//	run 1  ──progress──progress──┤              ├──start──progress──
//	                              ╰─ unreported ─╯
//
// For each progress, scope.noteProgress first calls noteUnreported, for the time since the progress
// before it, then noteReported. When a claim has passed the moment, the observation is decided:
// later progress says nothing new about the moment.
type observation struct {
	run          string    // of its last progress
	number       int       // of its last progress
	lastTime     time.Time // of its last progress
	isFinal      bool      // its last progress is that of the end of the run
	since        time.Time // it says nothing about earlier moments
	claimedTime  time.Time // the log has everything up to here
	claimedPoint point     // the same, by resourceVersion

	hasFilters   bool      // the writer withholds versions
	hidesReads   bool      // it also withholds reads of snapshots, or has done so
	startedRun   string    // the last run that has started to observe the scope
	startedTime  time.Time // when that run has started
	hasSilentRun bool      // a run since the last progress has ended without one
	resumedRun   string    // the run that has said from where it continues
	resumedPoint point     // from where; zero: it did not say that

	// previousClaimed and previousLast are claimedTime and lastTime at the end of the previous run.
	// previousStopped is when that run ended, if its last progress says that.
	previousClaimed, previousLast time.Time
	previousStopped               time.Time

	isDecided          bool
	interruptionAround *interruption  // those around the moment, as one
	openInterruptions  []interruption // not over at the last progress
	hiddenAround       *hiddenSpan    // the first one around the moment
	openHidden         []hiddenSpan   // not over at the last progress
	hiddenUntilClaim   []hiddenSpan   // no progress reports their end: they end at the next claim
	edges              *edges

	keepsLate bool           // see Options.Late
	settled   time.Time      // see noteSettled
	absences  []interruption // see keepAbsence

	end *scopeEnd
}

// noteUnreported notes the time since the writer's last progress, as far as no progress reports it.
// first is the start of the first snapshot of the scope.
func (o *observation) noteUnreported(
	m Moment, p *consume.Progress, run string, entry *consume.ScopeProgress, first mark,
) {
	began := latest(p.Since, consume.RunBegan(run)) // the run says nothing about earlier moments
	if o.startedRun == run {
		began = latest(began, o.startedTime)
	}
	at := first.max(mark{at: o.claimedPoint}).at
	switch {
	case o.lastTime.IsZero():
		o.since = began
		o.edges.noteTimes(began)
		if !first.isZero() && began.After(first.time) {
			o.noteUnreportedVersions(m, first.at, point{})
		}
		return
	case o.run != run:
		o.noteNewRun(m, p, run, entry, began, at)
	case p.Since.After(o.lastTime):
		began = p.Since
		o.noteInterruption(m, interruption{
			why:   certainty.InterruptedUnheard,
			from:  o.lastClaim(),
			until: p.Since,
		})
		o.noteUnreportedVersions(m, at, point{})
	default:
		return // the new progress reports all spans that were not over
	}
	for _, i := range o.openInterruptions {
		i.until = began
		o.noteInterruption(m, i)
	}
	o.hiddenUntilClaim = append(o.hiddenUntilClaim, o.openHidden...)
}

// lastClaim returns the time up to which the writer has claimed that the log has everything. If it
// has claimed nothing, that is since when it reports anything.
func (o *observation) lastClaim() time.Time {
	if o.claimedTime.IsZero() {
		return o.since
	}
	return o.claimedTime
}

// noteNewRun notes the time between the previous run and a run from which a first progress is read.
// The run reports what happened since began. The previous one has claimed everything up to at.
func (o *observation) noteNewRun(
	m Moment, p *consume.Progress, run string, entry *consume.ScopeProgress, began time.Time, at point,
) {
	last := o.lastClaim()
	o.previousClaimed = last
	o.previousLast = o.lastTime
	o.previousStopped = time.Time{}
	hasEndedCleanly := o.isFinal && !o.hasSilentRun
	if hasEndedCleanly {
		o.previousStopped = o.lastTime
	}
	resumed := o.resumedAt(run)
	isWhole := !p.Since.After(consume.RunBegan(run)) // else the progress with the beginning of the run is missing
	if !isWhole {
		resumed = point{}
	}
	if !isWhole || !hasEndedCleanly {
		o.noteUnreportedVersions(m, at, resumed)
	}
	if resumed != (point{}) {
		o.endOpenHidden(m, mark{latest(began, o.lastTime), resumed})
	}
	reportsStart := slices.ContainsFunc(entry.Interruptions, func(i consume.Interruption) bool {
		return i.Why == consume.InterruptedStart
	})
	if !reportsStart {
		o.noteInterruption(m, interruption{
			why:     consume.InterruptedStart,
			from:    last,
			until:   latest(began, o.lastTime),
			stopped: o.previousStopped,
		})
	}
}

// noteUnreportedVersions notes the versions between two points: no progress reports whether filters
// withheld them. It begins after the last claim, or at the first snapshot. A zero until is the next
// claim.
func (o *observation) noteUnreportedVersions(m Moment, from, until point) {
	if from == o.claimedPoint || !o.hidesReads {
		from.seq++ // from itself is reported, or a snapshot has read it
	}
	switch h := (hiddenSpan{mark{at: from}, mark{at: until}}); {
	case m.kind != atVersion || !o.hasFilters: // by time, they are inside an interruption
	case until == point{}:
		o.hiddenUntilClaim = append(o.hiddenUntilClaim, h)
	default:
		o.noteHidden(m, h)
	}
}

// endOpenHidden ends the hidden spans that were not over at the last progress of the previous run,
// at the point where the new run continues. The new run reports what filters withhold from there.
func (o *observation) endOpenHidden(m Moment, until mark) {
	for _, h := range o.openHidden {
		o.noteHidden(m, hiddenSpan{h.from, until})
	}
	o.openHidden = nil
}

// resumedAt returns the resourceVersion from which a run continues; zero: it is not known.
func (o *observation) resumedAt(run string) point {
	if o.resumedRun != run {
		return point{}
	}
	return o.resumedPoint
}

// noteStarted notes that a run starts to observe the scope.
func (o *observation) noteStarted(m Moment, e *consume.Event) {
	if consume.CompareRuns(e.Stream.Run, o.startedRun) < 0 {
		return // it comes late
	}
	if o.end != nil && o.startedRun == e.Stream.Run {
		// the run has not observed the scope in between, and its progress does not report that
		o.startedTime = e.Time
		if !o.lastTime.IsZero() {
			o.noteInterruption(m, interruption{why: consume.InterruptedStart, from: o.lastClaim(), until: e.Time})
		}
	}
	o.end = nil
	o.hasFilters = slices.ContainsFunc(e.Stream.Rules, func(r consume.Rule) bool {
		return len(r.Operations) > 0 || r.Where != "" || len(r.Noise) > 0
	})
	isConditional := func(r consume.Rule) bool { return r.Where != "" }
	o.hidesReads = o.hidesReads || slices.ContainsFunc(e.Stream.Rules, isConditional)
	if o.startedRun != e.Stream.Run {
		o.hasSilentRun = o.hasSilentRun || o.startedRun != "" && o.startedRun != o.run
		o.startedRun, o.startedTime = strings.Clone(e.Stream.Run), e.Time
	}
	if at := pointOf(e); o.resumedRun != e.Stream.Run && at.seq > 0 {
		o.resumedRun, o.resumedPoint = strings.Clone(e.Stream.Run), at
	}
}

// noteReported notes the interruptions and hidden spans that an entry of a progress reports.
func (o *observation) noteReported(m Moment, entry *consume.ScopeProgress) {
	o.openInterruptions, o.openHidden = nil, nil
	if entry.ResourceVersion != "" {
		for _, h := range o.hiddenUntilClaim {
			h.until = claimOf(entry)
			h.until.time = latest(h.until.time, o.claimedTime) // an agent that was killed may claim less than before
			o.noteHidden(m, h)
		}
		o.hiddenUntilClaim = nil
	}
	for k := range entry.Interruptions {
		i := interruption{
			why:   cloneText(entry.Interruptions[k].Why),
			from:  entry.Interruptions[k].From,
			until: entry.Interruptions[k].Until,
		}
		if i.why == consume.InterruptedStart && !o.previousClaimed.IsZero() {
			o.extendToPreviousRun(&i)
		}
		if i.until.IsZero() {
			o.openInterruptions = append(o.openInterruptions, i)
		} else {
			o.noteInterruption(m, i)
		}
	}
	for k := range entry.Hidden {
		h := hiddenOf(&entry.Hidden[k], entry)
		if entry.Hidden[k].IsOpen() {
			o.openHidden = append(o.openHidden, h)
		} else {
			o.noteHidden(m, h)
		}
	}
}

// extendToPreviousRun extends the interruption at the start of a run to the end of the previous
// run. The writer did not observe the scope in between.
func (o *observation) extendToPreviousRun(i *interruption) {
	i.stopped = o.previousStopped
	if i.from.After(o.previousClaimed) {
		i.from = o.previousClaimed
	}
	if !i.until.IsZero() {
		i.until = latest(i.until, o.previousLast)
	}
}

// noteInterruption notes an interruption that is over, if the moment is inside it.
func (o *observation) noteInterruption(m Moment, i interruption) {
	o.edges.noteTimes(i.from, i.until)
	o.keepAbsence(i)
	switch {
	case !i.isAround(m):
	case o.interruptionAround == nil:
		o.interruptionAround = &i
	default: // both, as one
		if i.from.Before(o.interruptionAround.from) {
			o.interruptionAround.from = i.from
		}
		o.interruptionAround.until = latest(o.interruptionAround.until, i.until)
	}
}

// noteHidden notes a hidden span that is over, if the moment is inside it.
func (o *observation) noteHidden(m Moment, h hiddenSpan) {
	o.edges.noteTimes(h.from.time, h.until.time)
	o.keepAbsence(interruption{from: h.from.time, until: h.until.time})
	if h.isAround(m) && o.hiddenAround == nil {
		o.hiddenAround = &h
	}
}

// noteOpenHidden notes, for a moment that is a span, the hidden spans that are not over. They count
// up to the claim. A later progress may state more exactly to which scope they belong.
func (o *observation) noteOpenHidden(m Moment) {
	if m.since.IsZero() || o.isDecided {
		return
	}
	for _, h := range o.openHidden {
		o.noteHidden(m, hiddenSpan{h.from, mark{time: o.claimedTime.Add(1)}})
	}
}

// noteDecided notes whether later progress says nothing new about the moment. That is so when a
// claim has passed the moment, and every span around it has been reported.
func (o *observation) noteDecided(m Moment, claim mark) {
	switch m.kind {
	case atTime:
		isOpen := slices.ContainsFunc(o.openInterruptions, func(i interruption) bool { return i.isAround(m) })
		o.isDecided = o.isDecided || !o.claimedTime.Before(m.time) && !isOpen
	case atVersion:
		o.isDecided = o.isDecided || !claim.at.isBefore(m.rv)
	}
	if o.isDecided && o.hiddenAround == nil {
		o.hiddenAround = o.hiddenAt(m)
	}
}

// hiddenAt returns the hidden span around a moment, nil if none is known.
func (o *observation) hiddenAt(m Moment) *hiddenSpan {
	if o.hiddenAround != nil {
		return o.hiddenAround
	}
	for _, h := range slices.Concat(o.openHidden, o.hiddenUntilClaim) {
		if h.isAround(m) {
			return &h
		}
	}
	return nil
}

// interruptionAt returns the interruption around a moment, nil if none is known. before is the last
// time before the moment up to which the record is known to be complete.
func (o *observation) interruptionAt(m Moment, before time.Time) *interruption {
	if o.interruptionAround != nil {
		return o.interruptionAround
	}
	for k := range o.openInterruptions {
		if o.openInterruptions[k].isAround(m) && !o.isDecided {
			return &o.openInterruptions[k]
		}
	}
	if m.kind == atTime && m.begin().Before(o.since) {
		return &interruption{why: certainty.InterruptedUnheard, from: before, until: o.since}
	}
	return nil
}
