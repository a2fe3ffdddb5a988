package informers

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// noteHeldBack reports whether Captured waits for an informer, and notes it in waiting. It checks
// the last such informer first, and the others in random order (of a map). So not every change of
// one of a thousand informers checks all of them.
func (m *Manager) noteHeldBack(waiting **running) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	holds := func(i *running) bool {
		return i != nil && m.active.informers[i.Name()] == i && i.Status().HoldsBack()
	}
	if len(m.namespaces.undecided) > 0 || holds(*waiting) {
		return true
	}
	for _, i := range m.active.informers {
		if holds(i) {
			*waiting = i
			return true
		}
	}
	return false
}

// Wait returns nil once cond returns true, or the cause of ctx. It calls cond after each change of
// the informer and of the manager. cond must change neither.
func (r *running) Wait(ctx context.Context, cond func(informer.View) bool) error {
	for {
		next := r.signal.Next()
		v, changed := r.View()
		if cond(v) {
			return nil
		}
		select {
		case <-changed:
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Unmatched returns the redacted paths that have matched nothing for a day.
func (m *Manager) Unmatched(now time.Time) []selection.UnmatchedPath {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.sel.Unmatched(now)
}

// conditions collects the condition of each informer at the time of the scrape.
type conditions struct {
	manager                     *Manager
	silence, lag, scopes        *prometheus.Desc
	pending, heldBytes, blocked *prometheus.Desc // of all scopes
	unmatched                   *prometheus.Desc
}

func newConditions(m *Manager) *conditions {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &conditions{
		manager: m,
		silence: desc("kubecdc_informer_silence_seconds",
			"Watch age: time since the API server last sent anything (a watch frame, the response to a new watch, a page of a list); 0 while the watch is stopped because the queue is full.",
			"scope"),
		lag: desc("kubecdc_informer_lag_seconds",
			"Age of the oldest unacknowledged change; 0: the bus has acknowledged all.", "scope"),
		pending: desc("kubecdc_informer_pending_deltas",
			"Events from lists that are not on the bus yet: reads of a snapshot, and changes that a relist inferred."),
		heldBytes: desc("kubecdc_informer_held_bytes", "Compressed bytes of last-known objects."),
		blocked:   desc("kubecdc_informer_blocked", "Scopes whose watch is stopped because the queue is full."),
		scopes: desc("kubecdc_informer_scopes",
			"Scopes by phase (waiting, listing, announcing, live, blocked, relisting, draining, retiring, drained), by health (ok, failing, stale, forbidden, notserved), and those that are not ok by the class of the failure (held_back: the watch does not show what a list shows).",
			"phase", "health", "reason"),
		unmatched: desc("kubecdc_informer_unmatched_redaction",
			"1 for each redacted path that has matched nothing for a day, since the agent started or the rule came into force.",
			"rule", "path"),
	}
}

// Describe implements prometheus.Collector.
func (c *conditions) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.silence, c.lag, c.pending, c.heldBytes, c.blocked, c.scopes, c.unmatched} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *conditions) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	now := time.Now()
	for _, u := range c.manager.Unmatched(now) {
		gauge(c.unmatched, 1, fmt.Sprintf("watch[%d]", u.Rule), u.Path)
	}
	var pending, held, blocked int
	for _, i := range c.manager.observing() {
		if d, ok := i.Silence(now); ok {
			gauge(c.silence, d.Seconds(), i.Name())
		}
		gauge(c.lag, i.Store().Lag().Seconds(), i.Name())
		v := i.Store().View()
		pending += v.Pending
		held += v.Bytes
		if i.IsBlocked() {
			blocked++
		}
	}
	gauge(c.pending, float64(pending))
	gauge(c.heldBytes, float64(held))
	gauge(c.blocked, float64(blocked))
	type class struct {
		phase  informer.Phase
		health informer.Health
		reason string
	}
	counts := map[class]int{{informer.PhaseLive, informer.HealthStale, ""}: 0, {
		informer.PhaseLive, informer.HealthStale, informer.ReasonHeldBack,
	}: 0}
	for p := range informer.PhaseRemoved {
		counts[class{p, informer.HealthOK, ""}] = 0
	}
	for _, r := range apiserver.Reasons() {
		counts[class{informer.PhaseWaiting, informer.HealthOf(r), r}] = 0
	}
	for _, st := range c.manager.Status() {
		k := class{phase: st.Phase, health: st.Health}
		if st.Health != informer.HealthOK {
			k.reason = st.Reason
		}
		counts[k]++
	}
	for k, n := range counts {
		gauge(c.scopes, float64(n), k.phase.String(), k.health.String(), k.reason)
	}
}
