package answers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Blame prints the author of each line of an object at a moment.
func (q *Question) Blame(ctx context.Context, at timeline.Moment) error {
	b, err := q.Question.Blame(ctx, at)
	if err != nil {
		return err
	}
	q.SayCertainty(&b.Sure)
	q.sayLines(b.Counts(false))
	if b.LateUnknown {
		fmt.Fprintln(q.Stderr,
			"  a change may be earlier than its time, if an agent found it late: 'kubecdc history --since' shows it")
	}
	q.sayLines(b.EachLine(func(g *answer.Gap) string { return g.Scope }))
	if len(b.Lines) == 0 {
		return q.explainNone(ctx, at)
	}
	switch q.Format.Name {
	case printer.JSON, printer.YAML, printer.JSONPath:
		err = q.printValue(newBlamed(b))
	case printer.Name:
		_, err = fmt.Fprintln(q.Stdout, answer.KindName(b.Last))
	default:
		err = q.printBlame(b.Lines)
		if b.Last.Redacted() {
			fmt.Fprintln(q.Stderr, "redacted: the record does not have all values of this object")
		}
	}
	return errors.Join(err, q.CheckExact(&b.Sure))
}

// blamed is the JSON form of the answer.
type blamed struct {
	Lines    []blamedLine       `json:"lines"`
	Redacted bool               `json:"redacted,omitempty"` // the record does not have all values of the object
	Gaps     []answer.Gap       `json:"gaps"`
	Late     []answer.Late      `json:"late"`
	Kubecdc  *answer.Assessment `json:"kubecdc"`
}

type blamedLine struct {
	Text            string           `json:"text"`
	Time            time.Time        `json:"time,omitzero"`
	ResourceVersion string           `json:"resourceVersion,omitempty"`
	ChangedBy       []consume.Change `json:"changedBy,omitempty"`
	// the version of this time set the value; otherwise it was set by then
	Exact bool      `json:"exact"`
	Since time.Time `json:"since,omitzero"` // if not exact: it was set after this time
}

func newBlamed(b *answer.Blame) blamed {
	out := blamed{
		Lines:    []blamedLine{},
		Redacted: b.Last.Redacted(),
		Gaps:     append([]answer.Gap{}, b.Gaps...),
		Late:     append([]answer.Late{}, b.Late...),
		Kubecdc:  &b.Sure,
	}
	for _, l := range b.Lines {
		line := blamedLine{Text: l.Text}
		if o := l.Origin; o != nil {
			line.Time = o.Version.Time
			line.ResourceVersion = o.Version.ResourceVersion
			line.ChangedBy = o.By
			line.Exact = o.Exact
			line.Since = o.Since
		}
		out.Lines = append(out.Lines, line)
	}
	return out
}

// printBlame prints the lines with their origins. At a terminal, the origins are dim.
func (q *Question) printBlame(lines []timeline.Line) error {
	var columns strings.Builder
	w := tabwriter.NewWriter(&columns, 0, 0, 1, ' ', 0)
	for _, l := range lines {
		when := ""
		who := "?"
		rv := ""
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
		if q.Format.IsWide() {
			fmt.Fprintf(w, "rv:%s\t", console.Printable(rv))
		}
		fmt.Fprintln(w, "|")
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var out []byte
	origins := strings.Split(columns.String(), "\n")
	for k, l := range lines {
		out = q.Stdout.Append(out, terminal.Dim, origins[k])
		out = append(append(append(out, ' '), console.Printable(l.Text)...), '\n')
	}
	_, err := q.Stdout.Write(out)
	return err
}
