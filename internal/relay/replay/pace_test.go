package replay_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/relay/replay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// clocked notes when lines come.
type clocked struct {
	began time.Time
	at    []time.Duration
}

func (c *clocked) Write(p []byte) (int, error) {
	if !strings.Contains(string(p), "snapshot") {
		c.at = append(c.at, time.Since(c.began))
	}
	return len(p), nil
}

func TestSpeedKeepsDistances(t *testing.T) {
	var record strings.Builder
	begin := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	line := func(at time.Duration, id, kind, data string) {
		record.WriteString(
			`{"specversion":"1.0","id":"` + id + `","source":"/kubernetes/c","type":"` + consume.TypePrefix + kind +
				`","time":"` +
				begin.Add(at).
					Format(time.RFC3339Nano) +
				`","cluster":"c","apiversion":"v1","resource":"pods","scope":"pods","data":` + data + "}\n")
	}
	line(0, "pods/s/started", "snapshot.started", `{"snapshot":"s","resourceVersion":"1","objects":0}`)
	line(0, "pods/s/completed", "snapshot.completed", `{"snapshot":"s","resourceVersion":"1","objects":0}`)
	for _, at := range []time.Duration{
		10 * time.Second, 11 * time.Second, 71 * time.Second, 71 * time.Second, 31 * time.Minute,
	} {
		line(at, "pods/started/"+at.String(), "scope.started", `{"resourceVersion":"2"}`)
	}
	for speed, want := range map[float64][]time.Duration{
		10: {0, 100 * time.Millisecond, 6100 * time.Millisecond, 6100 * time.Millisecond, 185 * time.Second},
		1:  {0, time.Second, 61 * time.Second, 61 * time.Second, 1850 * time.Second},
		0:  {0, 0, 0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &clocked{began: time.Now()}
			o := replay.Options{From: timeline.At(begin), To: timeline.At(begin.Add(time.Hour)), Speed: speed}
			if err := once(context.Background(), t.TempDir()+"/position", record.String(), o, w); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, w.at); diff != "" {
				t.Errorf("speed %v (-want +got):\n%s", speed, diff)
			}
		})
	}
}
