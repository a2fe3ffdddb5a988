package main

import (
	"context"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/localbus"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/internal/terminal"
)

// guide shows a person at a terminal how far the agent is, and what can be done with it.
type guide struct {
	out   *terminal.Output
	set   *informers.Manager
	queue *queue.Queue[*object.Delta]
}

// capturing shows the first snapshot until it is complete, and then the hints.
func (g *guide) capturing(ctx context.Context, hints []driver.Hint) {
	terminal.NewProgress(g.out, func() ([]terminal.Item, bool) {
		select {
		case <-g.set.Captured():
			return items(g.set.Status()), true
		default:
			return items(g.set.Status()), false
		}
	}).Run(ctx)
	if ctx.Err() == nil {
		showHints(g.out, hints)
	}
}

// items is the status as people want to know it.
func items(all []scope.Status) []terminal.Item {
	out := make([]terminal.Item, 0, len(all))
	for i := range all {
		st := &all[i]
		it := terminal.Item{Name: st.Scope, Objects: st.Objects, Expected: st.Expected, Sent: max(0, st.Objects-st.Pending)}
		switch {
		case st.Captured:
			it.State = terminal.Done
		case st.Synced:
			it.State = terminal.Sending
		case st.Phase == scope.PhaseListing:
			it.State, it.Sent = terminal.Reading, 0
		default: // it waits, for its turn or for the bus
			it.Sent = 0
		}
		it.Problem = strings.ReplaceAll(st.Reason, "_", " ")
		switch {
		case st.Phase == scope.PhaseRetiring:
			it.Problem = "no longer selected"
		case st.Health == scope.HealthNotServed:
			it.Problem = "not served"
		}
		out = append(out, it)
	}
	return out
}

// draining shows how much is left in the queue until ctx ends.
func (g *guide) draining(ctx context.Context) {
	terminal.NewCounter(g.out, func() (string, bool) {
		return "draining: " + terminal.Count(g.queue.Len()) + " events left", ctx.Err() != nil
	}).Run(ctx)
}

// hintsFor returns the commands that show the records of an agent. name is the name of the cluster, local may be nil. Standard output and HTTP
// receivers have no hints.
func hintsFor(cfg *config.Config, name string, local *localbus.Bus, f *runFlags) []driver.Hint {
	_, settings := cfg.Bus.Chosen()
	h, ok := settings.(driver.Hinter)
	if !ok {
		return nil
	}
	// Without flags, tail finds the bus of an agent that keeps its records in the default place.
	return h.Hints(&driver.Hinting{Cluster: name, ConfigFile: f.config, Embedded: local != nil, Found: local != nil && f.dataDir == ""})
}

func showHints(out *terminal.Output, hints []driver.Hint) {
	if len(hints) == 0 {
		return
	}
	commands, purposes := 0, 0
	for _, h := range hints {
		commands, purposes = max(commands, len(h.Command)), max(purposes, len(h.Purpose))
	}
	narrow := out.Width > 0 && out.Width <= 2+commands+3+purposes
	b := []byte("\nIn another terminal:\n\n")
	for _, h := range hints {
		b = append(b, "  "...)
		if narrow { // then each purpose is a line of its own
			b = append(b, out.Paint(terminal.Dim, "# "+h.Purpose)+"\n  "...)
			b = append(b, out.Paint(terminal.Bold, h.Command)+"\n"...)
			continue
		}
		b = out.Append(b, terminal.Bold, h.Command)
		b = append(b, strings.Repeat(" ", commands-len(h.Command)+3)...)
		b = append(b, out.Paint(terminal.Dim, h.Purpose)...)
		b = append(b, '\n')
	}
	_, _ = out.Write(append(b, '\n')) // a person's terminal: there is nobody to tell
}
