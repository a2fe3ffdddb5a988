package informers

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/store"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// vectors are the package's metrics; metrics are those of one informer.
type vectors struct {
	deltas    *prometheus.CounterVec
	skipped   *prometheus.CounterVec
	withheld  *prometheus.CounterVec
	objects   *prometheus.GaugeVec
	heldBytes *prometheus.GaugeVec
	lists     *prometheus.CounterVec
	watches   *prometheus.CounterVec
	retries   *prometheus.CounterVec
	errors    *prometheus.CounterVec
	gaps      *prometheus.CounterVec
	blocked   *prometheus.GaugeVec
	synced    *prometheus.GaugeVec
	lastEvent *prometheus.GaugeVec

	all []interface { // of the above
		DeletePartialMatch(labels prometheus.Labels) int
	}
}

func newVectors(reg prometheus.Registerer) *vectors {
	f, v := promauto.With(reg), &vectors{}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		vec := f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"scope"}, labels...))
		v.all = append(v.all, vec)
		return vec
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		vec := f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"scope"})
		v.all = append(v.all, vec)
		return vec
	}
	v.deltas = counter("kubecdc_informer_deltas_total", "Deltas formed, by op (c created, u updated, d deleted, r read, e entered, l left, stream: an event about the stream).", "op")
	v.skipped = counter("kubecdc_informer_skipped_total", "Watch events not taken, by reason (excluded: no rule takes the object, or it is the agent's own; known: a version that was taken before).", "reason")
	v.withheld = counter("kubecdc_informer_withheld_total", "Deltas that a rule withheld, by reason (operations, where, error: where could not be evaluated; noise:<name>).", "reason")
	v.objects = gauge("kubecdc_informer_objects", "Last-known objects.")
	v.heldBytes = gauge("kubecdc_informer_held_bytes", "Compressed bytes of last-known objects.")
	v.lists = counter("kubecdc_informer_lists_total", "Lists of all objects, by cause (start; birth: of a resource that was defined while the agent watched; gone: none, it is not defined any more; resume: from the checkpoint; expired: the API server had no history to watch on; retry: the one before failed).", "cause")
	v.watches = counter("kubecdc_informer_watches_total", "HTTP watches ended, by cause (closed, error, blocked, silent, expired, rewound).", "cause")
	v.retries = counter("kubecdc_informer_expired_retries_total", "Expired watches tried again on a connection of their own, by result (found: history was there; expired; failed).", "result")
	v.errors = counter("kubecdc_informer_errors_total", "Requests that failed and are made again, by reason: what was done and the class of the failure, such as list_forbidden or watch_network.", "reason")
	v.gaps = counter("kubecdc_informer_gaps_total", "Spans of history that could not be read, by reason (expired, compacted, rewound, selection-changed, checkpoint-lost, content-changed: none is missing); recovered is true where all of its changes were found all the same.", "reason", "recovered")
	v.blocked = gauge("kubecdc_informer_blocked", "1 while the watch is ended because the queue is full.")
	v.synced = gauge("kubecdc_informer_synced", "1 once a list has been loaded.")
	v.lastEvent = gauge("kubecdc_informer_last_event_timestamp_seconds", "When the last event or bookmark came.")
	return v
}

// forget ends the series of a scope.
func (v *vectors) forget(scope string) {
	for _, vec := range v.all {
		vec.DeletePartialMatch(prometheus.Labels{"scope": scope})
	}
}

type metrics struct {
	store                                  store.Metrics
	blocked, synced, lastSeen              prometheus.Gauge
	lists, watches, errors, expiredRetries *prometheus.CounterVec
}

func (v *vectors) of(scope string) *metrics {
	l := prometheus.Labels{"scope": scope}
	m := &metrics{
		store: store.Metrics{
			Deltas: map[object.Op]prometheus.Counter{}, Stream: v.deltas.WithLabelValues(scope, "stream"),
			Excluded: v.skipped.WithLabelValues(scope, "excluded"), Known: v.skipped.WithLabelValues(scope, "known"),
			Objects: v.objects.With(l), HeldBytes: v.heldBytes.With(l), Withheld: v.withheld.MustCurryWith(l), Gaps: v.gaps.MustCurryWith(l),
		},
		blocked: v.blocked.With(l), synced: v.synced.With(l), lastSeen: v.lastEvent.With(l),
		lists: v.lists.MustCurryWith(l), watches: v.watches.MustCurryWith(l),
		errors: v.errors.MustCurryWith(l), expiredRetries: v.retries.MustCurryWith(l),
	}
	// There from the beginning: who takes an increase sees the first.
	for _, cause := range []string{"start", "birth", "resume", "expired", "retry"} {
		m.lists.WithLabelValues(cause)
	}
	for _, cause := range []string{"closed", "error", "blocked", "silent", "expired", "rewound"} {
		m.watches.WithLabelValues(cause)
	}
	for _, g := range []object.GapReason{object.Expired, object.Compacted, object.Rewound, object.CheckpointLost} {
		m.store.Gaps.WithLabelValues(string(g), "false")
	}
	for _, g := range []object.GapReason{object.Expired, object.SelectionChanged, object.ContentChanged} {
		m.store.Gaps.WithLabelValues(string(g), "true")
	}
	for _, op := range []object.Op{object.Created, object.Updated, object.Deleted, object.Read, object.Entered, object.Left} {
		m.store.Deltas[op] = v.deltas.WithLabelValues(scope, string(rune(op)))
	}
	return m
}

// conditions collects how each informer is at the time of the scrape.
type conditions struct {
	set                           *Set
	silence, lag, pending, scopes *prometheus.Desc
}

func newConditions(s *Set) *conditions {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &conditions{
		set: s,
		silence: desc("kubecdc_informer_silence_seconds",
			"Watch age: time since the API server's last sign of life (a frame, a watch that was opened, a page of a list); 0 while the watch is ended because the queue is full.", "scope"),
		lag: desc("kubecdc_informer_lag_seconds",
			"For how long the oldest change that the bus has not acknowledged is known; 0: it has acknowledged all.", "scope"),
		pending: desc("kubecdc_informer_pending_deltas",
			"What a list made due and is not on the bus yet: reads of a snapshot, and changes that a relist inferred.", "scope"),
		scopes: desc("kubecdc_informer_scopes",
			"Scopes by phase (waiting, listing, announcing, live, blocked, relisting, draining, retiring, drained), by health (ok, failing, stale, forbidden, notserved), and those that are not ok by the class of the failure.", "phase", "health", "reason"),
	}
}

// Describe implements prometheus.Collector.
func (c *conditions) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.silence, c.lag, c.pending, c.scopes} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *conditions) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	now := time.Now()
	for _, i := range c.set.observing() {
		if d, ok := i.state.silence(now); ok {
			gauge(c.silence, d.Seconds(), i.scope)
		}
		gauge(c.lag, i.store.Lag().Seconds(), i.scope)
		_, pending, _ := i.store.Progress()
		gauge(c.pending, float64(pending), i.scope)
	}
	type class struct {
		phase  Phase
		health Health
		reason string
	}
	counts := map[class]int{{PhaseLive, HealthStale, ""}: 0}
	for p := range PhaseRemoved {
		counts[class{p, HealthOK, ""}] = 0
	}
	for _, r := range apiserver.Reasons() {
		counts[class{PhaseWaiting, healthOf(r), r}] = 0
	}
	for _, st := range c.set.Status() {
		k := class{phase: st.Phase, health: st.Health}
		if st.Health != HealthOK {
			k.reason = st.Reason
		}
		counts[k]++
	}
	for k, n := range counts {
		gauge(c.scopes, float64(n), k.phase.String(), k.health.String(), k.reason)
	}
}
