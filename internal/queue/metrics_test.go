package queue_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubecdc/kubecdc/internal/queue"
)

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	q := queue.New[int](queue.Options{Events: 10, Bytes: 100}, reg)
	for i, key := range []string{"a", "b", "b"} {
		if err := q.Lane("pods").Put(t.Context(), key, 7, i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := q.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	want := `
# HELP kubecdc_queue_blocked_seconds_total Time that informers spent waiting for room in the queue, summed over informers.
# TYPE kubecdc_queue_blocked_seconds_total counter
kubecdc_queue_blocked_seconds_total 0
# HELP kubecdc_queue_bytes Bytes held by the events in the queue, as counted against its bound.
# TYPE kubecdc_queue_bytes gauge
kubecdc_queue_bytes 21
# HELP kubecdc_queue_capacity_bytes Bound of the queue in bytes.
# TYPE kubecdc_queue_capacity_bytes gauge
kubecdc_queue_capacity_bytes 100
# HELP kubecdc_queue_capacity_events Bound of the queue in events.
# TYPE kubecdc_queue_capacity_events gauge
kubecdc_queue_capacity_events 10
# HELP kubecdc_queue_events Events that hold a slot of the queue: waiting, or sent and not yet acknowledged.
# TYPE kubecdc_queue_events gauge
kubecdc_queue_events 3
# HELP kubecdc_queue_inflight Events of the queue that are with a worker: not yet acknowledged by the bus.
# TYPE kubecdc_queue_inflight gauge
kubecdc_queue_inflight 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
