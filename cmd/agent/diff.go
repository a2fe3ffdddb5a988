package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/agent/withheld"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/live"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
)

type diffFlags struct {
	askFlags
	running  agent.Options // location of the running cluster
	noStatus bool
}

func newDiffCommand(stdout, stderr io.Writer) *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff FROM {TO|live} [RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME...]",
		Short: "Show what differs between two moments",
		Long: `Show the objects that were created, deleted or changed between two moments, with what differs, as
'kubecdc tail --diff' does. An object that was changed and changed back has another resourceVersion, and is listed. One
that was deleted and created again under its name is listed twice. One that was created and deleted in between is not:
'kubecdc history --since FROM --until TO' shows all that happened. "left": it no longer matches the selectors of the
agent and may still exist.

TO may be live: the running cluster of the kubeconfig. Objects with the same uid and resourceVersion are equal; others
are read in the API version of the record. "entered": the object is older than FROM, but was not in the record then.
Values that the record does not have are not compared: standard error lists them. --config names the paths that the
agent strips and redacts. Without it, a live value is printed only if the record has a value of the same object at the
same path: of a new object, only its identity. Values of Secrets are never printed. The agent's own checkpoint and
Lease, which are never captured, are left out: standard error names them.

` + momentHelp + `

` + resourceHelp + `

--no-status leaves out objects that differ in status alone; standard error counts them.

-o table prints a line for each object, -o wide all fields. -o json and -o yaml print both versions.
-o jsonpath=TEMPLATE is that of kubectl, of what -o json prints.

` + certaintyHelp,
		Example: `  kubecdc diff 14:00 14:10 -n shop
  kubecdc diff 2h now deploy,cm -n shop -o table
  kubecdc diff 14:00 live -n shop
  kubecdc diff rv:48007 rv:48211 deploy/web -n shop -o json --exact`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{errors.New("diff: name two moments (kubecdc diff 14:00 14:10)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return diff(cmd.Context(), &f, args, stdout, stderr)
		},
	}
	f.add(cmd, changeFormats())
	f.addSelector(cmd)
	cmd.Flags().BoolVar(&f.noStatus, "no-status", false, "leave out objects that differ in status alone")
	cmd.Flags().
		StringVar(&f.running.Kubeconfig, "kubeconfig", "",
			"kubeconfig `file` for live; default: $KUBECONFIG, ~/.kube/config")
	cmd.Flags().StringVar(&f.running.Context, "context", "", "`name` of the kubeconfig's context for live")
	cmd.ValidArgsFunction = func(
		cmd *cobra.Command, args []string, typed string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) < 2 {
			return []cobra.Completion{"now", "10m", "1h", "24h", answer.Live}[:4+len(args)],
				cobra.ShellCompDirectiveNoFileComp
		}
		return f.completeObjects(cmd, args[2:], typed)
	}
	return cmd
}

// diff prints the differences between two moments.
func diff(ctx context.Context, f *diffFlags, args []string, stdout, stderr io.Writer) error {
	from, to, err := parseMoments(args, stderr)
	if err != nil {
		return usageError{err}
	}
	var cluster *answer.Cluster
	if to == nil {
		cluster, err = f.findCluster()
		if err != nil {
			return err
		}
	}
	return f.answer(ctx, args[2:], stdout, stderr, func(q *answers.Question) error {
		q.NoStatus = f.noStatus
		if to == nil {
			return q.DiffLive(ctx, from, cluster)
		}
		return q.Diff(ctx, from, *to)
	})
}

// findCluster returns the running cluster of the flags.
func (f *diffFlags) findCluster() (*answer.Cluster, error) {
	found, err := f.running.FindCluster()
	if err != nil {
		return nil, err
	}
	client, err := apiserver.New(found.REST)
	if err != nil {
		return nil, err
	}
	cfg, err := f.agentConfig()
	if err != nil {
		return nil, err
	}
	return &answer.Cluster{
		Live:  &live.Cluster{Client: client},
		From:  found.From,
		Agent: withheld.By(cfg),
		Known: f.bus.Config != "",
	}, nil
}

// parseMoments parses the first two arguments. to is nil for the running cluster.
func parseMoments(args []string, stderr io.Writer) (from timeline.Moment, to *timeline.Moment, err error) {
	if args[0] == answer.Live {
		return from, nil, errors.New("live: it can only be the second moment (kubecdc diff 14:00 live)")
	}
	now := time.Now()
	from, err = timeline.ParseMoment(args[0], now)
	if err != nil {
		return from, nil, err
	}
	remark(stderr, args[0], now)
	if args[1] == answer.Live {
		return from, nil, nil
	}
	second, err := timeline.ParseMoment(args[1], now)
	if err == nil {
		remark(stderr, args[1], now)
	}
	return from, &second, err
}
