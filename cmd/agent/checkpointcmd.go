package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
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
	cmd.AddCommand(newCheckpointShowCommand(stdout, stderr), newCheckpointResetCommand(stdout, stderr),
		newCheckpointForgetCommand(stdout, stderr))
	return cmd
}

func addCheckpointFlags(cmd *cobra.Command, o *agent.Options) {
	cmd.Flags().StringVar(&o.Config, "config", "", "configuration `file` of the agent, - for standard input")
	addOverrides(cmd, &o.Overrides)
	cmd.Flags().
		StringVar(&o.Kubeconfig, "kubeconfig", "",
			"kubeconfig `file`; default: $KUBECONFIG, ~/.kube/config, or in a pod its service account")
	cmd.Flags().StringVar(&o.Context, "context", "", "`name` of the kubeconfig's context")
	cmd.Flags().StringVar(&o.Bus, "bus", "", "`URL` of the bus, if the agent runs with one")
	cmd.Flags().
		StringVar(&o.DataDir, "data-dir", "", "`directory` of the embedded JetStream, if the agent runs with one")
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
			k, err := agent.OpenCheckpoint(cmd.Context(), &o, checkpointTimeout, stderr)
			if err != nil {
				return err
			}
			var d *checkpoint.Document
			if err := k.Do(cmd.Context(), func(ctx context.Context) error {
				d, err = checkpoint.Read(ctx, k.Store)
				return err
			}); err != nil {
				return err
			}
			if out.IsStructured() {
				return out.write(stdout, struct {
					Place      string               `json:"place"`
					Checkpoint *checkpoint.Document `json:"checkpoint"` // null without a checkpoint
				}{k.String(), d})
			}
			d.Write(stdout, k.String(), time.Now())
			if d == nil && o.IsEmbedded() {
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
				return usageError{
					errors.New("checkpoint reset: name one resource, such as deployments.apps, or none for all"),
				}
			}
			return nil
		},
		ValidArgsFunction: completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			resource := strings.Join(args, "")
			if resource != "" && !strings.ContainsAny(resource, "/?") {
				var err error
				resource, err = resourceNamed(resource)
				if err != nil {
					return usageError{fmt.Errorf("checkpoint reset: %w", err)}
				}
			}
			o.Stdin = cmd.InOrStdin()
			k, err := agent.OpenCheckpoint(cmd.Context(), &o, checkpointTimeout, stderr)
			if err != nil {
				return err
			}
			question := fmt.Sprintf("Remove the position of %s from %s?", cmp.Or(resource, "all"), k)
			if !yes && !terminal.Confirm(cmd.Context(), question, cmd.InOrStdin(), stderr) {
				return errors.New("checkpoint reset: nothing was changed")
			}
			var removed []string
			if err := k.Do(cmd.Context(), func(ctx context.Context) error {
				removed, err = checkpoint.Reset(ctx, k.Store, resource)
				return err
			}); err != nil {
				return err
			}
			sayReset(stdout, k, resource, removed)
			return nil
		},
	}
	addCheckpointFlags(cmd, &o)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func newCheckpointForgetCommand(stdout, stderr io.Writer) *cobra.Command {
	o := agent.Options{Build: build()}
	var noEnd bool
	cmd := &cobra.Command{
		Use:   "forget SCOPE",
		Short: "Give up a scope that is no longer selected",
		Long: `Give up a scope that is no longer selected. After a scope is removed from the configuration, the agent sends the
changes that it had read, and left for each object. If the bus does not accept them, for example because a topic is
missing, the scope stays in the checkpoint as retiring, and each start of the agent retries. This command removes
the scope from the checkpoint: the agent sends nothing more about it, and consumers may keep its objects.

First, the bus gets the end of the scope, scope.ended. If the bus does not accept it within 15 seconds, nothing is
changed. --no-end removes the scope without it. To end the scope later, use 'kubecdc record end'.

Stop the agent first. A checkpoint in a file cannot be changed while an agent uses it. One in a ConfigMap can, and
the agent ends when it detects that.

SCOPE is written as 'kubecdc checkpoint show' prints it. Exit code 1: the checkpoint has no such scope, or the scope
is not retiring.`,
		Example: "  kubecdc checkpoint forget namespaces --config kubecdc.yaml\n" +
			"  kubecdc checkpoint forget pods/shop --config - <kubecdc.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{
					errors.New("checkpoint forget: name one scope, as 'kubecdc checkpoint show' prints it"),
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Stdin = cmd.InOrStdin()
			k, err := agent.OpenCheckpoint(cmd.Context(), &o, checkpointTimeout+endTimeout, stderr)
			if err != nil {
				return err
			}
			end := func(d *checkpoint.Document, c *checkpoint.Scope) error {
				return sendEnd(cmd.Context(), k, d, args[0], c)
			}
			if d, _ := k.Config.Bus.Chosen(); noEnd || d.Stdout {
				end = nil
			}
			err = k.Do(cmd.Context(), func(ctx context.Context) error {
				return checkpoint.Forget(ctx, k.Store, args[0], end)
			})
			if err != nil {
				return err
			}
			if end != nil {
				fmt.Fprintf(stdout, "The bus has the end of %s.\n", args[0])
			}
			fmt.Fprintf(stdout,
				"%s: %s was removed. The agent sends nothing more about it; consumers may keep its objects.\n", k,
				args[0])
			if k.IsUnlocked() {
				fmt.Fprintln(stdout, "A running agent stops when it detects this.")
			}
			return nil
		},
	}
	addCheckpointFlags(cmd, &o)
	cmd.Flags().BoolVar(&noEnd, "no-end", false, "remove the scope although the bus does not have its end")
	return cmd
}

// sendEnd sends the end of a scope in place of the agent.
func sendEnd(
	ctx context.Context, k *agent.KeptCheckpoint, d *checkpoint.Document, scope string, c *checkpoint.Scope,
) error {
	late := fmt.Errorf("the bus did not accept it within %v", endTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, endTimeout, late)
	defer cancel()
	if err := k.SendEnd(ctx, d, scope, c); err != nil {
		return fmt.Errorf("the end of %s is not on the bus, nothing was changed: %w; "+
			"name a bus that can be reached from here with --bus, or remove the scope without its end (--no-end)",
			scope, err)
	}
	return nil
}

// sayReset prints the result of a reset and its consequences.
func sayReset(w io.Writer, k *agent.KeptCheckpoint, resource string, removed []string) {
	what := "all that is captured"
	if resource != "" {
		what = strings.Join(removed, ", ")
	}
	switch {
	case resource != "":
		fmt.Fprintf(w, "%s: removed %s.\n", k, what)
	case len(removed) == 0:
		fmt.Fprintf(w, "%s: removed; it had no position to resume from.\n", k)
	default:
		fmt.Fprintf(w, "%s: removed, with %d scopes.\n", k, len(removed))
	}
	if k.Config.Snapshot.Mode == config.SnapshotNever {
		fmt.Fprintf(w,
			"The next start captures changes of %s from then on, without a snapshot (snapshot.mode: never).\n", what)
	} else {
		fmt.Fprintf(w, "The next start takes a new snapshot of %s.\n", what)
	}
	if k.IsUnlocked() {
		fmt.Fprintln(w, "A running agent stops when it detects this.")
	}
}

// notOfThisAgent explains that the checkpoint of an agent with other flags is elsewhere.
const notOfThisAgent = "This is the location for an agent with an embedded JetStream. If the agent runs with --config or --bus, give this command the same flags."
