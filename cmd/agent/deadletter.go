package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent"
)

func newDeadLetterCommand(stdout io.Writer) *cobra.Command {
	var named string
	var out output
	cmd := &cobra.Command{
		Use:   "dead-letter [EVENT-ID]",
		Short: "List the events that are retried alone, or give one up",
		Long: `List the events that the bus has not accepted and that the running agent retries, with the error of the last attempt.
An isolated event is sent alone, on a connection of its own: the bus denies only this event, or connections broke while
it was in flight. It delays later changes of its own object, and nothing else.

Without an argument, the command only lists. With EVENT-ID, an id of the list, it gives the event up: it moves the
event to the dead letters (deadLetter in the configuration) instead of retrying it. The bus then gets a gap in its
place, which names the dead letter, and the later changes of its object follow. The progress of the agent is dropped
instead: the next one takes its place.

` + aboutSocket,
		Example: `  kubecdc dead-letter                               # what is being retried
  kubecdc dead-letter pods/6e2c…/48211              # give this one up
  kubectl exec -n kubecdc deploy/kubecdc -- /kubecdc dead-letter`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{errors.New("dead-letter: name one event by its id, or none to list them")}
			}
			if len(args) == 1 && !strings.Contains(args[0], "/") {
				return usageError{
					fmt.Errorf(
						"dead-letter: %q is no event id, such as pods/6e2c…/48211; without an argument, the events are listed",
						args[0]),
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := agent.FindSocket(cmd.Context(), named)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return putAmongDeadLetters(cmd.Context(), at, args[0], stdout)
			}
			return listStuck(cmd.Context(), at, &out, stdout)
		},
	}
	cmd.Flags().StringVar(&named, "agent", "", agentOfOrders)
	out.add(cmd, reportFormats())
	return cmd
}

func listStuck(ctx context.Context, socket string, out *output, stdout io.Writer) error {
	list, err := admin.NewSocketClient(socket).Stuck(ctx)
	if err != nil {
		return err
	}
	if out.IsStructured() {
		return out.write(stdout, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(stdout, "The bus accepts all events.")
		return nil
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "EVENT\tOBJECT\tAGE\tATTEMPTS\tISOLATED\tERROR")
	for _, s := range list {
		object := s.Resource + " " + s.Name
		if s.Namespace != "" {
			object = s.Resource + " " + s.Namespace + "/" + s.Name
		}
		fmt.Fprintf(table, "%s\t%s\t%v\t%d\t%s\t%s\n", s.ID, object, time.Since(s.Since).Round(time.Second), s.Attempts,
			strconv.FormatBool(s.Isolated), s.Error)
	}
	return table.Flush()
}

func putAmongDeadLetters(ctx context.Context, socket, id string, stdout io.Writer) error {
	if err := admin.NewSocketClient(socket).DeadLetter(ctx, id); err != nil {
		return err
	}
	if strings.HasPrefix(id, "progress/") { // of an agent; the id of an object's event begins with its resource
		fmt.Fprintf(stdout, "%s was dropped\n", id)
		return nil
	}
	fmt.Fprintf(stdout, "%s was moved to the dead letters; the bus gets a gap in its place\n", id)
	return nil
}
