package leader

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	pauses prometheus.Counter
}

// newMetrics registers the metrics with reg, unless reg is nil.
func newMetrics(reg prometheus.Registerer, e *Elector) *metrics {
	m := &metrics{pauses: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubecdc_leader_pauses_total",
		Help: "Number of pauses of publishing because the Lease could not be renewed in time.",
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
			if e.fence.isOpen() {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "kubecdc_leader_transitions_total",
			Help: "Number of changes of the leader, as counted in the Lease.",
		}, func() float64 { return float64(e.transitions.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kubecdc_leader_renewal_age_seconds",
			Help: "Time since this agent renewed the Lease (leader) or read it (standby).",
		}, e.renewalAge),
	)
	return m
}
