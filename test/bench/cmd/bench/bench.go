package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/test/process"
)

// bench is the configuration from the command line.
type bench struct {
	self, agent string // programs
	quick, keep bool
	sections    []string
	contestants []contestant
	busNames    []string // those of --buses; none: the sections
	pods        int
	crds        int      // definitions of the section of that name
	changes     int      // of the shorter record of the section of that name
	objects     int      // in it
	records     []string // the buses that have it
	check       bool     // fail if a goal that does not depend on the machine is missed
	updates     int
	repeat      int
	dir         string

	stderr io.Writer
	began  time.Time
}

func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(b.stderr, "%4.0fs %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// all runs the sections. The report has the results so far, even if an error ends them early.
func (b *bench) all(ctx context.Context) (*Report, error) {
	report := &Report{Updates: b.updates, Repeat: b.repeat}
	run := map[string]func(context.Context, *Report) error{
		"throughput": b.throughput,
		"deep":       b.deep,
		"scale":      b.scale,
		"heap":       b.heap,
		"blocked":    b.blocked,
		"latency":    b.latency,
	}
	for _, section := range b.sections {
		if err := run[section](ctx, report); err != nil {
			return report, fmt.Errorf("%s: %w", section, err)
		}
	}
	report.judge(b.sections)
	for _, r := range report.Runs {
		if !r.ok() {
			return report, errors.New("some runs do not count: see above")
		}
	}
	return report, nil
}

// throughput alternates the contestants, so that a busy minute of the machine does not affect only
// one of them.
func (b *bench) throughput(ctx context.Context, report *Report) error {
	for i := range b.repeat {
		for _, tls := range []bool{false, true} {
			for _, c := range b.contestants {
				if b.quick && c.name == "splice" && (i > 0 || tls) {
					continue // a reference, no goal depends on it
				}
				run, err := b.once(ctx, "throughput", c, arrangement{pods: b.pods, tls: tls}, b.updates, flood)
				if err != nil {
					return err
				}
				report.Runs = append(report.Runs, run)
			}
		}
	}
	return nil
}

// scale runs with more pods. It measures the first sync, and whether updates cost more.
func (b *bench) scale(ctx context.Context, report *Report) error {
	sizes := []int{1_000, 10_000, 100_000}
	available, err := process.Available()
	if err != nil {
		return err
	}
	// The baseline keeps 35 KB per pod, and the collector lets it grow to twice that.
	if available < 12<<30 {
		b.progress("only %d GB of memory to be had: up to 25,000 pods instead of 100,000", available>>30)
		sizes[2] = 25_000
	}
	for _, pods := range sizes {
		for _, c := range b.contestants {
			updates, repeat := b.updates, b.repeat
			if c.name != agent {
				if pods < sizes[1] {
					continue // nothing is compared with it
				}
				updates, repeat = min(updates, 10_000), 1 // only for its memory
			}
			for range repeat {
				a := arrangement{pods: pods, tls: true}
				run, err := b.once(ctx, "scale", c, a, updates, flood)
				if err != nil {
					return err
				}
				report.Runs = append(report.Runs, run)
			}
		}
	}
	return nil
}

// heap measures the memory kept for each pod. It is a separate section because frequent collections
// slow everything down.
func (b *bench) heap(ctx context.Context, report *Report) error {
	const updates = 5_000 // a few seconds: enough for some collections
	for _, pods := range []int{1_000, 10_000, 100_000} {
		for _, c := range b.contestants {
			if c.name == "splice" || c.name != agent && pods > 10_000 {
				continue // it takes long, and two points make a line
			}
			run, err := b.once(ctx, "heap", c, arrangement{pods: pods, tls: true, traceGC: true}, updates, walk)
			if err != nil {
				return err
			}
			report.Runs = append(report.Runs, run)
		}
	}
	return nil
}

// blocked measures runs in which the bus is stopped while updates continue.
func (b *bench) blocked(ctx context.Context, report *Report) error {
	const updates = 50_000
	for range b.repeat {
		for _, c := range b.contestants {
			if c.name == "splice" {
				continue // it has nothing that could grow
			}
			run, err := b.once(ctx, "blocked", c, arrangement{pods: b.pods, tls: true}, updates, block)
			if err != nil {
				return err
			}
			report.Runs = append(report.Runs, run)
		}
	}
	return nil
}

// latency measures the latency for a subscriber of the bus at a moderate rate.
func (b *bench) latency(ctx context.Context, report *Report) error {
	const updates = 5_000 // ten seconds
	for range b.repeat {
		for _, c := range b.contestants {
			run, err := b.once(ctx, "latency", c, arrangement{pods: b.pods, tls: true}, updates, trickle)
			if err != nil {
				return err
			}
			report.Runs = append(report.Runs, run)
		}
	}
	return nil
}

// median returns the median of the runs that count. ok is false if there is none.
func median(runs []*Run, figure func(*Run) float64) (m float64, ok bool) {
	var values []float64
	for _, r := range runs {
		if r.ok() {
			values = append(values, figure(r))
		}
	}
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	half := len(values) / 2
	if len(values)%2 == 1 {
		return values[half], true
	}
	return (values[half-1] + values[half]) / 2, true
}

// grouped writes 12345 as 12,345.
func grouped[N int | uint64 | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
