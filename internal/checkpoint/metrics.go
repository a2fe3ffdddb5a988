package checkpoint

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	saves    *prometheus.CounterVec
	bytes    prometheus.Gauge
	lastSave prometheus.Gauge
}

// newMetrics registers with reg, unless that is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		saves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_checkpoint_saves_total",
			Help: "Attempts to save the checkpoint, by result: ok, error (it is tried again), conflict (somebody else has written it).",
		}, []string{"result"}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubecdc_checkpoint_bytes",
			Help: "Size of the checkpoint that was saved last, before compression.",
		}),
		lastSave: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubecdc_checkpoint_last_save_timestamp_seconds",
			Help: "When the checkpoint was saved last.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.saves, m.bytes, m.lastSave)
	}
	return m
}
