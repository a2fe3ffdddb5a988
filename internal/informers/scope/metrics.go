package scope

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Vectors are the metrics of all informers.
type Vectors struct {
	deltas, skipped, withheld, lists, watches, retries, errors, gaps *prometheus.CounterVec
	objects, heldBytes, blocked, synced, lastEvent                   *prometheus.GaugeVec

	all []interface { // of the above
		DeletePartialMatch(labels prometheus.Labels) int
	}
}

// NewVectors registers the metrics.
func NewVectors(reg prometheus.Registerer) *Vectors {
	f, v := promauto.With(reg), &Vectors{}
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
	v.skipped = counter("kubecdc_informer_skipped_total", "Watch events skipped, by reason (excluded: no rule takes the object, or it is the agent's own; known: a version that was processed before).", "reason")
	v.withheld = counter("kubecdc_informer_withheld_total", "Deltas that a rule withheld, by reason (operations, where, error: where could not be evaluated; noise:<name>).", "reason")
	v.objects = gauge("kubecdc_informer_objects", "Last-known objects.")
	v.heldBytes = gauge("kubecdc_informer_held_bytes", "Compressed bytes of last-known objects.")
	v.lists = counter("kubecdc_informer_lists_total", "Lists of all objects, by cause (start; birth: a resource was defined while the agent was running; gone: no list, because the resource is no longer defined; resume: from the checkpoint; expired: the API server no longer had the history to continue the watch; undecided: an aggregated API server may have another history; replay: the watches end before they show that all changes since the checkpoint were repeated; stalled: the watches end with an error at one version; content: the contents of known versions are compared, beside the watch; retry: the previous list failed).", "cause")
	v.watches = counter("kubecdc_informer_watches_total", "HTTP watches ended, by cause (closed, error, blocked, silent, held_back: a list shows what it did not, expired, rewound, undecided: history is compared by a list).", "cause")
	v.retries = counter("kubecdc_informer_expired_retries_total", "Expired watches retried on a new connection, by result (found: the API server had the history; expired; failed).", "result")
	v.errors = counter("kubecdc_informer_errors_total", "Failed requests that are retried, by reason: the request and the class of the failure, such as list_forbidden or watch_network.", "reason")
	v.gaps = counter("kubecdc_informer_gaps_total", "Spans of history that could not be read, by reason (expired, compacted, rewound, selection-changed, checkpoint-lost, content-changed: no version is missing); recovered is true if all of its changes were found with lists.", "reason", "recovered")
	v.blocked = gauge("kubecdc_informer_blocked", "1 while the watch is stopped because the queue is full.")
	v.synced = gauge("kubecdc_informer_synced", "1 once a list has been loaded.")
	v.lastEvent = gauge("kubecdc_informer_last_event_timestamp_seconds", "Time of the last event or bookmark.")
	return v
}

// Forget deletes the series of a scope.
func (v *Vectors) Forget(scope string) {
	for _, vec := range v.all {
		vec.DeletePartialMatch(prometheus.Labels{"scope": scope})
	}
}

type metrics struct {
	store                                  store.Metrics
	blocked, synced, lastSeen              prometheus.Gauge
	lists, watches, errors, expiredRetries *prometheus.CounterVec
}

func (v *Vectors) of(scope string) *metrics {
	l := prometheus.Labels{"scope": scope}
	m := &metrics{
		store: store.Metrics{
			Deltas: make(map[object.Op]prometheus.Counter), Stream: v.deltas.WithLabelValues(scope, "stream"),
			Excluded: v.skipped.WithLabelValues(scope, "excluded"), Known: v.skipped.WithLabelValues(scope, "known"),
			Objects: v.objects.With(l), HeldBytes: v.heldBytes.With(l), Withheld: v.withheld.MustCurryWith(l), Gaps: v.gaps.MustCurryWith(l),
		},
		blocked: v.blocked.With(l), synced: v.synced.With(l), lastSeen: v.lastEvent.With(l),
		lists: v.lists.MustCurryWith(l), watches: v.watches.MustCurryWith(l),
		errors: v.errors.MustCurryWith(l), expiredRetries: v.retries.MustCurryWith(l),
	}
	// Create the series at the start, so that increase() counts the first.
	for _, cause := range []string{"start", "birth", "gone", "resume", "expired", "undecided", "replay", "stalled", "content", "retry"} {
		m.lists.WithLabelValues(cause)
	}
	for _, cause := range []string{"closed", "error", "blocked", "silent", "held_back", "expired", "rewound", "undecided"} {
		m.watches.WithLabelValues(cause)
	}
	for _, g := range object.GapReasons() {
		for _, recovered := range recoveriesOf(g) {
			m.store.Gaps.WithLabelValues(string(g), recovered)
		}
	}
	for _, op := range object.Ops() {
		m.store.Deltas[op] = v.deltas.WithLabelValues(scope, string(op))
	}
	return m
}

// recoveriesOf returns the values of the label recovered that gaps of a reason have.
func recoveriesOf(g object.GapReason) []string {
	switch g {
	case object.Expired, object.ContentChanged:
		return []string{"false", "true"}
	case object.Compacted, object.Rewound, object.CheckpointLost:
		return []string{"false"}
	case object.SelectionChanged:
		return []string{"true"}
	case object.DeadLetter, object.Forbidden: // no informer finds these
	}
	return nil
}

// Withheld returns the counter of a scope's withheld deltas, by reason.
func (v *Vectors) Withheld(scope string) *prometheus.CounterVec {
	return v.withheld.MustCurryWith(prometheus.Labels{"scope": scope})
}
