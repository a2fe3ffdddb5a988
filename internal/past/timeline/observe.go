package timeline

import (
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// MaxLag is how long after a moment an answer about it may still change. Bookmarks and progress
// come each minute.
const MaxLag = 125 * time.Second

// writerKey identifies an agent, across its restarts.
type writerKey struct {
	cluster consume.ClusterKey
	name    string
}

// writer is what a log says of an agent.
type writer struct {
	run    string
	scopes map[string]map[string]start // of the run, by resource
	ended  map[string]bool             // scopes that the run has ended
}

// start is what a log says of the start of a scope. at is zero if the log lacks scope.started.
type start struct{ at time.Time }

// enter begins a run. It returns false if the run is earlier than the present one: its events are
// late.
func (w *writer) enter(run string) bool {
	if w.run == run {
		return true
	}
	if consume.CompareRuns(run, w.run) < 0 {
		return false
	}
	w.run = strings.Clone(run)
	w.scopes = map[string]map[string]start{}
	w.ended = map[string]bool{}
	return true
}

// note notes an event that says which scopes the run has.
func (w *writer) note(e *consume.Event, news bool) {
	if !w.enter(e.Stream.Run) {
		return
	}
	resource, scope := e.GroupResource(), e.Scope
	switch {
	case e.Type == consume.TypeScopeEnded:
		delete(w.scopes[resource], scope)
		w.ended[strings.Clone(scope)] = true
		return
	case w.ended[scope] && !news:
		return // a copy
	}
	delete(w.ended, scope)
	if w.scopes[resource] == nil {
		w.scopes[strings.Clone(resource)] = map[string]start{}
	}
	begun := w.scopes[resource][scope]
	if e.Type == consume.TypeScopeStarted && begun.at.IsZero() { // later ones say that the rules have changed
		begun.at = e.Time
	}
	w.scopes[resource][strings.Clone(scope)] = begun
}

// covers returns the scopes that the kth entry of a progress is about, as far as they are known.
// sent is the time of the progress. A scope that was started at that time or later was not known to
// it.
func (w *writer) covers(p *consume.Progress, k int, sent time.Time) []string {
	entry := &p.Scopes[k]
	if entry.Scope != "" {
		return []string{entry.Scope}
	}
	var out []string
	all := w.scopes[entry.Resource]
	for scope, begun := range all {
		named := slices.ContainsFunc(p.Scopes, func(o consume.ScopeProgress) bool {
			return o.Resource == entry.Resource && o.Scope == scope
		})
		isKnown := !begun.at.IsZero() || !isPartOfAny(scope, all)
		if !named && isKnown && begun.at.Before(sent) {
			out = append(out, scope)
		}
	}
	slices.Sort(out)
	return out
}

// isPartOfAny reports whether a scope is a part of another one, of which a snapshot was taken.
func isPartOfAny(part string, all map[string]start) bool {
	for scope := range all {
		if consume.IsPartOf(part, scope) {
			return true
		}
	}
	return false
}

// writer returns what the log says of the writer of an event.
func (l *logFold) writer(cluster consume.ClusterKey, name string) *writer {
	w := l.writers[writerKey{cluster, name}]
	if w == nil {
		w = &writer{}
		key := writerKey{consume.ClusterKey{
			Source: strings.Clone(cluster.Source),
			UID:    strings.Clone(cluster.UID),
		}, strings.Clone(name)}
		l.writers[key] = w
	}
	return w
}

// noteWriter notes a stream event that names its writer.
func (l *logFold) noteWriter(e *consume.Event, news bool) {
	if s := e.Stream; s.Writer != "" && s.Run != "" {
		l.writer(e.ClusterKey(), s.Writer).note(e, news)
	}
}

// observe notes the progress of a writer.
func (l *logFold) observe(m Moment, e *consume.Event, o Options) {
	p := e.Progress
	w := l.writer(e.ClusterKey(), p.Writer)
	if !w.enter(p.Run) {
		return
	}
	for k := range p.Scopes {
		entry := &p.Scopes[k]
		scopes := w.covers(p, k, e.Time)
		l.noteUnnamed(e, entry, len(scopes), o)
		if entry.Scope == "" && l.joined && max(entry.Count, 1) > len(scopes) {
			scopes = append(scopes, entry.Resource) // their starts were not read
		}
		for _, name := range scopes {
			key := scopeKey{e.ClusterKey(), name}
			if l.scopes[key] == nil && o.Asked != nil && !o.Asked(entry.Resource, name) {
				continue
			}
			s := l.scope(key, entry.Resource)
			s.informer = s.informer || entry.Scope != "" || l.joined
			s.observe(m, e, w.run, entry)
			l.noteLate(key, s, e.Time)
		}
	}
}

// noteUnnamed notes whether the log has the starts of the scopes that an entry of a progress is
// about.
func (l *logFold) noteUnnamed(e *consume.Event, entry *consume.ScopeProgress, known int, o Options) {
	if entry.Scope != "" {
		return
	}
	key := entryKey{writerKey{e.ClusterKey(), e.Progress.Writer}, entry.Resource}
	if max(entry.Count, 1) <= known || o.Asked != nil && !o.Asked(entry.Resource, "") {
		delete(l.unnamed, key)
		return
	}
	if !l.unnamed[key] {
		cluster := consume.ClusterKey{Source: strings.Clone(key.cluster.Source), UID: strings.Clone(key.cluster.UID)}
		l.unnamed[entryKey{writerKey{cluster, strings.Clone(key.name)}, strings.Clone(key.resource)}] = true
	}
}

// hasEndedBy reports whether the scope has ended at a moment or before it.
func (s *scope) hasEndedBy(m Moment) bool {
	end := s.ended()
	return end != nil && end.by(m)
}

// observation is what one writer says about its observation of a scope.
type observation struct {
	run    string
	number int       // of its last progress
	since  time.Time // it says nothing about earlier moments
	heard  time.Time // of the last progress
	to     time.Time // up to which the log has everything
	at     point     // so by resourceVersion
	ends   bool      // the last progress is that of the end of the run

	filters bool      // the writer withholds versions
	began   string    // the last run that has begun
	starts  time.Time // when that run has begun to observe the scope
	mute    bool      // a run since the last progress has ended without one
	resumed string    // the run that has said from where it continues
	resumes point     // from where; zero: it did not say it

	prevTo, prevHeard time.Time // `to` and `heard` as they were
	stopped           time.Time // when the former run ended, if its last progress says that

	decided bool // later progress says nothing new about the moment
	away    *away
	open    []away // those that were not over at the last progress
	hidden  *hiddenSpan
	hides   []hiddenSpan // those that were not over at the last progress
	edges   *edges
	lost    []hiddenSpan // those whose end no progress says: they end at the next claim

	keepsLate bool      // see Options.Late
	settled   time.Time // see settle
	aways     []away    // for Fold.Late. Without a why, filters withheld versions

	end *scopeEnd
}

// away is a span in which a scope was not observed. A zero until is one that is not known.
type away struct {
	why         consume.InterruptionReason
	from, until time.Time
	stopped     time.Time // of a start: when the former run ended; zero: it did not say that
}

func (a *away) cause() *certainty.Cause {
	return &certainty.Cause{
		Kind:    certainty.Interrupted,
		Why:     a.why,
		Stopped: a.stopped,
		From:    mark{time: a.from}.bound(),
		To:      mark{time: a.until}.bound(),
	}
}

// around reports whether a moment is inside; one of them, if it is a span.
func (a *away) around(m Moment) bool {
	return m.kind == atTime && a.from.Before(m.time) && (a.until.IsZero() || m.first().Before(a.until))
}

// hiddenSpan is a span in which filters withhold versions. The zero value of an end is one that is
// not known.
type hiddenSpan struct{ from, until mark }

func hiddenOf(h *consume.HiddenSpan, entry *consume.ScopeProgress) hiddenSpan {
	of := func(t time.Time, rv string) mark {
		m := mark{time: t}
		if n := number(rv); n > 0 {
			m.at = point{entry.History, n}
		}
		return m
	}
	out := hiddenSpan{of(h.From, h.FromResourceVersion), of(h.Until, h.UntilResourceVersion)}
	if !h.IsOpen() {
		out.until = out.until.or(claimOf(entry))
	}
	return out
}

func (h *hiddenSpan) cause() *certainty.Cause {
	return &certainty.Cause{Kind: certainty.Filtered, From: h.from.bound(), To: h.until.bound()}
}

// around reports whether a moment is inside. A span that is not over includes the end of the
// record.
func (h *hiddenSpan) around(m Moment) bool {
	switch m.kind {
	case atTime:
		return !h.from.time.After(m.time) && (h.until.time.IsZero() || m.first().Before(h.until.time))
	case atVersion:
		return !m.rv.below(h.from.at) && (h.until.at == point{} || m.rv.below(h.until.at))
	}
	return h.until.isZero()
}

// claimOf returns up to where an entry says that the log has everything.
func claimOf(entry *consume.ScopeProgress) mark {
	return mark{entry.To, point{entry.History, number(entry.ResourceVersion)}}
}

// observe notes the entry of a progress that is about the scope.
func (s *scope) observe(m Moment, e *consume.Event, run string, entry *consume.ScopeProgress) {
	if s.closed {
		return
	}
	o := s.observation(e.Progress.Writer)
	if o.end != nil || o.run == run && e.Progress.Number <= o.number {
		return // late, or a copy
	}
	if !o.decided {
		o.follow(m, e.Progress, run, entry, mark{s.began, s.first.at})
		at := s.first.max(mark{at: o.at}).at
		if entry.ResourceVersion != "" && at.seq > 0 && at.history < entry.History {
			// etcd was restored since: hidden spans do not say of which history they are
			o.conceal(m, at, point{})
		}
		o.list(m, entry)
	}
	o.run = run
	o.number = e.Progress.Number
	o.heard = e.Time
	o.ends = e.Progress.Ends
	o.mute = false
	if entry.ResourceVersion == "" {
		return
	}
	claim := claimOf(entry)
	if claim.time.After(o.to) {
		o.to = claim.time
	}
	if o.at.below(claim.at) {
		o.at = claim.at
	}
	s.claim(m, e, claim)
	o.hideClaimed(m)
	o.decide(m, claim)
	o.settle()
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

// follow notes what nobody says about the time since the writer's last progress. first is the begin
// of the scope's first snapshot.
func (o *observation) follow(m Moment, p *consume.Progress, run string, entry *consume.ScopeProgress, first mark) {
	began := later(p.Since, consume.RunBegan(run)) // about earlier moments, this run says nothing
	if o.began == run {
		began = later(began, o.starts)
	}
	last, at := later(o.to, o.since), first.max(mark{at: o.at}).at
	switch {
	case o.heard.IsZero():
		o.since = began
		o.edges.note(began)
		if !first.isZero() && began.After(first.time) {
			o.conceal(m, first.at, point{})
		}
		return
	case o.run != run:
		o.prevTo = last
		o.prevHeard = o.heard
		o.stopped = time.Time{}
		if o.ends && !o.mute {
			o.stopped = o.heard
		}
		resumes := o.resumesOf(run)
		isWhole := !p.Since.After(consume.RunBegan(run)) // else the progress that had the run's beginning is missing
		if !isWhole {
			resumes = point{}
		}
		if !isWhole || !o.ends || o.mute {
			o.conceal(m, at, resumes)
		}
		if resumes != (point{}) {
			o.endHides(m, mark{later(began, o.heard), resumes})
		}
		started := slices.ContainsFunc(entry.Interruptions, func(i consume.Interruption) bool {
			return i.Why == consume.InterruptedStart
		})
		if !started {
			o.leave(m, away{consume.InterruptedStart, last, later(began, o.heard), o.stopped})
		}
	case p.Since.After(o.heard):
		began = p.Since
		o.leave(m, away{why: certainty.InterruptedUnheard, from: last, until: p.Since})
		o.conceal(m, at, point{})
	default:
		return // the new progress has all that was not over
	}
	for _, a := range o.open {
		a.until = began
		o.leave(m, a)
	}
	o.lost = append(o.lost, o.hides...)
}

// conceal notes versions of which nobody says whether filters withheld them. A zero until is the
// next claim.
func (o *observation) conceal(m Moment, from, until point) {
	from.seq++ // up to there, it is known
	switch h := (hiddenSpan{mark{at: from}, mark{at: until}}); {
	case m.kind != atVersion || !o.filters: // by time, it is an interruption
	case until == point{}:
		o.lost = append(o.lost, h)
	default:
		o.hide(m, h)
	}
}

// endHides ends the hidden spans that were not over at the last progress of a former run. The new
// run says what is hidden from where it continues.
func (o *observation) endHides(m Moment, until mark) {
	for _, h := range o.hides {
		o.hide(m, hiddenSpan{h.from, until})
	}
	o.hides = nil
}

// resumesOf returns the resourceVersion from which a run continues; zero: it is not known.
func (o *observation) resumesOf(run string) point {
	if o.resumed != run {
		return point{}
	}
	return o.resumes
}

// noteStart notes what an event says about the beginning of an observation.
func (o *observation) noteStart(m Moment, e *consume.Event) {
	if consume.CompareRuns(e.Stream.Run, o.began) < 0 {
		return // late
	}
	if o.end != nil && o.began == e.Stream.Run {
		// the run has not observed it in between, and its progress does not say so
		o.starts = e.Time
		if !o.heard.IsZero() {
			o.leave(m, away{why: consume.InterruptedStart, from: later(o.to, o.since), until: e.Time})
		}
	}
	o.end = nil
	o.filters = slices.ContainsFunc(e.Stream.Rules, func(r consume.Rule) bool {
		return len(r.Operations) > 0 || r.Where != "" || len(r.Noise) > 0
	})
	if o.began != e.Stream.Run {
		o.mute = o.mute || o.began != "" && o.began != o.run
		o.began, o.starts = strings.Clone(e.Stream.Run), e.Time
	}
	if at := pointOf(e); o.resumed != e.Stream.Run && at.seq > 0 {
		o.resumed, o.resumes = strings.Clone(e.Stream.Run), at
	}
}

// list notes the interruptions and hidden spans of a progress.
func (o *observation) list(m Moment, entry *consume.ScopeProgress) {
	o.open, o.hides = nil, nil
	if entry.ResourceVersion != "" {
		for _, h := range o.lost {
			h.until = claimOf(entry)
			h.until.time = later(h.until.time, o.to) // an agent that was killed may claim less than before
			o.hide(m, h)
		}
		o.lost = nil
	}
	for i := range entry.Interruptions {
		a := away{
			why:   entry.Interruptions[i].Why,
			from:  entry.Interruptions[i].From,
			until: entry.Interruptions[i].Until,
		}
		if a.why == consume.InterruptedStart && !o.prevTo.IsZero() { // nobody observed it between both runs
			a.stopped = o.stopped
			if a.from.After(o.prevTo) {
				a.from = o.prevTo
			}
			if !a.until.IsZero() {
				a.until = later(a.until, o.prevHeard)
			}
		}
		if a.until.IsZero() {
			o.open = append(o.open, a)
		} else {
			o.leave(m, a)
		}
	}
	for i := range entry.Hidden {
		h := hiddenOf(&entry.Hidden[i], entry)
		if entry.Hidden[i].IsOpen() {
			o.hides = append(o.hides, h)
		} else {
			o.hide(m, h)
		}
	}
}

// leave notes an interruption that is over, if it is around the moment.
func (o *observation) leave(m Moment, a away) {
	o.edges.note(a.from, a.until)
	o.keep(a)
	switch {
	case !a.around(m):
	case o.away == nil:
		o.away = &a
	default: // both together
		if a.from.Before(o.away.from) {
			o.away.from = a.from
		}
		o.away.until = later(o.away.until, a.until)
	}
}

// hide notes a hidden span that is over, if it is around the moment.
func (o *observation) hide(m Moment, h hiddenSpan) {
	o.edges.note(h.from.time, h.until.time)
	o.keep(away{from: h.from.time, until: h.until.time})
	if h.around(m) && o.hidden == nil {
		o.hidden = &h
	}
}

// hideClaimed notes the hidden spans that are not over, up to the claim: an answer about a moment
// up to there has them. A later progress may say more exactly which scope they are of.
func (o *observation) hideClaimed(m Moment) {
	if m.since.IsZero() || o.decided {
		return
	}
	for _, h := range o.hides {
		o.hide(m, hiddenSpan{h.from, mark{time: o.to.Add(1)}})
	}
}

// decide notes whether the last progress is the last one that says something about the moment. Such
// a progress has each interruption and each hidden span around the moment.
func (o *observation) decide(m Moment, claim mark) {
	switch m.kind {
	case atTime:
		open := slices.ContainsFunc(o.open, func(a away) bool { return a.around(m) })
		o.decided = o.decided || !o.to.Before(m.time) && !open
	case atVersion:
		o.decided = o.decided || !claim.at.below(m.rv)
	}
	if o.decided && o.hidden == nil {
		o.hidden = o.hiding(m)
	}
}

// hiding returns the hidden span around the moment, as far as the writer has said it; nil: none.
func (o *observation) hiding(m Moment) *hiddenSpan {
	if o.hidden != nil {
		return o.hidden
	}
	for _, h := range slices.Concat(o.hides, o.lost) {
		if h.around(m) {
			return &h
		}
	}
	return nil
}

// absence returns the interruption around the moment, as far as the writer has said it; nil: none.
// before is the last moment before it that is known.
func (o *observation) absence(m Moment, before time.Time) *away {
	if o.away != nil {
		return o.away
	}
	for i := range o.open {
		if o.open[i].around(m) && !o.decided {
			return &o.open[i]
		}
	}
	if m.kind == atTime && m.first().Before(o.since) {
		return &away{why: certainty.InterruptedUnheard, from: before, until: o.since}
	}
	return nil
}

// claim notes up to where a progress says that the log has everything.
func (s *scope) claim(m Moment, e *consume.Event, now mark) {
	s.unordered = now.at.seq == 0
	if e.Time.Sub(now.time) > MaxLag {
		s.lagged = later(s.lagged, e.Time)
	}
	if s.first.isZero() && s.joined || !s.first.isZero() && s.isFormer() {
		s.first = now
		s.began = now.time
		s.renewed = !s.former.isZero()
		s.edges.note(now.time)
		s.noteBegin()
	}
	if !now.at.below(s.reached.at) { // an agent that was killed may say less than before
		s.reached = s.reached.max(now)
	}
	s.last, s.claimed = s.last.max(mark{e.Time, now.at}), s.claimed.max(now)
	s.close(m, func(g *span) bool { return g.shown(mark{e.Time, now.at}, e.Progress.Run) })
	if m.kind != atTime {
		return
	}
	switch {
	case !now.time.After(m.first()):
		s.before = s.before.max(now)
	case now.time.After(m.time) && (s.after.isZero() || now.time.Before(s.after.time)):
		s.after = now
	}
}

// judgeTime returns what lowers the certainty of the scope at a time of which no gap is known. One
// writer that shows everything is enough.
func (s *scope) judgeTime(m Moment) *certainty.Cause {
	var late *away
	var hidden *hiddenSpan
	for _, name := range sortedKeys(s.observations) {
		o := s.observations[name]
		if o.to.Before(m.time) {
			continue
		}
		a, h := o.absence(m, s.before.time), o.hiding(m)
		switch {
		case a == nil && h == nil:
			return nil
		case h != nil:
			hidden = h
		case late == nil:
			late = a
		}
	}
	switch end := s.ended(); {
	case hidden != nil:
		return hidden.cause()
	case late != nil:
		return late.cause()
	case end != nil: // no progress follows
		return (&away{why: certainty.InterruptedEnded, from: s.complete().time, until: end.Time}).cause()
	}
	return &certainty.Cause{
		Kind:   certainty.AfterRecord,
		From:   s.before.bound(),
		Heard:  s.lastReport(),
		Lagged: s.lagged,
	}
}

// hiding returns the hidden span around a moment that is no time; nil: there is none.
func (s *scope) hiding(m Moment) *hiddenSpan {
	var newest time.Time
	decided := false
	for _, o := range s.observations {
		newest, decided = later(newest, o.heard), decided || o.decided
	}
	if m.kind == atVersion && !decided && !m.rv.below(s.whole.at) {
		return nil // a snapshot has read what was hidden
	}
	if !decided {
		if h := s.concealed(m); h != nil {
			return h
		}
	}
	var hidden *hiddenSpan
	for _, name := range sortedKeys(s.observations) {
		o := s.observations[name]
		if o.heard.IsZero() || o.decided != decided || m.kind != atVersion && newest.Sub(o.heard) > MaxLag {
			continue
		}
		h := o.hiding(m)
		if h == nil {
			return nil // this writer shows everything
		}
		hidden = h
	}
	return hidden
}

// concealed returns the span of versions after the last claim, if filters may have withheld some
// and the moment is inside. Otherwise, it returns nil.
func (s *scope) concealed(m Moment) *hiddenSpan {
	from := s.first
	filters := false
	for _, o := range s.observations {
		from, filters = from.max(mark{at: o.at}), filters || o.filters
	}
	if m.kind != atVersion || !filters || !from.at.below(m.rv) {
		return nil
	}
	return &hiddenSpan{from: mark{at: from.at}}
}

// noteStarted notes that a writer observes the scope. It returns false if that is after the moment,
// and the scope had ended before.
func (s *scope) noteStarted(m Moment, e *consume.Event) bool {
	s.edges.note(e.Time)
	if s.ended() != nil {
		again := e.Type == consume.TypeSnapshotStarted || m.kind != atVersion || e.Stream.Continued
		switch {
		case !again:
			return true // the snapshot that follows has a resourceVersion
		case !m.Includes(e):
			s.closed = true
			return false
		case !e.Stream.Continued || e.Type == consume.TypeSnapshotStarted:
			*s = scope{
				resource:  s.resource,
				joined:    s.joined,
				informer:  s.informer,
				edges:     s.edges,
				keepsLate: s.keepsLate,
				aways:     s.keepLate(),
			}
		}
	}
	if e.Stream.Writer != "" {
		s.observation(e.Stream.Writer).noteStart(m, e)
	}
	return true
}

// noteEnded notes that a writer does not observe the scope any more.
func (s *scope) noteEnded(e *consume.Event, now mark) {
	s.edges.turn(e.Time)
	said := certainty.End{Bound: now.bound(), Reason: e.Stream.End, Successors: e.Stream.Successors}
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

// scopeEnd is the end of a scope that a writer has said.
type scopeEnd struct {
	certainty.End

	at mark
}

// ended returns the end of the scope, nil if a writer may still observe it.
func (s *scope) ended() *scopeEnd {
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

// by reports whether the end is at a moment or before it.
func (e *scopeEnd) by(m Moment) bool {
	return !e.at.after(m) && (m.kind != atVersion || e.at.at.seq > 0)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
