package store

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/object"
)

// testMetrics are registered nowhere.
func testMetrics() Metrics {
	counter := func() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{}) }
	gauge := func() prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts{}) }
	counters := func(labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{}, labels)
	}
	m := Metrics{
		Deltas:   map[object.Op]prometheus.Counter{},
		Stream:   counter(),
		Excluded: counter(),
		Known:    counter(),
		Objects:  gauge(),
		Withheld: counters("reason"),
		Gaps:     counters("reason", "recovered"),
	}
	for _, op := range object.Ops() {
		m.Deltas[op] = counter()
	}
	return m
}
