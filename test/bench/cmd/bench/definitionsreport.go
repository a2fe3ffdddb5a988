package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kubecdc/kubecdc/test/bench/definitions"
)

func (r *DefinitionsReport) print(w io.Writer) error {
	for _, refusing := range []bool{false, true} {
		if err := r.table(w, refusing); err != nil {
			return err
		}
	}
	return nil
}

func (r *DefinitionsReport) table(w io.Writer, refusing bool) error {
	figures := func(contestant string, figure func(*DefinitionsRun) float64) (values []float64) {
		for _, run := range r.Runs {
			if run.Contestant == contestant && run.Refusing == refusing {
				values = append(values, figure(run))
			}
		}
		return values
	}
	runs := len(figures(agent, func(*DefinitionsRun) float64 { return 0 }))
	if runs == 0 || runs != len(figures(standard, func(*DefinitionsRun) float64 { return 0 })) {
		return nil // ended early
	}
	title := "Definitions: a start with %s custom resources and %d objects of each, medians of %d"
	if refusing {
		title += fmt.Sprintf(", with %d seats at the API server, which refuses more", definitions.Seats)
	}
	if _, err := fmt.Fprintf(w, title+"\n", grouped(r.Definitions), r.Objects, runs); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tdynamicinformer\tkubecdc\tof it\t")
	count := func(f func(definitions.Requests) int) func(*DefinitionsRun) float64 {
		return func(run *DefinitionsRun) float64 { return float64(f(run.Requests)) }
	}
	for _, row := range []struct {
		name, format string
		figure       func(*DefinitionsRun) float64
	}{
		{"all objects loaded", "%.1f s", func(run *DefinitionsRun) float64 { return run.Loaded }},
		{"all resources watched", "%.1f s", func(run *DefinitionsRun) float64 { return run.Watched }},
		{"all objects on the bus", "%.1f s", func(run *DefinitionsRun) float64 { return run.Sent }},
		{"lists", "%.0f", count(func(q definitions.Requests) int { return q.Lists })},
		{"watches opened", "%.0f", count(func(q definitions.Requests) int { return q.Watches })},
		{"other requests", "%.0f", count(func(q definitions.Requests) int { return q.Others })},
		{"answered with 429", "%.0f", count(func(q definitions.Requests) int { return q.Refused })},
		{"and made again too early", "%.0f", count(func(q definitions.Requests) int { return q.Early })},
		{"requests under way at once, at most", "%.0f", count(func(q definitions.Requests) int { return q.AtOnce })},
		{"requests in one second, at most", "%.0f", count(func(q definitions.Requests) int { return q.Busiest })},
		{"open watches", "%.0f", count(func(q definitions.Requests) int { return q.Open })},
		{"CPU until then", "%.1f s", func(run *DefinitionsRun) float64 { return run.CPU }},
		{"of the API server", "%.1f s", func(run *DefinitionsRun) float64 { return run.ServerCPU }},
		{"CPU at rest", "%.1f ms/s", func(run *DefinitionsRun) float64 { return run.Rest }},
		{"RSS", "%.0f MiB", func(run *DefinitionsRun) float64 { return float64(run.Memory.RSS) / (1 << 20) }},
		{"RSS, peak", "%.0f MiB", func(run *DefinitionsRun) float64 { return float64(run.Memory.Peak) / (1 << 20) }},
		{"heap kept", "%.0f MiB", func(run *DefinitionsRun) float64 { return float64(run.HeapKept) / (1 << 20) }},
	} {
		theirs, ours := middle(figures(standard, row.figure)), middle(figures(agent, row.figure))
		ratio := "-"
		if theirs > 0 {
			ratio = fmt.Sprintf("%.2f x", ours/theirs)
		}
		fmt.Fprintf(t, "%s\t"+row.format+"\t"+row.format+"\t%s\t\n", row.name, theirs, ours, ratio)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, run := range r.Runs {
		if run.Refusing == refusing && run.Failure != "" {
			fmt.Fprintf(w, "%s does NOT count: %s\n", run.Contestant, run.Failure)
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}
