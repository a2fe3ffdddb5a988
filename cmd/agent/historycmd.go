package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/answer"
)

type historyFlags struct {
	askFlags
	since, until, field string
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

--field shows only the versions in which the value at a path changed: spec.replicas, data["app.conf"],
spec.ports[0].port, spec.template.spec.containers[app].image.

` + momentHelp + `

` + resourceHelp + `

-o table prints a line for each version, -o wide all fields. -o yaml prints the versions as documents, -o json as a
list. -o name prints each object once. -o jsonpath=TEMPLATE is that of kubectl, of each version in the form of -o json:
'{.time} {.after.spec.replicas}'.

` + certaintyHelp + ` It is that of the end of the span, and with --since
also that of its beginning; gaps inside it are listed.`,
		Example: `  kubecdc history deploy/web -n shop
  kubecdc history deploy/web -n shop --field spec.replicas -o table
  kubecdc history deploy,cm,secrets -n shop --since 14:00 --until 14:10
  kubecdc history cm/settings -n shop --since 24h -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("history: name resources (deploy/web, pods, deployments.apps), or all")}
			}
			span, err := f.span()
			if err != nil {
				return err
			}
			return f.answer(cmd.Context(), args, stdout, stderr, func(q *answer.Question) error { return q.History(cmd.Context(), span) })
		},
	}
	f.addSelector(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.since, "since", "", "only versions after this `moment` (default: the beginning of the record)")
	fl.StringVar(&f.until, "until", "now", "only versions up to this `moment`")
	fl.StringVar(&f.field, "field", "", "only changes of the value at this `path`")
	f.add(cmd, changeFormats())
	completeWords(cmd, "since", "10m", "1h", "24h")
	completeWords(cmd, "until", "now", "10m", "1h")
	return cmd
}

// span parses the flags that select versions.
func (f *historyFlags) span() (*answer.Span, error) {
	var s answer.Span
	var err error
	if f.field != "" {
		if s.Field, err = answer.ParsePath(f.field); err != nil {
			return nil, usageError{fmt.Errorf("--field %q: %w", f.field, err)}
		}
	}
	if f.since != "" {
		since, err := parseMoment("since", f.since)
		if err != nil {
			return nil, err
		}
		s.Since = &since
	}
	if s.Until, err = parseMoment("until", f.until); err != nil {
		return nil, err
	}
	if s.Since != nil && s.Since.After(s.Until) {
		return nil, usageError{fmt.Errorf("--since %s is after --until %s: exchange them", s.Since, s.Until)}
	}
	return &s, nil
}
