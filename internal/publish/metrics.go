package publish

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of a pump and its publisher, which share them.
type Metrics struct {
	events      *prometheus.CounterVec
	bytes       prometheus.Counter
	duration    prometheus.Histogram
	retries     *prometheus.CounterVec
	duplicates  prometheus.Counter
	connected   prometheus.Gauge
	oversize    *prometheus.CounterVec
	deadLetters *prometheus.CounterVec
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
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_publish_retries_total",
			Help: "Attempts that failed and are made again, by reason; stream_full is backpressure.",
		}, []string{"reason"}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubecdc_publish_duplicates_total",
			Help: "Events that the bus acknowledged as copies of one that it has.",
		}),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubecdc_publish_connected",
			Help: "1 while a connection to the bus stands and its stream has been checked.",
		}),
		oversize: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_publish_oversize_events_total",
			Help: "Events that were too large for the bus and are on it shortened, by the last that they gave up: patch, before, or reference (the whole is in the claim store).",
		}, []string{"given_up"}),
		deadLetters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_publish_dead_letters_total",
			Help: "Events that are in the dead letters and not on the bus, by reason: too_large, refused or encode. An alert: consumers find a gap in their place.",
		}, []string{"reason"}),
	}
	for _, step := range []string{GiveUpPatch, GiveUpBefore, Reference} { // there from the beginning: an alert sees the first
		m.oversize.WithLabelValues(step)
	}
	for _, reason := range []string{letterTooLarge, letterRefused, letterEncode} {
		m.deadLetters.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(m.events, m.bytes, m.duration, m.retries, m.duplicates, m.connected, m.oversize, m.deadLetters)
	}
	return m
}
