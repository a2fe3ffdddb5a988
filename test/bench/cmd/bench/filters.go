package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
)

// FilterReport is the outcome of --only filters.
type FilterReport struct {
	Costs []Cost `json:"costs"`
	Runs  []*Run `json:"runs"`
}

// Cost is a figure of a benchmark of the agent's packages: a filter or the encoder, per event.
// Medians.
type Cost struct {
	Name   string  `json:"name"`
	Ns     float64 `json:"ns"`
	Bytes  float64 `json:"bytes"` // allocated
	Allocs float64 `json:"allocs"`
}

// benchmarkCounts is how often each benchmark runs.
const benchmarkCounts = 5

// filtered are rules that every update of the feed passes, so that every contestant must publish
// all updates.
func filtered() []struct{ name, extra string } {
	return []struct{ name, extra string }{
		{"no filter", ""},
		{"noise: managed-fields-only", "noise: [managed-fields-only]\n"},
		{`where: changed("status")`, "    where: 'changed(\"status\")'\n"},
		{
			"where: after.status.phase …",
			"    where: 'after.status.phase == \"Running\" || after.status.phase != \"\"'\n",
		},
	}
}

// filters measures the cost of filters: alone, and within an agent.
func (b *bench) filters(ctx context.Context) (*FilterReport, error) {
	report := &FilterReport{}
	b.progress("benchmarks of internal/filter, %d times each", benchmarkCounts)
	var err error
	report.Costs, err = filterCosts(ctx)
	if err != nil {
		return report, err
	}
	for range b.repeat {
		for _, f := range filtered() {
			c := contestant{f.name, func(r *rig) ([]string, error) {
				address, err := freeAddress()
				if err != nil {
					return nil, err
				}
				return b.agentArguments(r.dir, r.kubeconfig, r.sinkURL, address, []string{"pods"}, f.extra)
			}}
			run, err := b.once(ctx, "filters", c, arrangement{pods: b.pods}, b.updates, flood)
			if err != nil {
				return report, err
			}
			report.Runs = append(report.Runs, run)
			if !run.ok() {
				err = errors.New("some runs do not count: see above")
			}
			if err != nil {
				return report, err
			}
		}
	}
	return report, nil
}

// benchmarkLine is a line of go test -bench -benchmem: name, runs, ns/op, MB/s (optional), B/op,
// allocs/op.
var benchmarkLine = regexp.MustCompile(
	`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op\s+(?:[\d.]+ MB/s\s+)?([\d.]+) B/op\s+([\d.]+) allocs/op`)

func filterCosts(ctx context.Context) ([]Cost, error) {
	return benchmarks(ctx, "./internal/filter", "^Benchmark(Noise|Where)$")
}

// benchmarks runs benchmarks of a package of the agent, and returns the medians.
func benchmarks(ctx context.Context, pkg, pattern string) ([]Cost, error) {
	where, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubecdc/kubecdc").Output()
	if err != nil {
		return nil, fmt.Errorf("find the agent's module (run this in the directory test): %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "-benchmem", "-benchtime", "200ms",
		"-count", strconv.Itoa(benchmarkCounts), pkg)
	cmd.Dir = strings.TrimSpace(string(where))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("benchmarks of %s: %w\n%s", pkg, err, out.Bytes())
	}
	costs := parseBenchmarks(out.Bytes())
	if len(costs) == 0 {
		return nil, fmt.Errorf("no benchmarks of %s:\n%s", pkg, out.Bytes())
	}
	return costs, nil
}

// parseBenchmarks returns the medians from the output of go test, in the order in which the
// benchmarks ran first.
func parseBenchmarks(text []byte) []Cost {
	var names []string
	figures := map[string][3][]float64{}
	for _, line := range benchmarkLine.FindAllSubmatch(text, -1) {
		name := string(line[1])
		f, ok := figures[name]
		if !ok {
			names = append(names, name)
		}
		for i := range f {
			value, err := strconv.ParseFloat(string(line[2+i]), 64)
			if err != nil { // apart from several dots, the pattern matches only numbers
				continue
			}
			f[i] = append(f[i], value)
		}
		figures[name] = f
	}
	var costs []Cost
	for _, name := range names {
		f := figures[name]
		costs = append(costs, Cost{
			Name:   name,
			Ns:     middle(f[0]),
			Bytes:  middle(f[1]),
			Allocs: middle(f[2]),
		})
	}
	return costs
}

func (r *FilterReport) print(w io.Writer) error {
	fmt.Fprintf(w, "Filters alone: per update of a real object, medians of %d\n", benchmarkCounts)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "filter\tns\tbytes allocated\tallocations\t")
	for _, c := range r.Costs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0f\t\n", c.Name, grouped(int(c.Ns)), grouped(int(c.Bytes)), c.Allocs)
	}
	if err := t.Flush(); err != nil || len(r.Runs) == 0 {
		return err
	}
	fmt.Fprintln(w, "\nFilters in the agent: all updates pass")
	t = tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "filter\tevents/s\tCPU/event\tof no filter\truns\t")
	of := func(name string) (runs []*Run) {
		for _, run := range r.Runs {
			if run.Contestant == name {
				runs = append(runs, run)
			}
		}
		return runs
	}
	none := of(filtered()[0].name)
	for _, f := range filtered() {
		runs := of(f.name)
		rate, ok := median(runs, perSecondOf)
		cost, also := median(runs, cpuOf)
		against, and := ratio(runs, none, cpuOf)
		if !ok || !also || !and {
			continue // ended early
		}
		fmt.Fprintf(t, "%s\t%s\t%.0f µs\t%.2f x\t%d\t\n", f.name, grouped(int(rate)), cost, against, len(runs))
	}
	return t.Flush()
}
