package reload

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are registered only with a configuration file.
type metrics struct {
	reloads    *prometheus.CounterVec
	successful prometheus.Gauge
	last       prometheus.Gauge
	info       *prometheus.GaugeVec
}

// newMetrics registers the metrics. pending returns for how long a changed configuration has not
// been in force everywhere.
func newMetrics(reg prometheus.Registerer, pending func() time.Duration) *metrics {
	m := &metrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_config_reloads_total",
			Help: "Number of times that the agent read the configuration file after a change or SIGHUP, by result. applied; refused: it is invalid, or changes " +
				"a key that needs a restart; unchanged: it is equivalent to the previous one; failed: it could not be read or applied.",
		}, []string{"result"}),
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubecdc_config_last_reload_successful",
			Help: "1 if the configuration file, as it was last read, is in force; 0 if it was refused or failed, and the previous one is.",
		}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubecdc_config_last_reload_success_timestamp_seconds",
			Help: "Time at which the configuration file was last applied, or found unchanged: at the start, or by a reload.",
		}),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubecdc_config_info",
			Help: "1, labelled with the sha256 of the configuration file in force: equal for agents with equal files.",
		}, []string{"sha256"}),
	}
	for _, r := range []result{resultApplied, resultRefused, resultUnchanged, resultFailed} {
		m.reloads.WithLabelValues(string(r))
	}
	reg.MustRegister(m.reloads, m.successful, m.last, m.info, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubecdc_config_reload_pending_seconds",
		Help: "Time for which a changed configuration file has been valid and not in force for all scopes; 0 if it is. It waits for the API server, or " +
			"for the bus to acknowledge earlier events.",
	}, func() float64 { return pending().Seconds() }))
	return m
}

func (m *metrics) countResult(r result) {
	m.reloads.WithLabelValues(string(r)).Inc()
	if r == resultRefused || r == resultFailed {
		m.successful.Set(0)
	}
}

// setInForce records that a file is in force since at.
func (m *metrics) setInForce(hash string, at time.Time) {
	m.successful.Set(1)
	m.last.Set(float64(at.UnixNano()) / 1e9)
	m.info.Reset()
	m.info.WithLabelValues(hash).Set(1)
}
