package timeline_test

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// The version of the API server at a moment is the last one that a progress up to the moment
// states. Without one, the first progress of a later run states it.
func TestAPIServerVersion(t *testing.T) {
	t.Parallel()
	progress := func(minutes, number int, version string) *consume.Event {
		return &consume.Event{
			Type:     consume.TypeProgress,
			Source:   source,
			Time:     noon.Add(time.Duration(minutes) * time.Minute),
			Progress: &consume.Progress{Writer: "w", Run: "1", Number: number, APIServerVersion: version},
		}
	}
	for name, c := range map[string]struct {
		events []*consume.Event
		want   string
	}{
		"none is stated": {[]*consume.Event{progress(1, 1, "")}, ""},
		"a later progress does not repeat it": {
			[]*consume.Event{progress(1, 1, "v1"), progress(2, 2, "")}, "v1",
		},
		"an upgrade before the moment":      {[]*consume.Event{progress(1, 1, "v1"), progress(9, 1, "v2")}, "v2"},
		"an upgrade after the moment":       {[]*consume.Event{progress(1, 1, "v1"), progress(11, 1, "v2")}, "v1"},
		"an earlier progress comes late":    {[]*consume.Event{progress(9, 1, "v2"), progress(1, 1, "v1")}, "v2"},
		"only a later run states it":        {[]*consume.Event{progress(11, 1, "v1")}, "v1"},
		"two later runs state it":           {[]*consume.Event{progress(11, 1, "v1"), progress(12, 1, "v2")}, "v1"},
		"a later run, and not at its start": {[]*consume.Event{progress(11, 2, "v1")}, ""},
		"a later run, then one before the moment": {
			[]*consume.Event{progress(11, 1, "v2"), progress(9, 2, "v1")}, "v1",
		},
	} {
		f := timeline.NewFold(timeline.At(minute("10")), timeline.Options{})
		for _, e := range c.events {
			f.Add(e)
		}
		if got := f.APIServerVersion(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
