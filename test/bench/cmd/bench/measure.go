package main

import (
	"context"
	"errors"
	"math"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/test/bench/record"
	"github.com/kubecdc/kubecdc/test/process"
)

// Run is one run of one contestant.
type Run struct {
	Section    string `json:"section"`
	Contestant string `json:"contestant"`
	Transport  string `json:"transport"`
	Pods       int    `json:"pods"`
	Updates    int    `json:"updates"`

	// from the start of the process until all pods are on the bus
	SyncSeconds float64        `json:"syncSeconds"`
	Sync        process.Memory `json:"sync"`                // up to then
	Memory      process.Memory `json:"memory"`              // from then on
	HeapKept    int64          `json:"heapKept,omitempty"`  // bytes that a garbage collection kept; heap only
	PerSecond   float64        `json:"perSecond,omitempty"` // updates
	// microseconds of the contestant per update, user and system
	CPU     float64 `json:"cpu,omitempty"`
	FeedCPU float64 `json:"feedCPU,omitempty"` // of the feed
	SinkCPU float64 `json:"sinkCPU,omitempty"` // of the bus
	Growth  int64   `json:"growth,omitempty"`  // bytes of RSS while the bus was stopped; blocked only
	P50     float64 `json:"p50,omitempty"`     // milliseconds; latency only
	P99     float64 `json:"p99,omitempty"`

	Records record.Result `json:"records"`
	Failure string        `json:"failure,omitempty"`
}

// ok reports whether the run's figures count.
func (r *Run) ok() bool { return r.Failure == "" && r.Records.Complete() }

// once runs a contestant through its first sync, the updates as the section requires, and the check
// of its records. If the contestant fails, the Run says so; an error is one of the benchmark
// itself.
func (b *bench) once(
	ctx context.Context, section string, c contestant, a arrangement, updates int,
	phase func(context.Context, *rig, *Run) error,
) (*Run, error) {
	run := &Run{
		Section:    section,
		Contestant: c.name,
		Transport:  a.transport(),
		Pods:       a.pods,
		Updates:    updates,
	}
	b.progress("%s, %s: first sync of %s pods", c.name, run.Transport, grouped(a.pods))
	r, err := b.assemble(ctx, c, a)
	if err != nil {
		return nil, err
	}
	err = r.pass(ctx, c, run, phase)
	if err == nil {
		b.progress("%s, %s: reading %s records back", c.name, run.Transport, grouped(a.pods+updates))
		run.Records, err = r.verify(ctx, updates)
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		run.Failure = err.Error()
	}
	switch {
	case run.Failure != "":
		b.progress("%s, %s: FAILED: %s", c.name, run.Transport, run.Failure)
	case !run.Records.Complete():
		b.progress("%s, %s: does not count: %s", c.name, run.Transport, run.Records)
	}
	return run, nil
}

func (r *rig) pass(ctx context.Context, c contestant, run *Run, phase func(context.Context, *rig, *Run) error) error {
	if err := r.sync(ctx, c, run); err != nil {
		return err
	}
	if err := process.ResetPeak(r.child.PID()); err != nil {
		return err
	}
	traced, err := os.Stat(r.child.Log)
	if err != nil {
		return err
	}
	r.bench.progress("%s, %s: %s updates", c.name, run.Transport, grouped(run.Updates))
	if err := phase(ctx, r, run); err != nil {
		return err
	}
	run.Memory, err = process.ReadMemory(r.child.PID())
	if err != nil {
		return err
	}
	if r.traceGC {
		run.HeapKept, err = heapKept(r.child.Log, traced.Size())
		if err != nil {
			return err
		}
	}
	return r.stop()
}

// sync starts the contestant and waits until every pod is on the bus and a watch is open.
func (r *rig) sync(ctx context.Context, c contestant, run *Run) error {
	begun := time.Now()
	if err := r.launch(c); err != nil {
		return err
	}
	state, err := r.await(ctx, uint64(run.Pods), "first sync")
	if err != nil {
		return err
	}
	// The bus's timestamp of the last message is more precise than the time of the poll.
	run.SyncSeconds = state.LastTime.Sub(begun).Seconds()
	if _, err := r.settle(ctx); err != nil {
		return err
	}
	run.Sync, err = process.ReadMemory(r.child.PID())
	return err
}

// flood is the phase in which all updates happen at once. It measures their rate and the cost of
// each.
func flood(ctx context.Context, r *rig, run *Run) error {
	info, err := r.stream.Info(ctx)
	if err != nil {
		return err
	}
	before, err := r.usage()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := r.order(ctx, run.Updates, 0); err != nil {
		return err
	}
	state, err := r.await(ctx, info.State.Msgs+uint64(run.Updates), "updates")
	if err != nil {
		return err
	}
	after, err := r.usage()
	if err != nil {
		return err
	}
	n := float64(run.Updates)
	run.PerSecond = n / state.LastTime.Sub(begun).Seconds()
	each := func(i int) float64 { return float64((after[i] - before[i]).Nanoseconds()) / 1e3 / n }
	run.CPU = each(0)
	run.FeedCPU = each(1)
	run.SinkCPU = each(2)
	return nil
}

// usage is the CPU time of contestant, feed and sink so far.
func (r *rig) usage() (used [3]time.Duration, err error) {
	for i, child := range []*process.Child{r.child, r.feedChild, r.sinkChild} {
		cpu, failed := process.CPU(child.PID())
		used[i], err = cpu, errors.Join(err, failed)
	}
	return used, err
}

// gcLine is a line of GODEBUG=gctrace=1 (package runtime): "… 41->44->21 MB, 43 MB goal, …". The
// third figure is the live heap.
var gcLine = regexp.MustCompile(`(?m)^gc \d+ .* \d+->\d+->(\d+) MB`)

// heapKept returns the smallest live heap of the collections in the log after offset from. All
// last-known objects existed by then. A larger live heap includes work in progress, or memory that
// was allocated during the collection.
func heapKept(log string, from int64) (int64, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return 0, err
	}
	lines := gcLine.FindAllSubmatch(text[min(from, int64(len(text))):], -1)
	if len(lines) == 0 {
		return 0, errors.New("no garbage collection was traced after the first sync")
	}
	kept := int64(math.MaxInt64)
	for _, line := range lines {
		megabytes, err := strconv.ParseInt(string(line[1]), 10, 64)
		if err != nil {
			return 0, err
		}
		kept = min(kept, megabytes<<20)
	}
	return kept, nil
}
