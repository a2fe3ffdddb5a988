package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of all relays of a process, with the label relay.
type Metrics struct {
	delivered *prometheus.CounterVec
	passed    *prometheus.CounterVec
	missed    *prometheus.CounterVec
	behind    *prometheus.GaugeVec
	saved     *prometheus.GaugeVec
	up        *prometheus.GaugeVec
}

// Reasons why a record was not delivered.
const (
	passedFilter     = "filter"
	passedUnreadable = "unreadable"
	passedRefused    = "refused"
	passedLate       = "late"
)

// NewMetrics registers the metrics with reg, unless that is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kubecdc",
			Subsystem: "relay",
			Name:      name,
			Help:      help,
		},
			append([]string{"relay"}, labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "kubecdc",
			Subsystem: "relay",
			Name:      name,
			Help:      help,
		},
			[]string{"relay"})
	}
	return &Metrics{
		delivered: counter("delivered_total", "Records that the relay's target has acknowledged."),
		passed: counter("passed_over_total",
			"Records that were not delivered, by reason: not selected (filter), not an event of kubecdc (unreadable), "+
				"rejected by the target and skipped as configured (refused), progress that would have waited for earlier records (late).",
			"reason"),
		missed: counter("missed_total", "Records that the bus had removed before the relay read them."),
		behind: gauge("behind_records",
			"Records on the bus beyond what the relay has delivered, looked up every 10 s."),
		saved: gauge("cursor_saved_timestamp_seconds", "Time of the last save of the relay's cursor."),
		up:    gauge("up", "1 while the relay runs; 0: it has stopped, and the log has the reason."),
	}
}

// begin creates the relay's metrics in advance, so that a query for an increase sees the first one.
func (m *Metrics) begin(name string) {
	for _, v := range []*prometheus.CounterVec{m.delivered, m.missed} {
		v.WithLabelValues(name)
	}
	for _, reason := range []string{passedFilter, passedUnreadable, passedRefused, passedLate} {
		m.passed.WithLabelValues(name, reason)
	}
	m.behind.WithLabelValues(name)
	m.up.WithLabelValues(name)
}
