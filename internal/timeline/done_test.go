package timeline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// The first snapshot of one resource can be complete before the record has anything of another one. At their common resourceVersion, reading does
// not end between them.
func TestDoneBetweenFirstSnapshots(t *testing.T) {
	t.Parallel()
	s := timeline.NewState(timeline.AtVersion(286, 0), timeline.Options{})
	begin := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	n := 0
	add := func(kind, resource string, rv int) {
		n++
		s.Add(&consume.Event{
			ID: fmt.Sprint(resource, kind, n), Source: "/kubernetes/prod", Type: consume.TypePrefix + kind, Time: begin.Add(time.Duration(n) * time.Second),
			APIVersion: "v1", Resource: resource, Scope: resource, Stream: &consume.Stream{Snapshot: "s", ResourceVersion: fmt.Sprint(rv)},
		})
	}
	add("snapshot.started", "limitranges", 286)
	add("snapshot.completed", "limitranges", 286)
	if s.Done() {
		t.Error("done before the snapshot of pods")
	}
	add("snapshot.started", "pods", 286)
	add("snapshot.completed", "pods", 286)
	add("progress", "limitranges", 290)
	add("progress", "pods", 290)
	if !s.Done() {
		t.Error("not done after the progress of both")
	}
}
