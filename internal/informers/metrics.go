package informers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kubecdc/kubecdc/internal/object"
)

// vectors are the package's metrics; metrics are those of one informer.
type vectors struct {
	deltas    *prometheus.CounterVec
	skipped   *prometheus.CounterVec
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
}

func newVectors(reg prometheus.Registerer) *vectors {
	f := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"scope"}, labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"scope"})
	}
	return &vectors{
		deltas:    counter("kubecdc_informer_deltas_total", "Deltas formed, by op (c, u, d, r, e, l, or stream).", "op"),
		skipped:   counter("kubecdc_informer_skipped_total", "Watch events not taken, by reason (excluded: by the selection of namespaces, or the agent's own; known: a version that was taken before).", "reason"),
		objects:   gauge("kubecdc_informer_objects", "Last-known objects."),
		heldBytes: gauge("kubecdc_informer_held_bytes", "Compressed bytes of last-known objects."),
		lists:     counter("kubecdc_informer_lists_total", "Lists begun, by cause (start, resume, expired, retry).", "cause"),
		watches:   counter("kubecdc_informer_watches_total", "HTTP watches ended, by cause (closed, error, blocked, silent, expired, rewound).", "cause"),
		retries:   counter("kubecdc_informer_expired_retries_total", "Expired watches tried again on a connection of their own, by result (found: history was there; expired; failed).", "result"),
		errors:    counter("kubecdc_informer_errors_total", "Requests that failed and are retried, by reason.", "reason"),
		gaps:      counter("kubecdc_informer_gaps_total", "Gaps in the history that could be read, by reason.", "reason"),
		blocked:   gauge("kubecdc_informer_blocked", "1 while the watch is ended because the queue is full."),
		synced:    gauge("kubecdc_informer_synced", "1 once a list has been loaded."),
		lastEvent: gauge("kubecdc_informer_last_event_timestamp_seconds", "When the last event or bookmark came."),
	}
}

type metrics struct {
	deltas                                        map[object.Op]prometheus.Counter
	stream                                        prometheus.Counter
	skippedExcluded, skippedKnown                 prometheus.Counter
	objects, heldBytes, blocked, synced, lastSeen prometheus.Gauge
	lists, watches, errors, gaps, expiredRetries  *prometheus.CounterVec
}

func (v *vectors) of(scope string) *metrics {
	l := prometheus.Labels{"scope": scope}
	m := &metrics{
		deltas: map[object.Op]prometheus.Counter{},
		stream: v.deltas.WithLabelValues(scope, "stream"), skippedExcluded: v.skipped.WithLabelValues(scope, "excluded"),
		skippedKnown: v.skipped.WithLabelValues(scope, "known"),
		objects:      v.objects.With(l), heldBytes: v.heldBytes.With(l), blocked: v.blocked.With(l), synced: v.synced.With(l),
		lastSeen: v.lastEvent.With(l),
		lists:    v.lists.MustCurryWith(l), watches: v.watches.MustCurryWith(l),
		errors: v.errors.MustCurryWith(l), gaps: v.gaps.MustCurryWith(l), expiredRetries: v.retries.MustCurryWith(l),
	}
	for _, op := range []object.Op{object.Created, object.Updated, object.Deleted, object.Read, object.Entered, object.Left} {
		m.deltas[op] = v.deltas.WithLabelValues(scope, string(rune(op)))
	}
	return m
}

// count counts a delta that is handed to the queue.
func (m *metrics) count(d *object.Delta) {
	if d.Stream != nil {
		m.stream.Inc()
		return
	}
	m.deltas[d.Op].Inc()
}

// silences collects the age of each informer's last sign of life, at the time of the scrape.
type silences struct {
	set  *Set
	desc *prometheus.Desc
}

func newSilences(s *Set) *silences {
	return &silences{set: s, desc: prometheus.NewDesc("kubecdc_informer_silence_seconds",
		"Age of the API server's last sign of life (a frame, a watch that was opened, a page of a list); 0 while the watch is ended because the queue is full.",
		[]string{"scope"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *silences) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *silences) Collect(out chan<- prometheus.Metric) {
	now := time.Now()
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	for scope, i := range c.set.informers {
		if d, ok := i.state.silence(now); ok {
			out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, d.Seconds(), scope)
		}
	}
}
