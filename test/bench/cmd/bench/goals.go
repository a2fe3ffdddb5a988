package main

import (
	"fmt"
	"slices"
)

// Goal is a figure that the agent should reach.
type Goal struct {
	Name     string `json:"name"`
	Measured string `json:"measured"`
	Wanted   string `json:"wanted"`
	Verdict  string `json:"verdict"` // met, missed or not measured
}

// The goals. Absolute ones are valid on an idle machine only. On a busy machine, only the ratios
// are meaningful.
const (
	wantRate        = 8.0        // times the baseline's
	wantCPU         = 60.0       // µs
	wantCPURatio    = 1.0 / 12   // of the baseline's
	wantHeap        = 0.7 * 1024 // bytes a pod
	wantGrowth      = 40_000_000 // bytes
	wantSyncTime    = 1.0 / 4    // of the baseline's
	wantSyncPeak    = 1.0 / 10   // of the baseline's
	wantP50         = 5.0        // ms
	wantP99         = 25.0       // ms
	wantFlat        = 1.2        // times the CPU with the fewest pods
	wantDeep        = 50.0       // ms
	wantDeepRatio   = 12.0       // times that of a flat object
	agent, standard = "kubecdc", "baseline"
)

func (r *Report) goal(name, wanted string, measured float64, ok bool, format string, met bool) {
	g := Goal{
		Name:     name,
		Wanted:   wanted,
		Measured: "-",
		Verdict:  "not measured",
	}
	if ok {
		g.Measured, g.Verdict = fmt.Sprintf(format, measured), "missed"
		if met {
			g.Verdict = "met"
		}
	}
	r.Goals = append(r.Goals, g)
}

// judge compares the measured figures with the goals of the sections that ran.
func (r *Report) judge(sections []string) {
	if slices.Contains(sections, "throughput") {
		for _, transport := range []string{arrangement{}.transport(), arrangement{tls: true}.transport()} {
			ours, theirs := r.of("throughput", agent, transport, 0), r.of("throughput", standard, transport, 0)
			v, ok := ratio(ours, theirs, perSecondOf)
			r.goal("events/s, "+transport, "≥ 8 x baseline", v, ok, "%.1f x", v >= wantRate)
			v, ok = median(ours, cpuOf)
			r.goal("CPU per event, "+transport, "≤ 60 µs", v, ok, "%.0f µs", v <= wantCPU)
			v, ok = ratio(ours, theirs, cpuOf)
			r.goal("CPU per event, "+transport, "≤ 1/12 of baseline", 1/v, ok, "1/%.1f", v <= wantCPURatio)
		}
	}
	if slices.Contains(sections, "deep") {
		r.judgeDeep()
	}
	if slices.Contains(sections, "scale") {
		r.judgeScale()
	}
	if slices.Contains(sections, "heap") {
		v, ok := r.heapPerPod(agent, r.mostPods("heap"))
		r.goal("heap per last-known pod", "≤ 0.7 KiB", v/1024, ok, "%.2f KiB", v <= wantHeap)
	}
	if slices.Contains(sections, "blocked") {
		v, ok := median(r.of("blocked", agent, "", 0), growthOf)
		r.goal("RSS growth, bus blocked", "≤ 40 MB", v/1e6, ok, "%.0f MB", v <= wantGrowth)
	}
	if slices.Contains(sections, "latency") {
		for _, q := range []struct {
			name, wanted string
			limit        float64
			figure       func(*Run) float64
		}{
			{"latency p50", "≤ 5 ms", wantP50, func(r *Run) float64 { return r.P50 }},
			{"latency p99", "≤ 25 ms", wantP99, func(r *Run) float64 { return r.P99 }},
		} {
			ours, theirs := r.of("latency", agent, "", 0), r.of("latency", standard, "", 0)
			v, ok := median(ours, q.figure)
			r.goal(q.name, q.wanted, v, ok, "%.2f ms", v <= q.limit)
			v, ok = ratio(ours, theirs, q.figure)
			r.goal(q.name, "< baseline", v, ok, "%.2f x", v < 1)
		}
	}
}

func (r *Report) judgeScale() {
	var sizes []int
	for _, run := range r.of("scale", agent, "", 0) {
		if !slices.Contains(sizes, run.Pods) {
			sizes = append(sizes, run.Pods)
		}
	}
	slices.Sort(sizes)
	few, most := 0, 0
	if len(sizes) > 1 {
		few, most = sizes[0], sizes[len(sizes)-1]
	}
	theirs := r.of("scale", standard, "", max(1, most))
	v, ok := ratio(r.sized(most), theirs, syncSecondsOf)
	name := fmt.Sprintf("first sync of %s pods", grouped(most))
	r.goal(name+", time", "≤ 1/4 of baseline", 1/v, ok, "1/%.1f", v <= wantSyncTime)
	v, ok = ratio(r.sized(most), theirs, syncPeakOf)
	r.goal(name+", peak memory", "≤ 1/10 of baseline", 1/v, ok, "1/%.1f", v <= wantSyncPeak)

	v, ok = ratio(r.sized(most), r.sized(few), cpuOf)
	r.goal(fmt.Sprintf("CPU per event, %s pods against %s", grouped(most), grouped(few)), "≤ 1.2 x", v, ok, "%.2f x",
		v <= wantFlat)
}

func (r *Report) sized(pods int) []*Run {
	if pods == 0 {
		return nil
	}
	return r.of("scale", agent, "", pods)
}

// mostPods returns the highest number of pods of a run of the agent in a section.
func (r *Report) mostPods(section string) (most int) {
	for _, run := range r.of(section, agent, "", 0) {
		most = max(most, run.Pods)
	}
	return most
}
