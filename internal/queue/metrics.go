package queue

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are read from the queue when they are collected: the path of an item pays nothing for them.
type metrics struct {
	events, bytes, inflight prometheus.GaugeFunc
	maxEvents, maxBytes     prometheus.Gauge
	blocked                 prometheus.CounterFunc
}

// stats is the state of a queue at one moment.
type stats struct {
	events, inflight int
	bytes            int64
	blocked          time.Duration
}

func (q *Queue[T]) stats() stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := stats{events: q.events, inflight: q.events - q.queued, bytes: q.bytes, blocked: q.blocked}
	// Puts that still wait count as well: one that is blocked for an hour has to show during that hour.
	for w := q.puts.first; w != nil; w = w.next {
		s.blocked += time.Since(w.since)
	}
	return s
}

func newMetrics(reg prometheus.Registerer, read func() stats, maxEvents int, maxBytes int64) *metrics {
	f := promauto.With(reg)
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "kubecdc", Subsystem: "queue", Name: name, Help: help}
	}
	m := &metrics{
		events: f.NewGaugeFunc(gauge("events", "Events that hold a slot of the queue: waiting, or sent and not yet acknowledged."),
			func() float64 { return float64(read().events) }),
		bytes: f.NewGaugeFunc(gauge("bytes", "Bytes held by the events in the queue, as counted against its bound."),
			func() float64 { return float64(read().bytes) }),
		inflight: f.NewGaugeFunc(gauge("inflight", "Events of the queue that are with a worker: not yet acknowledged by the bus."),
			func() float64 { return float64(read().inflight) }),
		maxEvents: f.NewGauge(gauge("capacity_events", "Bound of the queue in events.")),
		maxBytes:  f.NewGauge(gauge("capacity_bytes", "Bound of the queue in bytes.")),
		blocked: f.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "kubecdc", Subsystem: "queue", Name: "blocked_seconds_total",
			Help: "Time that informers spent waiting for room in the queue, summed over informers.",
		}, func() float64 { return read().blocked.Seconds() }),
	}
	m.maxEvents.Set(float64(maxEvents))
	m.maxBytes.Set(float64(maxBytes))
	return m
}
