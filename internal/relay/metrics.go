package relay

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of all relays of a process, which are told apart by the label relay.
type Metrics struct {
	delivered *prometheus.CounterVec
	passed    *prometheus.CounterVec
	missed    *prometheus.CounterVec
	behind    *prometheus.GaugeVec
	saved     *prometheus.GaugeVec
	up        *prometheus.GaugeVec
}

// Why a record was not delivered.
const (
	passedFilter     = "filter"
	passedUnreadable = "unreadable"
	passedRefused    = "refused"
)

// NewMetrics registers with reg, unless that is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "kubecdc", Subsystem: "relay", Name: name, Help: help}
	}
	m := &Metrics{
		delivered: prometheus.NewCounterVec(prometheus.CounterOpts(opts("delivered_total",
			"Records that the relay's target has acknowledged.")), []string{"relay"}),
		passed: prometheus.NewCounterVec(prometheus.CounterOpts(opts("passed_over_total",
			"Records that were not delivered, by reason: not asked for (filter), no event of kubecdc (unreadable), refused by the target and skipped as configured (refused).")),
			[]string{"relay", "reason"}),
		missed: prometheus.NewCounterVec(prometheus.CounterOpts(opts("missed_total",
			"Records that the bus no longer held when the relay came to them.")), []string{"relay"}),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("behind_records",
			"Records on the bus beyond what the relay has delivered, looked up every 10 s.")), []string{"relay"}),
		saved: prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("cursor_saved_timestamp_seconds",
			"When the relay's cursor was saved last.")), []string{"relay"}),
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("up",
			"1 while the relay runs; 0: it has ended, its log says why.")), []string{"relay"}),
	}
	if reg != nil {
		reg.MustRegister(m.delivered, m.passed, m.missed, m.behind, m.saved, m.up)
	}
	return m
}

// begin has the relay's metrics there before something happens: who takes an increase sees the first.
func (m *Metrics) begin(name string) {
	for _, v := range []*prometheus.CounterVec{m.delivered, m.missed} {
		v.WithLabelValues(name)
	}
	for _, reason := range []string{passedFilter, passedUnreadable, passedRefused} {
		m.passed.WithLabelValues(name, reason)
	}
	m.behind.WithLabelValues(name)
	m.up.WithLabelValues(name)
}
