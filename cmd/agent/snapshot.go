package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/config"
)

// answerWithin is how long an agent may take to begin snapshots: a live event that waits for room comes first.
const answerWithin = time.Minute

type snapshotFlags struct{ agent, namespace, output string }

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
not wait for it.

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
			if f.output != "text" && f.output != "json" {
				return usageError{fmt.Errorf("--output: must be text or json, got %q", f.output)}
			}
			request := snapshotRequest{Namespace: f.namespace}
			if len(args) == 1 {
				var err error
				if request.Resource, err = resourceNamed(args[0]); err != nil {
					return usageError{fmt.Errorf("snapshot: %w", err)}
				}
			}
			at, err := findSocket(cmd.Context(), f.agent)
			if err != nil {
				return err
			}
			return snapshot(cmd.Context(), at, request, f.output, stdout, stderr)
		},
	}
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "only objects of this `namespace`")
	cmd.Flags().StringVar(&f.agent, "agent", "", agentOfOrders)
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "`format`: text or json")
	completeWords(cmd, "output", "text", "json")
	return cmd
}

// For all commands that give orders.
const (
	aboutSocket = `The agent accepts commands at a Unix socket on its own machine, which only its own user and root can open:
$` + socketVariable + `, which the chart sets in its pods. Without that variable, the command asks the agent's HTTP server for
the socket: the server at $` + agentVariable + `, else the one of the 'kubecdc run' of this machine that runs with an embedded
JetStream, or 127.0.0.1:8080. In a pod: kubectl exec.`
	agentOfOrders = "`path` of the agent's socket, or URL of its HTTP server (default: $" + socketVariable + ", else the server at $" + agentVariable +
		", else that of a kubecdc that runs here, else " + defaultAgent + ")"
)

// noSocket says that nobody takes orders at a socket.
func noSocket(path string, err error) error {
	return fmt.Errorf("no agent takes orders at %s: start one (kubecdc run), or name another with --agent: %w", path, withoutRequest(err))
}

// resourceNamed is what a person means, as an agent calls it: in whichever version.
func resourceNamed(text string) (string, error) {
	r, err := config.FindResource(text)
	r.Version = ""
	return r.String(), err
}

// snapshot asks the agent, and prints what it has begun.
func snapshot(ctx context.Context, agent string, request snapshotRequest, output string, stdout, stderr io.Writer) error {
	slow := time.AfterFunc(silence, func() { fmt.Fprintf(stderr, "kubecdc: waiting for the agent at %s\n", agent) })
	defer slow.Stop()
	a, err := askSnapshot(ctx, agent, request)
	if ctx.Err() != nil {
		return errors.New("snapshot: interrupted; what has begun goes on")
	}
	if err != nil {
		return err
	}
	if output == "json" {
		if err := printJSON(stdout, a); err != nil {
			return err
		}
	} else {
		a.write(stdout)
	}
	if len(a.Errors) > 0 {
		return fmt.Errorf("the agent at %s: %s", agent, strings.Join(a.Errors, "\n  "))
	}
	return nil
}

func askSnapshot(ctx context.Context, agent string, request snapshotRequest) (*snapshotAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, orderHost+"/snapshot", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := socketClient(agent).Do(r)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("the agent at %s has not answered within %v: what has begun goes on; 'kubecdc tail --op snapshot' shows it", agent, answerWithin)
	case err != nil:
		return nil, noSocket(agent, err)
	}
	defer response.Body.Close()
	a := new(snapshotAnswer)
	if err := json.NewDecoder(io.LimitReader(response.Body, 16<<20)).Decode(a); err != nil || response.Header.Get("Content-Type") != "application/json" {
		return nil, notThat(agent, response.Status, "snapshots on demand")
	}
	return a, nil
}

// write says what has begun, a line each.
func (a *snapshotAnswer) write(w io.Writer) {
	if len(a.Snapshots) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "SCOPE\tSNAPSHOT\tOBJECTS\tSTATUS")
	for _, s := range a.Snapshots {
		status := "begun"
		if s.Running {
			status = "in progress already"
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", s.Scope, s.Snapshot, s.Objects, status)
	}
	_ = table.Flush() // a terminal that is gone hears nothing
}
