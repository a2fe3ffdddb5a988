package timeline

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// An entry without a scope is about the scopes that were started before the progress. A scope that
// was started at the time of the progress is not among them.
func TestProgressIsAboutEarlierScopes(t *testing.T) {
	t.Parallel()
	started := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	w := &writer{}
	w.noteScope(&consume.Event{
		Type:     consume.TypeScopeStarted,
		Time:     started,
		Resource: "pods",
		Scope:    "pods/shop",
		Stream:   &consume.Stream{Run: "run-1"},
	}, true)
	p := &consume.Progress{Run: "run-1", Scopes: []consume.ScopeProgress{{Resource: "pods"}}}
	for after, want := range map[time.Duration][]string{
		0:               nil,
		time.Nanosecond: {"pods/shop"},
	} {
		if diff := cmp.Diff(want, w.scopesOf(p, 0, started.Add(after))); diff != "" {
			t.Errorf("%s after the start: -want +got\n%s", after, diff)
		}
	}
}
