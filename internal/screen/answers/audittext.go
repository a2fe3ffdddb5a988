package answers

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/audit"
	"github.com/kubecdc/kubecdc/internal/screen/console"
)

func local(t time.Time) string { return t.Local().Format(time.RFC3339) }

// writeText writes the report for a screen.
func writeText(w io.Writer, r *audit.Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", console.Printable(r.Summary()))
	fmt.Fprintf(&b, "It has %s.\n\n", r.ChangeCounts())
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
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", local(f.Since), local(f.Until), console.Printable(f.Place()),
				console.Printable(f.Words()), console.Printable(f.Advice))
		}
		_ = table.Flush()
	}
	writeProven(&b, r, func(rows [][]string) {
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
func writeProven(b *bytes.Buffer, r *audit.Report, write func(rows [][]string)) {
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
