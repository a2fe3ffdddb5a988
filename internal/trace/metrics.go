package trace

import "github.com/prometheus/client_golang/prometheus"

// Reasons for dropped spans.
const (
	dropQueue       = "queue_full"  // the collector is slower than the agent
	dropUnreachable = "unreachable" // the collector did not take them in time
	dropRefused     = "refused"     // the collector rejected them
	dropShutdown    = "shutdown"    // the agent ended before it could send them
)

type metrics struct {
	exported prometheus.Counter
	dropped  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		exported: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubecdc_trace_spans_exported_total",
			Help: "Spans that the collector has accepted.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubecdc_trace_spans_dropped_total",
			Help: "Spans that did not reach the collector, by reason: queue_full, unreachable, refused or shutdown. Events are not affected.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{dropQueue, dropUnreachable, dropRefused, dropShutdown} {
		m.dropped.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(m.exported, m.dropped)
	}
	return m
}
