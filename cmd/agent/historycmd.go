package main

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/console"
)

type historyFlags struct {
	askFlags
	since, until, field string
	by, ops, changed    []string
	noStatus            bool
	withEvents          bool
}

func newHistoryCommand(stdout, stderr io.Writer) *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history {RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME... | all}",
		Short: "Show every version of objects: when, what changed, who",
		Long: `Show every version that objects had, with what changed and who changed it, as 'kubecdc tail --diff' does. Copies on the
bus and records that came late are left out. Gaps of the record are shown where they are. "inferred": no event says so,
but a later snapshot shows it, or it stands for several changes. On Kafka, the whole topic is read without --since; with
--cluster, the partition of the object.

--field shows the versions in which the value at a path was added, changed or removed, and only that value. Paths are
spec.replicas, data["app.conf"], metadata.labels[app], spec.template.spec.containers[app].image. [app] and [name=app]
are the element of that name, wherever it stands; [0] is the first element, [*] are all. The forms {.spec.replicas} of
kubectl and /spec/replicas of JSON patches are taken, too. A path that no version has is an error with similar paths.

--by, --op, --changed and --no-status select versions. A selected version is shown with all its changes. --by helm:
those that helm made, alone or with others; * and ? are allowed, and --by '!kube-*' leaves out versions that only such
managers made. Deletions have no manager, and a manager is the name of a client, not of a user. --changed spec: those in
which something in spec was added, changed or removed. --no-status: not those in which only status differs. Standard
error says how many versions are hidden, and by which flag; JSON has it as hidden. Gaps are always shown.

--with-events also shows the Events of Kubernetes about the objects and about what they own, if the agent captured them.
A Deployment has those of its ReplicaSets and Pods, by the ownerReferences of that time. An Event that happens again is
shown again, with its count. That the API server deletes it after an hour is not shown. Filters hide no Events. JSON has
them as events. If some may be missing, the answer is not exact, and says why.

` + momentHelp + `

` + resourceHelp + `

-o table prints a line for each version, -o wide all fields. -o yaml prints the versions as documents, -o json as a
list. -o name prints each object once. -o jsonpath=TEMPLATE is that of kubectl, of each version in the form of -o json:
'{.time} {.after.spec.replicas}'.

` + certaintyHelp + ` It is that of the end of the span, and with --since
also that of its beginning. Gaps, and late spans that no agent observed, are listed (GAP, LATE).`,
		Example: `  kubecdc history deploy/web -n shop
  kubecdc history deploy/web -n shop --field spec.replicas -o table
  kubecdc history deploy,cm,secrets -n shop --since 14:00 --until 14:10
  kubecdc history all -n shop --by 'helm,kubectl*' --no-status --since yesterday -o table
  kubecdc history pods -n shop --changed spec,metadata.labels --op created,updated
  kubecdc history deploy/web -n shop --with-events --since 1h
  kubecdc history cm/settings -n shop --since 24h -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("history: name resources (deploy/web, pods, deployments.apps), or all")}
			}
			span, err := f.span(stderr)
			if err != nil {
				return err
			}
			return f.answer(cmd.Context(), args, stdout, stderr, func(q *answers.Question) error {
				return q.History(cmd.Context(), span)
			})
		},
	}
	f.addSelector(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.since, "since", "", "only versions after this `moment` (default: the beginning of the record)")
	fl.StringVar(&f.until, "until", "now", "only versions up to this `moment`")
	fl.StringVar(&f.field, "field", "", "only changes of the value at this `path`")
	fl.StringSliceVar(&f.by, "by", nil,
		"only versions of these field `managers`; may be patterns, and ! before one excludes it")
	fl.StringSliceVar(&f.ops, "op", nil,
		"only these `operations`: "+strings.Join(console.Ops(), ", ")+"; or "+console.Letters())
	fl.StringSliceVar(&f.changed, "changed", nil,
		"only versions in which a value at one of these `paths`, or in it, changed")
	fl.BoolVar(&f.noStatus, "no-status", false, "no versions in which only status differs")
	fl.BoolVar(&f.withEvents, "with-events", false,
		"also the Events of Kubernetes about the objects and about what they own")
	f.add(cmd, changeFormats())
	completeWords(cmd, "op", console.Ops()...)
	completeWords(cmd, "since", "10m", "1h", "24h")
	completeWords(cmd, "until", "now", "10m", "1h")
	return cmd
}

// span parses the flags that select versions.
func (f *historyFlags) span(stderr io.Writer) (*answer.Span, error) {
	s := answer.Span{Events: f.withEvents}
	var err error
	s.Filters, err = f.filters()
	if err != nil {
		return nil, usageError{err}
	}
	if f.since != "" {
		since, err := parseMoment("since", f.since, stderr)
		if err != nil {
			return nil, err
		}
		s.Since = &since
	}
	s.Until, err = parseMoment("until", f.until, stderr)
	if err != nil {
		return nil, err
	}
	if s.Since != nil && s.Since.After(s.Until) {
		return nil, usageError{fmt.Errorf("--since %s is after --until %s: exchange them", s.Since, s.Until)}
	}
	return &s, nil
}

// filters parses the flags that hide versions.
func (f *historyFlags) filters() (answer.Filters, error) {
	filters := answer.Filters{By: f.by, NoStatus: f.noStatus}
	var err error
	if f.field != "" {
		filters.Field, err = answer.ParsePath(f.field)
		if err != nil {
			return filters, fmt.Errorf("--field %q: %w", f.field, err)
		}
	}
	for _, text := range f.changed {
		p, err := answer.ParsePath(text)
		if err != nil {
			return filters, fmt.Errorf("--changed %q: %w", text, err)
		}
		filters.Changed = append(filters.Changed, p)
	}
	for _, text := range f.ops {
		op, err := console.ReadOp(text)
		if err != nil {
			return filters, fmt.Errorf("--op %q: %w", text, err)
		}
		filters.Ops = append(filters.Ops, op)
	}
	for _, pattern := range f.by {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return filters,
				fmt.Errorf("--by %q: want the name of a field manager, or a pattern with * ? [a-z]", pattern)
		}
	}
	return filters, nil
}
