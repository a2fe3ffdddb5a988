package agent

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
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/agent/reload"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/localbus"
	"github.com/kubecdc/kubecdc/internal/clock"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/leader"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// Run runs an agent until ctx ends and the queue is drained, or a stage fails permanently. The bus
// stdout writes its records to stdout; the log goes to stderr.
func Run(ctx context.Context, o *Options, stdout, stderr io.Writer) error {
	first, err := o.load()
	if err != nil {
		return err
	}
	cfg := first.Config
	cluster, err := o.FindCluster()
	if err != nil {
		return err
	}
	out := terminal.Detect(stderr, os.Getenv)
	out.Writer = terminal.NewLogWriter(ctx, out.Writer)
	level := new(slog.LevelVar)
	level.Set(cfg.Log.Level.Slog())
	log, people := NewLogger(cfg.Log, level, out)
	klog.SetSlogLogger(log)
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a := &agent{
		cfg:     cfg,
		options: o,
		cluster: cluster,
		stdout:  stdout,
		log:     log,
		reg:     reg,
		metrics: publish.NewMetrics(reg),
		relays:  NewRelayHost(cfg.Relays, log),
	}
	a.clock = NewClock(log, reg, func(i clock.Interruption) {
		if a.informers != nil { // otherwise nothing is observed yet
			a.informers.Interrupt(i.From, reasonOf(i.Why))
		}
	})
	if o.Config != "" {
		hup := make(chan os.Signal, 1) // if full, a reload is already pending
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		a.reload = reload.New(reload.Options{
			File:       o.Config,
			First:      first,
			Parse:      o.parse,
			Apply:      a.apply,
			Unapplied:  a.unapplied,
			Standby:    a.isStandby,
			HUP:        hup,
			Log:        log,
			Level:      level,
			Registerer: reg,
		})
	}
	a.offset = NewOffset(a.clock, log, reg)
	if err := a.prepare(first); err != nil {
		return err
	}
	listener, err := listen(ctx, cfg.Server.Address, o.Config != "")
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
		a.socket = socket.Path()
	}
	log.Info("kubecdc starts", "version", o.Build.Version, "api_server", cluster.Host(), "from", cluster.From,
		"bus", busName(o, cfg.Bus), "server_address", listener.Addr().String(), "socket", a.socket)
	first.LogRedaction(log)

	a.server = "http://" + listener.Addr().String()
	// The redrawn lines would overwrite records on the same terminal.
	if people && (!printsRecords(cfg) || !terminal.Detect(stdout, os.Getenv).Interactive) {
		a.startup = &startupUI{out: out, informers: a.informers, queue: a.queue}
	}
	server := admin.New(admin.Options{
		Registry:     reg,
		Log:          log,
		Build:        o.Build,
		Checks:       a.report.checks,
		AcquireLocks: a.report.acquireLocks,
		Informers:    a.informers,
		Stuck:        a.stuckEvents,
		Status:       a.report.status,
		Profiles:     cfg.Server.Pprof,
	})
	g, all := errgroup.WithContext(context.WithoutCancel(ctx))
	serving, stopServing := context.WithCancel(all)
	g.Go(func() error { return server.Run(serving, listener, socket) })
	g.Go(func() error {
		a.clock.Run(serving)
		return nil
	})
	g.Go(func() error {
		cluster.NoteVersion(serving, log)
		return nil
	})
	g.Go(func() error {
		defer stopServing()
		capturing, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(all, stop)() // the server has failed
		if a.reload == nil {
			return a.run(capturing)
		}
		return Beside(func(ctx context.Context) error {
			defer stop() // nothing is left to reload
			return a.run(ctx)
		}, a.reload.Run)(capturing)
	})
	return g.Wait()
}

// openSocket opens the command socket. Without one the agent captures all the same, unless
// $KUBECDC_SOCKET names it.
func openSocket(ctx context.Context, log *slog.Logger) (*admin.Socket, error) {
	if path := os.Getenv(admin.SocketVariable); path != "" {
		s, err := admin.OpenSocket(ctx, path)
		if err != nil {
			return nil, ConfigError{fmt.Errorf("%s: %s: %w", admin.SocketVariable, path, err)}
		}
		return s, nil
	}
	s, err := admin.OpenDefaultSocket(ctx, os.Getenv)
	if err != nil {
		log.Warn("no socket for commands: kubecdc snapshot and profiles do not work with this agent", "err", err,
			"advice", "set "+admin.SocketVariable+" to a path that the agent may write")
		return nil, nil //nolint:nilnil // there is none
	}
	return s, nil
}

// printsRecords reports whether the agent or one of its relays writes records to standard output.
func printsRecords(cfg *config.Config) bool {
	return cfg.Bus.Stdout() || slices.ContainsFunc(cfg.Relays, func(r config.Relay) bool {
		to, _ := r.To.Chosen()
		return to.Stdout
	})
}

// agent is an agent without its HTTP server. The server runs before the API server has answered.
type agent struct {
	cfg       *config.Config
	options   *Options
	cluster   *Cluster
	stdout    io.Writer
	log       *slog.Logger
	reg       *prometheus.Registry
	metrics   *publish.Metrics
	filters   *filter.Metrics
	queue     *queue.Queue[*object.Delta]
	informers *informers.Manager
	server    string     // URL of the HTTP server
	socket    string     // path of the command socket; "" without one
	startup   *startupUI // nil without a terminal
	relays    *RelayHost // nil without relays
	report    *reporter
	clock     *clock.Clock
	offset    *apiserver.Offset // of clock to the API server's
	reload    *reload.Reloader  // nil without a file
	elector   *leader.Elector   // nil without an election
	keeper    *deferredKeeper   // nil without a checkpoint
	writer    writer            // set before the informers run

	// nil until the uid of the cluster is known
	bus        atomic.Pointer[bus]
	dispatcher atomic.Pointer[publish.Dispatcher[*queue.Item[*object.Delta]]] // nil until this agent leads
}

// stuckEvents returns the dispatcher, nil while nothing is published.
func (a *agent) stuckEvents() admin.StuckEvents {
	if d := a.dispatcher.Load(); d != nil {
		return d
	}
	return nil
}

// prepare creates the stages that do not depend on the cluster.
func (a *agent) prepare(first *reload.Loaded) error {
	a.queue = queue.New[*object.Delta](queue.Options{
		Events:        a.cfg.Queue.Events,
		Bytes:         int64(a.cfg.Queue.Bytes),
		InFlight:      publish.InFlight,
		InFlightBytes: int64(a.cfg.Queue.InFlightBytes),
	}, a.reg)
	d, _ := a.cfg.Bus.Chosen()
	copies := max(d.Copies, 1)
	a.queue.WeighBy(func(d *object.Delta) int64 { return publish.Weigh(d, copies) })
	a.queue.AgeBy(func(d *object.Delta) time.Time { return time.Unix(0, d.Observed) })
	var err error
	a.elector, err = a.newElector()
	if err != nil {
		return ConfigError{err}
	}
	compared := rest.CopyConfig(a.cluster.REST)
	compared.Wrap(a.offset.Wrap)
	o := informers.Options{
		Config:      compared,
		Log:         a.log,
		Now:         a.clock.Now,
		Registerer:  a.reg,
		Ignore:      ignored(a.options, a.cfg, a.cluster),
		Replaced:    a.lastReplacement,
		Lane:        func(name string) store.Lane { return a.queue.Lane(name) },
		ReleaseLane: a.queue.Release,
	}
	if KeepsCheckpoint(a.cfg) {
		a.keeper = &deferredKeeper{}
		o.Memory = a.keeper
	}
	if d.LastEvents {
		o.LastEvent = a.lastEvent
	}
	if d.LastProgress && a.keeper != nil { // without a checkpoint, each start begins from scratch
		o.LastProgress = a.lastProgress
		o.StartedScopes = a.startedScopes
	}
	o.ReportBytes = a.reportBytes
	if lease, ok := a.leaseName(); ok {
		o.Ignore = append(o.Ignore, lease)
	}
	if err := CheckNode(a.cfg, os.Getenv); err != nil {
		return ConfigError{err}
	}
	a.filters = filter.NewMetrics(a.reg)
	a.informers, err = NewInformers(first, o, a.filters)
	if err != nil {
		return ConfigError{err}
	}
	a.report = newReporter(a)
	return nil
}

// apply switches the informers to another configuration.
func (a *agent) apply(ctx context.Context, next *reload.Loaded) (reload.Scopes, error) {
	return Apply(ctx, a.informers, next, a.log, a.filters)
}

// unapplied names the scopes to which the configuration in force does not apply yet, and returns
// since when the first of them waits.
func (a *agent) unapplied() (scopes string, since time.Time) {
	all, since := a.informers.Unapplied()
	return informer.Few(all), since
}

// isStandby reports whether another agent leads.
func (a *agent) isStandby() bool { return a.elector != nil && !a.elector.Status().Leading }

// lastEvent returns the last stream event on the bus, with the newest event of an object. The bus
// is set before the informers run.
func (a *agent) lastEvent(ctx context.Context, r *object.Resource) (informer.LastEvent, bool, error) {
	bus, ok := a.bus.Load().Bus.(driver.LastEventer)
	if !ok {
		return informer.LastEvent{}, false, errors.New("the bus cannot report its last event")
	}
	e, ok, err := bus.LastStreamEvent(ctx, r)
	if !ok || err != nil {
		return informer.LastEvent{}, false, err
	}
	out := informer.LastEvent{
		Scope:           e.Scope,
		ResourceVersion: e.ResourceVersion,
		History:         e.History,
		At:              e.At,
	}
	o, ok, err := bus.LastObjectEvent(ctx, r)
	if ok {
		last := informer.LastObject(o)
		out.Object = &last
	}
	return out, true, err
}

// lastProgress returns what the last run of this agent has said of its scopes on the bus. The bus
// and the writer are set before the informers run.
func (a *agent) lastProgress(ctx context.Context) ([]informer.PreviousScope, error) {
	bus, ok := a.bus.Load().Bus.(driver.LastProgresser)
	if !ok {
		return nil, errors.New("the bus cannot report the last progress")
	}
	p, ok, err := bus.LastProgress(ctx, a.writer.name)
	if !ok || err != nil {
		return nil, err
	}
	var all []informer.PreviousScope
	for _, s := range p.Scopes {
		all = append(all, informer.PreviousScope{
			Resource:        s.Resource,
			Scope:           s.Scope,
			Count:           s.Count,
			ResourceVersion: s.ResourceVersion,
			History:         s.History,
			To:              s.To,
			Run:             p.Run,
		})
	}
	a.log.Debug("the last progress on the bus", "writer", a.writer.name, "run", p.Run, "time", p.Time, "ended", p.Ends,
		"entries", len(all))
	return all, nil
}

// startedScopes returns the scopes of a resource that a run of this agent has started and not
// ended, as the bus has them; none if the bus cannot be asked. The bus and the writer are set
// before the informers run.
func (a *agent) startedScopes(
	ctx context.Context, r *object.Resource, run string,
) (all []informer.StartedScope, err error) {
	bus, ok := a.bus.Load().Bus.(driver.ScopeLister)
	if !ok {
		return nil, nil
	}
	found, err := bus.StartedScopes(ctx, r, a.writer.name, run)
	for _, s := range found {
		all = append(all, informer.StartedScope(s))
	}
	return all, err
}

// reportBytes returns the limit of a progress event: half of what the bus accepts, so that no
// progress is refused. 0: not known.
func (a *agent) reportBytes() int {
	bus, ok := a.bus.Load().Bus.(driver.Limiter)
	limit := 0
	if ok {
		limit = bus.MaxEventBytes()
	}
	if most := int(a.cfg.Event.MaxBytes); most > 0 && (limit == 0 || most < limit) {
		limit = most
	}
	return limit / 2
}

// lastReplacement returns the last replacement of a log of the bus. The bus is set before the
// informers run.
func (a *agent) lastReplacement(r *object.Resource, namespace string) (number uint64, since time.Time) {
	if logs := a.bus.Load().logs; logs != nil {
		return logs.Last(r, namespace)
	}
	return 0, time.Time{}
}

func (a *agent) checkBus() error {
	if b := a.bus.Load(); b != nil {
		return b.Ready()
	}
	return errors.New("not connected yet: waiting for the cluster's uid from the API server")
}

// run waits until this agent leads, and captures until ctx ends and the queue is drained.
func (a *agent) run(ctx context.Context) (err error) {
	uid, err := a.cluster.UID(ctx, a.informers, a.log)
	if ctx.Err() != nil {
		a.log.Info("stopped before the API server responded")
		return nil
	}
	if err != nil {
		return err
	}
	id := &identity{cmp.Or(a.cfg.Cluster, uid), uid}
	a.report.identity.Store(id)
	var local *localbus.Bus
	if a.options.IsEmbedded() {
		local, err = startLocalBus(ctx, a.options.DataDir, uid, a.server, a.cluster.url(), a.log)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		defer func() {
			err = errors.Join(err, local.Close())
			a.log.Info("records are kept for the next run", "data_dir", local.Dir())
		}()
		a.cfg.Bus, err = busOfLocal(local, a.cfg.Bus)
		if err != nil {
			return err
		}
	}
	b, err := newBus(a.cfg, id.name, local != nil, a.stdout, a.fence(), a.log, a.metrics)
	if err != nil {
		return ConfigError{err}
	}
	b.retiring = a.informers.IsRetiring
	if local != nil {
		b.run = Beside(b.run, local.Wait)
	}
	b.tracer, err = newTracer(a.cfg, id, a.options.Build.Version, a.log, a.reg)
	if err != nil {
		return ConfigError{err}
	}
	if b.tracer != nil {
		b.run = Beside(b.run, b.tracer.Run)
	}
	a.bus.Store(b)
	if err := a.preflight(ctx, id, b); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	hints := hintsFor(a.cfg, id.name, local, a.options)
	return a.elect(ctx, func(ctx context.Context, epoch uint64) error { return a.lead(ctx, epoch, id, b, hints) })
}

// lead runs the stages and the relays. epoch is that of the election, 0 without one.
func (a *agent) lead(ctx context.Context, epoch uint64, id *identity, b *bus, hints []driver.Hint) error {
	epoch, err := a.loadCheckpoint(ctx, id, epoch)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	a.writer, err = a.findWriter(id)
	if err != nil {
		return err
	}
	a.trackLogs(b.logs)
	encoder := encode.New(encode.Options{
		Cluster:     id.name,
		ClusterUID:  id.uid,
		Mode:        encode.Mode(a.cfg.Event.Mode),
		Before:      a.cfg.Event.Before,
		Patch:       a.cfg.Event.Patch,
		Epoch:       epoch,
		Writer:      a.writer.name,
		Checkpoint:  a.writer.checkpoint,
		Node:        a.writer.node,
		Run:         runOf(epoch, a.clock.Now()),
		SampleRatio: sampleRatio(&a.cfg.Tracing),
	})
	dispatcher := publish.NewDispatcher(a.queue, func(it *queue.Item[*object.Delta]) *object.Delta { return it.Value },
		encoder, b.Bus, b.options(a.cfg), a.log, a.metrics)
	a.dispatcher.Store(dispatcher)
	s := Stages{
		Observe:    a.informers.Run,
		Waiting:    a.queue.Len,
		Drained:    a.queue.Drained,
		Finish:     a.informers.Finish,
		CloseQueue: a.queue.Close,
		Dispatch:   dispatcher.Run,
		Save:       UntilEnded,
		Bus:        b.run,
	}
	if a.keeper != nil {
		s.Save = saveCheckpoint(a.keeper.Keeper)
	}
	if a.startup != nil {
		s.Observe = Beside(a.informers.Run, func(ctx context.Context) error {
			a.startup.showCapture(ctx, hints)
			return nil
		})
		s.Draining = a.startup.showDrain
	}
	return a.runRelays(ctx, id.name, func(ctx context.Context) error {
		return RunStages(ctx, a.options.Grace, s, a.log)
	})
}

// runRelays runs the relays of the configuration concurrently with run. When ctx ends, the relays
// end without a drain, because the bus still has the records that they have not delivered.
func (a *agent) runRelays(ctx context.Context, cluster string, run func(context.Context) error) error {
	if a.relays == nil {
		return run(ctx)
	}
	if printsRecords(a.cfg) {
		signal.Ignore(syscall.SIGPIPE) // a closed pipe must fail the relay, not end the agent
	}
	m := relay.NewMetrics(a.reg)
	relaying, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() error {
		a.relays.Run(relaying, a.fence(), func(r *config.Relay) (Runner, error) {
			return NewRelay(a.cfg, r, cluster, a.stdout, a.fence(), a.log, m)
		})
		return nil
	})
	g.Go(func() error {
		defer stop()
		return run(ctx)
	})
	return g.Wait()
}
