package main

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/terminal"
)

// reporter says how a capture is, to /readyz, /status and /metrics, also while its parts come to be.
type reporter struct {
	capture *capture
	checks  *admin.Checks
	began   time.Time
	bus     string // in words, without secrets

	identity atomic.Pointer[identity]          // nil: the API server has not told yet
	keeper   atomic.Pointer[checkpoint.Keeper] // nil: none is kept, or it is not read yet
}

// identity is what the API server tells of a cluster.
type identity struct{ name, uid string }

// unsavedFor is how long the checkpoint may not be saved before it is said to be wrong: where only resourceVersions have
// moved, it is saved every minute.
const unsavedFor = 2 * time.Minute

// unsavableFor is how long attempts to save the checkpoint may fail until the agent is not ready.
const unsavableFor = time.Minute

func newReporter(c *capture) *reporter {
	r := &reporter{capture: c, began: time.Now(), bus: busName(c.flags, c.cfg.Bus)}
	var election admin.Election
	if c.elector != nil {
		election = c.elector
	}
	r.checks = admin.NewChecks(election, r.probes()...)
	return r
}

// probes returns the checks of /readyz.
func (r *reporter) probes() []admin.Probe {
	c := r.capture
	probes := []admin.Probe{
		{Name: "informers", Ready: c.set.Ready, Detail: r.scopes},
		{Name: "bus", Ready: c.busReady},
		{Name: "queue", Ready: r.room, Aside: true, Detail: r.filled},
		{Name: "checkpoint", Ready: r.saved, Aside: true, Lasts: r.unsavable, Detail: r.place},
	}
	if c.reload != nil {
		probes = append(probes, admin.Probe{Name: "config", Ready: c.reload.Check, Aside: true, Detail: c.reload.Detail})
	}
	return append(probes, c.relays.Probes()...)
}

// acquireLocks acquires and releases the locks that all stages need.
func (r *reporter) acquireLocks() {
	r.capture.queue.Len()
	r.capture.set.Status()
}

// scopes is how many there are, and how many of them are not well.
func (r *reporter) scopes() string {
	all := r.capture.set.Status()
	text := terminal.Count(len(all)) + " scopes"
	problems := map[string]int{}
	for i := range all {
		switch st := &all[i]; {
		case st.Health != scope.HealthOK:
			problems[st.Health.String()]++
		case admin.Severity(st) > 0:
			problems[st.Phase.String()]++
		}
	}
	if len(problems) > 0 {
		text += ", " + admin.Counts(problems)
	}
	return text
}

// room is nil while no informer waits for it.
func (r *reporter) room() error {
	if s := r.capture.queue.Stats(); s.Waiting > 0 {
		return fmt.Errorf("full, %s: %d informers wait for room, which the bus makes", r.filled(), s.Waiting)
	}
	return nil
}

func (r *reporter) filled() string {
	q := r.queue()
	return fmt.Sprintf("%s of %s events, %s of %s", terminal.Count(q.Events), terminal.Count(q.MaxEvents), terminal.Size(q.Bytes), terminal.Size(q.MaxBytes))
}

// saved is nil while the checkpoint is saved as it should be.
func (r *reporter) saved() error {
	if r.capture.memory == nil {
		return nil
	}
	k := r.keeper.Load()
	if k == nil {
		return errors.New("not read yet")
	}
	switch s := k.State(); {
	case s.Failing >= unsavableFor && s.Trouble == nil:
		return fmt.Errorf("%s cannot be saved, the attempt hangs for %s: a restart resumes where the agent was %s ago", whereOf(s), terminal.Duration(s.Failing), terminal.Duration(s.Unsaved))
	case s.Failing >= unsavableFor:
		return fmt.Errorf("%s cannot be saved for %s, a restart resumes where the agent was %s ago: %w", whereOf(s), terminal.Duration(s.Failing), terminal.Duration(s.Unsaved), s.Trouble)
	case s.Trouble != nil:
		return fmt.Errorf("%s cannot be reached, a restart would go back to what was so %s ago: %w", whereOf(s), terminal.Duration(s.Unsaved), s.Trouble)
	case s.Unsaved > unsavedFor:
		return fmt.Errorf("%s has not been saved for %s", whereOf(s), terminal.Duration(s.Unsaved))
	}
	return nil
}

// unsavable reports whether attempts to save the checkpoint have failed for so long that the agent is not ready.
func (r *reporter) unsavable() bool {
	k := r.keeper.Load()
	return k != nil && k.State().Failing >= unsavableFor
}

func (r *reporter) place() string {
	k := r.keeper.Load()
	if k == nil {
		return "none is kept"
	}
	s := k.State()
	if s.Saved.IsZero() {
		return whereOf(s) + ", not saved yet"
	}
	return fmt.Sprintf("%s, saved %s ago", whereOf(s), terminal.Duration(time.Since(s.Saved)))
}

// whereOf is where the checkpoint is, for those who know that it is one.
func whereOf(s checkpoint.State) string { return strings.TrimPrefix(s.Where, "checkpoint ") }

func (r *reporter) queue() admin.QueueStatus {
	s := r.capture.queue.Stats()
	q := admin.QueueStatus{
		Events: s.Events, Bytes: s.Bytes, InFlight: s.Inflight, Waiting: s.Waiting,
		OldestSeconds: s.Oldest.Seconds(), BlockedSeconds: s.Blocked.Seconds(),
	}
	q.MaxEvents, q.MaxBytes = r.capture.queue.Bounds()
	return q
}

// look is how all is now.
func (r *reporter) look() admin.Status {
	c, now := r.capture, time.Now()
	ready := r.checks.Look(now)
	s := admin.Status{
		Version: version, Mode: string(c.cfg.Mode), Cluster: c.cfg.Cluster, APIServer: c.cluster.host(), Started: r.began, Now: now, Socket: c.socket,
		Ready: ready.Ready, Standby: ready.Standby, Checks: ready.Checks, Queue: r.queue(), Scopes: []admin.ScopeStatus{},
		Bus: admin.BusStatus{Name: r.bus},
	}
	if id := r.identity.Load(); id != nil {
		s.Cluster, s.ClusterUID = id.name, id.uid
	}
	if l, ok := r.checks.Leader(); ok {
		s.Leader = &admin.LeaderStatus{Leading: l.Leading, Paused: l.Paused, Holder: l.Holder, Epoch: l.Epoch}
	}
	for _, k := range ready.Checks {
		if k.Name == "bus" {
			s.Bus.Connected, s.Bus.Since = k.OK, k.Since
			if !k.OK {
				s.Bus.Problem = k.Detail
			}
		}
	}
	if b := c.bus.Load(); b != nil && b.logs != nil {
		s.Bus.Log = logStatusOf(b.logs.State())
	}
	if k := r.keeper.Load(); k != nil {
		state := k.State()
		s.Checkpoint = &admin.CheckpointStatus{Place: whereOf(state), UnsavedSeconds: state.Unsaved.Seconds()}
		if !state.Saved.IsZero() {
			s.Checkpoint.Saved = &state.Saved
		}
		if state.Trouble != nil {
			s.Checkpoint.Problem = state.Trouble.Error()
		}
	}
	if c.reload != nil {
		s.Config = c.reload.Status()
	}
	s.Published = admin.PublishedStatus(c.metrics.Totals())
	if !ready.Standby {
		s.AddScopes(c.set.Status())
	}
	return s
}

func logStatusOf(s publish.LogsState) *admin.LogStatus {
	out := &admin.LogStatus{Logs: s.Logs, Unknown: s.Unknown}
	if s.Trouble != nil {
		out.Problem = s.Trouble.Error()
	}
	return out
}
