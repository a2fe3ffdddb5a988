package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// reporter returns the state of an agent for /readyz, /status and /metrics, also while the agent
// starts.
type reporter struct {
	agent  *agent
	checks *admin.Checks
	began  time.Time
	bus    string // for people, without secrets

	identity atomic.Pointer[identity]          // nil until the API server has responded
	keeper   atomic.Pointer[checkpoint.Keeper] // nil without a checkpoint, and until it is read
}

// identity is the name and the uid of the cluster.
type identity struct{ name, uid string }

// unsavedFor limits the age of the saved checkpoint: if only resourceVersions have moved, it is
// saved every minute.
const unsavedFor = 2 * time.Minute

// unsavableFor is the time after which failing saves of the checkpoint make the agent unready.
const unsavableFor = time.Minute

func newReporter(a *agent) *reporter {
	r := &reporter{agent: a, began: time.Now(), bus: busName(a.options, a.cfg.Bus)}
	var election admin.Election
	if a.elector != nil {
		election = a.elector
	}
	r.checks = admin.NewChecks(election, r.probes()...)
	return r
}

// probes returns the checks of /readyz.
func (r *reporter) probes() []admin.Probe {
	a := r.agent
	probes := []admin.Probe{
		{Name: "informers", Ready: a.informers.Ready, Detail: r.scopes},
		{Name: "bus", Ready: a.checkBus},
		{Name: "queue", Ready: r.checkRoom, Aside: true, Detail: r.filled},
		{Name: "checkpoint", Ready: r.checkSaved, Aside: true, Lasts: r.isUnsavable, Detail: r.location},
	}
	if a.reload != nil {
		probes = append(probes, admin.Probe{
			Name:    "config",
			Ready:   a.reload.Check,
			Aside:   true,
			Lasts:   a.reload.Hangs,
			Detail:  a.reload.Detail,
			Standby: true,
		})
	}
	return append(probes, a.relays.Probes()...)
}

// acquireLocks acquires and releases the locks that all stages need.
func (r *reporter) acquireLocks() {
	r.agent.queue.Len()
	r.agent.informers.AcquireLocks()
}

// scopes returns the number of scopes, and of those with problems.
func (r *reporter) scopes() string {
	all := r.agent.informers.Status()
	text := wording.Count(len(all)) + " scopes"
	problems := map[string]int{}
	for i := range all {
		switch st := &all[i]; {
		case st.Health != informer.HealthOK:
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

// checkRoom returns an error while informers wait for space in the queue.
func (r *reporter) checkRoom() error {
	if s := r.agent.queue.Stats(); s.Waiting > 0 {
		return fmt.Errorf("full, %s: %d informers wait until the bus acknowledges events", r.filled(), s.Waiting)
	}
	return nil
}

func (r *reporter) filled() string {
	q := r.queue()
	return fmt.Sprintf("%s of %s events, %s of %s", wording.Count(q.Events), wording.Count(q.MaxEvents),
		terminal.Size(q.Bytes), terminal.Size(q.MaxBytes))
}

// checkSaved returns an error while the checkpoint is not saved in time.
func (r *reporter) checkSaved() error {
	if r.agent.keeper == nil {
		return nil
	}
	k := r.keeper.Load()
	if k == nil {
		return errors.New("not read yet")
	}
	switch s := k.State(); {
	case s.Failing >= unsavableFor && s.Trouble == nil:
		return fmt.Errorf("%s cannot be saved, the attempt has been hanging for %s: a restart would resume from %s ago",
			locationOf(s), terminal.Duration(s.Failing), terminal.Duration(s.Unsaved))
	case s.Failing >= unsavableFor:
		return fmt.Errorf("%s could not be saved for %s, a restart would resume from %s ago: %w", locationOf(s),
			terminal.Duration(s.Failing), terminal.Duration(s.Unsaved), s.Trouble)
	case s.Trouble != nil:
		return fmt.Errorf("%s cannot be reached, a restart would resume from %s ago: %w", locationOf(s),
			terminal.Duration(s.Unsaved), s.Trouble)
	case s.Unsaved > unsavedFor:
		return fmt.Errorf("%s has not been saved for %s", locationOf(s), terminal.Duration(s.Unsaved))
	}
	return nil
}

// isUnsavable reports whether saves of the checkpoint have failed for so long that the agent is not
// ready.
func (r *reporter) isUnsavable() bool {
	k := r.keeper.Load()
	return k != nil && k.State().Failing >= unsavableFor
}

func (r *reporter) location() string {
	k := r.keeper.Load()
	if k == nil {
		return "none is kept"
	}
	s := k.State()
	if s.Saved.IsZero() {
		return locationOf(s) + ", not saved yet"
	}
	return fmt.Sprintf("%s, saved %s ago", locationOf(s), terminal.Duration(time.Since(s.Saved)))
}

// locationOf returns the location without the prefix "checkpoint ".
func locationOf(s checkpoint.State) string { return strings.TrimPrefix(s.Where, "checkpoint ") }

func (r *reporter) queue() admin.QueueStatus {
	s := r.agent.queue.Stats()
	q := admin.QueueStatus{
		Events:         s.Events,
		Bytes:          s.Bytes,
		InFlight:       s.Inflight,
		Waiting:        s.Waiting,
		OldestSeconds:  s.Oldest.Seconds(),
		BlockedSeconds: s.Blocked.Seconds(),
	}
	q.MaxEvents, q.MaxBytes = r.agent.queue.Bounds()
	return q
}

// status returns the current state.
func (r *reporter) status() admin.Status {
	a, now := r.agent, time.Now()
	ready := r.checks.Look(now)
	s := admin.Status{
		Version:   a.options.Build.Version,
		Mode:      string(a.cfg.Mode),
		Cluster:   a.cfg.Cluster,
		APIServer: a.cluster.Host(),
		Started:   r.began,
		Now:       now,
		Socket:    a.socket,
		Ready:     ready.Ready,
		Standby:   ready.Standby,
		Checks:    ready.Checks,
		Queue:     r.queue(),
		Scopes:    []admin.ScopeStatus{},
		Bus:       admin.BusStatus{Name: r.bus},
	}
	if id := r.identity.Load(); id != nil {
		s.Cluster, s.ClusterUID = id.name, id.uid
	}
	if l, ok := r.checks.Leader(); ok {
		s.Leader = &admin.LeaderStatus{
			Leading: l.Leading,
			Paused:  l.Paused,
			Holder:  l.Holder,
			Epoch:   l.Epoch,
		}
	}
	for _, k := range ready.Checks {
		if k.Name == "bus" {
			s.Bus.Connected, s.Bus.Since = k.OK, k.Since
			if !k.OK {
				s.Bus.Problem = k.Detail
			}
		}
	}
	if b := a.bus.Load(); b != nil {
		if b.logs != nil {
			s.Bus.Log = logStatusOf(b.logs.State())
		}
		s.Bus.Throttled = b.throttled(now)
	}
	if k := r.keeper.Load(); k != nil {
		state := k.State()
		s.Checkpoint = &admin.CheckpointStatus{Place: locationOf(state), UnsavedSeconds: state.Unsaved.Seconds()}
		if !state.Saved.IsZero() {
			s.Checkpoint.Saved = &state.Saved
		}
		if state.Trouble != nil {
			s.Checkpoint.Problem = state.Trouble.Error()
		}
	}
	s.Clock = clockStatusOf(a)
	if a.reload != nil {
		s.Config = a.reload.Status()
	}
	s.Published = admin.PublishedStatus(a.metrics.Totals())
	if !ready.Standby {
		s.AddScopes(a.informers.Status())
		for _, u := range a.informers.Unmatched(s.Now) {
			s.Unmatched = append(s.Unmatched, admin.UnmatchedPath{
				Rule:  fmt.Sprintf("watch[%d]", u.Rule),
				Path:  u.Path,
				Since: u.Since,
			})
		}
	}
	return s
}

func clockStatusOf(a *agent) admin.ClockStatus {
	if a.clock == nil {
		return admin.ClockStatus{}
	}
	offset, beyond, _ := a.offset.Look()
	return admin.ClockStatus{OffsetSeconds: offset.Seconds(), Differs: beyond, AheadSeconds: a.clock.Ahead().Seconds()}
}

func logStatusOf(s publish.LogsState) *admin.LogStatus {
	out := &admin.LogStatus{Logs: s.Logs, Unknown: s.Unknown}
	if s.Trouble != nil {
		out.Problem = s.Trouble.Error()
	}
	return out
}
