package filter

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of all filters of a process, which are told apart by the label rule. nil counts nothing.
type Metrics struct {
	errors *prometheus.CounterVec
}

// NewMetrics registers with reg, unless that is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{errors: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "kubecdc", Subsystem: "filter", Name: "errors_total",
		Help: "Changes for which the rule's where could not be evaluated; onError says what became of them.",
	}, []string{"rule"})}
	if reg != nil {
		reg.MustRegister(m.errors)
	}
	return m
}

// of is the counter of one rule, 0 from the start. It is registered nowhere where m is nil.
func (m *Metrics) of(rule string) prometheus.Counter {
	if m == nil {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "kubecdc_filter_errors_total", Help: "Not shown."})
	}
	return m.errors.WithLabelValues(rule)
}
