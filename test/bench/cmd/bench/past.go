package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/bench/past"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/process"
)

const (
	pastNamespaces = 100
	pastSpan       = 24 * time.Hour // of the record
	pastRest       = time.Hour      // from the moment asked for to the end of the record
	pastSince      = 6 * time.Hour  // from --since to the end of the record
	pastPartitions = 12
	pastTopic      = "kubecdc"
)

// Goals of questions about the past. Reading means that pkg/consume reads the whole record and parses each event.
const (
	wantOne       = 100.0    // times faster than reading
	wantOneTime   = 0.3      // s
	wantNamespace = 20.0     // times faster than reading
	wantAll       = 1.5      // times the time of reading everything since the last snapshot
	wantTail      = 1.25     // times the bytes of the records; a record is framed with its position
	wantPartition = 1.1      // times the bytes of the records
	wantPeak      = 64 << 20 // bytes of memory, without the answer
	wantPeakOf    = 4        // times the answer, in addition
)

// PastReport is the outcome of --only record.
type PastReport struct {
	Events  int      `json:"events"`
	Objects int      `json:"objects"`
	Asked   []*Asked `json:"asked"`
	Goals   []Goal   `json:"goals"`
}

// Asked is the cost of a question: medians, and the highest peak.
type Asked struct {
	Question string  `json:"question"`
	Seconds  float64 `json:"seconds"`
	Answer   int64   `json:"answer"` // bytes printed
	Peak     int64   `json:"peak"`   // resident memory, bytes
	Wire     int64   `json:"wire"`   // bytes from the bus; 0: not counted
	Of       int64   `json:"of"`     // bytes of the records that the answer is made of; 0: not counted
	Runs     int     `json:"runs"`
}

// pastWorld is a record on a bus.
type pastWorld struct {
	b      *bench
	report *PastReport
	o      past.Options
	record *past.Record
	one    []past.Of // objects that are asked for
	bus    string    // for --bus
}

// past compares questions about the past with a reader of the whole record.
func (b *bench) past(ctx context.Context) (*PastReport, error) {
	w := &pastWorld{b: b, report: &PastReport{Events: b.events, Objects: b.objects}}
	err := w.askJetStream(ctx)
	if err == nil {
		err = w.askKafka(ctx)
	}
	return w.report, err
}

// begin makes a record that ends now.
func (w *pastWorld) begin() error {
	end := time.Now().Truncate(time.Second)
	w.o = past.Options{Events: w.b.events, Objects: w.b.objects, Namespaces: pastNamespaces, Begin: end.Add(-pastSpan), End: end}
	var err error
	if w.record, err = past.New(w.o); err != nil {
		return err
	}
	w.one = nil
	for i := range w.b.repeat {
		w.one = append(w.one, w.record.Object(i*(w.o.Objects/w.b.repeat)+i))
	}
	w.b.progress("writing %s events of %s objects", grouped(w.o.Events), grouped(w.o.Objects))
	return nil
}

func (w *pastWorld) askJetStream(ctx context.Context) (err error) {
	if err := w.begin(); err != nil {
		return err
	}
	server, stop, err := w.b.busServer(ctx, "nats")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := past.FillJetStream(ctx, server.NATS, w.record); err != nil {
		return err
	}
	w.bus = server.NATS
	at := w.o.End.Add(-pastRest).Format(time.RFC3339)
	whole, err := w.ask(ctx, "the whole record, read", 2, func(int) []string { return []string{w.b.self, "readall", "--bus", w.bus} })
	if err != nil {
		return err
	}
	since, err := w.ask(ctx, "from the last snapshot to the moment, read", 2, func(int) []string {
		return []string{w.b.self, "readall", "--bus", w.bus, "--at", at}
	})
	if err != nil {
		return err
	}
	one, err := w.ask(ctx, "history of one object", w.b.repeat, func(i int) []string {
		return w.kubecdc("history", w.one[i].Resource+"/"+w.one[i].Name, "-n", w.one[i].Namespace, "-o", "json")
	})
	if err != nil {
		return err
	}
	namespace, err := w.ask(ctx, "state of one namespace", w.b.repeat, func(i int) []string {
		return w.kubecdc("get", "all", "-n", w.one[i].Namespace, "--at", at, "-o", "json", "--exact")
	})
	if err != nil {
		return err
	}
	all, err := w.ask(ctx, "state of everything", 2, func(int) []string { return w.kubecdc("get", "all", "--at", at, "-o", "json", "--exact") })
	if err != nil {
		return err
	}
	faster := func(a *Asked, wanted float64) {
		v := whole.Seconds / a.Seconds
		w.goal(a.Question, fmt.Sprintf("≥ %.0f x reading", wanted), fmt.Sprintf("%.0f x", v), v >= wanted)
	}
	faster(one, wantOne)
	w.goal(one.Question, fmt.Sprintf("< %.0f ms", wantOneTime*1000), fmt.Sprintf("%.0f ms", one.Seconds*1000), one.Seconds < wantOneTime)
	faster(namespace, wantNamespace)
	v := all.Seconds / since.Seconds
	w.goal(all.Question, fmt.Sprintf("≤ %.1f x reading from the snapshot", wantAll), fmt.Sprintf("%.1f x", v), v <= wantAll)
	for _, a := range []*Asked{one, namespace, all} {
		most := wantPeak + wantPeakOf*a.Answer
		w.goal(a.Question+", memory", fmt.Sprintf("≤ %d MiB", most>>20), fmt.Sprintf("%d MiB", a.Peak>>20), a.Peak <= most)
	}
	return w.tail(ctx)
}

// tail counts the bytes that the bus sends to kubecdc tail.
func (w *pastWorld) tail(ctx context.Context) (err error) {
	wire, err := past.NewWire(strings.TrimPrefix(w.bus, "nats://"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, wire.Close()) }()
	a, err := w.ask(ctx, "tail of one object, to the end", 1, func(int) []string {
		return []string{
			w.b.agent, "tail", w.one[0].Resource + "/" + w.one[0].Name, "-n", w.one[0].Namespace, "--since", "all", "--no-follow", "-o", "json",
			"--bus", "nats://" + wire.Addr(),
		}
	})
	if err != nil {
		return err
	}
	a.Wire = wire.Taken()
	for _, of := range []past.Of{w.one[0], {Resource: w.one[0].Resource}, {}} {
		a.Of += w.record.Size(of).Bytes
	}
	w.judgeWire(a, "≤ %.2f x the records of the object, its scope and the progress", wantTail)
	return nil
}

// askKafka counts the bytes that a history reads.
func (w *pastWorld) askKafka(ctx context.Context) (err error) {
	if err := kafka.Available(); err != nil {
		w.b.progress("kafka: not measured: %v", err)
		w.report.Goals = append(w.report.Goals, Goal{Name: "history of one object, Kafka", Wanted: "-", Measured: "-", Verdict: "not measured"})
		return nil
	}
	var wire *past.Wire
	cluster, err := kafka.New(ctx, kafka.Options{Output: w.b.stderr, Advertise: func(_ int, _ kafka.Listener, addr string) (_ string, err error) {
		if wire, err = past.NewWire(addr); err != nil {
			return "", err
		}
		return wire.Addr(), nil
	}})
	if err != nil {
		return err
	}
	defer func() {
		cluster.Stop()
		err = errors.Join(err, wire.Close())
	}()
	if err := cluster.CreateTopic(ctx, pastTopic, pastPartitions, nil); err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	since := w.o.End.Add(-pastSince)
	partitions, err := past.FillKafka(ctx, cluster.Inside(), pastTopic, pastPartitions, since, w.record)
	if err != nil {
		return err
	}
	wire.Taken()
	w.bus = "kafka://" + cluster.Brokers()[0] + "/" + pastTopic
	a, err := w.ask(ctx, "history of one object, Kafka, --since", 1, func(int) []string {
		return w.kubecdc("history", w.one[0].Resource+"/"+w.one[0].Name, "-n", w.one[0].Namespace, "--cluster", past.Cluster,
			"--since", since.Format(time.RFC3339), "-o", "json", "--exact")
	})
	if err != nil {
		return err
	}
	a.Wire, a.Of = wire.Taken(), partitions[past.Partition(w.one[0], pastPartitions)]
	w.judgeWire(a, "≤ %.1f x its partition since", wantPartition)
	return nil
}

func (w *pastWorld) judgeWire(a *Asked, text string, wanted float64) {
	v := float64(a.Wire) / float64(a.Of)
	w.goal(a.Question+", bytes", fmt.Sprintf(text, wanted), fmt.Sprintf("%.2f x", v), v <= wanted)
}

func (w *pastWorld) goal(name, wanted, measured string, met bool) {
	g := Goal{Name: name, Wanted: wanted, Measured: measured, Verdict: "missed"}
	if met {
		g.Verdict = "met"
	}
	w.report.Goals = append(w.report.Goals, g)
}

func (w *pastWorld) kubecdc(args ...string) []string {
	return append(append([]string{w.b.agent}, args...), "--bus", w.bus)
}

// ask runs a command several times, one run after another.
func (w *pastWorld) ask(ctx context.Context, question string, runs int, argv func(i int) []string) (*Asked, error) {
	out := &Asked{Question: question, Runs: runs}
	var seconds, answers []float64
	for i := range runs {
		a, err := askOnce(ctx, argv(i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", question, err)
		}
		w.b.progress("%s: %.3f s, %s bytes, %d MiB", question, a.Seconds, grouped(a.Answer), a.Peak>>20)
		seconds, answers = append(seconds, a.Seconds), append(answers, float64(a.Answer))
		out.Peak = max(out.Peak, a.Peak)
	}
	out.Seconds, out.Answer = middle(seconds), int64(middle(answers))
	w.report.Asked = append(w.report.Asked, out)
	return out, nil
}

// askOnce runs a command. The kernel's peak is read until the command ends, so it may lack the last milliseconds.
func askOnce(ctx context.Context, argv []string) (*Asked, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out counter
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	a := &Asked{}
	ended := make(chan struct{})
	var g errgroup.Group
	g.Go(func() error {
		defer close(ended)
		err := cmd.Wait()
		a.Seconds = time.Since(begin).Seconds()
		return err
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var peak int64
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-tick.C:
			if m, err := process.ReadMemory(cmd.Process.Pid); err == nil {
				peak = max(peak, m.Peak)
			}
		}
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", filepath.Base(argv[0]), strings.Join(argv[1:], " "), err, log.Bytes())
	}
	a.Answer, a.Peak = int64(out), peak
	return a, nil
}

// counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func (r *PastReport) print(w io.Writer) error {
	fmt.Fprintf(w, "Questions about a record of %s events and %s objects\n", grouped(r.Events), grouped(r.Objects))
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "question\tseconds\tanswer\tpeak memory\tfrom the bus\truns\t")
	for _, a := range r.Asked {
		wire := "-"
		if a.Wire > 0 {
			wire = grouped(a.Wire)
		}
		fmt.Fprintf(t, "%s\t%.3f\t%s\t%d MiB\t%s\t%d\t\n", a.Question, a.Seconds, grouped(a.Answer), a.Peak>>20, wire, a.Runs)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "goal\twanted\tmeasured\t")
	for _, g := range r.Goals {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", g.Name, g.Wanted, g.Measured, g.Verdict)
	}
	return t.Flush()
}
