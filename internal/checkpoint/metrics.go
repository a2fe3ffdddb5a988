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
	current atomic.Int64 // when there was nothing to save last, in nanoseconds since began: what is saved was all there was
}

// newMetrics registers with reg, unless that is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		began: time.Now(),
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
	m.age = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubecdc_checkpoint_age_seconds",
		Help: "Time since nothing was left to be saved. A new checkpoint is due after 5 s, or after 60 s where only resourceVersions have moved; more than that: it cannot be saved.",
	}, func() float64 { return m.unsaved().Seconds() })
	for _, result := range []string{"ok", "error", "conflict"} { // there from the beginning: an alert sees the first
		m.saves.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.saves, m.bytes, m.lastSave, m.age)
	}
	return m
}

// allSaved notes that what is saved is all there is.
func (m *metrics) allSaved() { m.current.Store(int64(time.Since(m.began))) }

// unsaved is for how long there has been something to save.
func (m *metrics) unsaved() time.Duration {
	return time.Since(m.began) - time.Duration(m.current.Load())
}
