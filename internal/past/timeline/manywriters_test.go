package timeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// In mode node, each node has a writer. If some of them are silent, the answer names exactly their
// scopes, and a progress costs the same whatever the number of writers.
func TestManyWritersOfWhichSomeAreSilent(t *testing.T) {
	var took [2]time.Duration
	for range 3 { // a busy machine may be slow in between
		took = [2]time.Duration{addProgress(t, 1_000), addProgress(t, 10_000)}
		if took[1] <= 3*took[0] { // the square would be ten times as much
			return
		}
	}
	t.Errorf("a progress takes %s with 1,000 writers, and %s with 10,000", took[0], took[1])
}

// addProgress adds the progress of writers to a State, checks the certainties, and returns how long
// it took for each progress.
func addProgress(t *testing.T, nodes int) time.Duration {
	t.Helper()
	isSilent := func(node int) bool { return node%10 == 3 }
	var lines strings.Builder
	of := func(node int) string {
		return fmt.Sprintf("scope=pods?fieldSelector=spec.nodeName=node-%d writer=w%d", node, node)
	}
	for node := range nodes {
		fmt.Fprintf(&lines, "0 begin @10 initial %s\n0 started S%d @10 %s\n0 completed S%d @10 %s\n", of(node), node,
			of(node), node, of(node))
	}
	progress := 0
	for m := 1; m <= 6; m++ {
		for node := range nodes {
			if m == 1 || !isSilent(node) {
				fmt.Fprintf(&lines, "%d progress @%d %s\n", m, 10+m, of(node))
				progress++
			}
		}
	}
	events := record(lines.String())
	s := timeline.NewState(timeline.At(minute("4.5")), timeline.Options{})
	begin := time.Now()
	for _, e := range events {
		s.Add(e)
	}
	scopes := s.Scopes()
	whole := time.Since(begin)
	took := whole / time.Duration(progress)
	t.Logf("%d writers, a tenth of them silent: %d events in %v, %v for each progress", nodes, len(events), whole, took)
	if len(scopes) != nodes {
		t.Fatalf("%d scopes, want %d", len(scopes), nodes)
	}
	for _, scope := range scopes {
		var node int
		if _, err := fmt.Sscanf(scope.Name, "pods?fieldSelector=spec.nodeName=node-%d", &node); err != nil {
			t.Fatal(err)
		}
		want := certainty.Exact
		if isSilent(node) {
			want = certainty.Unknown
		}
		if scope.Certainty != want {
			t.Errorf("%s: %v, want %v", scope.Name, scope.Certainty, want)
		}
	}
	return took
}
