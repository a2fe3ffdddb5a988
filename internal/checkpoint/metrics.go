package checkpoint

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	saves    *prometheus.CounterVec
	bytes    prometheus.Gauge
	lastSave prometheus.Gauge
	age      prometheus.GaugeFunc

	began   time.Time
	current atomic.Int64 // when nothing was left to save last, in nanoseconds since began
}

// newMetrics registers the metrics with reg, unless reg is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		began: time.Now(),
		saves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_checkpoint_saves_total",
			Help: "Attempts to save the checkpoint, by result: ok, error (the agent retries), conflict (another client has written it).",
		}, []string{"result"}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubecdc_checkpoint_bytes",
			Help: "Size of the last saved checkpoint, before compression.",
		}),
		lastSave: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubecdc_checkpoint_last_save_timestamp_seconds",
			Help: "Time of the last save of the checkpoint.",
		}),
	}
	m.age = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubecdc_checkpoint_age_seconds",
		Help: "Time since nothing was left to save. A save is due after 5 s, or after 60 s if only resourceVersions moved; a higher value means that saves fail.",
	}, func() float64 { return m.unsaved().Seconds() })
	for _, result := range []string{"ok", "error", "conflict"} {
		// present from the start, so that alerts see the first increase
		m.saves.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.saves, m.bytes, m.lastSave, m.age)
	}
	return m
}

// allSaved records that nothing is left to save.
func (m *metrics) allSaved() { m.current.Store(int64(time.Since(m.began))) }

// unsaved returns for how long there has been something to save.
func (m *metrics) unsaved() time.Duration {
	return time.Since(m.began) - time.Duration(m.current.Load())
}
