package store

import (
	"strconv"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of one scope.
type Metrics struct {
	Deltas             map[object.Op]prometheus.Counter // of objects, handed to the lane
	Stream             prometheus.Counter               // stream events handed to the lane
	Excluded, Known    prometheus.Counter               // watch events not taken: no rule takes the object; the version was applied before
	Objects, HeldBytes prometheus.Gauge
	Withheld           *prometheus.CounterVec // by reason
	Gaps               *prometheus.CounterVec // by reason, and whether the gap is recovered
}

// count counts a delta that is handed to the lane.
func (m *Metrics) count(d *object.Delta) {
	if ev := d.Stream; ev != nil {
		m.Stream.Inc()
		if ev.Kind == object.Gap {
			m.Gaps.WithLabelValues(string(ev.Reason), strconv.FormatBool(ev.Recovered)).Inc()
		}
		return
	}
	m.Deltas[d.Op].Inc()
}
