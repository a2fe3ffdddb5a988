package record_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// The late spans of a history with a beginning are those from all records, in drawn worlds.
func TestLateSpansSinceATime(t *testing.T) {
	lates := 0
	rapid.Check(t, func(t *rapid.T) {
		begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		k, end := drawTopic(t, begin, 1)
		j := streamOf(k)
		if j.hasMixedSnapshots() {
			return
		}
		s := &record.Selection{Resources: []record.Resource{{Plural: "pods"}}}
		seconds := int(end.Sub(begin).Seconds())
		since := timeline.At(begin.Add(time.Duration(rapid.IntRange(0, seconds).Draw(t, "since")) * time.Second))
		find := func(source consume.Source) map[string][]string {
			var all []timeline.Late
			r := &record.Record{Source: source, OnLate: func(some []timeline.Late) error {
				all = append(all, some...)
				return nil
			}}
			ignore := func(*timeline.Version, *consume.Event) error { return nil }
			if _, _, err := r.Versions(t.Context(), s, &since, timeline.Now(end), ignore); err != nil {
				t.Fatal(err)
			}
			lates += len(all)
			return byScope(all)
		}
		want, got := find(seeking(j, false)), find(j)
		// Retention has removed the start of such a scope: the reader of a part does not find it.
		maps.DeleteFunc(want, func(name string, _ []string) bool {
			return got[name] == nil && !j.hasScope("pods "+name, timeline.Now(end))
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("since %s (-want +got):\n%s\n%s", since, diff, k)
		}
	})
	if lates == 0 && !testing.Short() {
		t.Error("no span was late")
	}
}
