package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubecdc/kubecdc/internal/queue"
)

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	q := queue.New[int](queue.Options{Events: 10, Bytes: 100, InFlightBytes: 60}, reg)
	q.WeighBy(func(int) int64 { return 50 })
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
# HELP kubecdc_queue_capacity_inflight_bytes Bound of the bytes in flight (queue.inFlightBytes); 0: there is none.
# TYPE kubecdc_queue_capacity_inflight_bytes gauge
kubecdc_queue_capacity_inflight_bytes 60
# HELP kubecdc_queue_events Events that hold a slot of the queue: waiting, or sent and not yet acknowledged.
# TYPE kubecdc_queue_events gauge
kubecdc_queue_events 3
# HELP kubecdc_queue_inflight Events of the queue that are on their way to the bus: not yet acknowledged.
# TYPE kubecdc_queue_inflight gauge
kubecdc_queue_inflight 1
# HELP kubecdc_queue_inflight_bytes Estimated memory of the events in flight, decoded and encoded, in bytes.
# TYPE kubecdc_queue_inflight_bytes gauge
kubecdc_queue_inflight_bytes 50
# HELP kubecdc_queue_oldest_seconds For how long the oldest event in the queue is known and the bus has not acknowledged it; 0: the queue is empty.
# TYPE kubecdc_queue_oldest_seconds gauge
kubecdc_queue_oldest_seconds 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// The oldest is the one that was taken first of those whose slot is not free, in whichever order
// they are done.
func TestAgeOfTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		q := queue.New[time.Time](queue.Options{Events: 10, Bytes: 100}, reg)
		q.AgeBy(func(since time.Time) time.Time { return since })
		var items []*queue.Item[time.Time]
		for _, key := range []string{"a", "b", "c", "d"} {
			<-time.After(time.Minute)
			if err := q.Lane(key).Put(t.Context(), key, 7, time.Now()); err != nil {
				t.Fatal(err)
			}
			it, err := q.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, it)
		}
		for _, step := range []struct {
			done int
			want time.Duration
		}{{-1, 3 * time.Minute}, {2, 3 * time.Minute}, {0, 2 * time.Minute}, {1, 0}, {3, 0}} {
			if step.done >= 0 {
				q.Done(items[step.done])
			}
			want := fmt.Sprintf(`
# HELP kubecdc_queue_oldest_seconds For how long the oldest event in the queue is known and the bus has not acknowledged it; 0: the queue is empty.
# TYPE kubecdc_queue_oldest_seconds gauge
kubecdc_queue_oldest_seconds %v
`, step.want.Seconds())
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want),
				"kubecdc_queue_oldest_seconds"); err != nil {
				t.Errorf("after the end of %d: %v", step.done, err)
			}
		}
	})
}
