package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/console"
	"github.com/kubecdc/kubecdc/internal/history"
	"github.com/kubecdc/kubecdc/internal/terminal"
	"github.com/kubecdc/kubecdc/internal/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

type blameFlags struct {
	askFlags
	at string
}

func newBlameCommand(stdout, stderr io.Writer) *cobra.Command {
	var f blameFlags
	cmd := &cobra.Command{
		Use:   "blame {RESOURCE/NAME | RESOURCE NAME}",
		Short: "Show who set each line of an object, and when",
		Long: `Show the YAML of an object at a moment. Before each line stands when its value was set, and by which field manager.

"<=" before a time: the value was there by then. The version that set it is not in the record: it is older than the
record, was withheld by a filter, or is in a gap. "?": who set it is not known. An element that is inserted into a list
is new, and those after it keep their lines.

` + momentHelp + `

` + certaintyHelp,
		Example: `  kubecdc blame deploy/web -n shop
  kubecdc blame deploy web -n shop --at 14:05 -o wide
  kubecdc blame cm/settings -n shop -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.finish(blame(cmd.Context(), &f, args, stdout, stderr))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.at, "at", "now", "the `moment`")
	f.add(cmd, objectFormats())
	completeWords(cmd, "at", "now", "10m", "1h", "24h")
	return cmd
}

// blame prints the author of each line of an object.
func blame(ctx context.Context, f *blameFlags, args []string, stdout, stderr io.Writer) error {
	at, err := timeline.ParseMoment(f.at, time.Now())
	if err != nil {
		return usageError{fmt.Errorf("--at: %w", err)}
	}
	q, err := f.ask(ctx, args, stdout, stderr)
	if err != nil {
		return err
	}
	if !q.wanted.One() {
		return usageError{errors.New("blame: name one object (kubecdc blame deploy/web -n shop)")}
	}
	var b timeline.Blame
	var scopes []timeline.Scope
	var reading *history.Reading
	var last *timeline.Version
	var places []string
	versions := 0
	if err := q.during(ctx, func(ctx context.Context) error {
		scopes, reading, err = q.record.Versions(ctx, q.wanted, at, func(v *timeline.Version, _ *consume.Event) error {
			if v == nil {
				return nil
			}
			versions++
			last = v
			if place := v.Cluster + " " + v.Namespace; !slices.Contains(places, place) {
				places = append(places, place)
			}
			return b.Add(v)
		})
		return err
	}); err != nil {
		return err
	}
	sure := newCertainty(at, scopes, reading)
	if err := q.known(ctx, &sure, versions); err != nil {
		return err
	}
	if len(places) > 1 {
		slices.Sort(places)
		return usageError{fmt.Errorf("blame: the record has several objects of this name: add --namespace and --cluster for one of (cluster namespace): %s",
			strings.Join(places, "; "))}
	}
	lines, err := b.Lines()
	if err != nil {
		return err
	}
	q.say(&sure)
	if len(lines) == 0 {
		return q.explainNone(ctx, at)
	}
	switch f.output.format {
	case jsonFormat, yamlFormat, jsonPathFormat:
		err = q.printValue(&f.output, newBlamed(lines, &sure))
	case nameFormat:
		err = q.write([]byte(kindName(last) + "\n"))
	default:
		err = q.printBlame(lines, f.output.wide())
	}
	return errors.Join(err, f.judge(&sure))
}

// blamed is the JSON form of the answer.
type blamed struct {
	Lines   []blamedLine `json:"lines"`
	Kubecdc *certainty   `json:"kubecdc"`
}

type blamedLine struct {
	Text            string           `json:"text"`
	Time            time.Time        `json:"time,omitzero"`
	ResourceVersion string           `json:"resourceVersion,omitempty"`
	ChangedBy       []consume.Change `json:"changedBy,omitempty"`
	Exact           bool             `json:"exact"`          // the version of this time set the value; otherwise it was set by then
	Since           time.Time        `json:"since,omitzero"` // if not exact: it was set after this time
}

func newBlamed(lines []timeline.Line, c *certainty) blamed {
	out := blamed{Lines: []blamedLine{}, Kubecdc: c}
	for _, l := range lines {
		line := blamedLine{Text: l.Text}
		if o := l.Origin; o != nil {
			line.Time, line.ResourceVersion, line.ChangedBy, line.Exact, line.Since = o.Version.Time, o.Version.ResourceVersion, o.By, o.Exact, o.Since
		}
		out.Lines = append(out.Lines, line)
	}
	return out
}

// printBlame prints the lines with their origins. At a terminal, the origins are dim.
func (q *question) printBlame(lines []timeline.Line, wide bool) error {
	var columns strings.Builder
	w := tabwriter.NewWriter(&columns, 0, 0, 1, ' ', 0)
	for _, l := range lines {
		when, who, rv := "", "?", ""
		if o := l.Origin; o != nil {
			when, rv = o.Version.Time.Local().Format(time.RFC3339), o.Version.ResourceVersion
			if !o.Exact {
				when = "<=" + when
			}
			if len(o.By) > 0 {
				who = managers(&timeline.Version{ChangedBy: o.By})
			}
		}
		fmt.Fprintf(w, "%s\t%s\t", when, who)
		if wide {
			fmt.Fprintf(w, "rv:%s\t", rv)
		}
		fmt.Fprintln(w, "|")
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var out []byte
	origins := strings.Split(columns.String(), "\n")
	for k, l := range lines {
		out = q.stdout.Append(out, terminal.Dim, origins[k])
		out = append(append(append(out, ' '), console.Printable(l.Text)...), '\n')
	}
	_, err := q.stdout.Write(out)
	return err
}
