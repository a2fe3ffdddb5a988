package informer

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Vectors are the metrics of all informers. A thousand scopes must not make thousands of series: a
// metric has the label scope only if somebody acts on one scope because of it. The status has the
// rest. Those with the label begin with the first event.
type Vectors struct {
	deltas, skipped, lists, watches, retries, errors *prometheus.CounterVec
	withheld, gaps                                   *prometheus.CounterVec // by scope
	objects                                          *prometheus.GaugeVec   // by scope
}

// NewVectors registers the metrics.
func NewVectors(reg prometheus.Registerer) *Vectors {
	f, v := promauto.With(reg), &Vectors{}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	v.deltas = counter("kubecdc_informer_deltas_total",
		"Deltas formed, by op (c created, u updated, d deleted, r read, e entered, l left, stream: an event about the stream).",
		"op")
	v.skipped = counter("kubecdc_informer_skipped_total",
		"Watch events skipped, by reason (excluded: no rule takes the object, or it is the agent's own; known: a version that was processed before).",
		"reason")
	v.withheld = counter("kubecdc_informer_withheld_total",
		"Deltas that a rule withheld, by reason (operations, where, error: where could not be evaluated; noise:<name>).",
		"scope", "reason")
	v.objects = f.NewGaugeVec(prometheus.GaugeOpts{Name: "kubecdc_informer_objects", Help: "Last-known objects."},
		[]string{"scope"})
	v.lists = counter("kubecdc_informer_lists_total",
		"Lists of all objects, by cause (start; birth: a resource was defined while the agent was running; gone: no list, because the resource is no longer defined; resume: from the checkpoint; expired: the API server no longer had the history to continue the watch; undecided: an aggregated API server may have another history; replay: the watches end before they show that all changes since the checkpoint were repeated; stalled: the watches end with an error at one version; content: the contents of known versions are compared, beside the watch; retry: the previous list failed).",
		"cause")
	v.watches = counter("kubecdc_informer_watches_total",
		"HTTP watches ended, by cause (closed, error, blocked, silent, held_back: a list shows what it did not, expired, rewound, undecided: history is compared by a list).",
		"cause")
	v.retries = counter("kubecdc_informer_expired_retries_total",
		"Expired watches retried on a new connection, by result (found: the API server had the history; expired; failed).",
		"result")
	v.errors = counter("kubecdc_informer_errors_total",
		"Failed requests that are retried, by reason: the request and the class of the failure, such as list_forbidden or watch_network.",
		"reason")
	v.gaps = counter("kubecdc_informer_gaps_total",
		"Spans of history that could not be read, by reason (expired, compacted, rewound, selection-changed, checkpoint-lost, content-changed: no version is missing); recovered is true if all of its changes were found with lists. A series begins with the first gap.",
		"scope", "reason", "recovered")
	// Create the series at the start, so that increase() counts the first.
	for _, cause := range []string{
		"start", "birth", "gone", "resume", "expired", "undecided", "replay", "stalled", "content", "retry",
	} {
		v.lists.WithLabelValues(cause)
	}
	for _, cause := range []string{
		"closed", "error", "blocked", "silent", "held_back", "expired", "rewound", "undecided",
	} {
		v.watches.WithLabelValues(cause)
	}
	for _, op := range object.Ops() {
		v.deltas.WithLabelValues(string(op))
	}
	return v
}

// Forget deletes the series of a scope.
func (v *Vectors) Forget(scope string) {
	of := prometheus.Labels{"scope": scope}
	v.objects.DeletePartialMatch(of)
	v.withheld.DeletePartialMatch(of)
	v.gaps.DeletePartialMatch(of)
}

type metrics struct {
	store                                  store.Metrics
	lists, watches, errors, expiredRetries *prometheus.CounterVec
}

func (v *Vectors) of(scope string) *metrics {
	l := prometheus.Labels{"scope": scope}
	m := &metrics{
		store: store.Metrics{
			Deltas:   make(map[object.Op]prometheus.Counter),
			Stream:   v.deltas.WithLabelValues("stream"),
			Excluded: v.skipped.WithLabelValues("excluded"),
			Known:    v.skipped.WithLabelValues("known"),
			Objects:  v.objects.With(l),
			Withheld: v.withheld.MustCurryWith(l),
			Gaps:     v.gaps.MustCurryWith(l),
		},
		lists:          v.lists,
		watches:        v.watches,
		errors:         v.errors,
		expiredRetries: v.retries,
	}
	for _, op := range object.Ops() {
		m.store.Deltas[op] = v.deltas.WithLabelValues(string(op))
	}
	return m
}

// Withheld returns the counter of a scope's withheld deltas, by reason.
func (v *Vectors) Withheld(scope string) *prometheus.CounterVec {
	return v.withheld.MustCurryWith(prometheus.Labels{"scope": scope})
}
