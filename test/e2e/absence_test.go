package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// This file's name sorts first in the package: its test waits longer than any other, so it must
// start first.

// TestCertaintyOfSilence stops the agent, or blocks the bus, for longer than the largest interval
// between the stream events of a scope. An answer for a moment inside that time is never both exact
// and wrong. An answer for a moment outside is exact.
func TestCertaintyOfSilence(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	away := 125 * time.Second // more than the two minutes of the rule
	if long() {
		away = 10 * time.Minute
	}
	// On a shared plane, the writes of other tests can push the agent's position out of the API
	// server's watch cache meanwhile. Then history is lost, and recovered.
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	for _, tc := range []struct {
		name       string
		stop, back func(*testing.T, *certaintyStage)
		inside     []string
	}{
		{
			"the agent is stopped", func(_ *testing.T, c *certaintyStage) { c.Agent.Crash() },
			func(t *testing.T, c *certaintyStage) { c.Agent.Again(t) },
			[]string{"late"},
		},
		{
			"the bus is blocked", func(_ *testing.T, c *certaintyStage) { c.BusProxy.Hold(true) },
			func(_ *testing.T, c *certaintyStage) { c.BusProxy.Hold(false) },
			[]string{"late", "exact"}, // the agent may have observed it
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCertaintyStage(t, p, fmt.Sprint("silence-", len(tc.inside)), "")
			c.write(t, "before")
			c.mark(t)
			before := c.at(t)
			c.mark(t)
			stopped := time.Now()
			tc.stop(t, c)
			world.Pass(t.Context(), away/2)
			c.write(t, "meanwhile")
			meanwhile := c.at(t)
			world.Pass(t.Context(), away/2)
			back := time.Now()
			tc.back(t, c)
			c.Rewrite(t, c.namespace, "it-0", "after")
			c.mark(t)
			after := c.at(t)
			c.mark(t)
			c.StopAgent(t)
			end := c.at(t)

			known := []string{"exact"}
			if tc.name == "the agent is stopped" { // it was killed before it could say that it had everything
				known = append(known, "late")
			}
			c.says(t, "before", stamp(before), "before", known...)
			scope := c.says(t, "meanwhile", stamp(meanwhile), "meanwhile", tc.inside...)
			if scope.Certainty == "late" &&
				(scope.cause().From.Time.After(meanwhile) || scope.cause().To.Time.Before(back)) {
				oracle.Fail(t, "late from %s to %s: it was stopped from %s to %s", scope.cause().From.Time,
					scope.cause().To.Time, stopped, back)
			}
			c.says(t, "after", stamp(after), "after", "exact")
			c.says(t, "the end", stamp(end), "", "unknown")
		})
	}
}
