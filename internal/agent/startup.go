package agent

import (
	"context"
	"strings"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/localbus"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// startupUI shows a person at a terminal the progress of the agent and the next steps.
type startupUI struct {
	out       *terminal.Output
	informers *informers.Manager
	queue     *queue.Queue[*object.Delta]
}

// showCapture shows the progress of the first snapshot until it is complete, and then the next
// steps.
func (u *startupUI) showCapture(ctx context.Context, hints []driver.Hint) {
	terminal.NewDisplay(u.out, func() ([]terminal.Item, bool) {
		select {
		case <-u.informers.Captured():
			return items(u.informers.Status()), true
		default:
			return items(u.informers.Status()), false
		}
	}).Run(ctx)
	if ctx.Err() == nil {
		showHints(u.out, hints)
	}
}

// items returns the progress of each scope.
func items(all []informer.Status) []terminal.Item {
	out := make([]terminal.Item, 0, len(all))
	for i := range all {
		st := &all[i]
		it := terminal.Item{
			Name:     st.Scope,
			Objects:  st.Objects,
			Expected: st.Expected,
			Sent:     max(0, st.Objects-st.Pending),
		}
		switch {
		case st.Captured:
			it.State = terminal.Done
		case st.Synced:
			it.State = terminal.Sending
		case st.Phase == informer.PhaseListing:
			it.State, it.Sent = terminal.Reading, 0
		default: // it waits for its turn or for the bus
			it.Sent = 0
		}
		it.Problem = strings.ReplaceAll(st.Reason, "_", " ")
		switch {
		case st.Phase == informer.PhaseRetiring:
			it.Problem = "no longer selected"
		case st.Health == informer.HealthNotServed:
			it.Problem = "not served"
		case st.Reason == apiserver.ReasonUnsupported:
			it.Problem = "cannot be captured"
		}
		out = append(out, it)
	}
	return out
}

// showDrain shows the number of queued events until ctx ends.
func (u *startupUI) showDrain(ctx context.Context) {
	terminal.NewCounter(u.out, func() (string, bool) {
		return "draining: " + wording.Count(u.queue.Len()) + " events left", ctx.Err() != nil
	}).Run(ctx)
}

// hintsFor returns the commands that show an agent's records. name is the name of the cluster;
// local may be nil. Standard output and HTTP receivers have no hints.
func hintsFor(cfg *config.Config, name string, local *localbus.Bus, o *Options) []driver.Hint {
	_, settings := cfg.Bus.Chosen()
	h, ok := settings.(driver.Hinter)
	if !ok {
		return nil
	}
	hinting := &driver.Hinting{Cluster: name, ConfigFile: o.Config}
	if local != nil {
		hinting.Embedded = local.Dir()
		hinting.Named = o.DataDir != ""
	}
	return h.Hints(hinting)
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
		if narrow { // each purpose is on a separate line
			b = append(b, out.Paint(terminal.Dim, "# "+h.Purpose)+"\n  "...)
			b = append(b, out.Paint(terminal.Bold, h.Command)+"\n"...)
			continue
		}
		b = out.Append(b, terminal.Bold, h.Command)
		b = append(b, strings.Repeat(" ", commands-len(h.Command)+3)...)
		b = append(b, out.Paint(terminal.Dim, h.Purpose)...)
		b = append(b, '\n')
	}
	_, _ = out.Write(append(b, '\n')) // the output is a terminal, so nothing can report the error
}
