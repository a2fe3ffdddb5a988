package main

import (
	"context"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/localbus"
	"github.com/kubecdc/kubecdc/internal/object"
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
func (g *guide) capturing(ctx context.Context, hints []hint) {
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

// hint is something to type, and what for.
type hint struct{ command, purpose string }

// hintsFor is what can be typed to see the records of an agent. name is that of the cluster, local may be nil.
func hintsFor(cfg *config.Config, name string, local *localbus.Bus, f *runFlags) []hint {
	if k := cfg.Bus.Kafka; k != nil {
		return kafkaHints(k, name)
	}
	n := cfg.Bus.NATS
	if n == nil {
		return nil // standard output is seen, and what an HTTP receiver does with records is known there
	}
	tail := "kubecdc tail"
	switch {
	case (n.Auth != config.NATSAuth{} || n.TLS != nil || n.Domain != "") && f.config != "":
		tail += " --config " + f.config
	case local == nil || f.dataDir != "":
		// What tail finds by itself is the bus of an agent that keeps its records in the default place.
		tail += " --bus " + n.URL
	}
	hints := []hint{
		{tail, "each change as it happens"},
		{tail + " --diff", "what changed, and who changed it"},
		{tail + " --since 1h", "the last hour again"},
	}
	if local != nil {
		hints = append(hints, hint{"nats sub --server " + local.URL() + " 'kubecdc.>'", "the records themselves, for any NATS client"})
	}
	return hints
}

// kafkaHints are for kcat, which everybody who has Kafka can get. What it needs to know of encryption and users is
// more than a hint.
func kafkaHints(k *config.Kafka, name string) []hint {
	if k.TLS != nil || k.SASL != nil {
		return nil
	}
	kcat, topic := "kcat -b "+strings.Join(k.Brokers, ","), strings.ReplaceAll(k.Topic, "{cluster}", name)
	if strings.Contains(topic, "{") {
		return []hint{{kcat + " -L", "which topics there are"}}
	}
	return []hint{
		{kcat + " -C -o end -t " + topic, "each change as it happens"},
		{kcat + " -C -e -t " + topic, "all that the topic holds"},
	}
}

func showHints(out *terminal.Output, hints []hint) {
	if len(hints) == 0 {
		return
	}
	commands, purposes := 0, 0
	for _, h := range hints {
		commands, purposes = max(commands, len(h.command)), max(purposes, len(h.purpose))
	}
	narrow := out.Width > 0 && out.Width <= 2+commands+3+purposes
	b := []byte("\nIn another terminal:\n\n")
	for _, h := range hints {
		b = append(b, "  "...)
		if narrow { // then each purpose is a line of its own
			b = append(b, out.Paint(terminal.Dim, "# "+h.purpose)+"\n  "...)
			b = append(b, out.Paint(terminal.Bold, h.command)+"\n"...)
			continue
		}
		b = out.Append(b, terminal.Bold, h.command)
		b = append(b, strings.Repeat(" ", commands-len(h.command)+3)...)
		b = append(b, out.Paint(terminal.Dim, h.purpose)...)
		b = append(b, '\n')
	}
	_, _ = out.Write(append(b, '\n')) // a person's terminal: there is nobody to tell
}
