package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/kubecdc/kubecdc/test/bench/past"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/process"
)

const (
	pastNamespaces = 20
	pastDays       = 7               // of the shorter record
	pastTimes      = 10              // the longer record has so many times its days and changes
	pastRest       = 5 * time.Minute // from the last moment that is asked for to the end of the record
	pastSince      = 20 * time.Hour  // of a history on Kafka; no restart of the agent is then
	pastPartitions = 8
	// pastPatience is how long a question may take to be repeated.
	pastPatience = 20 * time.Second
)

// pastWorld asks about the past of records on one bus.
type pastWorld struct {
	b       *bench
	report  *PastReport
	o       past.Options
	has     *past.Contents
	bus     string // its name
	lengths []pastLength
}

// pastLength is one length of the record, on a server.
type pastLength interface {
	// url is the value of --bus.
	url() string
	// restart ends the server, drops its files from the page cache, and starts it again.
	restart(ctx context.Context) error
	// pid is the process of the server.
	pid() int
}

// question is a question about the past.
type question struct {
	name  string
	most  time.Duration // the goal on a warm server; 0: there is none
	grows bool          // with the length of the record, as the goals allow
	argv  func(i int) []string
}

// pastOptions returns the options of the record. It ends at a certain time, so that it is written
// once.
func (b *bench) pastOptions() past.Options {
	end := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	midnight := end.Truncate(24 * time.Hour)
	return past.Options{
		Changes:    pastTimes * b.changes,
		Objects:    b.objects,
		Namespaces: pastNamespaces,
		Resources:  past.MaxResources,
		Begin:      midnight.AddDate(0, 0, -pastTimes*pastDays+1),
		Short:      midnight.AddDate(0, 0, -pastDays+1),
		End:        end,
	}
}

// past measures questions about the past on two lengths of a record.
func (b *bench) past(ctx context.Context) (*PastReport, error) {
	o := b.pastOptions()
	report := &PastReport{Objects: o.Objects, Resources: o.Resources}
	for _, bus := range b.records {
		w := &pastWorld{
			b:      b,
			report: report,
			o:      o,
			bus:    bus,
		}
		ask := w.onJetStream
		if bus == "kafka" {
			ask = w.onKafka
			if err := kafka.Available(); err != nil {
				b.progress("kafka: not measured: %v", err)
				continue
			}
		}
		if err := ask(ctx); err != nil {
			return report, fmt.Errorf("%s: %w", bus, err)
		}
	}
	report.judge()
	return report, nil
}

func (w *pastWorld) say(format string, args ...any) {
	w.b.progress("%s: %s", w.bus, fmt.Sprintf(format, args...))
}

func (w *pastWorld) onJetStream(ctx context.Context) (err error) {
	record, err := past.Open(ctx, w.bus, w.o, w.say, func(dir string) (*past.Contents, error) {
		return past.FillJetStream(ctx, filepath.Join(dir, "whole"), filepath.Join(dir, "short"), w.o, w.say)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, record.Close()) }()
	w.has = record.Contents
	for _, name := range []string{"short", "whole"} {
		s := &natsServer{
			self: w.b.self,
			dir:  filepath.Join(record.Dir, name),
			log:  filepath.Join(record.Dir, name+".log"),
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		if err := s.start(ctx); err != nil {
			return err
		}
		w.lengths = append(w.lengths, s)
	}
	w.report.has(w.bus, w.o, w.has, 1)
	return w.ask(ctx, w.questions(nil))
}

func (w *pastWorld) onKafka(ctx context.Context) (err error) {
	topics := []string{"short", "whole"}
	options := func(dir string) kafka.Options {
		return kafka.Options{Dir: filepath.Join(dir, "nodes"), Output: w.b.stderr}
	}
	record, err := past.Open(ctx, w.bus, w.o, w.say, func(dir string) (*past.Contents, error) {
		cluster, err := kafka.New(ctx, options(dir))
		if err != nil {
			return nil, err
		}
		defer cluster.Stop()
		for _, topic := range topics {
			if err := cluster.CreateTopic(ctx, topic, pastPartitions, nil); err != nil {
				return nil, err
			}
		}
		k := past.Kafka{
			Brokers:    cluster.Inside(),
			Short:      topics[0],
			Whole:      topics[1],
			Partitions: pastPartitions,
		}
		contents, err := k.Fill(ctx, w.o, w.say)
		cluster.Node(0).Stop() // in order: otherwise each start looks through the topics
		return contents, err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, record.Close()) }()
	w.has = record.Contents
	cluster, err := kafka.New(ctx, options(record.Dir))
	if err != nil {
		return err
	}
	defer func() {
		cluster.Node(0).Stop()
		cluster.Stop()
	}()
	for _, topic := range topics {
		w.lengths = append(w.lengths, &kafkaTopic{cluster, topic})
	}
	w.report.has(w.bus, w.o, w.has, pastPartitions)
	since := w.o.End.Add(-pastSince)
	return w.ask(ctx, w.questions(&since))
}

// questions returns those of the design. On Kafka, since is the beginning of the history of one
// object.
func (w *pastWorld) questions(since *time.Time) []question {
	format := func(t time.Time) string { return t.Format(time.RFC3339) }
	noon, until := format(w.o.End.Truncate(24*time.Hour).Add(-12*time.Hour)), format(w.o.End.Add(-pastRest))
	namespace := func(i int) string { return fmt.Sprintf("team-%d", i%pastNamespaces) }
	one := func(i int) []string {
		of := w.has.Young[i%len(w.has.Young)]
		return []string{"history", of.Resource + "/" + of.Name, "-n", of.Namespace, "--until", until}
	}
	history := question{name: "history of one object", argv: one, most: 100 * time.Millisecond}
	all := []question{history}
	if since != nil {
		history.grows, history.most = true, 0
		late := question{name: "history of one object, --since 20h", argv: func(i int) []string {
			return append(one(i), "--since", format(*since))
		}}
		all = []question{late, history}
	}
	return append(all,
		question{name: "state of a namespace at a noon", most: 300 * time.Millisecond, argv: func(i int) []string {
			return []string{"get", "all", "-n", namespace(i), "--at", noon}
		}},
		question{name: "history of a namespace, last hour", most: 300 * time.Millisecond, argv: func(i int) []string {
			hourBefore := format(w.o.End.Add(-pastRest - time.Hour))
			return []string{"history", "all", "-n", namespace(i), "--since", hourBefore, "--until", until}
		}},
		question{name: "state of everything at a noon", most: 3 * time.Second, argv: func(int) []string {
			return []string{"get", "all", "--at", noon}
		}},
	)
}

// ask asks questions on warm servers, then each one on cold servers, unless it takes long anyway.
func (w *pastWorld) ask(ctx context.Context, questions []question) error {
	for k := range questions {
		q := &questions[k]
		a := &Asked{
			Bus:      w.bus,
			Question: q.name,
			Most:     q.most.Seconds(),
			Grows:    q.grows,
		}
		w.report.Asked = append(w.report.Asked, a)
		if err := w.warm(ctx, q, a); err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
	}
	if w.b.quick || runtime.GOOS != "linux" { // other systems cannot drop files from the page cache
		return nil
	}
	asked := w.report.Asked[len(w.report.Asked)-len(questions):]
	for k := range questions {
		if asked[k].Long.Seconds > pastPatience.Seconds() {
			continue
		}
		if err := w.cold(ctx, &questions[k], asked[k]); err != nil {
			return fmt.Errorf("%s, on a cold server: %w", questions[k].name, err)
		}
	}
	return nil
}

// warm asks a question several times, of both lengths in turn. The first time does not count,
// unless it takes so long that there is no other.
func (w *pastWorld) warm(ctx context.Context, q *question, a *Asked) error {
	for i := range w.b.repeat + 1 {
		var pair [2]*pastRun
		patience := pastPatience
		if i == 0 {
			patience *= 3 // it also fills the caches
		}
		isSlow := false
		for k, l := range w.lengths {
			var err error
			pair[k], err = w.once(ctx, l, q, i, false)
			if err != nil {
				return err
			}
			isSlow = isSlow || pair[k].seconds > patience.Seconds()
			w.say("%s, %s: %.3f s, CPU %.3f s, %s bytes", q.name, lengthNames[k],
				pair[k].seconds, pair[k].cpu, grouped(pair[k].answer))
		}
		if i > 0 || isSlow {
			a.add(pair)
		}
		if isSlow {
			break
		}
	}
	return nil
}

// cold asks a question of each length, as the first one after a restart of the server, whose files
// are not in the page cache.
func (w *pastWorld) cold(ctx context.Context, q *question, a *Asked) error {
	for k, l := range w.lengths {
		if err := l.restart(ctx); err != nil {
			return err
		}
		r, err := w.once(ctx, l, q, 0, true)
		if err != nil {
			return err
		}
		w.say("%s, %s, cold: %.3f s", q.name, lengthNames[k], r.seconds)
		a.of(k).Cold = &Cold{Seconds: r.seconds, CPU: r.cpu, Shown: r.shown}
	}
	return nil
}

// once asks a question as a command of its own.
func (w *pastWorld) once(ctx context.Context, l pastLength, q *question, i int, atTerminal bool) (*pastRun, error) {
	before, err := process.CPU(l.pid())
	if err != nil {
		return nil, err
	}
	argv := append([]string{w.b.agent}, q.argv(i)...)
	argv = append(argv, "--cluster", past.Cluster, "-o", "json", "--exact", "--bus", l.url())
	r, err := runQuestion(ctx, argv, atTerminal)
	if err != nil {
		return nil, err
	}
	after, err := process.CPU(l.pid())
	r.cpu += (after - before).Seconds()
	return r, err
}
