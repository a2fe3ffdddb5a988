package answers

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/audit"
)

// WriteMarkdown writes the report for a file: the verdict, the question, what was read, what was
// found, and how to repeat it.
func WriteMarkdown(w io.Writer, r *audit.Report) error {
	var b bytes.Buffer
	title := "Proven"
	if !r.IsProven() {
		title = "Not proven"
	}
	fmt.Fprintf(&b, "# Audit of %s\n\n**%s.** %s. The record has %s.\n", cell(r.Subject()), title,
		cell(capital(afterColon(r.Summary()))), r.ChangeCounts())
	fmt.Fprintf(&b, "\n## Question\n\n")
	rows := [][]string{
		{"objects", strings.Join(r.Question.Objects, " ")},
		{"namespace", r.Question.Namespace},
		{"selector", r.Question.Selector},
		{"since", local(r.Since)},
		{"until", local(r.Until)},
	}
	writeFields(&b, rows)
	fmt.Fprintf(&b, "\n## Record\n\n")
	writeFields(&b, fieldsOf(&r.Evidence))
	fmt.Fprintf(&b,
		"\n## Resources\n\n| resource | observed | certainty | changes | objects | scopes |\n|---|---|---|---|---|---|\n")
	for _, of := range r.Resources {
		writeRow(&b, of.Resource, string(of.Observed), of.Certainty.String(), fmt.Sprint(of.Changes),
			fmt.Sprint(of.Objects), strings.Join(of.Scopes, ", "))
	}
	writeChanges(&b, r)
	fmt.Fprintf(&b, "\n## Findings\n\n")
	if len(r.Findings) == 0 {
		fmt.Fprintf(&b, "None.\n")
	} else {
		fmt.Fprintf(&b,
			"| since | until | scope | certainty | kind | what | objects | what to do |\n|---|---|---|---|---|---|---|---|\n")
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		writeRow(&b, local(f.Since), local(f.Until), f.Place(), f.Certainty.String(), string(f.Kind), f.What,
			strings.Join(f.Objects, ", "), f.Advice)
	}
	writeProven(&b, r, func(rows [][]string) {
		fmt.Fprintf(&b, "\n| resource | since | until |\n|---|---|---|\n")
		for _, row := range rows {
			writeRow(&b, row...)
		}
	})
	fmt.Fprintf(&b, "\n## Remarks\n\n")
	if len(r.Remarks) == 0 {
		fmt.Fprintf(&b, "None.\n")
	}
	for i := range r.Remarks {
		fmt.Fprintf(&b, "- %s\n", cell(r.Remarks[i].Words()))
	}
	fmt.Fprintf(&b, "\n## Repeat it\n\n```sh\n%s\n```\n", r.Question.Command)
	_, err := w.Write(b.Bytes())
	return err
}

// writeChanges writes how many objects of each resource were created, updated and deleted.
func writeChanges(b *bytes.Buffer, r *audit.Report) {
	changed := slices.DeleteFunc(slices.Clone(r.Resources), func(of audit.Resource) bool { return of.Changes == 0 })
	if len(changed) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Changes\n\n| resource | created | updated | deleted |\n|---|---|---|---|\n")
	for _, of := range changed {
		writeRow(b, of.Resource, fmt.Sprint(of.Created), fmt.Sprint(of.Updated), fmt.Sprint(of.Deleted))
	}
}

// fieldsOf returns the fields of the evidence, with the names of a table.
func fieldsOf(v *audit.Evidence) [][]string {
	rows := [][]string{
		{"cluster", v.Cluster},
		{"cluster uid", v.ClusterUID},
		{"bus", v.Bus},
		{"streams or topics", strings.Join(v.Logs, ", ")},
		{"records in the span", fmt.Sprint(v.Records)},
		{"first", eventText(v.First)},
		{"last", eventText(v.Last)},
		{"read up to", eventText(v.ReadUpTo)},
		{"API server", strings.Join(v.APIServers, ", ")},
		{"audited at", local(v.AuditedAt)},
		{"audited with", v.AuditedWith},
	}
	for _, a := range v.Agents {
		rows = append(rows, []string{"agent", agentText(&a)})
	}
	return rows
}

func agentText(a *audit.Agent) string {
	text := a.Writer
	for _, part := range []string{a.Checkpoint, a.Node} {
		if part != "" {
			text += " " + part
		}
	}
	return fmt.Sprintf("%s, runs: %d", text, a.Runs)
}

func eventText(e *audit.Event) string {
	if e == nil {
		return ""
	}
	return local(e.Time) + " " + e.ID
}

// writeFields writes a table of names and values, without empty ones.
func writeFields(b *bytes.Buffer, rows [][]string) {
	fmt.Fprintf(b, "| | |\n|---|---|\n")
	for _, row := range rows {
		if row[1] != "" {
			writeRow(b, row...)
		}
	}
}

func writeRow(b *bytes.Buffer, cells ...string) {
	for _, text := range cells {
		fmt.Fprintf(b, "| %s ", cell(text))
	}
	fmt.Fprintf(b, "|\n")
}

// cell returns a text that Markdown shows as it is, in one line.
func cell(text string) string {
	return strings.NewReplacer(
		"\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "`", "\\`", "<", "&lt;", "&", "&amp;", "[", "\\[", "]", "\\]",
		"\n", " ", "\r", " ",
	).Replace(text)
}

func afterColon(text string) string {
	_, rest, _ := strings.Cut(text, ": ")
	return rest
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
