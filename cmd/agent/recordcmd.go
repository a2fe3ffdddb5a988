package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/writers"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const (
	// endTimeout limits how long the bus may take to accept the ends of scopes.
	endTimeout = 15 * time.Second
	// aliveAgain is how long --wait waits before it reads the record again.
	aliveAgain = 3 * time.Second
)

func newRecordCommand(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Say in the record what no agent can say any more",
		Args:  oneOfItsCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRecordEndCommand(stdout, stderr))
	return cmd
}

// recordEnd is one call of record end.
type recordEnd struct {
	agent.Options
	writers.Asked

	wait           time.Duration
	dryRun, yes    bool
	output         output
	stdout, stderr io.Writer
}

// endedScope is a line of the command's output.
type endedScope struct {
	Scope           string    `json:"scope"`
	Resource        string    `json:"resource"`
	ResourceVersion uint64    `json:"resourceVersion,string"`
	History         uint32    `json:"history,omitempty"`
	Cluster         string    `json:"cluster"`
	ClusterUID      string    `json:"clusterUID,omitempty"`
	Writer          string    `json:"writer"`
	Run             string    `json:"run"`
	Checkpoint      string    `json:"checkpoint,omitempty"`
	Node            string    `json:"node,omitempty"`
	LastEvent       time.Time `json:"lastEvent"`
	Ended           bool      `json:"ended"`
}

func newRecordEndCommand(stdout, stderr io.Writer) *cobra.Command {
	c := &recordEnd{Options: agent.Options{Build: build()}, stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "end SCOPE|WRITER...",
		Short: "End the scopes of an agent that does not return",
		Long: `End scopes in the record for an agent that does not return: it was deleted, its node or its cluster is gone, or it has
lost its checkpoint. Until then, each answer about such a scope waits for progress that never comes. The command
publishes scope.ended. Later moments of the scope are unknown then, unless another agent observes it. Nothing else
changes, and no object counts as deleted.

A WRITER is an agent. Its id is in its progress events, and an unknown name makes the command list all of them.
--checkpoint names agents by the place of their positions: 'configMap NAMESPACE NAME', 'file HOST PATH'. A SCOPE ends
for all agents that are gone.

An agent may still work while its last progress is younger than 10 minutes, unless the agent has said that it ends. If
it is named as WRITER, nothing ends. Otherwise it keeps its scopes, the others end, and the exit code is 1. An agent
that starts later takes the ends of its scopes back.

The command reads and writes the bus of --config as the agent does, without a cluster. On NATS its user needs the
permissions of a reader too. From Kafka it reads the whole topic.`,
		Example: "  kubecdc record end 3f0a5c1e9b7d2846 --config kubecdc.yaml --dry-run\n" +
			"  kubecdc record end --config kubecdc.yaml --checkpoint 'configMap kubecdc kubecdc-checkpoint'\n" +
			"  kubecdc record end 'pods?fieldSelector=spec.nodeName=worker-7' --config kubecdc.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && len(c.Checkpoints) == 0 {
				return usageError{errors.New("record end: name a scope or a writer, or give --checkpoint")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Names, c.Stdin = args, cmd.InOrStdin()
			if err := c.Validate(); err != nil {
				return usageError{err}
			}
			return c.run(cmd.Context())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&c.Config, "config", "", "configuration `file` of the agent, - for standard input")
	addOverrides(cmd, &c.Overrides)
	fl.StringVar(&c.Bus, "bus", "", "`URL` of the bus, if the agent ran with one")
	fl.StringVar(&c.DataDir, "data-dir", "", "`directory` of the embedded JetStream; an agent must run there")
	fl.StringArrayVar(&c.Checkpoints, "checkpoint", nil,
		"all writers that keep their positions at this `place`; may have * ? [a-z], may be repeated")
	fl.StringVar(&c.Cluster, "cluster", "",
		"`name` of the cluster, if the record has several (default: cluster of the file)")
	fl.StringVar(&c.ClusterUID, "cluster-uid", "",
		"`uid` of the cluster, or its beginning, if the record has several of one name")
	fl.DurationVar(&c.wait, "wait", 0, "wait this `long` for agents that are about to end")
	fl.BoolVar(&c.dryRun, "dry-run", false, "show what would end, and change nothing")
	fl.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	c.output.add(cmd, reportFormats())
	return cmd
}

func (e *recordEnd) run(ctx context.Context) error {
	record, err := e.OpenWritable()
	if err != nil {
		return err
	}
	e.Cluster = cmp.Or(e.Cluster, record.Config.Cluster)
	choice, err := e.choose(ctx, record)
	if err != nil {
		return err
	}
	ends, lines := e.ends(choice, time.Now())
	if len(lines) > 0 && !e.dryRun {
		question := fmt.Sprintf("End %d scopes of %d writers?", len(lines), len(ends))
		if !e.yes && !terminal.Confirm(ctx, question, e.Stdin, e.stderr) {
			return errors.New("record end: nothing was changed")
		}
		if err := e.send(ctx, record, ends, lines); err != nil {
			return err
		}
	}
	if err := e.show(lines); err != nil {
		return err
	}
	if len(choice.Left) > 0 {
		return e.aliveError("these agents may still work, and keep their scopes", choice.Left)
	}
	return nil
}

// choose reads the record until no agent in it may work, or the wait is over.
func (e *recordEnd) choose(ctx context.Context, record *agent.WritableBus) (*writers.Choice, error) {
	until := time.Now().Add(e.wait)
	for {
		choice, err := e.read(ctx, record)
		if err != nil {
			return nil, err
		}
		isOver := time.Now().Add(aliveAgain).After(until)
		switch {
		case len(choice.Refused)+len(choice.Left) == 0:
			return choice, nil
		case isOver && len(choice.Refused) > 0:
			return nil, e.aliveError("nothing was changed, because these agents may still work", choice.Refused)
		case isOver:
			return choice, nil
		}
		select {
		case <-time.After(aliveAgain):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (e *recordEnd) aliveError(what string, all []*writers.Writer) error {
	lines := make([]string, len(all))
	for i, w := range all {
		lines[i] = w.String()
	}
	return fmt.Errorf("record end: %s: stop them, and repeat the command when they have ended, or %v later:\n  %s",
		what, writers.Silence, strings.Join(lines, "\n  "))
}

// read reads the record to its end, and shows progress.
func (e *recordEnd) read(ctx context.Context, from *agent.WritableBus) (*writers.Choice, error) {
	out := terminal.Detect(e.stderr, os.Getenv)
	events := &record.Record{Source: explained{from.Source, from.Explain}}
	var said consume.Query
	sayInterruptions(&said, out)
	events.OnRetry, events.OnResume = said.OnRetry, said.OnResume
	showing, stop := context.WithCancel(ctx)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		text := func() (string, bool) { return fmt.Sprintf("reading the record: %d events", events.Events()), false }
		terminal.NewCounter(out, text).Run(showing)
	}()
	var fold writers.Fold
	reading, err := events.StreamEvents(ctx, fold.Add)
	stop()
	<-shown
	if err != nil {
		return nil, err
	}
	if n := reading.Unreadable.Total(); n > 0 {
		fmt.Fprintf(out, "kubecdc: %d records cannot be read\n", n)
	}
	return e.Choose(fold.Writers(), time.Now())
}

// ends returns the ends to send, and the lines of the output in the same order.
func (e *recordEnd) ends(choice *writers.Choice, now time.Time) (all []agent.Ends, lines []*endedScope) {
	for _, chosen := range choice.Ends { // the clock of an agent may be ahead, and an earlier end counts as late
		if last := chosen.Writer.Last(); !last.Before(now) {
			now = last.Add(time.Millisecond)
		}
	}
	for i, chosen := range choice.Ends {
		w := chosen.Writer
		ends := agent.Ends{
			Cluster:    w.Cluster,
			ClusterUID: w.ClusterUID,
			Writer:     w.Name,
			Run:        w.Run,
			Epoch:      w.Epoch(),
		}
		ends.At = now.Add(time.Duration(i)) // the id of an end has its time, and not its writer
		for _, s := range chosen.Scopes {
			ends.Scopes = append(ends.Scopes, agent.EndedScope{
				Name:            s.Name,
				Resource:        &s.Resource,
				ResourceVersion: s.ResourceVersion,
				History:         s.History,
			})
			lines = append(lines, &endedScope{
				Scope:           s.Name,
				Resource:        s.Resource.String(),
				ResourceVersion: s.ResourceVersion,
				History:         s.History,
				Cluster:         w.Cluster,
				ClusterUID:      w.ClusterUID,
				Writer:          w.Name,
				Run:             w.Run,
				Checkpoint:      w.Checkpoint,
				Node:            w.Node,
				LastEvent:       w.LastEvent,
			})
		}
		all = append(all, ends)
	}
	return all, lines
}

func (e *recordEnd) send(
	ctx context.Context, record *agent.WritableBus, ends []agent.Ends, lines []*endedScope,
) error {
	timeout := endTimeout + time.Duration(len(lines))*10*time.Millisecond
	late := fmt.Errorf("the bus did not accept them within %v", timeout.Round(time.Second))
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	log := slog.New(terminal.NewHandler(terminal.Detect(e.stderr, os.Getenv), slog.LevelWarn))
	var mu sync.Mutex
	ended := 0
	err := agent.SendEnds(ctx, record.Config, record.Embedded, ends, func(of *agent.Ends, s *agent.EndedScope) {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range lines {
			if l.Writer == of.Writer && l.Scope == s.Name {
				l.Ended = true
				ended++
			}
		}
	}, log)
	if err != nil {
		return fmt.Errorf("record end: %d of %d scopes were ended; repeat the command for the others: %w",
			ended, len(lines), err)
	}
	return nil
}

func (e *recordEnd) show(lines []*endedScope) error {
	if e.output.IsStructured() {
		return e.output.write(e.stdout, struct {
			Scopes []*endedScope `json:"scopes"`
		}{append([]*endedScope{}, lines...)})
	}
	if len(lines) == 0 {
		fmt.Fprintln(e.stdout, "Nothing to end: the record shows no such scope without an end.")
		return nil
	}
	done := "ENDED"
	if e.dryRun {
		done = "WOULD END"
	}
	table := tabwriter.NewWriter(e.stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, done+"\tRESOURCEVERSION\tWRITER\tCHECKPOINT\tLAST EVENT")
	for _, l := range lines {
		last := l.LastEvent.UTC().Format(time.RFC3339)
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", l.Scope, l.ResourceVersion, l.Writer, l.Checkpoint, last)
	}
	return table.Flush()
}
