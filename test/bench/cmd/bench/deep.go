package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// The benchmarks of deep objects that a goal depends on.
const (
	deepBenchmark = "EncodeDeep/98-levels/1200000-bytes"
	flatBenchmark = "EncodeDeep/flat/1200000-bytes"
)

// deep measures the events of deeply nested objects beside flat ones of the same size.
func (b *bench) deep(ctx context.Context, report *Report) error {
	b.progress("benchmarks of deep objects, %d times each", benchmarkCounts)
	var err error
	report.Deep, err = benchmarks(ctx, "./internal/encode", "^BenchmarkEncodeDeep$")
	return err
}

// deepNs returns the time of a benchmark of deep objects in nanoseconds.
func (r *Report) deepNs(name string) (ns float64, ok bool) {
	i := slices.IndexFunc(r.Deep, func(c Cost) bool { return c.Name == name })
	if i < 0 {
		return 0, false
	}
	return r.Deep[i].Ns, true
}

func (r *Report) judgeDeep() {
	ns, ok := r.deepNs(deepBenchmark)
	flat, also := r.deepNs(flatBenchmark)
	r.goal("event of 1.2 MB with 98 levels", "≤ 50 ms", ns/1e6, ok, "%.1f ms", ns/1e6 <= wantDeep)
	r.goal("event of 1.2 MB with 98 levels", "≤ 12 x flat", ns/flat, ok && also, "%.1f x", ns/flat <= wantDeepRatio)
}

func (r *Report) printDeep(w io.Writer) error {
	fmt.Fprintf(w, "Deep objects: encode an update that diverges on each level, medians of %d\n", benchmarkCounts)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "levels\tbytes\tms\tx flat\tallocated\t")
	for _, c := range r.Deep {
		levels, size, ok := strings.Cut(strings.TrimPrefix(c.Name, "EncodeDeep/"), "/")
		if !ok {
			continue
		}
		flat, _ := r.deepNs("EncodeDeep/flat/" + size)
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%.1f\t%.1f MiB\t\n", strings.TrimSuffix(levels, "-levels"),
			strings.TrimSuffix(size, "-bytes"),
			c.Ns/1e6, c.Ns/flat, c.Bytes/(1<<20))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
