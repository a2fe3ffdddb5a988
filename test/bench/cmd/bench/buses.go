package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/kubecdc/kubecdc/test/bench/buses"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/process"
)

// wantBus is the share of the bare client's throughput that the agent has to reach.
const wantBus = 0.6

// busNames in the order in which they run.
var busNames = []string{"nats", "kafka", "http", "http-batch"}

// batchSize is how many events a request of http-batch may hold.
const batchSize = 64

// BusReport is the outcome of --buses.
type BusReport struct {
	Events int         `json:"events"`
	Bytes  int         `json:"bytes"` // of an event, on average
	Repeat int         `json:"repeat"`
	Runs   []BusRun    `json:"runs"`
	Buses  []BusResult `json:"buses"`
}

// BusRun is one run of one client.
type BusRun struct {
	Bus       string  `json:"bus"`
	Client    string  `json:"client"` // bare, kubecdc, or publisher: kubecdc without the encoder
	PerSecond float64 `json:"perSecond"`
	CPU       float64 `json:"cpu"` // microseconds of the client's process per event, user and system
}

// BusResult is the result for one bus, by the medians of its runs.
type BusResult struct {
	Bus   string  `json:"bus"`
	Bare  float64 `json:"bare"` // events a second
	Ours  float64 `json:"kubecdc"`
	Ratio float64 `json:"ratio"` // median of the ratios of two runs in a row
	// Publisher is the ratio of the publisher alone, with events that were encoded beforehand.
	Publisher float64 `json:"publisherRatio"`
	BareCPU   float64 `json:"bareCPU"` // microseconds an event
	OursCPU   float64 `json:"kubecdcCPU"`
	Wanted    float64 `json:"wanted"`
	Verdict   string  `json:"verdict"` // met, missed or not measured
	NotSince  string  `json:"reason,omitempty"`
}

// buses compares the agent with a bare client on each bus, in turns.
func (b *bench) buses(ctx context.Context, names []string) (*BusReport, error) {
	b.progress("encoding %s events", grouped(b.updates))
	w, err := buses.NewWorkload(b.updates)
	if err != nil {
		return nil, err
	}
	report := &BusReport{Events: w.Len(), Bytes: w.Bytes() / w.Len(), Repeat: b.repeat}
	for _, name := range names {
		if err := b.bus(ctx, name, w, report); err != nil {
			return report, fmt.Errorf("%s: %w", name, err)
		}
	}
	return report, nil
}

func (b *bench) bus(ctx context.Context, name string, w *buses.Workload, report *BusReport) (err error) {
	result := BusResult{Bus: name, Wanted: wantBus, Verdict: "not measured"}
	defer func() { report.Buses = append(report.Buses, result) }()
	if name == "kafka" {
		if err := kafka.Available(); err != nil {
			b.progress("kafka: not measured: %v", err)
			result.NotSince = err.Error()
			return nil
		}
	}
	server, stop, err := b.busServer(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	clients := []struct {
		name string
		send func(context.Context, *buses.Server, *buses.Workload) (time.Duration, error)
	}{{"bare", buses.Bare}, {"kubecdc", buses.Ours}, {"publisher", buses.Publisher}}
	var runs []BusRun
	for i := range b.repeat {
		if i%2 == 1 { // The first client finds the machine in another state than the last one.
			slices.Reverse(clients)
		}
		for _, c := range clients {
			server.Name = "bench-" + strconv.Itoa(i) + "-" + c.name
			run, err := measureBus(ctx, server, w, c.send)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			run.Bus, run.Client = name, c.name
			b.progress("%s, %s: %s events/s", name, c.name, grouped(int(run.PerSecond)))
			runs = append(runs, run)
		}
	}
	report.Runs = append(report.Runs, runs...)
	of := func(client string, figure func(BusRun) float64) (values []float64) {
		for _, r := range runs {
			if r.Client == client {
				values = append(values, figure(r))
			}
		}
		return values
	}
	rate, cpu := func(r BusRun) float64 { return r.PerSecond }, func(r BusRun) float64 { return r.CPU }
	bare, ours := of("bare", rate), of("kubecdc", rate)
	// Each ratio is of two adjacent runs: other load on the machine affects both alike.
	against := func(values []float64) float64 {
		ratios := make([]float64, len(bare))
		for i := range bare {
			ratios[i] = values[i] / bare[i]
		}
		return middle(ratios)
	}
	result.Bare = middle(bare)
	result.Ours = middle(ours)
	result.Ratio = against(ours)
	result.Verdict = "missed"
	result.Publisher = against(of("publisher", rate))
	result.BareCPU, result.OursCPU = middle(of("bare", cpu)), middle(of("kubecdc", cpu))
	if result.Ratio >= wantBus {
		result.Verdict = "met"
	}
	return nil
}

// middle is the median, without reordering values.
func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// measureBus sends the workload once and checks that all events are there.
func measureBus(
	ctx context.Context, server *buses.Server, w *buses.Workload,
	send func(context.Context, *buses.Server, *buses.Workload) (time.Duration, error),
) (BusRun, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	runtime.GC()
	before := ownCPU()
	took, err := send(ctx, server, w)
	if err != nil {
		return BusRun{}, err
	}
	used := ownCPU() - before
	n, err := buses.Count(ctx, server)
	if err != nil {
		return BusRun{}, fmt.Errorf("count the records: %w", err)
	}
	if n != w.Len() {
		return BusRun{}, fmt.Errorf("%d records, of %d", n, w.Len())
	}
	return BusRun{PerSecond: float64(n) / took.Seconds(), CPU: float64(used.Microseconds()) / float64(n)}, nil
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// busServer starts the server of a bus as a separate process.
func (b *bench) busServer(ctx context.Context, name string) (_ *buses.Server, stop func() error, err error) {
	dir, err := os.MkdirTemp(b.dir, "kubecdc-bench-*")
	if err != nil {
		return nil, nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	if name == "kafka" {
		cluster, err := kafka.New(ctx, kafka.Options{Dir: dir, Output: b.stderr})
		if err != nil {
			return nil, nil, errors.Join(err, remove())
		}
		return &buses.Server{Kafka: cluster.Brokers()}, func() error {
			cluster.Stop()
			return remove()
		}, nil
	}
	argv := []string{b.self, "sink", "--dir", filepath.Join(dir, "streams")}
	if name != "nats" {
		argv = []string{b.self, "receive"}
	}
	child, err := process.Start(process.Spec{
		Name:      argv[1],
		Argv:      argv,
		Log:       filepath.Join(dir, "server.log"),
		Announces: true,
	})
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	stop = func() error { return errors.Join(child.Stop(10*time.Second), remove()) }
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var address sinkAddress
	line, err := child.Ready(ready)
	if err == nil {
		err = json.Unmarshal(line, &address)
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	switch name {
	case "nats":
		return &buses.Server{NATS: address.URL}, stop, nil
	case "http-batch":
		return &buses.Server{HTTP: address.URL, Batch: batchSize}, stop, nil
	default:
		return &buses.Server{HTTP: address.URL}, stop, nil
	}
}

func (r *BusReport) print(w io.Writer) error {
	fmt.Fprintf(w, "Buses: %s events of %s bytes, until the last one is acknowledged\n", grouped(r.Events),
		grouped(r.Bytes))
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "bus\tbare client\tkubecdc\tratio\twanted\tpublisher alone\tCPU bare\tCPU kubecdc\t\t")
	for _, b := range r.Buses {
		if b.Verdict == "not measured" {
			fmt.Fprintf(t, "%s\t-\t-\t-\t≥ %.1f\t-\t-\t-\tnot measured: %s\t\n", b.Bus, b.Wanted, b.NotSince)
			continue
		}
		fmt.Fprintf(t, "%s\t%s/s\t%s/s\t%.2f\t≥ %.1f\t%.2f\t%.0f µs\t%.0f µs\t%s\t\n",
			b.Bus, grouped(int(b.Bare)), grouped(int(b.Ours)), b.Ratio, b.Wanted, b.Publisher, b.BareCPU, b.OursCPU,
			b.Verdict)
	}
	return t.Flush()
}

// chooseBuses returns the requested buses: "all", or some of them.
func chooseBuses(text string) ([]string, error) {
	if text == "all" {
		return busNames, nil
	}
	names := strings.Split(text, ",")
	for _, name := range names {
		if !slices.Contains(busNames, name) {
			return nil, fmt.Errorf("--buses: %q is none of %s", name, strings.Join(busNames, ","))
		}
	}
	return names, nil
}
