package e2e_test

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestLeaderPausedBriefly stops a leader for less than its Lease duration, once for so long that it
// must renew the Lease before it may write again. It keeps the lead, and no other agent ever takes
// it.
func TestLeaderPausedBriefly(t *testing.T) {
	slow(t)
	t.Parallel()
	e := newElection(t, world.SharedPlane(t), "failover-brief")
	e.timing = ", leaseDuration: 20s, renewDeadline: 3s, retryPeriod: 1s"
	e.begin(t, 2)
	leader := e.leader(t)
	for _, d := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 5 * time.Second} {
		leader.freeze(t)
		world.Pass(t.Context(), d)
		leader.thaw(t)
		e.caughtUp(t)
		e.leader(t)
	}
	outcome, terms := e.judgeTerms(t, "paused briefly")
	if len(terms) != 1 || outcome.Duplicates != 0 {
		t.Errorf("%d leaders and %d duplicates, want one and none", len(terms), outcome.Duplicates)
	}
	if leader.Ended() {
		t.Errorf("the leader has ended: %v", leader.Err)
	}
	outcome.report(t)
}

// TestLeaderSurvivesAPIServers stops the only API server, for less and for more than the Lease
// duration. Nobody can take the Lease meanwhile. A single leader stops writing, and keeps the lead
// when the API server is back. With a standby, either agent may lead then.
func TestLeaderSurvivesAPIServers(t *testing.T) {
	slow(t)
	notRacing(t)
	t.Parallel()
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	elections := make([]*election, 2) // One has one agent, the other two. Both lose the API server at the same moments.
	first := make([]*candidate, 2)
	for i := range elections {
		elections[i] = newElection(t, p, fmt.Sprint("failover-server-", i+1))
		elections[i].begin(t, i+1)
		first[i] = elections[i].leader(t)
	}
	for _, away := range []time.Duration{3 * time.Second, 15 * time.Second} {
		elections[0].Pause(t, time.Second, 2*time.Second)
		gone := time.Now()
		p.StopAPIServer(0)
		world.Pass(t.Context(), away)
		if err := p.StartAPIServer(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		// The API server may have stopped again while an agent was still recovering the missed
		// changes.
		lost := oracle.Loss{Rev: p.Now(t), Final: true}
		for i, e := range elections {
			e.away = max(e.away, time.Since(gone))
			e.Losses = append(e.Losses, lost)
			e.led(t, i+1)
			e.caughtUp(t)
		}
	}
	for i, e := range elections {
		t.Run(fmt.Sprint("agents ", i+1), func(t *testing.T) {
			outcome, terms := e.judgeTerms(t, fmt.Sprint("API server away, agents: ", i+1))
			if i == 0 && (len(terms) != 1 || first[i].Ended()) {
				t.Errorf("%d leaders, the first has ended %t; want the one, and that it goes on", len(terms),
					first[i].Ended())
			}
			if outcome.Duplicates != 0 && len(terms) == 1 {
				t.Errorf("%d duplicates of the one leader", outcome.Duplicates)
			}
			outcome.report(t)
		})
	}
}

// led waits until one of n agents leads and the others are standbys. It restarts agents that have
// ended because another leads.
func (e *election) led(t testing.TB, n int) {
	t.Helper()
	wait.Eventually(t, time.Minute, func() error {
		leading, standing := 0, 0
		for _, c := range e.agents {
			if c.Ended() {
				if n == 1 {
					t.Fatalf("the only agent has ended: %v", c.Err)
				}
				c.Again(t)
			}
			if leads, err := c.leads(t.Context()); err == nil && leads {
				leading++
			}
			if c.standby(t.Context()) == nil {
				standing++
			}
		}
		if leading != 1 || standing != n-1 {
			return fmt.Errorf("of %d agents %d lead and %d stand by", n, leading, standing)
		}
		return nil
	})
}

// TestLeaseDeleted deletes the Lease while an agent leads, and again when none does. A new Lease
// does not have the previous epochs: the epoch continues from the checkpoint.
func TestLeaseDeleted(t *testing.T) {
	slow(t)
	t.Parallel()
	e := newElection(t, world.SharedPlane(t), "failover-deleted")
	e.begin(t, 2)
	next := func() {
		t.Helper()
		leader, epoch := e.leader(t), e.epoch()
		leader.Crash()
		e.after(t, epoch)
		leader.Again(t)
		e.standsBy(t, leader)
	}
	next()
	next()
	before := e.epoch()
	e.unlease(t)
	wait.Eventually(t, time.Minute, func() error {
		_, err := e.Plane.API.Get(t.Context(), e.lease())
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err
	})
	e.led(t, 2)
	e.caughtUp(t)
	t.Logf("epoch %d before the Lease was deleted, %d behind it", before, e.epoch())
	next()

	leader, epoch := e.leader(t), e.epoch()
	leader.Crash()
	e.unlease(t)
	e.after(t, epoch)
	leader.Again(t)
	e.standsBy(t, leader)

	outcome, terms := e.judgeTerms(t, "Lease deleted")
	if len(terms) != 5 {
		t.Errorf("%d leaders, want five: who leads keeps the lead", len(terms))
	}
	outcome.report(t)
}

// TestStandbyAway cuts a standby off from the API server for longer than the Lease duration. It
// must not conclude that the leader is gone, and becomes a standby again.
func TestStandbyAway(t *testing.T) {
	slow(t)
	t.Parallel()
	e := newElection(t, world.SharedPlane(t), "failover-away")
	e.begin(t, 2)
	leader, other := e.agents[0], e.agents[1]
	other.api.Refuse(true)
	other.api.Cut()
	e.caughtUp(t)
	if other.Ended() {
		t.Errorf("the standby has ended: %v", other.Err)
	}
	if leads, err := leader.leads(t.Context()); err != nil || !leads {
		t.Errorf("the leader leads %t: %v", leads, err)
	}
	// Longer than the Lease duration, in which the standby cannot read the Lease.
	world.Pass(t.Context(), 7*time.Second)
	if leads, err := other.leads(t.Context()); err != nil || leads {
		t.Errorf("a standby that has not seen the Lease for longer than it lasts leads %t: %v", leads, err)
	}
	other.api.Refuse(false)
	e.standsBy(t, other)
	outcome, terms := e.judgeTerms(t, "standby away")
	if len(terms) != 1 || outcome.Duplicates != 0 {
		t.Errorf("%d leaders and %d duplicates, want one and none", len(terms), outcome.Duplicates)
	}
}
