package timeline_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const (
	writer  = "3f0a5c1e9b7d2846"
	repeats = 10 * time.Minute // progress repeats a span for that time after its end
)

// observer has the observation of a scope by the agent, and its reports.
type observer struct {
	away          time.Time // the scope is not observed since then
	interruptions []noted[consume.Interruption]

	skipped map[string]uint64   // by uid: the resourceVersion of the last version, if filters withheld it
	hidden  *consume.HiddenSpan // the one that is not over
	last    uint64              // the last version that was withheld, or sent, since it began
	unknown bool                // a former run may have withheld versions, and no later snapshot was taken
	upTo    uint64              // these versions are up to here
	spans   []noted[consume.HiddenSpan]

	reports       []report
	to, heard     time.Time // the last claim; the time of the last report
	started       time.Time // in the current run
	run           string    // of the last report
	since, former time.Time // no report is about earlier moments; the claim of the run before
	whole         point     // the last completed snapshot
	at, resumes   point     // the furthest claim; from where the run continues
	ended         bool      // the last report is that of the end of a run
}

// noted is a span that is over, with the time at which the agent noted that.
type noted[T any] struct {
	what    T
	at      time.Time
	history uint32
}

// report has the statements of one progress about the scope.
type report struct {
	to time.Time
	rv point // zero: it claims nothing
	// absent and hidden have the spans of this report and of all earlier ones. An open one has no
	// end.
	absent [][2]time.Time
	hidden []hiddenIn
}

// hiddenIn is a hidden span whose resourceVersions are of two histories.
type hiddenIn struct {
	consume.HiddenSpan
	from, until uint32
	untilClaim  bool // no report says its end: it ends at the next claim
	versions    bool // of versions alone: by time, it is an interruption
}

// interrupted notes that the scope was not observed since a time.
func (i *informer) interrupted(w *world, why consume.InterruptionReason, from time.Time) {
	i.interruptions = append(i.interruptions, noted[consume.Interruption]{consume.Interruption{
		Why:   why,
		From:  from,
		Until: w.clock,
	}, w.clock, w.history()})
}

// withhold notes that filters withhold a version.
func (i *informer) withhold(w *world, o thing) {
	if i.skipped == nil {
		i.skipped = map[string]uint64{}
	}
	i.skipped[o.uid], i.last = o.rv, o.rv
	if i.hidden == nil {
		i.hidden = &consume.HiddenSpan{From: w.clock, FromResourceVersion: fmt.Sprint(o.rv)}
	}
}

// show notes that an object has an event.
func (i *informer) show(w *world, o thing) {
	delete(i.skipped, o.uid)
	i.last = o.rv
	i.close(w, o.rv)
}

// showAll notes that a snapshot has read every object.
func (i *informer) showAll(w *world, s *snapshot) {
	for uid, rv := range i.skipped {
		if rv <= s.rv {
			delete(i.skipped, uid)
		}
	}
	i.unknown = i.unknown && s.rv < i.upTo
	i.close(w, s.rv)
}

func (i *informer) close(w *world, rv uint64) {
	if i.hidden == nil || i.unknown || len(i.skipped) > 0 {
		return
	}
	h := *i.hidden
	h.Until, h.UntilResourceVersion = w.clock, fmt.Sprint(max(rv, i.last, number(h.FromResourceVersion)))
	i.spans, i.hidden = append(i.spans, noted[consume.HiddenSpan]{h, w.clock, w.history()}), nil
}

// forget is the end of a run. The checkpoint says whether something was hidden at its position.
func (i *informer) forget() {
	if i.hidden != nil && number(i.hidden.FromResourceVersion) > i.acked {
		i.hidden = nil // it is observed again
	}
	for _, span := range i.spans {
		from, until := number(span.what.FromResourceVersion), number(span.what.UntilResourceVersion)
		if i.hidden == nil && from <= i.acked && i.acked < until {
			i.hidden = &consume.HiddenSpan{From: span.what.From, FromResourceVersion: span.what.FromResourceVersion}
		}
	}
	i.unknown, i.upTo = i.hidden != nil, i.acked
	i.skipped = nil
	i.interruptions = nil
	i.spans = nil
}

// entry is what the agent says about the scope, with the hidden spans that reach above the version
// that it claims.
func (i *informer) entry(w *world, since time.Time, claim uint64) consume.ScopeProgress {
	out := consume.ScopeProgress{Resource: "pods", Scope: i.scope, History: w.history()}
	if i.first != (point{}) && (i.snapshot == nil || !i.snapshot.lost) {
		out.ResourceVersion, out.To = fmt.Sprint(i.acked), i.seen
	}
	for _, n := range i.interruptions {
		if !n.at.Before(since) {
			out.Interruptions = append(out.Interruptions, n.what)
		}
	}
	if i.blind {
		out.Interruptions = append(out.Interruptions, consume.Interruption{
			Why:  consume.InterruptedSilent,
			From: i.away,
		})
		if i.away.Before(out.To) {
			out.To = i.away
		}
	}
	for _, n := range i.spans {
		if !n.at.Before(since) || n.history == w.history() && number(n.what.UntilResourceVersion) > claim {
			out.Hidden = append(out.Hidden, n.what)
		}
	}
	if i.hidden != nil {
		out.Hidden = append(out.Hidden, *i.hidden)
	}
	return out
}

// progress sends the progress of the agent.
func (w *world) progress(ends bool) {
	w.tick()
	w.number++
	w.next = w.clock.Add(time.Minute)
	p := &consume.Progress{Writer: writer, Run: w.run, Number: w.number, Since: w.clock.Add(-repeats), Ends: ends}
	entries := map[string]consume.ScopeProgress{}
	w.each(func(i *informer) { entries[i.scope] = i.entry(w, p.Since, i.acked) })
	both := entries[plain].ResourceVersion != "" && entries[labelled].ResourceVersion != ""
	switch how := rapid.IntRange(0, 3).Draw(w.t, "entries"); {
	case how == 0:
		p.Scopes = []consume.ScopeProgress{entries[labelled], entries[plain]}
	case how < 3 || !both:
		group := entries[plain]
		group.Scope = ""
		p.Scopes = []consume.ScopeProgress{group, entries[labelled]}
	default:
		least := min(w.agent[plain].acked, w.agent[labelled].acked)
		group := together(w.agent[plain].entry(w, p.Since, least), w.agent[labelled].entry(w, p.Since, least))
		entries[plain] = group
		entries[labelled] = group
		p.Scopes = []consume.ScopeProgress{group}
	}
	w.log = append(w.log, &consume.Event{
		ID:       fmt.Sprintf("progress/%s/%s/%d", writer, w.run, w.number),
		Type:     consume.TypeProgress,
		Source:   source,
		Time:     w.clock,
		Progress: p,
	})
	w.each(func(i *informer) {
		entry := entries[i.scope]
		i.report(w, p, &entry)
		i.saved, i.said = i.said, point{w.history(), i.acked, i.seen}
	})
	w.each(func(i *informer) {
		if entry := entries[i.scope]; !ends && i.due && entry.ResourceVersion != "" {
			i.begin(w, false)
		}
	})
}

// together is the entry of two scopes.
func together(a, b consume.ScopeProgress) consume.ScopeProgress {
	a.Scope, a.Count = "", 2
	if number(b.ResourceVersion) < number(a.ResourceVersion) {
		a.ResourceVersion = b.ResourceVersion
	}
	if b.To.Before(a.To) {
		a.To = b.To
	}
	a.Interruptions = append(a.Interruptions, b.Interruptions...)
	a.Hidden = append(a.Hidden, b.Hidden...)
	return a
}

// report notes the statements of a progress about the scope.
func (i *informer) report(w *world, p *consume.Progress, entry *consume.ScopeProgress) {
	began := latest(latest(p.Since, runBegan(w.run)), i.started)
	last := latest(i.to, i.since)
	at := i.at
	if at.before(i.first) {
		at = i.first
	}
	r := report{}
	switch n := len(i.reports); {
	case n == 0:
		i.since = began
		r.absent = [][2]time.Time{{{}, began}}
		if began.After(i.firstBegan) && i.first != (point{}) {
			r.addUnreported(i, i.first, point{}, entry)
		}
	case i.run != w.run:
		i.former = last
		resumes := i.resumes
		if p.Since.After(runBegan(w.run)) {
			resumes = point{}
		}
		resumes.time = latest(began, i.heard)
		r.addEarlier(&i.reports[n-1], began, resumes, entry)
		if p.Since.After(runBegan(w.run)) {
			r.addUnreported(i, at, point{}, entry)
		} else if !i.ended {
			r.addUnreported(i, at, i.resumes, entry)
		}
		isStart := func(x consume.Interruption) bool { return x.Why == consume.InterruptedStart }
		if !slices.ContainsFunc(entry.Interruptions, isStart) {
			r.absent = append(r.absent, [2]time.Time{last, latest(began, i.heard)})
		}
	case p.Since.After(i.heard):
		r.addEarlier(&i.reports[n-1], p.Since, point{}, entry)
		r.absent = append(r.absent, [2]time.Time{last, p.Since})
		r.addUnreported(i, at, point{}, entry)
	default:
		r.addEarlier(&i.reports[n-1], time.Time{}, point{}, entry)
	}
	if entry.ResourceVersion != "" && at.rv > 0 && at.history < entry.History {
		// the spans of the entry do not say their history
		r.addUnreported(i, at, point{}, entry)
	}
	for _, x := range entry.Interruptions {
		if x.Why == consume.InterruptedStart && !i.former.IsZero() && x.From.After(i.former) {
			x.From = i.former // no agent observed it between both runs
		}
		r.absent = append(r.absent, [2]time.Time{x.From, x.Until})
	}
	for _, h := range entry.Hidden {
		r.hidden = append(r.hidden, hiddenIn{h, entry.History, entry.History, false, false})
	}
	i.heard = w.clock
	i.run = w.run
	i.ended = p.Ends
	if entry.ResourceVersion != "" {
		r.to, r.rv = entry.To, point{w.history(), number(entry.ResourceVersion), entry.To}
		i.to = latest(i.to, r.to)
		if i.at.before(r.rv) {
			i.at = r.rv
		}
		i.reach(r.rv)
		i.claim(w, r.rv)
	}
	i.reports = append(i.reports, r)
}

// addUnreported adds the versions between two points: no report says whether filters withheld them.
// A zero until is the next claim.
func (r *report) addUnreported(i *informer, from, until point, entry *consume.ScopeProgress) {
	if i.scope != plain {
		return // no filters
	}
	h := hiddenIn{from: from.history, until: until.history, versions: true}
	h.FromResourceVersion = fmt.Sprint(from.rv + 1)
	switch {
	case until.rv > 0:
		h.UntilResourceVersion = fmt.Sprint(until.rv)
	case entry.ResourceVersion != "":
		h.UntilResourceVersion, h.until = entry.ResourceVersion, entry.History
	default:
		h.untilClaim = true
	}
	r.hidden = append(r.hidden, h)
}

// addEarlier adds the spans of the last report. until is the end of spans that were open then, zero
// if the new report says it. A new run reports hidden spans from resumes on. The version of resumes
// is zero if it is not known.
func (r *report) addEarlier(last *report, until time.Time, resumes point, entry *consume.ScopeProgress) {
	for _, span := range last.absent {
		if span[1].IsZero() {
			span[1] = until
		}
		if !span[1].IsZero() {
			r.absent = append(r.absent, span)
		}
	}
	for _, span := range last.hidden {
		open := span.IsOpen()
		if open && !span.untilClaim && resumes.rv > 0 {
			span.Until, span.until = resumes.time, resumes.history
			span.UntilResourceVersion = fmt.Sprint(resumes.rv)
			open = false
		}
		span.untilClaim = open && (span.untilClaim || !until.IsZero())
		if span.untilClaim && entry.ResourceVersion != "" {
			span.Until = entry.To
			span.UntilResourceVersion = entry.ResourceVersion
			span.until = entry.History
			span.untilClaim = false
			open = false
		}
		if !open || span.untilClaim {
			r.hidden = append(r.hidden, span)
		}
	}
}

// claim notes that the record is complete up to a point.
func (i *informer) claim(w *world, at point) {
	for _, g := range i.gaps {
		if g.whole || at.before(g.to) {
			continue
		}
		if g.progress < 2 && g.run != w.run { // the next run takes the snapshot that is due
			g.run, g.progress = w.run, 0
		}
		g.progress++
		if g.progress == 1 {
			g.right = point{g.to.history, g.to.rv, w.clock}
		}
	}
}

// certainty returns the certainty, by the reports, of a moment that is inside no gap.
func (i *informer) certainty(m timeline.Moment) certainty.Level {
	rv, history, byVersion := m.ResourceVersion()
	at := point{history, rv, m.Time()}
	for k := range i.reports {
		r := &i.reports[k]
		switch {
		case r.rv == point{}, byVersion && r.rv.before(at), !byVersion && r.to.Before(at.time):
			continue
		case r.isHidden(at, byVersion):
			return certainty.Uncertain
		case !byVersion && slices.ContainsFunc(r.absent, func(span [2]time.Time) bool {
			return span[0].Before(at.time) && (span[1].IsZero() || at.time.Before(span[1]))
		}):
			return certainty.Late
		}
		return certainty.Exact
	}
	if !byVersion {
		return certainty.Unknown
	}
	if !at.before(i.whole) {
		return certainty.Exact
	}
	isUnreported := i.scope == plain && i.first.before(at) && i.at.before(at)
	if n := len(i.reports); isUnreported || n > 0 && i.reports[n-1].isHidden(at, true) {
		return certainty.Uncertain
	}
	return certainty.Exact
}

// isHidden reports whether a hidden span is around a moment.
func (r *report) isHidden(at point, byVersion bool) bool {
	return slices.ContainsFunc(r.hidden, func(h hiddenIn) bool {
		if !byVersion {
			return !h.versions && !h.From.After(at.time) && (h.Until.IsZero() || at.time.Before(h.Until))
		}
		from := point{history: h.from, rv: number(h.FromResourceVersion)}
		if at.before(from) {
			return false
		}
		return h.UntilResourceVersion == "" || at.before(point{history: h.until, rv: number(h.UntilResourceVersion)})
	})
}

func runBegan(run string) time.Time {
	_, ms, _ := strings.Cut(run, "-")
	return time.UnixMilli(int64(number(ms))).UTC()
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
