package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
	"github.com/kubecdc/kubecdc/internal/serve/apiview/loopback"
	"github.com/kubecdc/kubecdc/internal/serve/views"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// serveFlags are the flags of the commands that serve the past as a Kubernetes API.
type serveFlags struct {
	askFlags
	at, kubeconfig  string
	from, to, speed string
	port            int
	maxMoments      int
}

const viewHelp = `The API is read-only: discovery, get, list, watch, tables. A watch opens and stays still. It listens on 127.0.0.1 only,
with TLS, and answers requests that have the random token of its kubeconfig. Resources are served in the version that
was captured; Events also as events.k8s.io/v1, autoscalers also as autoscaling/v1. Values that the agent strips or
redacts are missing. kubectl shows a warning for a list that is not certain, or has redacted objects.`

func newServeCommand(stdout, stderr io.Writer) *cobra.Command {
	f := serveFlags{
		at:         "now",
		to:         "now",
		speed:      "1",
		maxMoments: 4,
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the past as a read-only Kubernetes API",
		Long: `Serve the objects of a moment as a read-only Kubernetes API, and write a kubeconfig for kubectl and other clients.

` + momentHelp + `

--from and --to replay the time between two moments. Lists show the first moment. The replay begins when a client
watches, and no other one has begun to list or watch for 2 s. Then watches show every version that the record has, in
the order of resourceVersions, --speed times as fast as they were observed. All of them are in memory, compressed.

Other moments are served below /at/: the server of a kubeconfig may be https://127.0.0.1:PORT/at/2026-11-20T14:05:00Z or
https://127.0.0.1:PORT/at/rv:48211. A moment is read at the first request for it, several at once. The last
--max-moments are kept in memory. A moment younger than 125 s is not final, and is read again later.

` + viewHelp + `

` + certaintyHelp,
		Example: `  kubecdc serve --at 14:05
  kubecdc serve --at 'yesterday 14:05' --kubeconfig incident.kubeconfig --port 8443
  kubecdc serve --from 14:00 --to 14:10 --speed 60
  kubecdc serve --bus file:events.jsonl --at rv:48211`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, flag := range []string{"to", "speed"} {
				if f.from == "" && cmd.Flags().Changed(flag) {
					return usageError{fmt.Errorf("--%s requires a replay: set its first moment with --from", flag)}
				}
			}
			return servePast(cmd.Context(), &f, stdout, stderr)
		},
	}
	f.addView(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.at, "at", f.at, "the `moment`")
	fl.StringVar(&f.from, "from", "", "replay from this `moment`")
	fl.StringVar(&f.to, "to", f.to, "replay up to this `moment`")
	fl.StringVar(&f.speed, "speed", f.speed, "replay this `number` of times as fast as changes were observed, or max")
	completeWords(cmd, "at", "now", "10m", "1h", "24h")
	completeWords(cmd, "from", "10m", "1h", "24h")
	completeWords(cmd, "to", "now", "10m", "1h")
	completeWords(cmd, "speed", "1", "60", "max")
	cmd.MarkFlagsMutuallyExclusive("at", "from")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "",
		"write the kubeconfig to this new `file` (default: one in a temporary directory); it is removed at the end")
	fl.IntVar(&f.port, "port", 0, "listen on this `port` of 127.0.0.1 (default: a free one)")
	fl.IntVar(&f.maxMoments, "max-moments", f.maxMoments, "keep this `number` of moments of /at/ in memory")
	return cmd
}

func (f *serveFlags) addView(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.addClusterUID(cmd)
	fl.StringVar(&f.cluster, "cluster", "", "`name` of the cluster, if the record has several")
	fl.BoolVar(&f.exact, "exact", false, "exit with code 3 unless the answer is exact")
	f.bus.addBus(cmd)
}

// servePast serves a moment until ctx ends.
func servePast(ctx context.Context, f *serveFlags, stdout, stderr io.Writer) error {
	if f.maxMoments < 1 || f.maxMoments > 1000 {
		return usageError{fmt.Errorf("--max-moments: must be between 1 and 1000, got %d", f.maxMoments)}
	}
	at, to, speed, err := f.span(stderr)
	if err != nil {
		return err
	}
	if !signal.Ignored(syscall.SIGHUP) { // the terminal is closed: without this, the kubeconfig would remain
		var stop func()
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	q, err := f.ask(ctx, nil, stdout, stderr)
	if err != nil {
		return err
	}
	reader := viewsOf(q)
	view, err := reader.ReadView(ctx, at, to)
	if err != nil {
		return err
	}
	api := &apiview.Server{Root: view, MaxMoments: f.maxMoments, Open: reader.ReadViewForClient}
	if q.Record.Reads != nil {
		api.MaxOpening = 1 // consumers with fixed names serve one reading at a time
	}
	s, err := loopback.Listen(ctx, api, f.port, f.kubeconfig)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintf(stderr, "serving at %s, read-only; Ctrl-C ends it. In another terminal:\n", s.URL)
	fmt.Fprintf(stdout, "export KUBECONFIG=%s\n", s.Kubeconfig)
	return s.Run(ctx, func(ctx context.Context) error {
		if to != nil {
			fmt.Fprintln(q.Stderr, "The replay begins 2 s after the first watch.")
			shown, err := view.Play(ctx, speed, func() { fmt.Fprintf(q.Stderr, "The replay from %s has begun.\n", at) })
			if err == nil {
				fmt.Fprintf(q.Stderr, "The replay has reached %s, after %s changes. Watches stay open.\n", to,
					wording.Count(shown))
			}
		}
		<-ctx.Done()
		return nil
	})
}

// viewsOf reads the views of a question, and prints their certainty.
func viewsOf(q *answers.Question) *views.Reader {
	return &views.Reader{Question: &q.Question, Say: q.SayCertainty}
}

// span returns the moment to serve, the end of the replay that follows (nil without a replay), and
// its speed (0 for no pauses).
func (f *serveFlags) span(stderr io.Writer) (at timeline.Moment, to *timeline.Moment, speed float64, err error) {
	if f.from == "" {
		at, err = parseMoment("at", f.at, stderr)
		return at, nil, 0, err
	}
	at, end, err := readSpan(f.from, f.to, stderr)
	if err != nil {
		return at, nil, 0, err
	}
	speed, err = readSpeed(f.speed)
	return at, &end, speed, err
}
