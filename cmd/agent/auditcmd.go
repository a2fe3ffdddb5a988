package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/audit"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
)

type auditFlags struct {
	askFlags
	since, until string
}

func newAuditCommand(stdout, stderr io.Writer) *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit {RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME... | all} --since MOMENT --until MOMENT",
		Short: "Prove that nothing is missing in a span, or say what is",
		Long: `Judge whether the record has every change of objects in a span of time. The verdict is proven only if the answer about
each moment of the span is exact, as 'kubecdc get --at' says it, and no version in between is missing.

If it is not proven, each finding has its span, scope, reason, and what to do. It finds gaps, times at which no agent
observed the objects, versions that filters withheld, and events among the dead letters. It finds objects that were too
large for the bus or that no agent selected, missing predecessors, and the beginning and end of the record. The
certainty "late" means that no change is missing, but some have the time at which they were found. Redacted values,
changed rules and scopes that have ended do not change the verdict: they are remarks.

Both moments are times: 2026-11-20T14:05:00Z, 14:05, 'yesterday 14:05', the beginning of a day (2026-11-20, yesterday),
how long ago (2h, 7d), or now. Without an offset, they are in the local time zone (--tz, $TZ). A span is final about
three minutes after its end; before that, the finding says when to audit again.

` + resourceHelp + `

-o markdown is a report to file: verdict, question, what was read, findings, and the command that repeats the audit.

Exit codes: 0: proven; 3: not proven; 1: the record could not be read, or has none of the resources; 2: wrong arguments.`,
		Example: `  kubecdc audit secrets -n shop --since 09:00 --until 10:00
  kubecdc audit roles,rolebindings,secrets -A --since 2026-10-01 --until 2026-11-01 -o markdown > october.md
  kubecdc audit deploy/web -n shop --since 'yesterday 14:00' --until 'yesterday 15:00' -o json
  kubecdc audit all --since 2026-11-20T14:00:00Z --until 2026-11-20T15:00:00Z --bus file:events.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("audit: name resources (secrets, deploy/web, deployments.apps), or all")}
			}
			since, until, err := f.span(stderr)
			if err != nil {
				return err
			}
			span := &answer.AuditSpan{
				Since:   since,
				Until:   until,
				Now:     time.Now(),
				Bus:     f.busName(),
				Version: buildVersions().Version,
				Question: audit.Question{
					Objects:   args,
					Namespace: f.namespace,
					Selector:  f.selector,
					Command:   repeat(cmd, args, since, until),
				},
			}
			return f.answer(cmd.Context(), args, stdout, stderr, func(q *answers.Question) error {
				return q.Audit(cmd.Context(), span)
			})
		},
	}
	f.addSelector(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.since, "since", "", "the first `moment` of the span")
	fl.StringVar(&f.until, "until", "", "the last `moment` of the span")
	f.addObjects(cmd, auditFormats())
	completeWords(cmd, "since", "1h", "24h", "yesterday", "7d")
	completeWords(cmd, "until", "5m", "1h", "today")
	return cmd
}

// span parses the moments.
func (f *auditFlags) span(stderr io.Writer) (since, until time.Time, err error) {
	if f.since == "" || f.until == "" {
		return since, until, usageError{
			errors.New("audit: name the span with --since and --until, such as --since 09:00 --until 10:00"),
		}
	}
	since, err = parseAuditTime("since", f.since, stderr)
	if err != nil {
		return since, until, err
	}
	until, err = parseAuditTime("until", f.until, stderr)
	if err != nil {
		return since, until, err
	}
	if !since.Before(until) {
		return since, until, usageError{
			fmt.Errorf("--since %s is not before --until %s", since.Format(time.RFC3339), until.Format(time.RFC3339)),
		}
	}
	return since, until, nil
}

func parseAuditTime(flag, text string, stderr io.Writer) (time.Time, error) {
	m, err := parseMoment(flag, text, stderr)
	if err != nil {
		return time.Time{}, err
	}
	if _, _, isVersion := m.ResourceVersion(); isVersion {
		return time.Time{}, usageError{fmt.Errorf("--%s %s: an audit is about times, such as 14:05", flag, text)}
	}
	return m.Time(), nil
}

// busName returns the bus of the flags, without a password.
func (f *auditFlags) busName() string {
	switch {
	case f.bus.Bus != "":
		return withoutPassword(f.bus.Bus)
	case f.bus.Config != "":
		return "that of " + f.bus.Config
	}
	return "that of the kubecdc on this machine"
}

// withoutPassword returns URLs without users and passwords.
func withoutPassword(urls string) string {
	return regexp.MustCompile(`(//|,)[^/@,]*@`).ReplaceAllString(urls, "$1")
}

// repeat returns the command that asks the same again, with absolute times.
func repeat(cmd *cobra.Command, args []string, since, until time.Time) string {
	words := []string{"kubecdc", "audit"}
	for _, arg := range args {
		words = append(words, quote(arg))
	}
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		switch fl.Name {
		case "output", "pager", "no-pager", "tz":
			return
		}
		if fl.Changed {
			words = append(words, repeatFlag(fl, since, until)...)
		}
	})
	return strings.Join(words, " ")
}

// repeatFlag returns the words that set a flag.
func repeatFlag(fl *pflag.Flag, since, until time.Time) (words []string) {
	if list, ok := fl.Value.(pflag.SliceValue); ok {
		for _, value := range list.GetSlice() {
			words = append(words, "--"+fl.Name, quote(withoutSecret(value)))
		}
		return words
	}
	value := fl.Value.String()
	switch fl.Name {
	case "since":
		value = since.UTC().Format(time.RFC3339Nano)
	case "until":
		value = until.UTC().Format(time.RFC3339Nano)
	case "bus":
		value = withoutPassword(value)
	}
	if fl.Value.Type() == "bool" && value == "true" {
		return []string{"--" + fl.Name}
	}
	return []string{"--" + fl.Name, quote(value)}
}

// withoutSecret returns a key of the configuration and its value, unless that is secret.
func withoutSecret(set string) string {
	key, _, _ := strings.Cut(set, "=")
	if regexp.MustCompile(`(?i)password|token|secret|header`).MatchString(key) {
		return key + "=***"
	}
	return withoutPassword(set)
}

// quote returns a word as a shell reads it.
func quote(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
