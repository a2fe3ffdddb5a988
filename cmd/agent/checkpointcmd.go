package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/terminal"
)

// checkpointTimeout limits the wait for the API server.
const checkpointTimeout = 15 * time.Second

func newCheckpointCommand(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Show where a restart would resume, or make it start over",
		Long: `Show or reset the checkpoint of an agent. For each scope (a resource, perhaps with namespaces and selectors) it
stores the resourceVersion up to which everything is on the bus. A restart resumes there.

The location of the checkpoint depends on the agent: give these commands the same --config, --bus, --data-dir,
--kubeconfig and --context. Without --config and --bus, it is that of an agent with a JetStream of its own. The
configuration of a Helm release is in a ConfigMap: pass it on standard input with --config -. An agent in a Pod uses
the ConfigMap kubecdc-checkpoint of its namespace, unless its configuration names another place. Outside the Pod,
name that ConfigMap (checkpoint.configMap) in the configuration.`,
		Example: "  kubecdc checkpoint show\n" +
			"  kubectl get configmap -n kubecdc kubecdc -o jsonpath='{.data.kubecdc\\.yaml}' | kubecdc checkpoint show --config -\n" +
			"  kubecdc checkpoint reset deployments.apps",
		Args: oneOfItsCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCheckpointShowCommand(stdout, stderr), newCheckpointResetCommand(stdout, stderr), newCheckpointForgetCommand(stdout, stderr))
	return cmd
}

func addCheckpointFlags(cmd *cobra.Command, o *agent.Options) {
	cmd.Flags().StringVar(&o.Config, "config", "", "configuration `file` of the agent, - for standard input")
	addOverrides(cmd, &o.Overrides)
	cmd.Flags().StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; default: $KUBECONFIG, ~/.kube/config, or in a pod its service account")
	cmd.Flags().StringVar(&o.Context, "context", "", "`name` of the kubeconfig's context")
	cmd.Flags().StringVar(&o.Bus, "bus", "", "`URL` of the bus, if the agent runs with one")
	cmd.Flags().StringVar(&o.DataDir, "data-dir", "", "`directory` of the embedded JetStream, if the agent runs with one")
}

func newCheckpointShowCommand(stdout, stderr io.Writer) *cobra.Command {
	o := agent.Options{Build: build()}
	var out output
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show where a restart would resume",
		Long: `Show the location of the checkpoint, its cluster and bus, and when it was saved. For each scope it shows:

- the resourceVersion up to which everything is on the bus;
- how many restores of etcd the scope has seen (HISTORY);
- an incomplete snapshot, with the object up to which it is on the bus;
- for how long the scope has been retiring ('kubecdc checkpoint forget');
- when the API server last sent anything.

The agent may run: it saves changes every 5 seconds.`,
		Example: "  kubecdc checkpoint show\n" +
			"  kubecdc checkpoint show --config kubecdc.yaml -o json | jq .checkpoint.scopes",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Stdin = cmd.InOrStdin()
			k, err := openCheckpoint(cmd.Context(), checkpointTimeout, &o, stderr)
			if err != nil {
				return err
			}
			ctx, done := k.reporting(cmd.Context(), stderr)
			defer done()
			d, err := checkpoint.Read(ctx, k.store)
			if err != nil {
				return k.explain(ctx, err)
			}
			if out.Structured() {
				return out.write(stdout, struct {
					Place      string               `json:"place"`
					Checkpoint *checkpoint.Document `json:"checkpoint"` // null without a checkpoint
				}{k.store.String(), d})
			}
			showCheckpoint(stdout, k.store.String(), d, time.Now())
			if d == nil && o.Embedded() {
				fmt.Fprintln(stdout, notOfThisAgent)
			}
			return nil
		},
	}
	addCheckpointFlags(cmd, &o)
	out.add(cmd, reportFormats())
	return cmd
}

func newCheckpointResetCommand(stdout, stderr io.Writer) *cobra.Command {
	o := agent.Options{Build: build()}
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset [RESOURCE]",
		Short: "Remove the position at which a restart would resume",
		Long: `Remove the checkpoint, or its positions of one resource. The next start of the agent sends a gap, because the
changes in between are not known, followed by a new snapshot. A checkpoint that is damaged, or belongs to another
cluster or bus, can be reset too. Exit code 1: there is no checkpoint.

Stop the agent first. A checkpoint in a file cannot be reset while an agent uses it. One in a ConfigMap can, and the
agent ends when it detects that.

RESOURCE is written as for kubectl, or is a scope as 'kubecdc checkpoint show' prints it. At a terminal, the command
asks for confirmation, unless --yes is given.`,
		Example: "  kubecdc checkpoint reset\n" +
			"  kubecdc checkpoint reset deployments.apps --config kubecdc.yaml --yes\n" +
			"  kubectl get configmap -n kubecdc kubecdc -o jsonpath='{.data.kubecdc\\.yaml}' | kubecdc checkpoint reset --config -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{errors.New("checkpoint reset: name one resource, such as deployments.apps, or none for all")}
			}
			return nil
		},
		ValidArgsFunction: completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			resource := strings.Join(args, "")
			if resource != "" && !strings.ContainsAny(resource, "/?") {
				var err error
				if resource, err = resourceNamed(resource); err != nil {
					return usageError{fmt.Errorf("checkpoint reset: %w", err)}
				}
			}
			o.Stdin = cmd.InOrStdin()
			k, err := openCheckpoint(cmd.Context(), checkpointTimeout, &o, stderr)
			if err != nil {
				return err
			}
			if !yes && !confirmed(cmd.Context(), resource, k.store.String(), cmd.InOrStdin(), stderr) {
				return errors.New("checkpoint reset: nothing was changed")
			}
			ctx, done := k.reporting(cmd.Context(), stderr)
			defer done()
			removed, err := checkpoint.Reset(ctx, k.store, resource)
			if err != nil {
				return k.explain(ctx, err)
			}
			k.sayReset(stdout, resource, removed)
			return nil
		},
	}
	addCheckpointFlags(cmd, &o)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func newCheckpointForgetCommand(stdout, stderr io.Writer) *cobra.Command {
	o := agent.Options{Build: build()}
	cmd := &cobra.Command{
		Use:   "forget SCOPE",
		Short: "Give up a scope that is no longer selected",
		Long: `Give up a scope that is no longer selected. After a scope is removed from the configuration, the agent sends the
changes that it had read, and left for each object. If the bus does not accept them, for example because a topic is
missing, the scope stays in the checkpoint as retiring, and each start of the agent retries. This command removes
the scope from the checkpoint: the agent sends nothing more about it, and consumers may keep its objects.

Stop the agent first. A checkpoint in a file cannot be changed while an agent uses it. One in a ConfigMap can, and
the agent ends when it detects that.

SCOPE is written as 'kubecdc checkpoint show' prints it. Exit code 1: the checkpoint has no such scope, or the scope
is not retiring.`,
		Example: "  kubecdc checkpoint forget namespaces --config kubecdc.yaml\n" +
			"  kubecdc checkpoint forget pods/shop --config - <kubecdc.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("checkpoint forget: name one scope, as 'kubecdc checkpoint show' prints it")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Stdin = cmd.InOrStdin()
			k, err := openCheckpoint(cmd.Context(), checkpointTimeout, &o, stderr)
			if err != nil {
				return err
			}
			ctx, done := k.reporting(cmd.Context(), stderr)
			defer done()
			if err := checkpoint.Forget(ctx, k.store, args[0]); err != nil {
				return k.explain(ctx, err)
			}
			fmt.Fprintf(stdout, "%s: %s was removed. The agent sends nothing more about it; consumers may keep its objects.\n", k.store, args[0])
			if k.location.ConfigMap != nil {
				fmt.Fprintln(stdout, "A running agent stops when it detects this.")
			}
			return nil
		},
	}
	addCheckpointFlags(cmd, &o)
	return cmd
}

// checkpointRef is the checkpoint of an agent.
type checkpointRef struct {
	store    checkpoint.Store
	cfg      *config.Config
	location agent.CheckpointLocation
	host     string // API server of a checkpoint in a ConfigMap; "" for a file
	timeout  time.Duration
}

// openCheckpoint opens the checkpoint of an agent with these options.
func openCheckpoint(ctx context.Context, timeout time.Duration, o *agent.Options, stderr io.Writer) (*checkpointRef, error) {
	cfg, err := o.LoadConfig()
	if err != nil {
		return nil, err
	}
	if !agent.KeepsCheckpoint(cfg) {
		return nil, usageError{errors.New("the bus stdout has no checkpoint, unless the configuration sets one (checkpoint)")}
	}
	var found *agent.Cluster
	find := func() (*agent.Cluster, error) {
		if found != nil {
			return found, nil
		}
		var err error
		found, err = o.FindCluster()
		return found, err
	}
	k := &checkpointRef{cfg: cfg, timeout: timeout}
	k.location, err = agent.LocateCheckpoint(o, cfg, find, func() (string, error) {
		c, err := find()
		if err != nil {
			return "", err
		}
		ctx, cancel := k.within(ctx)
		defer cancel()
		return askUID(ctx, cfg, c, stderr)
	})
	if err == nil {
		k.store, err = k.location.Open(find)
	}
	if err != nil {
		return nil, err
	}
	if k.location.ConfigMap != nil {
		k.host = found.Host()
	}
	return k, nil
}

// within limits the wait for the API server.
func (k *checkpointRef) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, k.timeout, fmt.Errorf("no answer within %v", k.timeout))
}

// reporting is within, and also reports a slow API server. It is called after the confirmation, which has no time limit.
func (k *checkpointRef) reporting(ctx context.Context, stderr io.Writer) (_ context.Context, done func()) {
	ctx, cancel := k.within(ctx)
	if k.host == "" {
		return ctx, cancel
	}
	slow := time.AfterFunc(quietWait, func() { fmt.Fprintf(stderr, "kubecdc: waiting for the API server %s\n", k.host) })
	return ctx, func() {
		slow.Stop()
		cancel()
	}
}

// askUID returns the uid of the cluster. The default location of a checkpoint depends on it.
func askUID(ctx context.Context, cfg *config.Config, c *agent.Cluster, stderr io.Writer) (string, error) {
	set, err := agent.NewIdleInformers(cfg, c.REST)
	if err != nil {
		return "", usageError{err}
	}
	uid, err := c.UID(ctx, set, slog.New(terminal.NewHandler(terminal.Detect(stderr, os.Getenv), slog.LevelWarn)))
	if err != nil && ctx.Err() != nil {
		return "", fmt.Errorf("the location of the checkpoint depends on the cluster, which the API server %s (%s) did not identify: %w; "+
			"with --data-dir, or a configuration that sets the location, the command does not need it", c.Host(), c.From, context.Cause(ctx))
	}
	return uid, err
}

// explain returns err, or the reason why ctx has ended.
func (k *checkpointRef) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", k.store, context.Cause(ctx))
	}
	return err
}

// confirmed asks for confirmation at a terminal. Without a terminal, the call itself counts as confirmation. Ctrl-C means no.
func confirmed(ctx context.Context, resource, place string, stdin io.Reader, stderr io.Writer) bool {
	in, ok := stdin.(*os.File)
	if !ok || !terminal.Detect(in, os.Getenv).Interactive || !terminal.Detect(stderr, os.Getenv).Interactive {
		return true
	}
	what := "all"
	if resource != "" {
		what = resource
	}
	fmt.Fprintf(stderr, "Remove the position of %s from %s? [y/N] ", what, place)
	// A read from a terminal cannot be interrupted: after Ctrl-C, it ends with the process.
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // an unread line is not a yes
		lines <- line
	}()
	select {
	case line := <-lines:
		answer := strings.ToLower(strings.TrimSpace(line))
		return answer == "y" || answer == "yes"
	case <-ctx.Done():
		fmt.Fprintln(stderr)
		return false
	}
}

// sayReset prints the result of a reset and its consequences.
func (k *checkpointRef) sayReset(w io.Writer, resource string, removed []string) {
	what := "all that is captured"
	if resource != "" {
		what = strings.Join(removed, ", ")
	}
	switch {
	case resource != "":
		fmt.Fprintf(w, "%s: removed %s.\n", k.store, what)
	case len(removed) == 0:
		fmt.Fprintf(w, "%s: removed; it had no position to resume from.\n", k.store)
	default:
		fmt.Fprintf(w, "%s: removed, with %d scopes.\n", k.store, len(removed))
	}
	if k.cfg.Snapshot.Mode == config.SnapshotNever {
		fmt.Fprintf(w, "The next start captures changes of %s from then on, without a snapshot (snapshot.mode: never).\n", what)
	} else {
		fmt.Fprintf(w, "The next start takes a new snapshot of %s.\n", what)
	}
	if k.location.ConfigMap != nil {
		fmt.Fprintln(w, "A running agent stops when it detects this.")
	}
}

// notOfThisAgent explains that the checkpoint of an agent with other flags is elsewhere.
const notOfThisAgent = "This is the location for an agent with an embedded JetStream. If the agent runs with --config or --bus, give this command the same flags."

// showCheckpoint prints a table for people.
func showCheckpoint(w io.Writer, place string, d *checkpoint.Document, now time.Time) {
	if d == nil {
		fmt.Fprintf(w, "%s: no checkpoint yet. The next start begins from scratch.\n", place)
		return
	}
	about := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(about, "kept in\t%s\n", place)
	cluster := d.ClusterUID
	if d.Cluster != d.ClusterUID {
		cluster = fmt.Sprintf("%s (uid %s)", d.Cluster, d.ClusterUID)
	}
	fmt.Fprintf(about, "cluster\t%s\n", cluster)
	fmt.Fprintf(about, "bus\t%s\n", d.Bus)
	fmt.Fprintf(about, "saved\t%s (%s ago)\n", d.Saved.Local().Format(time.DateTime), age(now.Sub(d.Saved)))
	_ = about.Flush() // an error of standard output cannot be reported
	if len(d.Scopes) == 0 {
		fmt.Fprintln(w, "\nIt holds no scope yet.")
		return
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "SCOPE\tRESOURCEVERSION\tHISTORY\tSNAPSHOT\tLAST SEEN")
	for _, name := range slices.Sorted(maps.Keys(d.Scopes)) {
		s := d.Scopes[name]
		seen := "-"
		if !s.LastSeen.IsZero() {
			seen = age(now.Sub(s.LastSeen)) + " ago"
		}
		state := unfinished(s.Snapshot)
		if s.Retiring != nil {
			state = "retiring for " + age(now.Sub(s.Retiring.Since))
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", name, s.ResourceVersion, s.History, state, seen)
	}
	_ = table.Flush()
}

// unfinished describes an incomplete snapshot.
func unfinished(s *checkpoint.Snapshot) string {
	switch {
	case s == nil:
		return "-"
	case s.Cursor == "":
		return fmt.Sprintf("%s: nothing of %d objects yet", s.ID, s.Objects)
	}
	return fmt.Sprintf("%s: up to %s, of %d objects", s.ID, s.Cursor, s.Objects)
}

// age formats a duration in its largest useful unit, as kubectl formats ages.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
