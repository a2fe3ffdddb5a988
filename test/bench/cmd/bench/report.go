package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Report is the outcome of a call.
type Report struct {
	Updates int    `json:"updates"`
	Repeat  int    `json:"repeat"`
	Runs    []*Run `json:"runs"`
	Deep    []Cost `json:"deep,omitempty"`
	Goals   []Goal `json:"goals,omitempty"`
}

// of selects runs; a zero value selects any.
func (r *Report) of(section, contestant, transport string, pods int) (runs []*Run) {
	for _, run := range r.Runs {
		if (section == "" || run.Section == section) && (contestant == "" || run.Contestant == contestant) &&
			(transport == "" || run.Transport == transport) && (pods == 0 || run.Pods == pods) {
			runs = append(runs, run)
		}
	}
	return runs
}

// line is one line of a table: the runs of one contestant under the same conditions.
type line struct {
	section, contestant, transport string
	pods                           int
	runs                           []*Run
}

// lines of a section in the order in which they first ran.
func (r *Report) lines(section string) (lines []*line) {
	for _, run := range r.of(section, "", "", 0) {
		found := false
		for _, l := range lines {
			if l.contestant == run.Contestant && l.transport == run.Transport && l.pods == run.Pods {
				l.runs, found = append(l.runs, run), true
			}
		}
		if !found {
			lines = append(lines, &line{section, run.Contestant, run.Transport, run.Pods, []*Run{run}})
		}
	}
	return lines
}

func (r *Report) print(w io.Writer) error {
	for _, s := range []struct {
		section, title string
		columns        []column
	}{
		{"throughput", "Throughput: all updates at once", []column{
			pods, rate, rateRatio, cpu, cpuRatio, rss, peak, syncTime, feedCPU, sinkCPU,
		}},
		{"scale", "Scale: more objects", []column{pods, rate, cpu, rss, peak, syncTime, syncPeak}},
		{"heap", "Heap: what is kept of the objects", []column{pods, heap, heapPerPod}},
		{"blocked", fmt.Sprintf("Blocked: the bus stands still for %v", held), []column{pods, rss, growth, rate}},
		{"latency", fmt.Sprintf("Latency: %d updates a second, until a subscriber has them", perSecond), []column{
			pods, p50, p99, cpu, cpuRatio,
		}},
	} {
		if lines := r.lines(s.section); len(lines) > 0 {
			if err := r.table(w, s.title, lines, s.columns); err != nil {
				return err
			}
		}
	}
	if len(r.Deep) > 0 {
		if err := r.printDeep(w); err != nil {
			return err
		}
	}
	if len(r.Goals) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "Goal\tmeasured\twanted\t")
	for _, g := range r.Goals {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", g.Name, g.Measured, g.Wanted, g.Verdict)
	}
	return t.Flush()
}

func (r *Report) table(w io.Writer, title string, lines []*line, columns []column) error {
	fmt.Fprintln(w, title)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "contestant\ttransport\t")
	for _, c := range columns {
		fmt.Fprint(t, c.title, "\t")
	}
	fmt.Fprintln(t, "runs\trecords\t")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t", l.contestant, l.transport)
		for _, c := range columns {
			fmt.Fprint(t, c.cell(r, l), "\t")
		}
		verdict := "complete"
		for _, run := range l.runs {
			if !run.ok() {
				verdict = "DO NOT COUNT"
			}
		}
		fmt.Fprintf(t, "%d\t%s\t\n", len(l.runs), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// column of a table.
type column struct {
	title string
	cell  func(*Report, *line) string
}

// plain is a column of a median.
func plain(title, format string, figure func(*Run) float64) column {
	return column{title, func(_ *Report, l *line) string {
		m, ok := median(l.runs, figure)
		if !ok {
			return "-"
		}
		return fmt.Sprintf(format, m)
	}}
}

// against is a column of the ratio to the baseline under the same conditions.
func against(title, format string, figure func(*Run) float64) column {
	return column{title, func(r *Report, l *line) string {
		ratio, ok := ratio(l.runs, r.of(l.section, "baseline", l.transport, l.pods), figure)
		if !ok {
			return "-"
		}
		return fmt.Sprintf(format, ratio)
	}}
}

// heapPerPod returns the heap bytes per additional pod, between the smallest run and the runs with
// most pods.
func (r *Report) heapPerPod(contestant string, most int) (float64, bool) {
	few := most
	for _, run := range r.of("heap", contestant, "", 0) {
		few = min(few, run.Pods)
	}
	if few == most {
		return 0, false
	}
	from, ok := median(r.of("heap", contestant, "", few), heapOf)
	to, also := median(r.of("heap", contestant, "", most), heapOf)
	return (to - from) / float64(most-few), ok && also
}

// ratio of the medians.
func ratio(these, those []*Run, figure func(*Run) float64) (float64, bool) {
	a, ok := median(these, figure)
	b, also := median(those, figure)
	return a / b, ok && also && b != 0
}

func perSecondOf(r *Run) float64 { return r.PerSecond }
func cpuOf(r *Run) float64       { return r.CPU }
func syncSecondsOf(r *Run) float64 {
	return r.SyncSeconds
}
func syncPeakOf(r *Run) float64 { return float64(r.Sync.Peak) }
func growthOf(r *Run) float64   { return float64(r.Growth) }
func heapOf(r *Run) float64     { return float64(r.HeapKept) }

func megabytes(figure func(*Run) float64) func(*Run) float64 {
	return func(r *Run) float64 { return figure(r) / (1 << 20) }
}

var (
	pods = column{"pods", func(_ *Report, l *line) string { return grouped(l.pods) }}
	rate = column{"events/s", func(_ *Report, l *line) string {
		m, ok := median(l.runs, perSecondOf)
		if !ok {
			return "-"
		}
		return grouped(int(m))
	}}
	rateRatio = against("x baseline", "%.1f", perSecondOf)
	cpu       = plain("CPU/event", "%.0f µs", cpuOf)
	cpuRatio  = column{"of baseline", func(r *Report, l *line) string {
		// Inverted: 1/20 is easier to read than 0.05.
		ratio, ok := ratio(r.of(l.section, "baseline", l.transport, l.pods), l.runs, cpuOf)
		if !ok {
			return "-"
		}
		return fmt.Sprintf("1/%.1f", ratio)
	}}
	rss  = plain("RSS", "%.0f MiB", megabytes(func(r *Run) float64 { return float64(r.Memory.RSS) }))
	peak = plain("peak", "%.0f MiB", megabytes(func(r *Run) float64 { return float64(r.Memory.Peak) }))
	heap = plain("heap kept", "%.0f MiB", megabytes(heapOf))
	// The slope from the fewest pods excludes memory that does not grow with them.
	heapPerPod = column{"per pod", func(r *Report, l *line) string {
		perPod, ok := r.heapPerPod(l.contestant, l.pods)
		if !ok {
			return "-"
		}
		return fmt.Sprintf("%.2f KiB", perPod/1024)
	}}
	syncTime = plain("first sync", "%.2f s", syncSecondsOf)
	syncPeak = plain("its peak", "%.0f MiB", megabytes(syncPeakOf))
	growth   = plain("growth", "%.0f MiB", megabytes(growthOf))
	p50      = plain("p50", "%.2f ms", func(r *Run) float64 { return r.P50 })
	p99      = plain("p99", "%.2f ms", func(r *Run) float64 { return r.P99 })
	feedCPU  = plain("feed", "%.1f µs", func(r *Run) float64 { return r.FeedCPU })
	sinkCPU  = plain("bus", "%.1f µs", func(r *Run) float64 { return r.SinkCPU })
)
