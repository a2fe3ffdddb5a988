package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/console/tail"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

type tailFlags struct {
	agent.Options // Config, Bus and Overrides

	access         driver.Access
	since          string
	diff, noFollow bool
	stdin          bool // --bus may be - for standard input
	limit          int
	selection      console.Selection
	output         output
}

func newTailCommand(stdout, stderr io.Writer) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail [RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME...]",
		Short: "Show the events of a bus as they arrive",
		Long: `Show the events of a bus, as they arrive or from the past. Each line has the time, the operation, the object, the change
and who made it. It reads any JetStream and Kafka that kubecdc publishes to, and files of JSON lines.

If the server requires authentication, use --config or --creds and --tls-ca. --config reads address, stream or topic,
credentials, certificates, prefix of inboxes and JetStream domain from the agent's configuration. --creds and --tls-ca
name files. --bus may be used with either. Without the name of a Kafka topic, the command reads all topics that fit the
template, of any cluster.

Resources are named as for kubectl: plural, singular, kind or short name (pods, pod, Pod, po), with a group if needed
(deployments.apps). Short names of custom resources are not known. Names and the namespace may have * ? [a-z].
JetStream sends only the records of the resources, the namespace and the names that are given. From Kafka, all records
of the topics are read; for single objects (--config with cluster, one namespace, names) only those of their partitions.

--diff shows the changed fields below each line, within their parents: "containers[app]" is the element of that name.
Red and - marks the previous value, green and + the new one. Yellow and ~ marks a new value if the event does not have
the previous one. For created and deleted objects, an outline without status is shown. metadata.resourceVersion,
generation and managedFields are not shown, because they change with every update.

-o wide shows all: with --diff also those fields, and whole objects. -o json prints the records as they are on the bus,
-o yaml documents. -o name prints the object of each event, -o jsonpath=TEMPLATE what the template makes of the record:
'{.time} {.data.after.spec.replicas}'.

At a terminal, lines are cut to its width and long values are folded. The reads of a snapshot are counted instead of
listed (--op read or -o wide lists them). In a pipe nothing is cut. Progress events are shown only with -o wide, json or
yaml, and with --op progress. NO_COLOR and CLICOLOR_FORCE control colours. Times are in the local time zone (--tz, $TZ).`,
		Example: `  kubecdc tail                                      # what happens from now on
  kubecdc tail deploy,cm -n shop --diff             # what changes in Deployments and ConfigMaps of a namespace
  kubecdc tail pods -l app=web --op deleted --since 1h
  kubecdc tail deploy/web --since all --no-follow -o yaml
  kubecdc tail --config kubecdc.yaml                # the bus that the agent of this file publishes to
  kubecdc tail --bus tls://nats.example:4222 --creds reader.creds
  kubecdc tail --bus kafka://kafka-0:9092/kubecdc.prod --since 1h
  kubecdc tail --bus file:events.jsonl --diff | less -R
  kubecdc run --config F --bus stdout: | kubecdc tail --bus -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.selection.Args = args
			return showTail(cmd.Context(), &f, stdout, stderr)
		},
		ValidArgsFunction: completeResources,
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.selection.Namespace, "namespace", "n", "", "only objects in this `namespace`; may be a pattern")
	fl.StringVarP(&f.selection.Selector, "selector", "l", "",
		"only objects whose labels match this `selector` after the change")
	fl.StringSliceVar(&f.selection.Ops, "op", nil,
		"only these `operations`: "+strings.Join(console.Kinds(), ", ")+"; or "+console.Letters())
	f.stdin = true
	f.addBus(cmd)
	fl.StringVar(&f.since, "since", "",
		"begin in the past: a `time` (2026-11-20T15:00:00Z, 14:05, yesterday), how long ago (90s, 1h, 7d), or all")
	fl.BoolVar(&f.noFollow, "no-follow", false,
		"end at the end of the stream, instead of waiting for more; without --since: show all")
	renameFlag(fl, "until-now", "no-follow")
	fl.IntVar(&f.limit, "limit", 0, "end after this `number` of events (0: no limit)")
	fl.BoolVar(&f.diff, "diff", false, "show what changed, in context")
	f.output.add(cmd, objectFormats())
	completeWords(cmd, "op", console.Kinds()...)
	completeWords(cmd, "since", "all", "1h", "24h")
	return cmd
}

// completeWords completes a flag with words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	// fails for flags that do not exist
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// views parses --output and --diff.
func (f *tailFlags) views() (console.Options, error) {
	var o console.Options
	if f.diff {
		o.View = console.Diff
	}
	switch f.output.Name {
	case printer.Table:
		return o, nil
	case printer.Wide:
		o.Wide = true
		return o, nil
	}
	switch {
	case f.diff && f.output.variable:
		return o, nil
	case f.diff:
		return o, fmt.Errorf("--diff requires -o table or wide, got -o %s", f.output.Name)
	case f.output.Name == printer.Name:
		o.Format = func(e *consume.Event) ([]byte, error) { return nameLine(e), nil }
	case f.output.Name == printer.JSONPath:
		o.Format = func(e *consume.Event) ([]byte, error) {
			text, err := f.output.Encode(e, "")
			return append(text, '\n'), err
		}
	default:
		o.View = console.View(f.output.Name)
	}
	return o, nil
}

// nameLine returns the line of -o name for an event: deployment.apps/web. Events without an object
// have none.
func nameLine(e *consume.Event) []byte {
	if e.Name == "" {
		return nil
	}
	group, _, ok := strings.Cut(e.APIVersion, "/")
	if !ok {
		group = ""
	}
	return []byte(kinds.ObjectName(e.Kind, group, e.Name) + "\n")
}

// start parses --since. If at is zero and all is false, only new events are read.
func (f *tailFlags) start(now time.Time) (at time.Time, all bool, err error) {
	switch f.since {
	case "":
		return time.Time{}, f.noFollow, nil
	case "all":
		return time.Time{}, true, nil
	}
	at, err = timeline.ParseTime(f.since, now)
	if err != nil {
		return time.Time{}, false,
			fmt.Errorf(
				"--since %q: want a time (2026-11-20T15:00:00Z, 14:05, yesterday), how long ago (90s, 1h, 7d), or all",
				f.since)
	}
	return at, false, nil
}

// query returns the query for the bus.
func (f *tailFlags) query(wanted *console.Filter, stderr io.Writer) (consume.Query, error) {
	at, all, err := f.start(time.Now())
	q := consume.Query{Objects: wanted.Objects(), StopAtEnd: f.noFollow}
	switch {
	case all:
		q.Start = consume.Beginning()
	case !at.IsZero():
		q.Start = consume.Since(at)
	}
	sayInterruptions(&q, stderr)
	return q, err
}

// open opens the bus. blocks reports whether its Next may block on input and ignore its context.
func (f *tailFlags) open(
	ctx context.Context, wanted *console.Filter, stdin io.Reader, stderr io.Writer,
) (r consume.Reader, blocks bool, err error) {
	q, err := f.query(wanted, stderr)
	if err != nil {
		return nil, false, usageError{err}
	}
	remark(stderr, f.since, time.Now())
	if f.Bus == "-" || f.Bus == "stdin:" {
		return fromfile.NewLines("standard input", stdin, q), true, nil
	}
	source, explain, err := f.source(stderr)
	if err != nil {
		return nil, false, err
	}
	opened := showWaiting(ctx, stderr)
	r, err = source.Read(ctx, q)
	opened()
	if err != nil && ctx.Err() == nil {
		err = explain(err)
	}
	if confined, ok := source.(driver.Confined); ok && err == nil {
		if _, all := confined.Reads(q.Objects, q.Events, ""); !all {
			fmt.Fprintf(stderr, "kubecdc: not all of these objects are shown: %s\n", confined.Only())
			wanted.OmitProgress()
		}
	}
	return r, false, err
}

// showWaiting shows at a terminal that a bus is waited for, from a second on until the returned
// function is called. A server that has just started reads the stream before it answers.
func showWaiting(ctx context.Context, stderr io.Writer) (stop func()) {
	out := terminal.Detect(stderr, os.Getenv)
	showing, cancel := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() {
		select {
		case <-time.After(time.Second):
			terminal.NewCounter(out, func() (string, bool) { return "waiting for the bus", false }).Run(showing)
		case <-showing.Done():
		}
	})
	return func() {
		cancel()
		shown.Wait()
	}
}

// sayInterruptions makes q report to w, once each, that the bus is unreachable and that it is back.
func sayInterruptions(q *consume.Query, w io.Writer) {
	var said atomic.Bool // several queries of a record may run at once
	q.OnRetry = func(err error) {
		if !said.Swap(true) {
			fmt.Fprintf(w, "kubecdc: %v; waiting for it\n", err)
		}
	}
	q.OnResume = func() {
		if said.Swap(false) {
			fmt.Fprintln(w, "kubecdc: reading resumes where it was interrupted")
		}
	}
}

// tailer parses the flags that select the events and their format.
func (f *tailFlags) tailer(stdout, stderr io.Writer) (*tail.Tailer, error) {
	view, err := f.views()
	if err != nil {
		return nil, err
	}
	f.selection.Progress = view.Wide || view.View == console.JSON || view.View == console.YAML
	filter, err := console.NewFilter(f.selection)
	if err != nil {
		return nil, err
	}
	if f.limit < 0 {
		return nil, fmt.Errorf("--limit %d: want a number of events, or 0 for all", f.limit)
	}
	view.Reads = filter.Reads()
	return &tail.Tailer{
		Filter:  filter,
		Limit:   f.limit,
		Stderr:  stderr,
		Printer: console.New(terminal.Detect(stdout, os.Getenv), view),
	}, nil
}

// showTail shows events until the source or ctx ends.
func showTail(ctx context.Context, f *tailFlags, stdout, stderr io.Writer) error {
	t, err := f.tailer(stdout, stderr)
	if err != nil {
		return usageError{err}
	}
	// Otherwise, writing to a closed pipe, as in "kubecdc tail | head", would end the process by
	// the signal.
	signal.Ignore(syscall.SIGPIPE)
	r, blocks, err := f.open(ctx, t.Filter, os.Stdin, stderr)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err = t.Run(ctx, r, blocks); errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}
