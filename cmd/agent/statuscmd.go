package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

const (
	// watchEvery is the interval of --watch.
	watchEvery = time.Second
	// shownScopes limits the scopes of the table, except with -o wide.
	shownScopes = 100
)

type statusFlags struct {
	agent  string
	output output
	watch  bool
}

func newStatusCommand(stdout, stderr io.Writer) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the running agent: watches, lag, queue, bus",
		Long: `Show the state of the running agent: whether it leads, the configuration in force and whether a changed one is
rejected, its bus, its queue and its checkpoint. Then follows a line for each scope (a resource, perhaps with
namespaces and selectors). Scopes with a problem come first:

  PHASE    waiting (for its turn to list, or for the next attempt at its first list), listing (the first time),
           announcing (the bus has not acknowledged a gap or the start of a snapshot; changes wait for that), live,
           blocked (the queue is full), relisting (the watch could not resume),
           draining (a changed configuration takes effect once the bus has all events; then drained),
           retiring (no longer selected, and the bus does not have all events or the left events;
           'kubecdc checkpoint forget' gives it up)
  HEALTH   ok, failing (the last request failed and is retried), forbidden, notserved,
           stale (silent or failing for so long that the state may be out of date, a list is not answered, or the watch
           does not show what a list shows)
  WATCH    time since the API server last sent anything: below 70s if it sends bookmarks, once a minute; the line
           watching names resources without them, whose silence is no problem
  LAG      age of the oldest unacknowledged change; -: the bus has acknowledged all
  OBJECTS  last-known objects, KEPT their size in memory
  PENDING  reads of a snapshot, or changes found by comparing lists, that are not on the bus yet

The first ` + strconv.Itoa(shownScopes) +
			` scopes are shown, with -o wide all of them, and how each began and failed. -o json and
-o yaml print the agent's response at /status.

Without --agent, the command asks the agent at $` + agent.ServerVariable +
			`, which the chart sets in its Pods. Without that
variable, it asks the 'kubecdc run' of this machine that has an embedded JetStream, or ` +
			strings.TrimPrefix(agent.DefaultServer, "http://") + `.
For an agent in a Pod, use kubectl exec or kubectl port-forward.
Exit code 1: no agent answers.`,
		Example: `  kubecdc status
  kubecdc status --watch
  kubectl exec -n kubecdc deploy/kubecdc -- /kubecdc status
  kubecdc status -o json | jq '.scopes[] | select(.lagSeconds > 60) | .scope'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := agent.FindServer(f.agent)
			if err != nil {
				return err
			}
			s := &statusView{agent: admin.NewClient(server), output: &f.output, out: terminal.Detect(stdout, os.Getenv)}
			slow := time.AfterFunc(quietWait, func() {
				fmt.Fprintf(stderr, "kubecdc: waiting for the agent at %s\n", server)
			})
			first, err := s.ask(cmd.Context())
			slow.Stop()
			switch {
			case err != nil && cmd.Context().Err() != nil:
				return errors.New("status: interrupted")
			case err != nil:
				return err
			case f.watch:
				s.watch(cmd.Context(), first)
				return nil
			}
			return s.print(first)
		},
	}
	cmd.Flags().
		StringVar(&f.agent, "agent", "",
			"`URL` of the agent's HTTP server (default: $"+agent.ServerVariable+
				", else that of a kubecdc that runs here, else "+agent.DefaultServer+")")
	f.output.add(cmd, reportFormats())
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "refresh every second until interrupted")
	return cmd
}

// statusView shows the status of an agent.
type statusView struct {
	agent  *admin.Client
	output *output
	out    *terminal.Output
}

func (v *statusView) ask(ctx context.Context) (*admin.Status, error) {
	if v.output.Name == printer.Table {
		return v.agent.Status(ctx, shownScopes)
	}
	return v.agent.Status(ctx, admin.MaxScopes)
}

func (v *statusView) print(s *admin.Status) error {
	if v.output.IsStructured() {
		return v.output.write(v.out, s)
	}
	var text []byte
	for _, l := range s.Lines(v.output.IsWide(), nil) {
		text = v.out.AppendLine(text, l)
	}
	_, err := v.out.Write(text)
	return err
}

// watch shows first, and then the status at intervals until ctx ends. If the agent stops
// responding, watch keeps trying.
func (v *statusView) watch(ctx context.Context, first *admin.Status) {
	if v.output.IsStructured() { // one document per interval
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for s := first; ; {
			if s != nil && v.print(s) != nil {
				return // standard output is closed
			}
			if v.output.Name == printer.YAML {
				fmt.Fprintln(v.out, "---")
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			s, _ = v.ask(ctx) // nil on error, and then nothing is printed
		}
	}
	var before *admin.Status
	last := first
	terminal.NewBoard(v.out, watchEvery, func(ctx context.Context) []terminal.Line {
		if first != nil {
			first = nil
			return last.Lines(v.output.IsWide(), nil)
		}
		s, err := v.ask(ctx)
		if err != nil {
			return append([]terminal.Line{{{
				Style: terminal.Red,
				Text:  "! " + err.Error(),
			}}}, last.Lines(v.output.IsWide(), nil)...)
		}
		before, last = last, s
		return last.Lines(v.output.IsWide(), before)
	}).Run(ctx)
}
