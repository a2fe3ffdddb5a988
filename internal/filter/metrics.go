package filter

import "github.com/prometheus/client_golang/prometheus"

// Metrics are shared by all filters of a process; the label rule distinguishes them. A nil *Metrics
// counts nothing.
type Metrics struct {
	errors *prometheus.CounterVec
}

// NewMetrics registers with reg, unless reg is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{errors: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "kubecdc",
		Subsystem: "filter",
		Name:      "errors_total",
		Help:      "Changes for which the rule's where could not be evaluated; onError decides whether they were sent.",
	}, []string{"rule"})}
	if reg != nil {
		reg.MustRegister(m.errors)
	}
	return m
}

// of returns the counter of one rule, which starts at 0. If m is nil the counter is not registered.
func (m *Metrics) of(rule string) prometheus.Counter {
	if m == nil {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "kubecdc_filter_errors_total", Help: "Not shown."})
	}
	return m.errors.WithLabelValues(rule)
}
