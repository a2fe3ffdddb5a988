package e2e_test

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/world"
)

// update stops an agent as a rolling update does: with SIGTERM, upon which it must end without an
// error.
func (c *candidate) update(t testing.TB) {
	t.Helper()
	if err := c.Agent.Stop(time.Minute); err != nil {
		t.Errorf("agent, asked to stop: %v", err)
	}
	c.Killed = true // It ended as expected.
}

// TestRollingUpdate replaces the agents of a Deployment under load. With maxSurge 1, the new agent
// is a standby until the old one has released the Lease. With Recreate, it starts after the old one
// is gone. Nothing is lost, and nothing is sent twice.
func TestRollingUpdate(t *testing.T) {
	slow(t)
	t.Parallel()
	const rounds = 3
	for _, how := range []struct {
		name  string
		surge bool
	}{{"surge", true}, {"recreate", false}} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			e := newElection(t, world.SharedPlane(t), "rolling-"+how.name)
			e.begin(t, 1)
			for range rounds {
				old, epoch := e.leader(t), e.epoch()
				e.Pause(t, 500*time.Millisecond, 2*time.Second)
				if how.surge {
					e.standsBy(t, e.join(t))
					old.update(t)
				} else {
					old.update(t)
					e.join(t)
				}
				e.after(t, epoch)
			}
			outcome, terms := e.judgeTerms(t, "rolling update, "+how.name)
			outcome.Rounds = rounds
			if outcome.Duplicates != 0 || len(terms) != rounds+1 {
				t.Errorf("%d duplicates and %d leaders, want none and %d", outcome.Duplicates, len(terms), rounds+1)
			}
			outcome.report(t)
		})
	}
}
