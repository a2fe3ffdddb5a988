package timeline_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// BenchmarkState folds a snapshot of 100,000 objects of 2 KB into two States, and reports the
// memory that they hold for each object.
func BenchmarkState(b *testing.B) {
	const objects = 100_000
	padding := bytes.Repeat([]byte("x"), 2000)
	var all timeline.States
	for b.Loop() {
		all = timeline.States{
			timeline.NewState(timeline.Moment{}, timeline.Options{}),
			timeline.NewState(timeline.Moment{}, timeline.Options{}),
		}
		for n := range objects {
			rv := fmt.Sprint(n + 1)
			e := &consume.Event{
				ID:              "pods/" + rv,
				Source:          source,
				APIVersion:      "v1",
				Kind:            "Pod",
				Resource:        "pods",
				Namespace:       "shop",
				Name:            "web-" + rv,
				UID:             "00000000-0000-0000-0000-" + rv,
				Op:              consume.Read,
				ResourceVersion: rv,
				Sequence:        rv,
				Data: &consume.Data{
					Op:       consume.Read,
					Snapshot: "S1",
					After:    append(append([]byte(`{"a":"`), padding...), `"}`...),
				},
			}
			all.Add(e)
		}
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/objects, "B/object")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/objects, "ns/object")
	runtime.KeepAlive(all)
}
