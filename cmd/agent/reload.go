package main

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
	"github.com/kubecdc/kubecdc/internal/terminal"
)

const (
	// reloadEvery is how often the configuration file is read. What has changed is taken when two readings in a row are the same:
	// it may be being written.
	reloadEvery = 2 * time.Second
	// reloadSoon is the time between those two where somebody has asked for it.
	reloadSoon = 100 * time.Millisecond
	// reloadSlow is how long nothing needs to be said of a configuration that is being taken.
	reloadSlow = 10 * time.Second
)

// reloader has a running agent take its configuration file anew when that has changed, or on SIGHUP. A file that is wrong changes
// nothing: it is said what is wrong, and the one before stays in force.
type reloader struct {
	flags *runFlags
	// take has the informers go on with what is given. An error: they go on as before.
	take    func(ctx context.Context, next *loaded) (scopesDiff, error)
	standby func() bool // another agent leads; nil: there is no election
	log     *slog.Logger
	level   *slog.LevelVar
	metrics *reloadMetrics
	hup     <-chan os.Signal // of one element: to be asked twice is to be asked; nil: nobody asks

	mu    sync.Mutex
	state reloadState
}

// reloadState is what is shown.
type reloadState struct {
	force    *loaded
	since    time.Time // it has been in force
	taking   time.Time // since when another one is being taken, zero: none is
	problems []string  // why the file, as it is now, is not in force; none: it is
	tried    time.Time // when that was found
}

// scopesDiff counts scopes by what a new selection has done to them.
type scopesDiff struct{ begun, ended, kept int }

// result is what has become of a changed file, as the metric has it.
type result string

const (
	resultApplied   result = "applied"
	resultRefused   result = "refused"   // it is wrong, or changes what needs a restart
	resultUnchanged result = "unchanged" // it means what is in force
	resultFailed    result = "failed"    // it could not be read, or the informers could not take it
)

func newReloader(first *loaded, f *runFlags, log *slog.Logger, level *slog.LevelVar, reg prometheus.Registerer) *reloader {
	r := &reloader{flags: f, log: log, level: level, metrics: newReloadMetrics(reg)}
	r.state = reloadState{force: first, since: time.Now()}
	r.metrics.inForce(first.hash, r.state.since)
	return r
}

// look is what is shown now.
func (r *reloader) look() reloadState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// ok is an error where the file, as it is now, is not in force.
func (r *reloader) ok() error {
	s := r.look()
	if len(s.problems) == 0 || !s.taking.IsZero() { // what was wrong with a file before is no matter any more
		return nil
	}
	more := ""
	if n := len(s.problems) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Errorf("%s was changed and is not in force, the one before is: %s%s", r.flags.config, s.problems[0], more)
}

func (r *reloader) detail() string {
	s := r.look()
	if !s.taking.IsZero() {
		return fmt.Sprintf("the changed %s is being taken for %s", r.flags.config, terminal.Duration(time.Since(s.taking)))
	}
	return fmt.Sprintf("%s, sha256 %s", r.flags.config, admin.ShortHash(s.force.hash))
}

// run follows the file until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	if i, err := os.Stat(r.flags.config); err == nil && !i.Mode().IsRegular() {
		r.log.Info("the configuration is no regular file: it is read once", "config", r.flags.config)
		r.cannot(ctx)
		return nil
	}
	// Of the last reading that was looked into, and of the last one. Nothing has been: it may have changed since it was loaded.
	decided, before := "", ""
	keys, asked := keysOf(r.look().force), false
	for {
		wait := reloadEvery
		if asked {
			wait = reloadSoon
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-r.hup:
			asked = true
		case <-timer.C:
		}
		timer.Stop()
		now := readConfigured(r.flags.config, keys)
		if sum := now.sum(keys); sum != before || sum == decided && !asked {
			before = sum
			continue
		}
		next, problems := r.consider(now)
		if following := keysOf(r.look().force, next); !now.follows(following) { // nor may a key that is new be half written
			keys, decided = following, ""
			before = readConfigured(r.flags.config, keys).sum(keys)
			continue
		}
		r.decide(ctx, now, next, problems, asked)
		asked = false
		// What a refused file names as its key is followed too: it may be what is missing. What has changed while this was taken is
		// not what was decided.
		keys = keysOf(r.look().force, next)
		decided = now.sum(keys)
		before = decided
	}
}

// cannot tells whoever asks.
func (r *reloader) cannot(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.hup:
			r.log.Warn("asked to read the configuration again, but it is no regular file: restart the agent", "config", r.flags.config)
		}
	}
}

// decide takes next, or says why not.
func (r *reloader) decide(ctx context.Context, now reading, next *loaded, problems []string, asked bool) {
	began, force := time.Now(), r.look().force
	if problems != nil {
		if now.err != nil {
			r.refuse(refusal{resultFailed, problems, "", "the agent has to be able to read the file", asked})
			return
		}
		r.refuse(refusal{resultRefused, problems, hashOf(now.data), "mend the file: 'kubecdc config check' tells what is wrong with it", asked})
		return
	}
	changes := changedKeys(force.Config, next.Config)
	if !slices.Equal(force.key, next.key) && !slices.Contains(changes, "redaction.keyFile") {
		changes = append(changes, "redaction.keyFile (its content)")
	}
	needRestart := fixed(changes)
	switch {
	case len(needRestart) > 0:
		r.refuse(refusal{
			resultRefused,
			[]string{strings.Join(needRestart, ", ") + ": cannot be changed while the agent runs: restart the agent, or take the change back"},
			next.hash, "restart the agent to have all of the file in force: the rest of it is not taken either", asked,
		})
		return
	case len(changes) == 0:
		r.unchanged(next, asked)
		return
	}
	r.taking(began)
	slow := time.AfterFunc(reloadSlow, func() {
		r.log.Warn("the changed configuration is not in force yet: it waits until what was read is on the bus, or for the API server", "config", r.flags.config)
	})
	scopes, err := r.take(ctx, next)
	slow.Stop()
	r.taking(time.Time{})
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.refuse(refusal{resultFailed, []string{err.Error()}, next.hash, "SIGHUP has it tried again", asked})
		return
	}
	r.level.Set(next.Log.Level.Slog())
	r.nowInForce(next, resultApplied)
	attrs := []any{
		"config", r.flags.config, "sha256", admin.ShortHash(next.hash), "changed", changes, "rules", len(next.Watch),
		"scopes_begun", scopes.begun, "scopes_ended", scopes.ended, "scopes_kept", scopes.kept, "took", time.Since(began),
	}
	if r.standby != nil && r.standby() {
		attrs = append(attrs, "standby", "it is followed when this agent leads")
	}
	r.log.Info("the changed configuration is in force", attrs...)
	next.say(r.log)
}

// consider reads the configuration that was found. problems say why it cannot be in force; next may be there all the same.
func (r *reloader) consider(now reading) (next *loaded, problems []string) {
	if now.err != nil {
		return nil, []string{fmt.Sprintf("read configuration: %v", now.err)}
	}
	next, err := loadFrom(r.flags, now.data, now.key)
	if err != nil {
		return next, complaints(err)
	}
	if _, err := next.mac(); err != nil {
		return next, []string{err.Error()}
	}
	return next, nil
}

// refusal is why a file is not taken.
type refusal struct {
	outcome  result
	problems []string
	hash     string // of the file, "": it could not be read
	advice   string
	asked    bool // somebody waits for the answer
}

// refuse keeps what is in force. What was said of the same file is said again only to those who ask.
func (r *reloader) refuse(f refusal) {
	r.mu.Lock()
	known := slices.Equal(r.state.problems, f.problems)
	r.state.problems = f.problems
	if !known {
		r.state.tried = time.Now()
	}
	r.mu.Unlock()
	r.metrics.done(f.outcome)
	if known && !f.asked {
		return
	}
	r.log.Error("the changed configuration is not taken, the one before stays in force", "config", r.flags.config, "result", string(f.outcome),
		"sha256", admin.ShortHash(f.hash), "problems", len(f.problems), "advice", f.advice)
	for _, p := range f.problems {
		r.log.Error("why the changed configuration is not taken", "config", r.flags.config, "err", p)
	}
}

// unchanged is for a file that means what is in force. Nobody is told of what nobody asked for.
func (r *reloader) unchanged(next *loaded, asked bool) {
	s := r.look()
	if s.force.hash == next.hash && len(s.problems) == 0 && !asked {
		return
	}
	r.nowInForce(next, resultUnchanged)
	r.log.Info("the configuration file means what is in force: nothing changes", "config", r.flags.config, "sha256", admin.ShortHash(next.hash))
}

func (r *reloader) nowInForce(next *loaded, outcome result) {
	now := time.Now()
	r.mu.Lock()
	if outcome == resultApplied {
		r.state.since = now
	}
	r.state.force, r.state.problems, r.state.tried = next, nil, time.Time{}
	r.mu.Unlock()
	r.metrics.done(outcome)
	r.metrics.inForce(next.hash, now)
}

func (r *reloader) taking(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.taking = since
}

func (r *reloader) status() *admin.ConfigStatus {
	s := r.look()
	out := &admin.ConfigStatus{File: r.flags.config, SHA256: s.force.hash, Since: s.since}
	switch {
	case !s.taking.IsZero():
		out.Taking = &s.taking
	case len(s.problems) > 0:
		out.Problems, out.Refused = s.problems, &s.tried
	}
	return out
}
