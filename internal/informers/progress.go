package informers

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
)

const (
	// progressEvery is the interval of the progress.
	progressEvery = time.Minute
	// progressLane is the lane of the progress. No scope has that name.
	progressLane = "progress:"
	// reportBytes is the size of a progress event, if the limit of the bus is not known.
	reportBytes = 256 << 10
	// progressOverhead is the size of a queued progress besides its scopes, in bytes.
	progressOverhead = 512
)

// progress is the state of the progress of a run. One goroutine uses it at a time: that of
// sendProgress, then that of Finish.
type progress struct {
	began  time.Time // of the run
	number uint64    // of the last event
	acked  time.Time // of the last progress that the bus has
	// asks has channels to close once the bus has a progress. It has no buffer.
	asks chan chan struct{}
}

const (
	// endsTogether is how long a progress waits if the end of a scope has asked for it: more scopes
	// may end soon.
	endsTogether = 500 * time.Millisecond
	// endsAfter is how long the end of a scope waits for the progress. If the bus does not accept
	// progress, the end comes without it, and the last minute of the scope remains unknown.
	endsAfter = 15 * time.Second
)

// sendProgress sends the progress each minute until ctx ends: it distinguishes an idle cluster from
// a dead agent. It waits for the acknowledgement, so at most one is on its way while the bus is
// unreachable.
func (m *Manager) sendProgress(ctx context.Context) {
	if _, err := m.previous.Scopes(ctx); err != nil { // it must not be mistaken for this run's own
		return
	}
	// At random: agents that start together do not send at the same time.
	due := time.NewTimer(progressEvery/2 + rand.N(progressEvery/2))
	defer due.Stop()
	for {
		var asked []chan struct{}
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		case done := <-m.progress.asks:
			asked = append(asked, done)
			if pause.For(ctx, endsTogether) != nil {
				return
			}
		}
		asked = append(asked, m.progress.takeAsks()...)
		if m.sendReports(ctx, false) != nil {
			return
		}
		for _, done := range asked {
			close(done)
		}
		due.Reset(progressEvery)
	}
}

func (p *progress) takeAsks() (all []chan struct{}) {
	for {
		select {
		case done := <-p.asks:
			all = append(all, done)
		default:
			return all
		}
	}
}

// reportEnd waits until the bus has a progress that begins now, for endsAfter at most. Before a
// scope ends, this progress says up to where the log has everything of the scope: no later one
// does. The only error is the cause of ctx.
func (m *Manager) reportEnd(ctx context.Context) error {
	limit := time.NewTimer(endsAfter)
	defer limit.Stop()
	done := make(chan struct{})
	select {
	case m.progress.asks <- done:
	case <-limit.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
	case <-limit.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// lastReport returns the progress of a scope whose informer has ended. The bus has everything that
// the informer has sent.
func lastReport(r *running) scopeReport {
	report, started := r.Report(time.Time{}) // all interruptions: nobody knows when the event comes that lists them
	if !started {
		report = object.ScopeReport{Resource: report.Resource, Scope: report.Scope}
	}
	round(&report)
	return scopeReport{ScopeReport: report, started: started, ends: true}
}

// Finish sends the last progress, and waits for its acknowledgement. It must follow Run, with the
// queue drained but open.
func (m *Manager) Finish(ctx context.Context) error { return m.sendReports(ctx, true) }

// sendReports sends the progress of all scopes, and waits until the bus has it. last: the run ends.
// The only error is the cause of ctx.
func (m *Manager) sendReports(ctx context.Context, last bool) error {
	now := m.o.Now()
	since := m.progress.acked // the bus may have been away for long
	if recent := now.Add(-informer.ReportFor); recent.Before(since) {
		since = recent
	}
	if since.Before(m.progress.began) {
		since = m.progress.began
	}
	limit := reportBytes
	if m.o.ReportBytes != nil {
		limit = cmp.Or(m.o.ReportBytes(), reportBytes)
	}
	reports := m.reports(since)
	ends := map[string]bool{}
	for i := range reports {
		if reports[i].ends {
			ends[reports[i].Scope] = true
		}
	}
	all := group(reports)
	says := m.sharing.nextStatement(all, since, now)
	says.addTo(all)
	events := pack(all, limit)
	var g errgroup.Group
	lane := m.o.Lane(progressLane)
	for n, scopes := range events {
		m.progress.number++
		r := &object.Report{
			Number: m.progress.number,
			Since:  floor(since),
			Scopes: scopes,
			Ends:   last && n == len(events)-1,
		}
		r.APIServerVersion = says.version
		share(r, ends)
		shareEtcds(r)
		acked := make(reportAcked)
		d := &object.Delta{Report: r, Observed: now.UnixNano(), Acker: acked}
		if err := lane.Put(ctx, progressLane, progressOverhead+sizeOfAll(scopes), d); err != nil {
			return err
		}
		g.Go(func() error { return acked.wait(ctx) })
	}
	err := g.Wait()
	if err == nil {
		m.progress.acked = now
		m.sharing.noteSaid(&says)
	}
	return err
}

// reportAcked is closed by the acknowledgement of a progress event.
type reportAcked chan struct{}

// Acked implements object.Acker.
func (a reportAcked) Acked(*object.Delta) { close(a) }

func (a reportAcked) wait(ctx context.Context) error {
	select {
	case <-a:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// scopeReport is the progress of one scope. started: the bus has its start. ends: its informer has
// ended.
type scopeReport struct {
	object.ScopeReport
	started, ends bool
}

// reports returns the progress of every scope that is observed, sorted by resource and name. It
// claims nothing for a scope whose start may not be on the bus, and no more than its informer did
// for one whose end may not be. Such a scope must be named: otherwise consumers could apply the
// entry of its resource to the scope.
func (m *Manager) reports(since time.Time) []scopeReport {
	m.mu.RLock()
	observing, lingering := slices.Collect(maps.Values(m.active.informers)), maps.Clone(m.active.lingering)
	for name, t := range m.active.tombstones {
		if t.IsReleased() {
			delete(lingering, name)
		}
	}
	m.mu.RUnlock()
	var all []scopeReport
	for _, r := range observing {
		if r.Spec().Internal {
			continue
		}
		report, started := r.Report(since)
		round(&report)
		all = append(all, scopeReport{ScopeReport: report, started: started})
	}
	all = slices.AppendSeq(all, maps.Values(lingering))
	slices.SortFunc(all, func(a, b scopeReport) int {
		r, o := a.Resource, b.Resource
		return cmp.Or(strings.Compare(r.Name, o.Name), strings.Compare(r.Group, o.Group),
			strings.Compare(a.Scope, b.Scope))
	})
	return all
}

// round rounds the times of a report to milliseconds, so that it claims no more than before.
func round(r *object.ScopeReport) {
	r.To, r.SnapshotBegan = floor(r.To), floor(r.SnapshotBegan)
	for n := range r.Interruptions {
		i := &r.Interruptions[n]
		i.From, i.Until = floor(i.From), ceil(i.Until)
	}
	for _, spans := range [][]object.HiddenSpan{r.Hidden, r.FormerHidden} {
		for n := range spans {
			h := &spans[n]
			h.From.Time, h.Until.Time = floor(h.From.Time), ceil(h.Until.Time)
		}
	}
}

// floor returns the millisecond at or before t.
func floor(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Truncate(time.Millisecond)
}

// ceil returns the millisecond at or after t.
func ceil(t time.Time) time.Time {
	if down := floor(t); down.Equal(t) {
		return t
	}
	return floor(t).Add(time.Millisecond)
}

// Interrupt notes that no scope was observed from a time on, because the process stood still, or
// because its clock was set. It takes no lock that is held while the time of the run is asked for.
func (m *Manager) Interrupt(from time.Time, why object.InterruptionReason) {
	m.interrupted.mu.Lock()
	defer m.interrupted.mu.Unlock()
	m.interrupted.waiting = append(m.interrupted.waiting, object.Interruption{From: from, Why: why})
	broadcast.Wake(m.interrupted.added)
}

// interrupted has interruptions that the scopes do not know yet.
type interrupted struct {
	added chan struct{} // capacity 1

	mu      sync.Mutex
	waiting []object.Interruption
}

func (i *interrupted) takeWaiting() []object.Interruption {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := i.waiting
	i.waiting = nil
	return all
}

// noteInterruptions passes interruptions to the scopes until ctx ends.
func (m *Manager) noteInterruptions(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.interrupted.added:
		}
		for _, i := range m.interrupted.takeWaiting() {
			for _, r := range m.observing() {
				r.Interrupt(i.From, i.Why)
			}
		}
	}
}
