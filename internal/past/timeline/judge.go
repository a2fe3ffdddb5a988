package timeline

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// mark is where a stream event stands: when it was sent, and of which resourceVersion it speaks.
// The zero value is none.
type mark struct {
	time time.Time
	at   point
}

func (m mark) isZero() bool { return m == mark{} }

// or returns m, with what it lacks from n.
func (m mark) or(n mark) mark {
	if m.time.IsZero() {
		m.time = n.time
	}
	if m.at == (point{}) {
		m.at = n.at
	}
	return m
}

// max returns the later of both, by time and by resourceVersion.
func (m mark) max(n mark) mark {
	if m.time.Before(n.time) {
		m.time = n.time
	}
	if m.at.below(n.at) {
		m.at = n.at
	}
	return m
}

// after reports whether it is after a moment; after one of them, if that is a span.
func (m mark) after(n Moment) bool {
	switch n.kind {
	case atTime:
		return n.first().Before(m.time)
	case atVersion:
		return n.rv.below(m.at)
	}
	return false
}

func (m mark) bound() certainty.Bound {
	b := certainty.Bound{Time: m.time, History: m.at.history}
	if m.at.seq > 0 {
		b.ResourceVersion = strconv.FormatUint(m.at.seq, 10)
	}
	return b
}

// scope holds the facts that the record reports about one scope, and those around the moment.
type scope struct {
	resource string
	informer bool // an agent observes it: it is no part of which a snapshot was taken
	joined   bool // see Options
	closed   bool // it had ended at the moment, and was started again after it
	edges    *edges

	keepsLate bool      // see Options.Late
	lateFrom  time.Time // late spans count from here on
	aways     []away    // late spans before the scope was started again

	snapshot string    // under way, "": none
	started  mark      // its start
	first    mark      // from here on, the record can be judged: a first snapshot that was read from start to end
	began    time.Time // when that snapshot began
	whole    mark      // the last completed snapshot
	reached  mark      // the record is complete up to here
	last     mark      // the last event about the scope
	claimed  mark      // up to here, by the furthest claim of any progress

	former  mark // the last progress in the form of a former release
	renews  bool // the snapshot under way is of an agent of this release
	renewed bool // first is of an agent of this release, and follows former

	observations map[string]*observation // by writer

	before, after mark // around the moment, by time: the last claim or snapshot, and the next claim
	open          []*span
	hit           *span     // the gap around the moment, once its end is known
	recovered     *span     // the recovered gap around the moment, or all of these together
	lagged        time.Time // of the last progress that claimed only what was older than MaxLag
	unordered     bool      // resourceVersions are no numbers
	reforms       bool      // after the moment, versions have another form
}

// span is a gap. It ends when the state is right again.
type span struct {
	from, to  mark  // of the record; to: up to which history is lost
	lost      point // from where, as the gap says: the bus may have had more than the checkpoint of a killed agent
	end       mark  // the state is right again; zero: not yet
	reason    consume.GapReason
	recovered bool
	whole     bool   // only a snapshot makes the state right again
	snapshot  bool   // one began after the gap
	run       string // whose progress has claimed its end since then; "": none has, or a snapshot has begun
}

// around reports whether a moment is inside the span.
func (g *span) around(m Moment) bool { return g.begins(m) && (g.end.isZero() || g.end.after(m)) }

// cause returns what a gap from a mark on lowers. end is that of its scope, nil if it has none.
func (g *span) cause(kind certainty.Kind, from mark, end *scopeEnd) *certainty.Cause {
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

// begins reports whether the span begins before a moment.
func (g *span) begins(m Moment) bool {
	switch m.kind {
	case atTime:
		return g.from.time.Before(m.time)
	case atVersion:
		return g.from.at.below(m.rv)
	}
	return true
}

// note notes a stream event that is news. It returns the gap that the event announces or shows, nil
// if it does neither.
func (s *scope) note(m Moment, e *consume.Event) (gap *consume.Event) {
	if s.closed {
		return nil
	}
	now := mark{e.Time, pointOf(e)}
	switch e.Type {
	case consume.TypeScopeStarted:
		s.informer = true
		s.noteStarted(m, e)
		return nil
	case consume.TypeScopeEnded:
		s.informer = true
		s.noteEnded(e, now)
		return nil
	case consume.TypeSnapshotStarted:
		if !s.noteStarted(m, e) {
			return nil
		}
		if g := s.noteStart(m, e, now); g != nil {
			gap = g.event(e)
		}
	case consume.TypeSnapshotCompleted:
		if s.snapshot != e.Stream.Snapshot {
			break // its start was not read
		}
		s.snapshot = ""
		if s.first.isZero() || s.isFormer() && s.renews {
			s.first = mark{e.Time, s.started.at}
			s.began = s.started.time
			s.renewed = s.renews && !s.former.isZero()
			s.edges.note(s.first.time)
			s.noteBegin()
		}
		s.whole, s.reached = s.whole.max(mark{e.Time, s.started.at}), s.reached.max(now)
		if m.kind == atTime && !e.Time.After(m.first()) {
			s.before = s.before.max(mark{e.Time, s.started.at})
		}
		s.close(m, func(g *span) bool {
			if g.snapshot {
				g.end = mark{now.time, g.to.at}.max(now)
			}
			return g.snapshot
		})
	case consume.TypeGap:
		s.informer = true
		s.noteGap(m, e, now)
		gap = e // it says what is missing, not what is there
	case consume.TypeProgress:
		return nil
	default: // of a later release
		return nil
	}
	s.last = s.last.max(now)
	return gap
}

// isFormer reports whether agents of a former release wrote the record of the scope.
func (s *scope) isFormer() bool { return !s.renewed && s.former.time.After(s.first.time) }

// lastReport returns the time of the last progress about the scope.
func (s *scope) lastReport() (last time.Time) {
	for _, o := range s.observations {
		last = later(last, o.heard)
	}
	return last
}

// complete returns up to where the record is known to be complete.
func (s *scope) complete() mark { return mark{later(s.claimed.time, s.whole.time), s.reached.at} }

// noteStart notes the start of a snapshot. It returns the gap that the start shows, nil if it shows
// none. A snapshot counts from its first start: the reads before a later one may be gone with it.
func (s *scope) noteStart(m Moment, e *consume.Event, now mark) (shown *span) {
	isPart := e.Stream.Continued && s.snapshot != e.Stream.Snapshot
	switch {
	case s.reached.isZero():
	case isPart && !e.Stream.Initial: // it may be older than another agent's
	case now.at.below(s.reached.at): // versions begin again, and no agent knew it
		shown = &span{
			from:   s.complete(),
			to:     now,
			reason: consume.ReasonRewound,
			whole:  true,
		}
		if m.Includes(e) {
			s.edges.note(e.Time)
			s.first, s.reached.at = mark{}, point{}
		}
	case e.Stream.Initial: // the agent lost its position, and could not ask the bus
		shown = &span{
			from:   s.complete(),
			to:     now,
			reason: consume.ReasonCheckpointLost,
			whole:  true,
		}
	}
	if shown != nil {
		s.open = append(s.open, shown)
	}
	if isPart {
		return shown
	}
	s.snapshot = e.Stream.Snapshot
	s.started = now
	s.renews = e.Stream.Writer != ""
	for _, g := range s.open {
		g.snapshot = true
		g.run = ""
		g.end = mark{}
	}
	return shown
}

// event returns the gap in the form of an event. start is that of the snapshot that shows it.
func (g *span) event(start *consume.Event) *consume.Event {
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

// shown reports whether a progress event shows that the state after a gap is right. A snapshot
// follows a gap that begins at a restart, for what came and went inside it, and the first progress
// event may be sent before the snapshot starts. So the second one shows that none follows. It must
// be of the same run: an agent that ends before takes the snapshot after its restart.
func (g *span) shown(now mark, run string) bool {
	if g.whole || g.snapshot || now.at.below(g.to.at) {
		return false
	}
	if g.run == run {
		return true
	}
	g.run, g.end = strings.Clone(run), mark{now.time, g.to.at}
	return false
}

func (s *scope) noteGap(m Moment, e *consume.Event, now mark) {
	if now.at.below(s.reached.at) || now.at == s.reached.at && now.time.Before(s.last.time) {
		return // a late copy whose id the Tracker has dropped
	}
	g := &span{to: now, reason: e.Stream.Reason, recovered: e.Stream.Recovered}
	from := mark{e.Stream.Since, point{e.History(), number(e.Stream.FromResourceVersion)}}
	switch g.reason {
	case consume.ReasonDeadLetter:
		return // one event is missing
	case consume.ReasonContentChanged:
		if g.recovered {
			return // versions look as the rules of their time have it
		}
		// No version is missing, but nobody knows which form the versions had inside the gap.
		g.lost = from.at
		g.from = from
		g.whole = true
		s.reforms = s.reforms || !g.begins(m)
		s.open = append(s.open, g)
		return
	case consume.ReasonRewound:
		from.at.history = max(from.at.history, 1) - 1
		g.whole = true
	case consume.ReasonCompacted, consume.ReasonCheckpointLost:
		g.whole = true
	case consume.ReasonExpired, consume.ReasonSelectionChanged, consume.ReasonForbidden:
	}
	g.lost = from.at
	g.from = from.max(mark{at: s.reached.at}) // the checkpoint of an agent that was killed may be older
	g.from.time = later(g.from.time, s.complete().time)
	// A late copy whose id the Tracker has dropped may be older than the snapshot under way.
	g.snapshot = s.snapshot != "" && now.time.Before(s.started.time) && !s.started.at.below(now.at)
	s.open = append(s.open, g)
}

// close closes the gaps after which the state is right again.
func (s *scope) close(m Moment, closed func(*span) bool) {
	still := s.open[:0]
	for _, g := range s.open {
		if closed(g) {
			s.meet(g, m)
		} else {
			still = append(still, g)
		}
	}
	clear(s.open[len(still):])
	s.open = still
}

// meet notes a gap if it is around the moment.
func (s *scope) meet(g *span, m Moment) {
	s.edges.note(g.from.time, g.end.time)
	switch {
	case !g.around(m):
	case g.recovered:
		s.recovered = g.with(s.recovered)
	case !g.recovered && s.hit == nil:
		s.hit = g
	}
}

// with returns a span that includes another one, unless that is nil. An agent that is killed before
// it has sent what it found finds a longer gap next.
func (g *span) with(other *span) *span {
	if other == nil {
		return g
	}
	both := *g
	if other.lost.below(both.lost) {
		both.lost = other.lost
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

// passing says whether the record of a scope has passed the moment.
type passing int

const (
	notPassed passing = iota
	hasPassed
	mayReturn // the scope has ended, and may have been started again by then: other scopes show when not
)

// passed says whether the record of the scope has passed the moment. By resourceVersion, a first
// snapshot is not enough: it can be complete before the record has anything of other scopes.
func (s *scope) passed(m Moment) passing {
	if end := s.ended(); end != nil || s.closed {
		if s.closed || !end.by(m.last()) {
			return hasPassed
		}
		return mayReturn
	}
	if slices.ContainsFunc(s.open, func(g *span) bool { return g.begins(m) }) {
		return notPassed
	}
	for _, o := range s.observations {
		if o.decided && (m.kind == atVersion || o.away == nil && o.hidden == nil) {
			return hasPassed
		}
	}
	for _, o := range s.observations {
		if !o.decided {
			return notPassed
		}
	}
	if len(s.observations) == 0 {
		return notPassed
	}
	return hasPassed
}

// judge returns the certainty of the scope of a cluster at a moment.
func (s *scope) judge(of consume.ClusterKey, m Moment, o Options) certainty.Scope {
	etcd := SameEtcd
	if m.kind == atVersion && o.Etcd != nil {
		etcd = o.Etcd(of, s.resource)
	}
	out := certainty.Scope{
		Source:     of.Source,
		ClusterUID: of.UID,
		Resource:   s.resource,
		Certainty:  certainty.Exact,
	}
	if m.kind == atVersion && (s.unordered || etcd == OtherEtcd) {
		out.Lower(certainty.Cause{Kind: certainty.OtherEtcd})
		return out
	}
	cause := s.judgeInEtcd(m, &out)
	isKnown := cause == nil || cause.Kind.Level() != certainty.Unknown
	if etcd == UnknownEtcd && isKnown {
		cause = &certainty.Cause{Kind: certainty.EtcdNotKnown}
	}
	if cause != nil {
		out.Lower(*cause)
	}
	return out
}

// judgeInEtcd returns what lowers the certainty if the moment is of the etcd of the scope. If there
// is nothing, it completes out with the bounds around the moment. It notes the end of the scope.
func (s *scope) judgeInEtcd(m Moment, out *certainty.Scope) *certainty.Cause {
	seen := *s
	for _, g := range s.open {
		seen.meet(g, m)
	}
	ended := s.ended()
	switch {
	case ended != nil && ended.by(m):
		out.Ended = &ended.End
		if ended.Reason == consume.EndForgotten { // nobody saw what became of its objects
			return &certainty.Cause{Kind: certainty.EndedByOperator, From: s.complete().bound()}
		}
		out.From = ended.at.bound()
		return nil
	case s.isFormer():
		return &certainty.Cause{Kind: certainty.FormerRelease, From: s.former.bound()}
	case s.first.isZero(), s.first.after(m):
		return s.judgeBefore()
	case seen.hit != nil:
		return seen.hit.cause(certainty.Gap, seen.hit.from, ended)
	case seen.recovered != nil: // objects that were created and deleted inside it are not known, or not their ends
		g := seen.recovered
		return g.cause(certainty.RecoveredGap, mark{g.from.time, g.lost}, ended)
	case m.kind == atVersion && s.reached.at.below(m.rv):
		return &certainty.Cause{
			Kind:   certainty.AfterRecord,
			From:   s.reached.bound(),
			Heard:  s.lastReport(),
			Lagged: s.lagged,
		}
	case m.kind == atNow && m.time.Sub(later(s.claimed.time, s.whole.time)) > MaxLag:
		return &certainty.Cause{
			Kind:   certainty.AfterRecord,
			From:   s.complete().bound(),
			Heard:  s.lastReport(),
			Lagged: s.lagged,
		}
	case m.kind == atTime:
		out.From, out.To = s.before.bound(), s.after.bound()
		return s.judgeTime(m)
	}
	if h := s.hiding(m); h != nil {
		return h.cause()
	}
	out.From = s.reached.bound()
	if m.kind == atNow {
		out.From = s.complete().bound()
	}
	return nil
}

// judgeBefore returns why nothing is known before the first snapshot that was read.
func (s *scope) judgeBefore() *certainty.Cause {
	kind := certainty.BeforeRecord
	switch {
	case s.first.isZero():
		kind = certainty.NoSnapshot
	case s.joined:
		kind = certainty.NotRead
	case s.renewed:
		kind = certainty.FormerRelease
	}
	return &certainty.Cause{Kind: kind, To: s.first.bound()}
}
