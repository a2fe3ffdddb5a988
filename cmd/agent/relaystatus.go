package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
)

// relayTimeout limits the reading of cursors from the bus.
const relayTimeout = 15 * time.Second

// relayStatus is the position of a relay.
type relayStatus struct {
	Name    string                `json:"name"`
	Cursors []driver.CursorStatus `json:"cursors"`
}

func newRelayStatusCommand(stdout io.Writer) *cobra.Command {
	var f relayFlags
	var out output
	cmd := &cobra.Command{
		Use:   "status {--config FILE [NAME...] | --bus URL --name NAME}",
		Short: "Show the positions of relays",
		Long: `Show the position of each relay, and with Kafka of each partition: everything up to it is delivered (POSITION). BEHIND
is the number of later records on the bus. On JetStream, SAVED and HOST show when and where the position was saved. The
relays may run: they save a changed position every second.`,
		Example: "  kubecdc relay status --config kubecdc.yaml\n" +
			"  kubecdc relay status --config kubecdc.yaml -o json | jq '.[].cursors[].behind'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.config == "" {
				f.to = "stdout:" // required, but not used
			}
			return showRelays(cmd.Context(), &f, args, &out, stdout)
		},
	}
	addRelayFlags(cmd, &f)
	cmd.Flags().StringVar(&f.name, "name", "", "`name` of the relay")
	out.add(cmd, reportFormats())
	return cmd
}

func showRelays(ctx context.Context, f *relayFlags, args []string, out *output, stdout io.Writer) error {
	cfg, err := f.load(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	all := make([]relayStatus, 0, len(cfg.Relays))
	for i := range cfg.Relays {
		r := &cfg.Relays[i]
		sub, err := agent.NewRelaySubscription(cfg, r, cfg.Cluster, slog.New(slog.DiscardHandler))
		if err != nil {
			return usageError{fmt.Errorf("relay %s: %w", r.Name, err)}
		}
		cursors, err := sub.Status(ctx)
		_ = sub.Close() // nothing was opened
		if err != nil {
			return fmt.Errorf("relay %s: %w", r.Name, err)
		}
		all = append(all, relayStatus{r.Name, cursors})
	}
	if out.IsStructured() {
		return out.write(stdout, all)
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tPLACE\tPOSITION\tBEHIND\tSAVED\tHOST\tNOTE")
	for _, s := range all {
		for _, c := range s.Cursors {
			saved, host := "-", "-"
			if !c.Updated.IsZero() {
				saved = c.Updated.Local().Format(time.DateTime)
			}
			if c.Holder != "" {
				host = c.Holder
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", s.Name, c.Place, c.At, c.Behind, saved, host, c.Problem)
		}
	}
	return w.Flush()
}
