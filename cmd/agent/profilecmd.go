package main

import (
	"errors"
	"io"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

func newProfileCommand(stdout io.Writer) *cobra.Command {
	var named string
	var seconds float64
	var debug int
	cmd := &cobra.Command{
		Use:   "profile NAME",
		Short: "Take a profile of the running agent",
		Long: `Take a profile of the running agent and write it to standard output, for 'go tool pprof', or with the name trace for
'go tool trace'. The agent must run with server.pprof: true. NAME is one of Go's profiles, such as heap, goroutine or
allocs, or profile (of the CPU) or trace, which take some seconds.

` + aboutSocket,
		Example: `  kubecdc profile heap > heap.pprof && go tool pprof heap.pprof
  kubecdc profile profile --seconds 10 > cpu.pprof
  kubectl exec -n kubecdc deploy/kubecdc -- /kubecdc profile goroutine --debug 1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{
					errors.New("profile: name one, such as heap, goroutine, profile (of the CPU) or trace"),
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if debug == 0 && terminal.Detect(stdout, os.Getenv).Interactive {
				return usageError{
					errors.New("profile: a profile is binary: write it to a file, or choose text with --debug 1"),
				}
			}
			at, err := agent.FindSocket(cmd.Context(), named)
			if err != nil {
				return err
			}
			query := url.Values{}
			if cmd.Flags().Changed("seconds") {
				query.Set("seconds", strconv.FormatFloat(seconds, 'g', -1, 64))
			}
			if debug > 0 {
				query.Set("debug", strconv.Itoa(debug))
			}
			return admin.NewSocketClient(at).Profile(cmd.Context(), args[0], query, stdout)
		},
	}
	cmd.Flags().StringVar(&named, "agent", "", agentOfOrders)
	cmd.Flags().
		Float64Var(&seconds, "seconds", 0,
			"how many `seconds` of profile and trace, up to "+
				strconv.FormatFloat(admin.MaxProfile.Seconds(), 'f', 0, 64)+" (default: 30 of profile, 1 of trace)")
	cmd.Flags().IntVar(&debug, "debug", 0, "`level` of the text to write instead, of goroutine up to 2; 0: binary")
	completeWords(cmd, "debug", "0", "1", "2")
	return cmd
}
