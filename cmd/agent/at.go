package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
	"github.com/kubecdc/kubecdc/internal/serve/apiview/loopback"
)

func newAtCommand(stdout, stderr io.Writer) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "at MOMENT -- COMMAND [ARGUMENT...]",
		Short: "Run a command against the cluster as it was at a moment",
		Long: `Run a command with KUBECONFIG set to a read-only Kubernetes API that has the objects of a moment. The API ends with the
command. The exit code is that of the command.

` + momentHelp + `

` + viewHelp + `

` + certaintyHelp,
		Example: `  kubecdc at 14:05 -- kubectl get pods -n shop -o wide
  kubecdc at 'yesterday 14:05' -- kubectl describe deploy/web -n shop
  kubecdc at rv:48211 --bus file:events.jsonl -- sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() < 0 && len(args) > 1 {
				return usageError{
					fmt.Errorf("at: put -- before the command: kubecdc at %s -- %s", quote(args[0]),
						strings.Join(args[1:], " ")),
				}
			}
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usageError{
					errors.New("at: name a moment, and a command after -- (kubecdc at 14:05 -- kubectl get pods)"),
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runAt(cmd.Context(), &f, args[0], args[1:], stdout, stderr)
		},
		ValidArgsFunction: func(
			_ *cobra.Command, args []string, _ string,
		) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return []cobra.Completion{"now", "10m", "1h", "24h"}, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	f.addView(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown := (*pflag.NotExistError)(nil); !errors.As(err, &unknown) {
			return cmd.Root().FlagErrorFunc()(cmd, err)
		}
		return usageError{
			fmt.Errorf(
				"at: %w; if it is a flag of the command, put -- before that: kubecdc at 14:05 -- kubectl get pods -n shop",
				err),
		}
	})
	return cmd
}

// exitCode makes a command exit with the exit code of the child command.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("the command ended with exit code %d", int(e)) }

// runAt runs a command against the state of a moment.
func runAt(ctx context.Context, f *serveFlags, moment string, command []string, stdout, stderr io.Writer) error {
	now := time.Now()
	at, err := timeline.ParseMoment(moment, now)
	if err != nil {
		return usageError{err}
	}
	remark(stderr, moment, now)
	path, err := exec.LookPath(command[0])
	if err != nil {
		return usageError{fmt.Errorf("at: %w", err)}
	}
	q, err := f.ask(ctx, nil, stdout, stderr)
	if err != nil {
		return err
	}
	signal.Reset(syscall.SIGPIPE) // the child inherits the default action
	view, err := viewsOf(q).ReadView(ctx, at, nil)
	if err != nil {
		return err
	}
	s, err := loopback.Listen(ctx, &apiview.Server{Root: view}, 0, "")
	if err != nil {
		return err
	}
	defer s.Close()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	// The child decides the effect of a signal: the server ends after the child.
	return s.Run(context.WithoutCancel(ctx), func(context.Context) error {
		cmd := exec.Command(path, command[1:]...) //nolint:noctx // signals end it, in its own way
		cmd.Args[0] = command[0]
		cmd.Stdin = os.Stdin
		cmd.Stdout = terminal.Unguard(stdout)
		cmd.Stderr = terminal.Unguard(stderr)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig)
		return runChild(cmd, signals)
	})
}

// runChild runs a command, forwards signals to it, and returns its exit code as an exitCode.
func runChild(cmd *exec.Cmd, signals <-chan os.Signal) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	atTerminal := term.IsTerminal(int(os.Stdin.Fd()))
	ended := make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			select {
			case <-ended:
				return
			case s := <-signals:
				if atTerminal && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
					continue // the terminal has also sent it to the command
				}
				_ = cmd.Process.Signal(s) // fails if the command has ended
			}
		}
	})
	err := cmd.Wait()
	close(ended)
	passing.Wait()
	return codeOf(err)
}

// codeOf returns the exit code of a command. If a signal ended the command, the code is 128 plus
// the signal, as in a shell.
func codeOf(err error) error {
	exited := (*exec.ExitError)(nil)
	if !errors.As(err, &exited) {
		return err
	}
	if status, ok := exited.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitCode(128 + int(status.Signal()))
	}
	return exitCode(exited.ExitCode())
}
