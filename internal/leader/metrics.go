package leader

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	pauses prometheus.Counter
}

// newMetrics registers with reg, unless that is nil.
func newMetrics(reg prometheus.Registerer, e *Elector) *metrics {
	m := &metrics{pauses: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubecdc_leader_pauses_total",
		Help: "How often publishing paused because the Lease could not be renewed in time.",
	})}
	if reg == nil {
		return m
	}
	reg.MustRegister(
		m.pauses,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kubecdc_leader",
			Help: "1 while this agent leads and may write to the bus, 0 while it is a standby or cannot renew the Lease.",
		}, func() float64 {
			if e.fence.open() {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "kubecdc_leader_transitions_total",
			Help: "How often the Lease went from one agent to another, as the Lease itself counts it.",
		}, func() float64 { return float64(e.transitions.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kubecdc_leader_renewal_age_seconds",
			Help: "How long ago this agent, leading, renewed the Lease, or, standing by, saw it.",
		}, e.age),
	)
	return m
}
