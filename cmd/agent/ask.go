package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// askFlags are the flags of the commands that query the record.
type askFlags struct {
	bus                                      tailFlags
	namespace, selector, cluster, clusterUID string
	output                                   output
	allNamespaces, exact                     bool
	pagerCommand                             string
	noPager                                  bool
}

const momentHelp = `A moment is a time (2026-11-20T14:05:00Z, 14:05, 'yesterday 14:05'), the beginning of a day (2026-11-20, yesterday),
how long ago (2h, 7d), a resourceVersion (rv:48211; rv:48211/h1 after etcd was restored once), or now. Times are those
at which the agent observed a change. Without an offset, they are in the local time zone (--tz, $TZ). If clocks were put
back, a time that exists twice is the first; if they were put forward, one that does not exist is when that happened.
Standard error says so.`

const certaintyHelp = `Standard error says how certain the answer is, JSON has it as fields: exact; late, if the agent or the bus was away
around the moment; uncertain, inside a gap of the record; unknown, before the first snapshot, after the end of the
record, or if the record does not have a resource.
--exact: exit code 3 unless the answer is exact.`

const resourceHelp = `Resources are named as for kubectl: plural, singular, kind or short name, with a group if need be (deployments.apps).
Custom resources are found by the CRDs in the record. Names and the namespace may have * ? [a-z]. No cluster is
contacted.`

func (f *askFlags) add(cmd *cobra.Command, formats []string) {
	f.addObjects(cmd, formats)
	cmd.Flags().BoolVar(&f.exact, "exact", false, "exit with code 3 unless the answer is exact")
}

// addObjects adds the flags that select objects and the form of the answer.
func (f *askFlags) addObjects(cmd *cobra.Command, formats []string) {
	fl := cmd.Flags()
	fl.StringVarP(&f.namespace, "namespace", "n", "",
		"only objects in this `namespace`; may be a pattern (default: all)")
	fl.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "objects in all namespaces, as without --namespace")
	f.addClusterUID(cmd)
	fl.StringVar(&f.cluster, "cluster", "",
		"`name` of the cluster, if the record has several; on Kafka, an object is then read from its partition alone")
	fl.StringVar(&f.pagerCommand, "pager", "",
		"`command` that shows the answer page by page at a terminal (default: $PAGER, else "+terminal.DefaultPager+")")
	fl.BoolVar(&f.noPager, "no-pager", false, "show the answer at a terminal without a pager")
	f.bus.addBus(cmd)
	f.output.add(cmd, formats)
	cmd.ValidArgsFunction = f.completeObjects
	_ = cmd.RegisterFlagCompletionFunc("namespace", f.completeNamespaces) // fails for flags that do not exist
}

func (f *askFlags) addClusterUID(cmd *cobra.Command) {
	cmd.Flags().
		StringVar(&f.clusterUID, "cluster-uid", "",
			"`uid` of the cluster, or its beginning, if the record has several of one name")
}

func (f *askFlags) addSelector(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "only objects whose labels match this `selector`")
}

// explained is a Source that adds advice to the errors of Read.
type explained struct {
	consume.Source
	explain func(error) error
}

// Read implements consume.Source.
func (e explained) Read(ctx context.Context, q consume.Query) (consume.Reader, error) {
	r, err := e.Source.Read(ctx, q)
	if err != nil && ctx.Err() == nil {
		err = e.explain(err)
	}
	return r, err
}

// open returns the record that the flags name. It does not read the record yet.
func (f *askFlags) open(stderr io.Writer) (*record.Record, error) {
	if f.bus.Bus == "-" || f.bus.Bus == "stdin:" {
		return nil, usageError{
			errors.New(
				"--bus -: standard input can be read only once; write the events to a file and name it: --bus file:PATH"),
		}
	}
	source, explain, err := f.bus.source(stderr)
	if err != nil {
		return nil, err
	}
	opened := &record.Record{Source: explained{source, explain}, Cluster: f.cluster}
	if confined, ok := source.(driver.Confined); ok {
		opened.Reads, opened.Only = confined.Reads, confined.Only
	}
	return opened, nil
}

// ask opens the record and resolves the requested objects.
func (f *askFlags) ask(ctx context.Context, args []string, stdout, stderr io.Writer) (*answers.Question, error) {
	if f.allNamespaces && f.namespace != "" {
		return nil, usageError{errors.New("--namespace and --all-namespaces cannot be combined")}
	}
	signal.Ignore(syscall.SIGPIPE) // otherwise the signal would end the process; see answer
	wanted, err := record.NewSelection(args, f.namespace, f.selector, f.cluster)
	if err != nil {
		return nil, usageError{err}
	}
	wanted.ClusterUID = f.clusterUID
	opened, err := f.open(stderr)
	if err != nil {
		return nil, err
	}
	q := answers.New(opened, wanted, f.output.Format,
		terminal.Detect(stdout, os.Getenv), terminal.Detect(stderr, os.Getenv))
	q.Exact = f.exact
	if !f.noPager {
		q.Stdout, q.Pager = terminal.NewPager(q.Stdout, f.pagerCommand, stderr)
	}
	said := consume.Query{}
	sayInterruptions(&said, q.Stderr)
	opened.OnRetry, opened.OnResume = said.OnRetry, said.OnResume
	return q, q.Resolve(ctx)
}

// answer calls f with the question of the flags. The error is returned after the pager has exited.
// EPIPE is none, as in "kubecdc history all | head".
func (f *askFlags) answer(
	ctx context.Context, args []string, stdout, stderr io.Writer, answer func(*answers.Question) error,
) error {
	q, err := f.ask(ctx, args, stdout, stderr)
	if err != nil {
		return err
	}
	err = answer(q)
	q.Pager.Wait()
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// agentConfig returns the configuration that --config names, the default one without --config.
func (f *askFlags) agentConfig() (*config.Config, error) {
	return (&agent.Options{Config: f.bus.Config, Overrides: f.bus.Overrides}).LoadConfig()
}

// parseMoment parses the moment of a flag. It says on stderr how a time is read that does not
// exist, or exists twice.
func parseMoment(flag, text string, stderr io.Writer) (timeline.Moment, error) {
	now := time.Now()
	m, err := timeline.ParseMoment(text, now)
	if err != nil {
		return m, usageError{fmt.Errorf("--%s: %w", flag, err)}
	}
	remark(stderr, text, now)
	return m, nil
}
