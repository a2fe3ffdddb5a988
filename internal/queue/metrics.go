package queue

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are read from the queue during collection, so that they cost nothing per item.
type metrics struct {
	events, bytes, inflight, inflightBytes, oldest prometheus.GaugeFunc
	maxEvents, maxBytes, maxInflightBytes          prometheus.Gauge
	blocked                                        prometheus.CounterFunc
}

func newMetrics(reg prometheus.Registerer, read func() Stats, bound held, inFlightBytes int64) *metrics {
	f := promauto.With(reg)
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{
			Namespace: "kubecdc",
			Subsystem: "queue",
			Name:      name,
			Help:      help,
		}
	}
	m := &metrics{
		events: f.NewGaugeFunc(
			gauge("events", "Events that hold a slot of the queue: waiting, or sent and not yet acknowledged."),
			func() float64 { return float64(read().Events) }),
		bytes: f.NewGaugeFunc(gauge("bytes", "Bytes held by the events in the queue, as counted against its bound."),
			func() float64 { return float64(read().Bytes) }),
		inflight: f.NewGaugeFunc(
			gauge("inflight", "Events of the queue that are on their way to the bus: not yet acknowledged."),
			func() float64 { return float64(read().Inflight) }),
		inflightBytes: f.NewGaugeFunc(
			gauge("inflight_bytes", "Estimated memory of the events in flight, decoded and encoded, in bytes."),
			func() float64 { return float64(read().InflightBytes) }),
		oldest: f.NewGaugeFunc(
			gauge("oldest_seconds",
				"For how long the oldest event in the queue is known and the bus has not acknowledged it; 0: the queue is empty."),
			func() float64 { return read().Oldest.Seconds() }),
		maxEvents: f.NewGauge(gauge("capacity_events", "Bound of the queue in events.")),
		maxBytes:  f.NewGauge(gauge("capacity_bytes", "Bound of the queue in bytes.")),
		maxInflightBytes: f.NewGauge(
			gauge("capacity_inflight_bytes", "Bound of the bytes in flight (queue.inFlightBytes); 0: there is none.")),
		blocked: f.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "kubecdc",
			Subsystem: "queue",
			Name:      "blocked_seconds_total",
			Help:      "Time that informers spent waiting for room in the queue, summed over informers.",
		}, func() float64 { return read().Blocked.Seconds() }),
	}
	m.maxEvents.Set(float64(bound.events))
	m.maxBytes.Set(float64(bound.bytes))
	m.maxInflightBytes.Set(float64(inFlightBytes))
	return m
}
