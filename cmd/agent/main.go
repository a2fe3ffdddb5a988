// Command kubecdc captures the changes of a Kubernetes cluster and publishes them as CloudEvents.
// This package has the commands, their flags and their help. Package internal/agent runs the agent.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// Exit codes of the command line's contract.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	// exitNotExact: --exact is set, but an answer about the past is not exact; or an audit proves
	// less than its span.
	exitNotExact = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once: after the first one, the default actions apply.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// usageError is an error in the arguments of a command: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// newRoot returns the command tree.
func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubecdc",
		Short: "Change data capture for Kubernetes",
		Long: "kubecdc captures every change of a Kubernetes cluster and publishes it as a CloudEvent to NATS JetStream, Kafka or an\n" +
			"HTTP endpoint.\n\n" +
			"To start: 'kubecdc run' with a kubeconfig, and 'kubecdc tail --diff' in another terminal.\n\n" +
			"An environment variable sets each flag that the command line does not set: KUBECDC_DATA_DIR for --data-dir.\n\n" +
			"Exit codes: 0: success; 1: failure; 2: wrong arguments or configuration;\n" +
			"3: the answer is not exact, but --exact is set; or an audit does not prove its span.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          oneOfItsCommands,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			err := readVariables(cmd)
			useTimeZone(cmd)
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var wrong flagError
		if errors.As(err, &wrong) {
			return usageError{wrong}
		}
		return usageError{withFlagHint(cmd, err)}
	})
	root.AddCommand(newRunCommand(stdout, stderr), newTailCommand(stdout, stderr), newRelayCommand(stdout, stderr),
		newSnapshotCommand(stdout, stderr), newDeadLetterCommand(stdout), newStatusCommand(stdout, stderr),
		newProfileCommand(stdout),
		newCheckpointCommand(stdout, stderr), newConfigCommand(), newRBACCommand(stdout, stderr), newVersionCommand(),
		newNodeDirectoryCommand(), newCompletionCommand(), newManCommand())
	root.AddCommand(newHistoryCommand(stdout, stderr), newGetCommand(stdout, stderr), newDiffCommand(stdout, stderr),
		newBlameCommand(stdout, stderr), newAuditCommand(stdout, stderr))
	root.AddCommand(newAtCommand(stdout, stderr), newServeCommand(stdout, stderr), newReplayCommand(stdout, stderr),
		newRecordCommand(stdout, stderr))
	setCompletion(root)
	documentVariables(root)
	return root
}

// run runs the program and returns its exit code. At a terminal, everything that the commands write
// is escaped here.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = terminal.Guard(stdout, os.Getenv), terminal.Guard(stderr, os.Getenv)
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	var tooMany answer.UsageError
	var wrong agent.ConfigError
	var invalid yamldoc.Errors
	var child exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitUsage
	case errors.Is(err, answer.ErrNotExact), errors.Is(err, answer.ErrNotProven):
		return exitNotExact
	case errors.As(err, &child):
		return int(child)
	case errors.As(err, &invalid):
		printInvalid(terminal.Detect(stderr, os.Getenv), invalid)
		return exitUsage
	case errors.As(err, &usage), errors.As(err, &tooMany), errors.As(err, &wrong), isCobraUsage(err):
		fmt.Fprintf(stderr, "kubecdc: %v\nSee '%s --help'.\n", err, cmd.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(terminal.NewLogWriter(ctx, stderr), "kubecdc: %v\n", err)
		return exitFailed
	}
}

// oneOfItsCommands rejects arguments like cobra.NoArgs, for a command with subcommands. It suggests
// the subcommand for a misspelt one.
func oneOfItsCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
	if cmd.SuggestionsMinimumDistance == 0 {
		cmd.SuggestionsMinimumDistance = 2 // cobra's default, which it sets only for its own suggestions
	}
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		err = fmt.Errorf("%w; did you mean %q?", err, similar[0])
	}
	return usageError{err}
}

// isCobraUsage reports whether err is cobra's own error about an unknown command or arguments.
// Those have no type.
func isCobraUsage(err error) bool {
	text := err.Error()
	return slices.ContainsFunc([]string{"unknown command", "required flag", "accepts ", "requires at least"},
		func(prefix string) bool {
			return strings.HasPrefix(text, prefix)
		})
}
