package publish

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of a pump and its publisher, which share them.
type Metrics struct {
	events     *prometheus.CounterVec
	bytes      prometheus.Counter
	duration   prometheus.Histogram
	retries    *prometheus.CounterVec
	duplicates prometheus.Counter
	connected  prometheus.Gauge
	parked     prometheus.Gauge
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
		parked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubecdc_publish_parked_events",
			Help: "Events that could not be encoded or were refused, and are tried again; each holds up its object.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.events, m.bytes, m.duration, m.retries, m.duplicates, m.connected, m.parked)
	}
	return m
}
