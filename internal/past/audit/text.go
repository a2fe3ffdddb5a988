package audit

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// Summary returns the verdict in one sentence.
func (r *Report) Summary() string {
	span := fmt.Sprintf("%s from %s to %s", r.subject(), local(r.Since), local(r.Until))
	if r.IsProven() {
		return "proven: the record has every change of " + span
	}
	if r.Certainty == certainty.Late {
		return "not proven: no change is missing, but the record does not have the time of each change of " + span
	}
	return "not proven: the record may lack changes of " + span
}

// subject says in words which objects were asked for.
func (r *Report) subject() string {
	text := strings.Join(r.Question.Objects, " ")
	if text == "all" {
		text = "all objects"
	}
	if r.Question.Selector != "" {
		text += " with " + r.Question.Selector
	}
	if r.Question.Namespace != "" {
		text += " in " + r.Question.Namespace
	}
	return text
}

// counted returns how many changes and objects there were.
func (r *Report) counted() string {
	var versions, objects int
	for _, of := range r.Resources {
		versions, objects = versions+of.Changes, objects+of.Objects
	}
	return fmt.Sprintf("%s of %s", counted(versions, "change"), counted(objects, "object"))
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return wording.Count(n) + " " + what
}

func local(t time.Time) string { return t.Local().Format(time.RFC3339) }

// WriteText writes the report for a screen.
func (r *Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", console.Printable(r.Summary()))
	fmt.Fprintf(&b, "It has %s.\n\n", r.counted())
	table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tOBSERVED\tCERTAINTY\tCHANGES\tOBJECTS")
	for _, of := range r.Resources {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\n", console.Printable(of.Resource), of.Observed, of.Certainty,
			of.Changes, of.Objects)
	}
	_ = table.Flush() // into a buffer
	if len(r.Findings) > 0 {
		fmt.Fprintf(&b, "\nNot proven, and what to do:\n")
		table = tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "SINCE\tUNTIL\tSCOPE\tREASON\tWHAT TO DO")
		for i := range r.Findings {
			f := &r.Findings[i]
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", local(f.Since), local(f.Until), console.Printable(f.where()),
				console.Printable(f.reason()), console.Printable(f.Advice))
		}
		_ = table.Flush()
	}
	r.writeProven(&b, func(rows [][]string) {
		table = tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "RESOURCE\tSINCE\tUNTIL")
		for _, row := range rows {
			fmt.Fprintln(table, strings.Join(row, "\t"))
		}
		_ = table.Flush()
	})
	if len(r.Remarks) > 0 {
		fmt.Fprintf(&b, "\nRemarks, which do not change the verdict:\n")
	}
	for i := range r.Remarks {
		fmt.Fprintf(&b, "  %s\n", console.Printable(r.Remarks[i].Words()))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeProven writes which parts of the span are proven, unless all of it is. write writes the
// table: resource, since, until.
func (r *Report) writeProven(b *bytes.Buffer, write func(rows [][]string)) {
	if r.IsProven() {
		return
	}
	var rows [][]string
	for i := range r.Resources {
		of := &r.Resources[i]
		for _, s := range of.Proven {
			rows = append(rows, []string{console.Printable(of.Resource), local(s.Since), local(s.Until)})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(b, "\nNo part of the span is proven.\n")
		return
	}
	fmt.Fprintf(b, "\nProven parts of the span:\n")
	write(rows)
}

// where returns the scope of a finding, or its resource.
func (f *Finding) where() string {
	switch {
	case f.Scope != "":
		return f.Scope
	case f.Resource != "":
		return f.Resource
	}
	return "any"
}

// reason says what a finding means, and names its objects.
func (f *Finding) reason() string {
	text := f.Certainty.String() + ": " + f.What
	if len(f.Objects) == 0 {
		return text
	}
	names := slices.Clone(f.Objects)
	if more := len(names) - 3; more > 0 {
		names = append(names[:3], fmt.Sprintf("%d more", more))
	}
	return text + " (" + strings.Join(names, ", ") + ")"
}

// Words returns the remark in one line.
func (r *Remark) Words() string {
	text := r.What
	if r.Count > 0 {
		text += ": " + wording.Count(r.Count)
	}
	if r.Scope != "" {
		return r.Scope + ": " + text
	}
	if r.Resource != "" {
		return r.Resource + ": " + text
	}
	return text
}
