package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/agent/reload"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/duration"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/leader"
	"github.com/kubecdc/kubecdc/internal/localbus"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/publish/drivers"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/terminal"
	"github.com/kubecdc/kubecdc/internal/trace"
)

type runFlags struct {
	config, kubeconfig, context, bus, dataDir string
	grace                                     time.Duration

	overrides

	stdin io.Reader // what the configuration "-" is; nil: that is a file like others
}

// embedded reports whether the agent runs with a bus of its own.
func (f *runFlags) embedded() bool { return f.config == "" && f.bus == "" && !f.touches("bus") }

func newRunCommand(stdout, stderr io.Writer) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent",
		Long: `Run the agent: capture the changes of a cluster and publish them.

The file of --config selects the objects and the bus: NATS JetStream, Kafka, an
HTTP endpoint or standard output. Without it, the agent captures all resources
but Events and Leases ('kubecdc config default'). --bus overrides the bus in the
file, and keeps its settings for a bus of the same kind. Relays of the file run
beside the agent.

--set overrides a key of the file, or of the defaults: --set event.before=false,
--set 'watch[0].namespaces=[shop, bank]'. A value that begins with [ or { is YAML. From
the lowest to the highest precedence: defaults, file, environment variables of flags,
flags. --bus overrides a bus that --set names.

With neither --config nor --bus, the agent runs a JetStream in its own process: a NATS
server on 127.0.0.1:4222 or the next free port. Any NATS client can connect to it,
and 'kubecdc tail' finds it. It keeps records for 7 days in --data-dir, by default
~/.local/share/kubecdc/<uid of the cluster> (or below $XDG_DATA_HOME). The next run
resumes there. To delete the records, delete the directory. The server listens on
the loopback interface only and requires no credentials:
every user of this machine can read the records. To prevent that, run a NATS server
with accounts and name it with --bus or --config.

The agent applies a changed file within seconds, and on SIGHUP at once. A change
of watch, strip, noise, redaction or log.level needs no restart, and loses and
repeats nothing of the resources that stay. A file that is wrong, or that changes
any other key, is rejected: the previous one stays in force, and the log, 'kubecdc
status' and a metric report it.

The agent accepts commands ('kubecdc snapshot', 'kubecdc profile') at a Unix socket
that only this user and root can open: $` + admin.SocketVariable + `, or by default agent.sock,
or the next free name, in $XDG_RUNTIME_DIR/kubecdc, or /tmp/kubecdc-<uid>.

SIGTERM and Ctrl-C end the watches and drain the queue within --grace; a second
one ends the process at once. Acknowledged records are kept in any case.

After a restart or a crash, the agent resumes where the acknowledgements end. It
sends the changes in between as they happened, for as long as the API server has
that history. The checkpoint stores its position ('kubecdc checkpoint show'), beside
the records of the embedded JetStream. Otherwise it is in the ConfigMap
kubecdc-checkpoint for an agent in a Pod, and elsewhere in a file for each cluster
and bus below ~/.local/share/kubecdc/checkpoints. The configuration may name another
place.`,
		Example: `  kubecdc run                                  # the current context, into a JetStream of its own
  kubecdc run --context prod --bus nats://nats.example:4222
  kubecdc run --bus kafka://kafka-0:9092,kafka-1:9092/kubecdc
  kubecdc run --bus stdout: | jq .subject
  kubecdc run --config kubecdc.yaml
  kubecdc run --config kubecdc.yaml --set cluster=staging --log-level debug`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAgent(cmd.Context(), &f, stdout, stderr) },
	}
	cmd.Flags().StringVar(&f.config, "config", "", "configuration `file`")
	f.overrides.add(cmd)
	f.overrides.addLogLevel(cmd)
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file`; default: $KUBECONFIG, ~/.kube/config, or in a pod its service account")
	cmd.Flags().StringVar(&f.context, "context", "", "`name` of the kubeconfig's context")
	cmd.Flags().StringVar(&f.bus, "bus", "", "`URL` of the bus instead of the configured one: "+drivers.URLs(drivers.Buses()))
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "`directory` of the embedded JetStream, without --config and --bus")
	f.grace = 20 * time.Second
	cmd.Flags().Var((*duration.Flag)(&f.grace), "grace", "time limit of a shutdown for draining the queue")
	return cmd
}

// loadConfig reads the file, if there is one, and lays the flags over it.
func loadConfig(f *runFlags) (*config.Config, error) {
	if f.config == "" {
		return f.parseConfig([]byte(config.Empty))
	}
	data, err := readConfigFile(f)
	if err != nil {
		return nil, err
	}
	return f.parseConfig(data)
}

// readConfigFile reads the content of the file that there is.
func readConfigFile(f *runFlags) ([]byte, error) {
	if f.config == "-" && f.stdin != nil {
		f.config = "standard input" // to those who say what is wrong with it
		data, err := io.ReadAll(f.stdin)
		if err != nil {
			return nil, usageError{fmt.Errorf("read configuration: %w", err)}
		}
		return data, nil
	}
	data, err := os.ReadFile(f.config)
	if err != nil {
		return nil, usageError{fmt.Errorf("read configuration: %w", err)}
	}
	return data, nil
}

// errDataDir is for a --data-dir beside another bus.
func errDataDir() error {
	return usageError{errors.New("--data-dir is where the embedded JetStream keeps records, and that runs only without --config and --bus: leave out one or the other")}
}

// parseConfig returns the configuration in the content of a file, with the overrides of the flags.
func (f *runFlags) parseConfig(data []byte) (*config.Config, error) {
	if f.dataDir != "" && !f.embedded() {
		return nil, errDataDir()
	}
	set, err := f.overrides.parse()
	if err != nil {
		return nil, err
	}
	file, err := config.ParseOverridden(data, f.config, set, checkSent)
	if err != nil {
		return nil, err
	}
	return overlaid(f, file.Config)
}

// overlaid lays the flags over a configuration.
func overlaid(f *runFlags, cfg *config.Config) (*config.Config, error) {
	if f.bus == "" {
		return cfg, nil
	}
	b, err := flagBus(f.bus, cfg.Bus)
	if err != nil {
		return nil, err
	}
	cfg.UseBus(b)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// load reads the configuration and the key that it names.
func load(f *runFlags) (*reload.Loaded, error) {
	if f.config == "" {
		cfg, err := loadConfig(f)
		return &reload.Loaded{Config: cfg}, err
	}
	data, err := readConfigFile(f)
	if err != nil {
		return nil, err
	}
	l, err := reload.Load(data, f.parseConfig, reload.ReadKeyFile)
	if l != nil && err != nil {
		return nil, usageError{err} // of the key
	}
	return l, err
}

// newLogger writes to out. people tells that it does so for people.
func newLogger(c config.Log, out *terminal.Output) (log *slog.Logger, people bool) {
	return newLeveledLogger(c, c.Level.Slog(), out)
}

// newLeveledLogger is newLogger with a level that may change.
func newLeveledLogger(c config.Log, level slog.Leveler, out *terminal.Output) (log *slog.Logger, people bool) {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: readableDurations}
	switch {
	case c.Format == config.LogText:
		return slog.New(slog.NewTextHandler(out, o)), false
	case c.Format == config.LogAuto && out.Interactive:
		return slog.New(terminal.NewHandler(out, level)), true
	}
	return slog.New(slog.NewJSONHandler(out, o)), false
}

// readableDurations writes "20s" where JSON would have 20000000000, and no advice where there is none.
func readableDurations(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "advice" && a.Value.String() == "" {
		return slog.Attr{}
	}
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
	return a
}

// runAgent wires the stages and runs them until ctx ends and the queue is drained, or one of them fails for good.
func runAgent(ctx context.Context, f *runFlags, stdout, stderr io.Writer) error {
	first, err := load(f)
	if err != nil {
		return err
	}
	cfg := first.Config
	cluster, err := findCluster(f)
	if err != nil {
		return err
	}
	out := terminal.Detect(stderr, os.Getenv)
	out.Writer = terminal.NewLogWriter(ctx, out.Writer)
	level := new(slog.LevelVar)
	level.Set(cfg.Log.Level.Slog())
	log, people := newLeveledLogger(cfg.Log, level, out)
	klog.SetSlogLogger(log)
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c := &capture{
		cfg: cfg, flags: f, cluster: cluster, stdout: stdout, log: log, reg: reg, metrics: publish.NewMetrics(reg),
		relays: agent.NewRelayHost(cfg.Relays, log),
	}
	if f.config != "" {
		hup := make(chan os.Signal, 1) // full: it has been asked for already
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		c.reload = reload.New(reload.Options{
			File: f.config, First: first, Parse: f.parseConfig, Apply: c.apply, Standby: c.standby, HUP: hup, Log: log, Level: level, Registerer: reg,
		})
	}
	if err := c.prepare(first); err != nil {
		return err
	}
	listener, err := listen(ctx, cfg.Server.Address, f.config != "")
	if err != nil {
		return err
	}
	defer listener.Close()
	socket, err := openSocket(ctx, log)
	if err != nil {
		return err
	}
	if socket != nil {
		defer func() { _ = socket.Close() }()
		c.socket = socket.Path()
	}
	log.Info("kubecdc starts", "version", version, "api_server", cluster.host(), "from", cluster.from,
		"bus", busName(f, cfg.Bus), "server_address", listener.Addr().String(), "socket", c.socket)
	first.LogRedaction(log)

	c.server = "http://" + listener.Addr().String()
	// Records that go to the same terminal would be drawn over.
	if people && (!printsRecords(cfg) || !terminal.Detect(stdout, os.Getenv).Interactive) {
		c.guide = &guide{out: out, set: c.set, queue: c.queue}
	}
	server := admin.New(admin.Options{
		Registry: reg, Log: log, Build: build(), Checks: c.report.checks, AcquireLocks: c.report.acquireLocks, Informers: c.set, Stuck: c.stuck,
		Status: c.report.look, Profiles: cfg.Server.Pprof,
	})
	g, all := errgroup.WithContext(context.WithoutCancel(ctx))
	serving, stopServing := context.WithCancel(all)
	g.Go(func() error { return server.Run(serving, listener, socket) })
	g.Go(func() error {
		defer stopServing()
		capturing, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(all, stop)() // the server has failed
		if c.reload == nil {
			return c.run(capturing)
		}
		return agent.Beside(func(ctx context.Context) error {
			defer stop() // nothing is left to reload
			return c.run(ctx)
		}, c.reload.Run)(capturing)
	})
	return g.Wait()
}

// printsRecords tells that records go to standard output, from the agent or from a relay beside it.
func printsRecords(cfg *config.Config) bool {
	return cfg.Bus.Stdout() || slices.ContainsFunc(cfg.Relays, func(r config.Relay) bool {
		to, _ := r.To.Chosen()
		return to.Stdout
	})
}

// capture is the agent without its HTTP server, which is there before the API server is.
type capture struct {
	cfg     *config.Config
	flags   *runFlags
	cluster *cluster
	stdout  io.Writer
	log     *slog.Logger
	reg     *prometheus.Registry
	metrics *publish.Metrics
	filters *filter.Metrics
	queue   *queue.Queue[*object.Delta]
	set     *informers.Manager
	server  string           // URL of the HTTP server
	socket  string           // where it takes orders; "": nowhere
	guide   *guide           // nil: nobody looks on
	relays  *agent.RelayHost // nil: there are none
	report  *reporter
	reload  *reload.Reloader // nil: there is no file
	elector *leader.Elector  // nil: there is no election

	// Both are there before the set runs: the bus once the API server has told the cluster's uid, what is in memory once this agent leads.
	bus    atomic.Pointer[bus]
	memory *memory // nil: nothing is remembered from one run to the next

	dispatcher atomic.Pointer[publish.Dispatcher[*queue.Item[*object.Delta]]] // nil: this agent does not lead yet
}

// stuck is the dispatcher; nil: nothing is published.
func (c *capture) stuck() admin.StuckEvents {
	if d := c.dispatcher.Load(); d != nil {
		return d
	}
	return nil
}

// prepare makes the stages that need to know nothing of the cluster.
func (c *capture) prepare(first *reload.Loaded) error {
	c.queue = queue.New[*object.Delta](queue.Options{
		Events: c.cfg.Queue.Events, Bytes: int64(c.cfg.Queue.Bytes), InFlight: publish.InFlight,
		InFlightBytes: int64(c.cfg.Queue.InFlightBytes),
	}, c.reg)
	d, _ := c.cfg.Bus.Chosen()
	copies := max(d.Copies, 1)
	c.queue.WeighBy(func(d *object.Delta) int64 { return publish.Weigh(d, copies) })
	c.queue.AgeBy(func(d *object.Delta) time.Time { return time.Unix(0, d.Observed) })
	var err error
	if c.elector, err = c.newElector(); err != nil {
		return usageError{err}
	}
	o := informers.Options{
		Config: c.cluster.rest, Log: c.log, Registerer: c.reg, Ignore: ignored(c.flags, c.cfg, c.cluster),
		Lane: func(name string) store.Lane { return c.queue.Lane(name) }, ReleaseLane: c.queue.Release,
	}
	if remembers(c.cfg) {
		c.memory = &memory{}
		o.Memory = c.memory
	}
	o.Replaced = c.replaced
	if d.LastEvents {
		o.LastEvent = c.lastEvent
	}
	if lease, ok := c.leaseName(); ok {
		o.Ignore = append(o.Ignore, lease)
	}
	if err := agent.CheckNode(c.cfg, os.Getenv); err != nil {
		return usageError{err}
	}
	c.filters = filter.NewMetrics(c.reg)
	if c.set, err = agent.NewInformers(first, o, c.filters); err != nil {
		return usageError{err}
	}
	c.report = newReporter(c)
	return nil
}

// apply makes the informers continue with another configuration.
func (c *capture) apply(ctx context.Context, next *reload.Loaded) (reload.Scopes, error) {
	return agent.Apply(ctx, c.set, next, c.log, c.filters)
}

// standby reports whether another agent leads.
func (c *capture) standby() bool { return c.elector != nil && !c.elector.Status().Leading }

// known is the cluster for those who may have to find it first.
func (c *capture) known() (*cluster, error) { return c.cluster, nil }

// lastEvent asks the bus, which is there when the set runs.
func (c *capture) lastEvent(ctx context.Context, r *object.Resource) (scope.LastEvent, bool, error) {
	bus, ok := c.bus.Load().Bus.(driver.LastEventer)
	if !ok {
		return scope.LastEvent{}, false, errors.New("the bus cannot be asked for its last event")
	}
	h, ok, err := bus.LastStreamEvent(ctx, r)
	return scope.LastEvent(h), ok, err
}

// replaced asks the bus, which is there when the set runs.
func (c *capture) replaced(r *object.Resource, namespace string) (number uint64, since time.Time) {
	if logs := c.bus.Load().logs; logs != nil {
		return logs.Last(r, namespace)
	}
	return 0, time.Time{}
}

func (c *capture) busReady() error {
	if b := c.bus.Load(); b != nil {
		return b.Ready()
	}
	return errors.New("not connected to yet: the API server has to tell the cluster's uid first")
}

// run captures, once this agent leads, until ctx ends and the queue is drained.
func (c *capture) run(ctx context.Context) (err error) {
	uid, err := c.cluster.uid(ctx, c.set, c.log)
	if ctx.Err() != nil {
		c.log.Info("told to stop before the API server has answered, kubecdc ends")
		return nil
	}
	if err != nil {
		return err
	}
	id := &identity{cmp.Or(c.cfg.Cluster, uid), uid}
	c.report.identity.Store(id)
	var local *localbus.Bus
	if c.flags.embedded() {
		if local, err = startLocalBus(ctx, c.flags.dataDir, uid, c.server, c.cluster, c.log); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		defer func() {
			err = errors.Join(err, local.Close())
			c.log.Info("records are kept for the next run", "data_dir", local.Dir())
		}()
		if c.cfg.Bus, err = flagBus(local.URL(), c.cfg.Bus); err != nil {
			return err
		}
	}
	b, err := newBus(c.cfg, id.name, c.flags.embedded(), c.stdout, c.fence(), c.log, c.metrics)
	if err != nil {
		return usageError{err}
	}
	b.retiring = c.set.IsRetiring
	if local != nil {
		b.run = agent.Beside(b.run, local.Wait)
	}
	c.bus.Store(b)
	tracer, err := newTracer(c.cfg, id.name, id.uid, c.log, c.reg)
	if err != nil {
		return usageError{err}
	}
	if err := c.eligible(ctx, id, b); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return c.elect(ctx, func(ctx context.Context, epoch uint64) error {
		return c.lead(ctx, epoch, &station{id, local, b, tracer})
	})
}

// station is what lead needs, and what is made before: only who could lead stands by. Nothing of it is started.
type station struct {
	*identity
	local  *localbus.Bus // nil: the bus is not the agent's own. That alone runs: it has no election.
	bus    *bus
	tracer *trace.Tracer // nil: tracing is off
}

// lead is run for the agent that leads, or the only one there is: then epoch is 0.
func (c *capture) lead(ctx context.Context, epoch uint64, at *station) error {
	epoch, err := c.remember(ctx, at.identity, epoch)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	b := at.bus
	c.rememberLogs(b.logs)
	encoder := encode.New(encode.Options{
		Cluster: at.name, ClusterUID: at.uid, Mode: encode.Mode(c.cfg.Event.Mode), Before: c.cfg.Event.Before, Patch: c.cfg.Event.Patch,
		Epoch: epoch, SampleRatio: sampleRatio(&c.cfg.Tracing),
	})
	options := b.options(c.cfg)
	traced(b, &options, at.tracer)
	dispatcher := publish.NewDispatcher(c.queue, func(it *queue.Item[*object.Delta]) *object.Delta { return it.Value },
		encoder, b.Bus, options, c.log, c.metrics)
	c.dispatcher.Store(dispatcher)
	s := agent.Stages{
		Observe: c.set.Run, Waiting: c.queue.Len, Drained: c.queue.Drained, Finish: c.set.Finish, CloseQueue: c.queue.Close,
		Dispatch: dispatcher.Run, Remember: agent.UntilEnded, Bus: b.run,
	}
	if c.memory != nil {
		s.Remember = keep(c.memory.Keeper)
	}
	if c.guide != nil {
		hints := hintsFor(c.cfg, at.name, at.local, c.flags)
		s.Observe = agent.Beside(c.set.Run, func(ctx context.Context) error { c.guide.capturing(ctx, hints); return nil })
		s.Draining = c.guide.draining
	}
	return c.beside(ctx, at.name, func(ctx context.Context) error { return agent.RunStages(ctx, c.flags.grace, s, c.log) })
}

// beside runs the relays of the configuration while run runs. When ctx ends both end: relays need no queue to be drained, what
// they have not delivered is on the bus.
func (c *capture) beside(ctx context.Context, cluster string, run func(context.Context) error) error {
	if c.relays == nil {
		return run(ctx)
	}
	if printsRecords(c.cfg) {
		signal.Ignore(syscall.SIGPIPE) // a pipe that nobody reads any more must fail the relay, not end the agent
	}
	m := relay.NewMetrics(c.reg)
	relaying, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() error {
		c.relays.Run(relaying, c.fence(), func(r *config.Relay) (agent.Runner, error) {
			return newRelay(c.cfg, r, cluster, c.stdout, c.fence(), c.log, m)
		})
		return nil
	})
	g.Go(func() error {
		defer stop()
		return run(ctx)
	})
	return g.Wait()
}
