package publish

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Metrics are those of a dispatcher and its bus, which share them.
type Metrics struct {
	events      *prometheus.CounterVec
	bytes       prometheus.Counter
	duration    prometheus.Histogram
	lag         prometheus.Histogram
	Retries     *prometheus.CounterVec
	Duplicates  prometheus.Counter
	Connected   prometheus.Gauge
	oversize    *prometheus.CounterVec
	deadLetters *prometheus.CounterVec
	alone       prometheus.Gauge
}

// retryReasons are the reasons of retries, of every bus.
func retryReasons() []string {
	return []string{
		ReasonTimeout, ReasonConnection, ReasonNoResponders, ReasonStreamFull, ReasonLimit, ReasonStore, ReasonUnavailable, ReasonOtherStream,
		ReasonRejected, ReasonMalformed, ReasonClaim, ReasonCut, ReasonThrottled, ReasonServerError, ReasonUnauthorized, ReasonProxy, ReasonNotFound,
		ReasonRedirect, ReasonCredentials, ReasonTLS, ReasonUnexpected, ReasonLeader, ReasonReplicas, ReasonStorage, ReasonAuthorization,
		ReasonSequence, ReasonSplit, ReasonTimestamp, ReasonBroker,
	}
}

// observe counts an event that the bus acknowledged now, except by its resource; start is when it was handed over.
func (m *Metrics) observe(ev *encode.Event, start, now time.Time) {
	m.duration.Observe(now.Sub(start).Seconds())
	m.bytes.Add(float64(len(ev.Body)))
	d := ev.Delta
	if d.Stream == nil && d.Op != object.Read && !d.Inferred {
		m.lag.Observe(max(0, float64(now.UnixNano()-d.Observed)/1e9))
	}
}

// NewMetrics registers with reg, unless that is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_publish_events_total",
			Help: "Events that the bus has acknowledged.",
		}, []string{"resource"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubecdc_publish_bytes_total",
			Help: "Size of the bodies of acknowledged events.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubecdc_publish_duration_seconds",
			Help:    "Time from the hand-over of an event to the bus until its acknowledgement, retries included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubecdc_publish_lag_seconds",
			Help:    "Time from when the agent observed a live change until the bus acknowledged its event.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600},
		}),
		Retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_publish_retries_total",
			Help: "Attempts that failed and are made again, by reason; those of the other kinds of bus stay 0. stream_full and throttled are backpressure.",
		}, []string{"reason"}),
		Duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubecdc_publish_duplicates_total",
			Help: "Events that the bus acknowledged as copies of one that it has.",
		}),
		Connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubecdc_publish_connected",
			Help: "1 while a connection to the bus stands and its stream has been checked.",
		}),
		oversize: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_publish_oversize_events_total",
			Help: "Events that were too large for the bus and are on it shortened, by the last that they gave up: patch, before, or reference (the whole is in the claim store).",
		}, []string{"given_up"}),
		alone: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubecdc_publish_isolated_events",
			Help: "Events that are sent one at a time, on a connection of their own, because the bus denies them alone or connections break with them. kubecdc dead-letter lists them.",
		}),
		deadLetters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_publish_dead_letters_total",
			Help: "Events that are in the dead letters and not on the bus, by reason: too_large, refused or encode. An alert: consumers find a gap in their place.",
		}, []string{"reason"}),
	}
	for _, step := range []string{GiveUpPatch, GiveUpBefore, Reference} { // there from the beginning: an alert sees the first
		m.oversize.WithLabelValues(step)
	}
	for _, reason := range retryReasons() {
		m.Retries.WithLabelValues(reason)
	}
	for _, reason := range []string{letterTooLarge, letterRefused, letterEncode} {
		m.deadLetters.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(m.events, m.bytes, m.duration, m.lag, m.Retries, m.Duplicates, m.Connected, m.oversize, m.deadLetters, m.alone)
	}
	return m
}

// Totals are sums since the process began.
type Totals struct {
	Events, Bytes uint64 // acknowledged
	Retries       uint64 // attempts that failed and were made again
	Duplicates    uint64 // acknowledged as copies
	Shortened     uint64 // events that were too large
	DeadLetters   uint64
}

// Totals adds up what is counted.
func (m *Metrics) Totals() Totals {
	return Totals{
		Events: total(m.events), Bytes: total(m.bytes), Retries: total(m.Retries), Duplicates: total(m.Duplicates),
		Shortened: total(m.oversize), DeadLetters: total(m.deadLetters),
	}
}

// total is the sum of the counters of c.
func total(c prometheus.Collector) uint64 {
	reg := prometheus.NewRegistry()
	if reg.Register(c) != nil {
		return 0 // no collector of this package
	}
	families, err := reg.Gather()
	if err != nil {
		return 0
	}
	sum := 0.0
	for _, f := range families {
		for _, one := range f.GetMetric() {
			sum += one.GetCounter().GetValue()
		}
	}
	return uint64(sum)
}
