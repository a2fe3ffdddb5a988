package store

import (
	"strconv"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of a store, by the labels of its scope.
type Metrics struct {
	Deltas             map[object.Op]prometheus.Counter // of objects, that are handed to the queue
	Stream             prometheus.Counter               // events about the stream, as well
	Excluded, Known    prometheus.Counter               // watch events that are not taken
	Objects, HeldBytes prometheus.Gauge
	Withheld           *prometheus.CounterVec // by reason
	Gaps               *prometheus.CounterVec // by reason, and whether all of it was recovered
}

// count counts a delta that is handed to the queue.
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
