package timeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/certainty"
	"github.com/kubecdc/kubecdc/internal/timeline"
)

// In mode node, each node has a writer. If some of them are silent, the answer names exactly their
// scopes, and a progress costs the same whatever the number of writers.
func TestManyWritersOfWhichSomeAreSilent(t *testing.T) {
	perProgress := map[int]time.Duration{}
	for _, nodes := range []int{100, 1000, 10_000} {
		isSilent := func(node int) bool { return node%10 == 3 }
		var lines strings.Builder
		of := func(node int) string {
			return fmt.Sprintf("scope=pods?fieldSelector=spec.nodeName=node-%d writer=w%d", node, node)
		}
		for node := range nodes {
			fmt.Fprintf(&lines, "0 begin @10 initial %s\n0 started S%d @10 %s\n0 completed S%d @10 %s\n", of(node), node, of(node), node, of(node))
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
		perProgress[nodes] = time.Since(begin) / time.Duration(progress)
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
	}
	t.Logf("a progress takes %v", perProgress)
	if perProgress[10_000] > 20*perProgress[100] { // the square would be 100 times as much
		t.Errorf("a progress takes %v", perProgress)
	}
}
