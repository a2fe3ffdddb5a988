package reload

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

const (
	// interval is the time between two readings of the file. A change is applied after two equal
	// readings in a row: the file may be incomplete.
	interval = 2 * time.Second
	// soon replaces interval between those two after SIGHUP.
	soon = 100 * time.Millisecond
	// slowAfter is the time after which a slow application of a configuration is logged.
	slowAfter = 10 * time.Second
	// pendingFor is the time after which Check reports a changed configuration that is not in force
	// everywhere.
	pendingFor = time.Minute
)

// Reloader follows the configuration file of a running agent.
type Reloader struct {
	o       Options
	metrics *metrics

	mu    sync.Mutex
	state state
}

// Options of a Reloader.
type Options struct {
	File  string
	First *Loaded // in force at the start

	// Parse returns the configuration in the content of the file, after the overrides of flags.
	Parse func(data []byte) (*config.Config, error)
	// Apply switches the informers to a configuration. After an error, the previous one stays in
	// force.
	Apply func(ctx context.Context, next *Loaded) (Scopes, error)
	// Unapplied names the scopes to which an applied configuration does not apply yet, because the
	// bus does not have their earlier events; "" if there are none. It also returns since when the
	// first of them waits.
	Unapplied func() (scopes string, since time.Time)
	Standby   func() bool // reports whether another agent leads

	HUP <-chan os.Signal // capacity 1: two signals request one reload; nil without signals

	Log        *slog.Logger
	Level      *slog.LevelVar // of Log
	Registerer prometheus.Registerer
}

// state is the state that the status shows.
type state struct {
	force    *Loaded
	since    time.Time // when it came into force
	taking   time.Time // when the application of another one began; zero if none is in progress
	problems []string  // why the current file is not in force; empty if it is
	tried    time.Time // when the problems were found
}

// Scopes counts the scopes that began, ended or stayed with a configuration.
type Scopes struct{ Begun, Ended, Kept int }

// result is the outcome of a reload, a label of the metric.
type result string

const (
	resultApplied   result = "applied"
	resultRefused   result = "refused"   // it is wrong, or changes a key that needs a restart
	resultUnchanged result = "unchanged" // it means the same as the one in force
	resultFailed    result = "failed"    // it could not be read, or the informers could not apply it
)

// New returns a Reloader.
func New(o Options) *Reloader {
	r := &Reloader{o: o}
	r.metrics = newMetrics(o.Registerer, r.pending)
	r.state = state{force: o.First, since: time.Now()}
	r.metrics.setInForce(o.First.Hash, r.state.since)
	return r
}

// look returns the current state.
func (r *Reloader) look() state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// pending returns for how long a changed configuration has not been in force everywhere, 0 if it
// is.
func (r *Reloader) pending() (d time.Duration) {
	if s := r.look(); !s.taking.IsZero() {
		d = time.Since(s.taking)
	}
	if scopes, since := r.o.Unapplied(); scopes != "" {
		d = max(d, time.Since(since))
	}
	return d
}

// Hangs reports whether the application of a changed configuration lasts for so long that the agent
// is not ready. Until then the previous one is in force, which may send what the changed one
// redacts.
func (r *Reloader) Hangs() bool {
	s := r.look()
	return !s.taking.IsZero() && time.Since(s.taking) >= pendingFor
}

// Check returns an error if the current file is not in force, or, for too long, not for all scopes.
func (r *Reloader) Check() error {
	s := r.look()
	switch {
	case r.Hangs():
		return fmt.Errorf(
			"%s was changed and is not in force yet, so the previous one applies, without new redactions: "+
				"check that the API server answers, or restart the agent, which then starts with the changed file",
			r.o.File)
	case len(s.problems) > 0 && s.taking.IsZero(): // otherwise the problems belong to an earlier file
		more := ""
		if n := len(s.problems) - 1; n > 0 {
			more = fmt.Sprintf(" (and %d more)", n)
		}
		return fmt.Errorf("%s was changed and is rejected, the previous one stays in force: %s%s", r.o.File,
			s.problems[0], more)
	case r.pending() >= pendingFor:
		scopes, _ := r.o.Unapplied()
		return fmt.Errorf(
			"%s was changed and does not apply to all scopes yet, because the bus has not acknowledged their earlier events: %s; "+
				"check why the bus does not accept them", r.o.File, scopes)
	}
	return nil
}

// Detail describes the configuration in force.
func (r *Reloader) Detail() string {
	s := r.look()
	if !s.taking.IsZero() {
		return fmt.Sprintf("the changed %s is being applied for %s", r.o.File, terminal.Duration(time.Since(s.taking)))
	}
	return fmt.Sprintf("%s, sha256 %s", r.o.File, admin.ShortHash(s.force.Hash))
}

// Run follows the file until ctx ends.
func (r *Reloader) Run(ctx context.Context) error {
	if i, err := os.Stat(r.o.File); err == nil && !i.Mode().IsRegular() {
		r.o.Log.Info("the configuration is not a regular file: it is read once", "config", r.o.File)
		r.refuseSignals(ctx)
		return nil
	}
	// Hashes of the last reading with a decision, and of the last reading. Both start empty: the
	// file may have changed since it was loaded.
	decided, before := "", ""
	keys, asked := keysOf(r.look().force), false
	for {
		wait := interval
		if asked {
			wait = soon
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-r.o.HUP:
			asked = true
		case <-timer.C:
		}
		timer.Stop()
		now := readConfigured(r.o.File, keys)
		if sum := now.sum(keys); sum != before || sum == decided && !asked {
			before = sum
			continue
		}
		next, problems := r.consider(now)
		if following := keysOf(r.look().force, next); !now.follows(following) { // a new key may be incomplete too
			keys, decided = following, ""
			before = readConfigured(r.o.File, keys).sum(keys)
			continue
		}
		r.decide(ctx, now, next, problems, asked)
		asked = false
		// The key of a refused file is followed too, because it may be the missing part. A change
		// during the decision is handled next.
		keys = keysOf(r.look().force, next)
		decided = now.sum(keys)
		before = decided
	}
}

// refuseSignals answers each SIGHUP with a warning: a configuration that is not a regular file
// cannot be read again.
func (r *Reloader) refuseSignals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.o.HUP:
			r.o.Log.Warn("cannot reload a configuration that is not a regular file: restart the agent", "config",
				r.o.File)
		}
	}
}

// decide applies next, or logs why not.
func (r *Reloader) decide(ctx context.Context, now reading, next *Loaded, problems []string, asked bool) {
	began, force := time.Now(), r.look().force
	if problems != nil {
		if now.err != nil {
			r.refuse(refusal{resultFailed, problems, "", "make the file readable for the agent", asked})
			return
		}
		r.refuse(refusal{
			resultRefused, problems, now.hash(), "correct the file: 'kubecdc config check' reports what is wrong",
			asked,
		})
		return
	}
	changes := changedKeys(force.Config, next.Config)
	if !slices.Equal(force.Key, next.Key) && !slices.Contains(changes, "redaction.keyFile") {
		changes = append(changes, "redaction.keyFile (its content)")
	}
	needRestart := fixed(changes)
	switch {
	case len(needRestart) > 0:
		r.refuse(refusal{
			resultRefused,
			[]string{
				strings.Join(needRestart, ", ") +
					": cannot be changed while the agent runs: restart the agent, or revert the change",
			},
			next.Hash, "restart the agent to apply the whole file: none of its changes is in force", asked,
		})
		return
	case len(changes) == 0:
		r.noteUnchanged(next, asked)
		return
	}
	r.noteTaking(began)
	slow := time.AfterFunc(slowAfter, func() {
		r.o.Log.Warn(
			"the changed configuration is not in force yet: waiting until earlier events are on the bus, or for the API server",
			"config", r.o.File)
	})
	scopes, err := r.o.Apply(ctx, next)
	slow.Stop()
	r.noteTaking(time.Time{})
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.refuse(refusal{resultFailed, []string{err.Error()}, next.Hash, "send SIGHUP to retry", asked})
		return
	}
	r.o.Level.Set(next.Log.Level.Slog())
	r.nowInForce(next, resultApplied)
	attrs := []any{
		"config", r.o.File, "sha256", admin.ShortHash(next.Hash), "changed", changes, "rules", len(next.Watch),
		"scopes_begun", scopes.Begun, "scopes_ended", scopes.Ended, "scopes_kept", scopes.Kept, "took",
		time.Since(began),
	}
	if r.o.Standby() {
		attrs = append(attrs, "standby", "it is followed when this agent leads")
	}
	r.o.Log.Info("the changed configuration is in force", attrs...)
	next.LogRedaction(r.o.Log)
}

// consider parses a reading. If there are problems it cannot be in force, but next may still be
// non-nil.
func (r *Reloader) consider(now reading) (next *Loaded, problems []string) {
	if now.err != nil {
		return nil, []string{fmt.Sprintf("read configuration: %v", now.err)}
	}
	next, err := Load(now.data, r.o.Parse, now.key)
	if err != nil {
		return next, problemsOf(err)
	}
	if _, err := next.MAC(); err != nil {
		return next, []string{err.Error()}
	}
	return next, nil
}

// refusal is the reason why a file is not applied.
type refusal struct {
	outcome  result
	problems []string
	hash     string // of the file; "" if it could not be read
	advice   string
	asked    bool // by SIGHUP
}

// refuse keeps the current configuration in force. It logs the same problems again only after
// SIGHUP.
func (r *Reloader) refuse(f refusal) {
	r.mu.Lock()
	known := slices.Equal(r.state.problems, f.problems)
	r.state.problems = f.problems
	if !known {
		r.state.tried = time.Now()
	}
	r.mu.Unlock()
	r.metrics.countResult(f.outcome)
	if known && !f.asked {
		return
	}
	r.o.Log.Error("the changed configuration is rejected, the previous one stays in force", "config", r.o.File,
		"result", string(f.outcome),
		"sha256", admin.ShortHash(f.hash), "problems", len(f.problems), "advice", f.advice)
	for _, p := range f.problems {
		r.o.Log.Error("error in the changed configuration", "config", r.o.File, "err", p)
	}
}

// noteUnchanged handles a file that means the same as the one in force. It logs this if the content
// differs, or after SIGHUP.
func (r *Reloader) noteUnchanged(next *Loaded, asked bool) {
	s := r.look()
	if s.force.Hash == next.Hash && len(s.problems) == 0 && !asked {
		return
	}
	r.nowInForce(next, resultUnchanged)
	r.o.Log.Info("the configuration file is equivalent to the one in force: nothing changes", "config", r.o.File,
		"sha256", admin.ShortHash(next.Hash))
}

func (r *Reloader) nowInForce(next *Loaded, outcome result) {
	now := time.Now()
	r.mu.Lock()
	if outcome == resultApplied {
		r.state.since = now
	}
	r.state.force = next
	r.state.problems = nil
	r.state.tried = time.Time{}
	r.mu.Unlock()
	r.metrics.countResult(outcome)
	r.metrics.setInForce(next.Hash, now)
}

func (r *Reloader) noteTaking(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.taking = since
}

// Status returns the state of the file for /status.
func (r *Reloader) Status() *admin.ConfigStatus {
	s := r.look()
	out := &admin.ConfigStatus{File: r.o.File, SHA256: s.force.Hash, Since: s.since}
	switch {
	case !s.taking.IsZero():
		out.Taking = &s.taking
	case len(s.problems) > 0:
		out.Problems, out.Refused = s.problems, &s.tried
	}
	return out
}
