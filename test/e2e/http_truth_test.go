package e2e_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestHTTPTruth sends to a receiver that refuses temporarily in every way, hangs, and cuts
// connections.
func TestHTTPTruth(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.SharedPlane(t)
	for _, tc := range []struct {
		name, more, event string
		mode              string // The content type that the receiver sees.
	}{
		{"structured", "timeout: 2s", "", "application/cloudevents+json"},
		{"binary", "timeout: 2s", "event: {mode: binary}", "application/json"},
		{"batched", "timeout: 2s, batch: 64", "", "application/cloudevents-batch+json"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := world.StartReceiver(t, nil)
			h.More = tc.more
			run := &busTruth{
				To: h, Namespace: "truth-http-" + tc.name, Revisions: revisions(4_000), Extra: tc.event,
				Trouble: h.Misbehave,
				Enough:  func() bool { return len(h.Count()) > int(world.CutAfter) },
			}
			got := run.run(t, p)
			conducts := h.Count()
			for how := world.Accept; how <= world.CutAfter; how++ {
				if conducts[how] == 0 {
					t.Errorf("the receiver has never done %q", how)
				}
			}
			modes, largest := h.Seen()
			for _, mode := range modes {
				if mode != tc.mode && mode != tc.mode+"; charset=utf-8" {
					t.Errorf("a request of %s, want %s", mode, tc.mode)
				}
			}
			// On a busy machine, an answer may also be late: the agent counts each request that it
			// repeats.
			if again := sentAgain(t, run.agent, "cut", "timeout", "connection"); got.Duplicates > again*largest {
				oracle.Fail(t, "%d duplicates, where %d requests were sent again without an answer", got.Duplicates,
					again)
			}
			t.Logf("requests: %v, most events in one: %d", conducts, largest)
		})
	}
}

// sentAgain returns how often the agent has published something again for one of these reasons,
// from its metrics.
func sentAgain(t testing.TB, a *world.Agent, reasons ...string) int {
	t.Helper()
	sum := 0
	for _, reason := range reasons {
		n, err := a.Metric(t.Context(), "kubecdc_publish_retries_total", `reason="`+reason+`"`)
		if err == nil { // Otherwise there was none.
			sum += int(n)
		}
	}
	return sum
}
