package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
)

type snapshotFlags struct {
	agent, namespace string
	output           output
}

func newSnapshotCommand(stdout, stderr io.Writer) *cobra.Command {
	var f snapshotFlags
	cmd := &cobra.Command{
		Use:   "snapshot [RESOURCE]",
		Short: "Make the running agent send all objects again",
		Long: `Make the running agent send its objects again, as read events between the markers of a snapshot: all objects, those
of one resource, or those of one namespace. Changes are sent meanwhile; no object is read at an older version than
it was sent. The command returns when the snapshots have begun. For a snapshot that is already in progress, it
prints the id.

A snapshot begins after the bus has acknowledged the changes before it and the checkpoint is saved. If that takes
longer than 20 s, the agent gives the snapshot up and the command fails (exit code 1) with the reason. Changes do
not wait for it. After a start, while the agent receives the changes since its checkpoint, the command fails too: for
about a minute if nothing changes.

RESOURCE is written as for kubectl: pods, deploy, deployments.apps, widgets.example.com.

` + aboutSocket,
		Example: `  kubecdc snapshot                                  # all that is captured
  kubecdc snapshot deployments.apps
  kubecdc snapshot cm -n shop
  kubectl exec -n kubecdc deploy/kubecdc -- /kubecdc snapshot pods`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{errors.New("snapshot: name one resource, such as deployments.apps, or none for all")}
			}
			return nil
		},
		ValidArgsFunction: completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			request := admin.SnapshotRequest{Namespace: f.namespace}
			if len(args) == 1 {
				var err error
				request.Resource, err = resourceNamed(args[0])
				if err != nil {
					return usageError{fmt.Errorf("snapshot: %w", err)}
				}
			}
			at, err := agent.FindSocket(cmd.Context(), f.agent)
			if err != nil {
				return err
			}
			return snapshot(cmd.Context(), at, request, &f.output, stdout, stderr)
		},
	}
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "only objects of this `namespace`")
	cmd.Flags().StringVar(&f.agent, "agent", "", agentOfOrders)
	f.output.add(cmd, reportFormats())
	return cmd
}

// quietWait is the time before a wait for a response is reported.
const quietWait = 800 * time.Millisecond

// These texts are for all commands that use the socket.
const (
	aboutSocket = `The agent accepts commands at a Unix socket on its own machine, which only its own user and root can open:
$` + admin.SocketVariable +
		`, which the chart sets in its pods. Without that variable, the command asks the agent's HTTP server for
the socket: the server at $` + agent.ServerVariable +
		`, else the one of the 'kubecdc run' of this machine that runs with an embedded
JetStream, or 127.0.0.1:8080. In a pod: kubectl exec.`
	agentOfOrders = "`path` of the agent's socket, or URL of its HTTP server (default: $" + admin.SocketVariable +
		", else the server at $" + agent.ServerVariable +
		", else that of a kubecdc that runs here, else " + agent.DefaultServer + ")"
)

// resourceNamed returns the agent's name for a resource in the user's words, without its version.
func resourceNamed(text string) (string, error) {
	r, err := config.FindResource(text)
	r.Version = ""
	return r.String(), err
}

// snapshot starts snapshots and prints them.
func snapshot(
	ctx context.Context, socket string, request admin.SnapshotRequest, out *output, stdout, stderr io.Writer,
) error {
	slow := time.AfterFunc(quietWait, func() { fmt.Fprintf(stderr, "kubecdc: waiting for the agent at %s\n", socket) })
	defer slow.Stop()
	a, err := admin.NewSocketClient(socket).Snapshot(ctx, request)
	if ctx.Err() != nil {
		return errors.New("snapshot: interrupted; snapshots that have begun continue")
	}
	if err != nil {
		return err
	}
	if out.IsStructured() {
		if err := out.write(stdout, a); err != nil {
			return err
		}
	} else {
		writeSnapshots(stdout, a.Snapshots)
	}
	if len(a.Errors) > 0 {
		return fmt.Errorf("the agent at %s: %s", socket, strings.Join(a.Errors, "\n  "))
	}
	return nil
}

// writeSnapshots prints a line for each started snapshot.
func writeSnapshots(w io.Writer, all []admin.StartedSnapshot) {
	if len(all) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "SCOPE\tSNAPSHOT\tOBJECTS\tSTATUS")
	for _, s := range all {
		status := "begun"
		if s.Running {
			status = "in progress already"
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", s.Scope, s.Snapshot, s.Objects, status)
	}
	_ = table.Flush() // an error of standard output cannot be reported
}
