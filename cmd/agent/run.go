package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/queue"
)

// maxEventBytes is the largest event that stream and server must take.
const maxEventBytes = 900 << 10

// errGrace ends a drain that takes too long.
var errGrace = errors.New("the grace period is over")

type runFlags struct {
	config, kubeconfig, context, bus string
	grace                            time.Duration
}

func newRunCommand(stdout, stderr io.Writer) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run the agent",
		Long: "Run the agent: capture the changes of the resources that the configuration names and publish them.\n" +
			"SIGTERM and Ctrl-C end the watches and drain the queue within --grace.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAgent(cmd.Context(), &f, stdout, stderr) },
	}
	cmd.Flags().StringVar(&f.config, "config", "", "configuration `file` (required)")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file`; default: $KUBECONFIG, in-cluster, ~/.kube/config")
	cmd.Flags().StringVar(&f.context, "context", "", "`name` of the kubeconfig's context")
	cmd.Flags().StringVar(&f.bus, "bus", "", "`URL` of the bus instead of the configured one: nats://host:port or stdout:")
	cmd.Flags().DurationVar(&f.grace, "grace", 20*time.Second, "how long a shutdown may drain")
	return cmd
}

// isCobraUsage tells cobra's own errors about unknown commands and arguments, which have no type.
func isCobraUsage(err error) bool {
	return strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "required flag")
}

// loadConfig reads the file and lays the flags over it.
func loadConfig(f *runFlags) (*config.Config, error) {
	if f.config == "" {
		return nil, usageError{errors.New("--config FILE is required")}
	}
	cfg, err := config.Load(f.config)
	var invalid config.Errors
	if err != nil && !errors.As(err, &invalid) {
		err = usageError{err} // the file cannot be read
	}
	if err != nil || f.bus == "" {
		return cfg, err
	}
	scheme, _, _ := strings.Cut(f.bus, ":") // several servers of one cluster, separated by commas, are no URL
	switch scheme {
	case "nats", "tls":
		if cfg.Bus.NATS == nil {
			cfg.Bus = config.Default().Bus
		}
		cfg.Bus.NATS.URL, cfg.Bus.Stdout = f.bus, nil
	case "stdout":
		cfg.Bus = config.Bus{Stdout: &config.Stdout{}}
	default:
		return nil, usageError{errors.New("--bus: not yet supported: anything but nats://host:port (several separated by commas) or stdout")}
	}
	return cfg, cfg.Validate()
}

func restConfig(f *runFlags) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server (--kubeconfig, $KUBECONFIG, in-cluster or ~/.kube/config): %w", err)
	}
	c.UserAgent = "kubecdc/" + version
	return c, nil
}

func newLogger(c config.Log, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Level.Slog()}
	if c.Format == config.LogText {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// bus is a publisher and what else the agent needs of it.
type bus struct {
	publish.Publisher
	run   func(context.Context) error // keeps the connection until its context ends
	ready func() error
}

func newBus(cfg *config.Config, cluster string, stdout io.Writer, log *slog.Logger, m *publish.Metrics) (*bus, error) {
	if cfg.Bus.Stdout != nil {
		return &bus{
			Publisher: publish.NewStdout(stdout),
			run: func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			},
			ready: func() error { return nil },
		}, nil
	}
	c := cfg.Bus.NATS
	n, err := publish.NewNATS(publish.NATSConfig{
		URL: c.URL, Cluster: cluster, Subject: c.Subject, MaxEventBytes: maxEventBytes,
		Stream: publish.Stream{
			Name: c.Stream.Name, Create: c.Stream.Create, Replicas: c.Stream.Replicas, MaxAge: c.Stream.MaxAge.Duration,
			MaxBytes: int64(c.Stream.MaxBytes), DiscardOld: c.Stream.Discard == config.DiscardOld,
			DuplicateWindow: c.Stream.DuplicateWindow.Duration,
		},
	}, log, m)
	if err != nil {
		return nil, fmt.Errorf("bus.nats: %w", err)
	}
	return &bus{Publisher: n, run: n.Run, ready: n.Ready}, nil
}

// newSet makes the informers of the configuration's rules.
func newSet(cfg *config.Config, rc *rest.Config, q *queue.Queue[*object.Delta], log *slog.Logger, reg prometheus.Registerer) (*informers.Set, error) {
	o := informers.Options{
		Config: rc, Strip: cfg.Strip, Snapshot: informers.SnapshotMode(cfg.Snapshot.Mode), Log: log, Registerer: reg,
		Lane: func(name string) informers.Lane { return q.Lane(name) },
	}
	for _, r := range cfg.Watch {
		rule := informers.Rule{
			Namespaces: r.Namespaces.Match, AllNamespaces: r.Namespaces.Match(""),
			LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector,
		}
		for _, p := range r.Resources {
			rule.Resources = append(rule.Resources, p)
		}
		for _, p := range r.Except {
			rule.Except = append(rule.Except, p)
		}
		if names, ok := r.Namespaces.Literal(); ok {
			rule.Names = names
		} else if !r.Namespaces.All() {
			for _, p := range r.Namespaces {
				rule.Patterns = append(rule.Patterns, string(p))
			}
		}
		o.Rules = append(o.Rules, rule)
	}
	return informers.New(o)
}

// redacted is a URL without the password that a kubeconfig may have in it.
func redacted(host string) string {
	if u, err := url.Parse(host); err == nil {
		return u.Redacted()
	}
	return "(not a URL)"
}

// runAgent wires the stages and runs them until ctx ends and the queue is drained, or one of them fails for good.
func runAgent(ctx context.Context, f *runFlags, stdout, stderr io.Writer) error {
	cfg, err := loadConfig(f)
	if err != nil {
		return err
	}
	rc, err := restConfig(f)
	if err != nil {
		return err
	}
	log := newLogger(cfg.Log, stderr)
	klog.SetSlogLogger(log)
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	q := queue.New[*object.Delta](queue.Options{Events: cfg.Queue.Events, Bytes: int64(cfg.Queue.Bytes)}, reg)
	set, err := newSet(cfg, rc, q, log, reg)
	if err != nil {
		return usageError{err}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Server.Address)
	if err != nil {
		return fmt.Errorf("server.address: %w", err)
	}
	defer listener.Close()
	log.Info("kubecdc starts", "version", version, "api_server", redacted(rc.Host), "server_address", listener.Addr().String())

	c := &capture{
		cfg: cfg, grace: f.grace, stdout: stdout, log: log, reg: reg, metrics: publish.NewMetrics(reg), queue: q, set: set,
	}
	server := newServer(reg, set, probe{"informers", set.Ready}, probe{"bus", c.busReady})
	g, all := errgroup.WithContext(context.WithoutCancel(ctx))
	serving, stopServing := context.WithCancel(all)
	g.Go(func() error { return serve(serving, server, listener) })
	g.Go(func() error {
		defer stopServing()
		capturing, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(all, stop)() // the server has failed
		return c.run(capturing)
	})
	return g.Wait()
}

// capture is the agent without its HTTP server, which is there before the API server is.
type capture struct {
	cfg     *config.Config
	grace   time.Duration
	stdout  io.Writer
	log     *slog.Logger
	reg     *prometheus.Registry
	metrics *publish.Metrics
	queue   *queue.Queue[*object.Delta]
	set     *informers.Set

	bus atomic.Pointer[bus] // nil until the API server has told the cluster's uid
}

func (c *capture) busReady() error {
	if b := c.bus.Load(); b != nil {
		return b.ready()
	}
	return errors.New("not connected to yet: the API server has to tell the cluster's uid first")
}

// run captures until ctx ends and the queue is drained.
func (c *capture) run(ctx context.Context) error {
	uid, err := c.set.ClusterUID(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before there was anything to drain
		}
		return err
	}
	cluster := c.cfg.Cluster
	if cluster == "" {
		cluster = uid
	}
	b, err := newBus(c.cfg, cluster, c.stdout, c.log, c.metrics)
	if err != nil {
		return usageError{err}
	}
	c.bus.Store(b)
	encoder := encode.New(encode.Options{
		Cluster: cluster, ClusterUID: uid, Mode: encode.Mode(c.cfg.Event.Mode), Before: c.cfg.Event.Before, Patch: c.cfg.Event.Patch,
	})
	pump := publish.NewPump(c.queue, func(it *queue.Item[*object.Delta]) *object.Delta { return it.Value },
		encoder, b, publish.DefaultWorkers, c.log, c.metrics)
	return runStages(ctx, c.grace, stages{observe: c.set.Run, closeQueue: c.queue.Close, pump: pump.Run, bus: b.run}, c.log)
}

// stages are what runs at a time, in the order in which a delta passes them.
type stages struct {
	observe    func(context.Context) error
	closeQueue func()
	pump       func(context.Context) error // ends when the queue is closed and empty
	bus        func(context.Context) error
}

// runStages runs until ctx ends; then it ends the stages one after the other: the watches, the queue once it is drained
// or grace is over, the connection to the bus. A stage that fails ends all of them.
func runStages(ctx context.Context, grace time.Duration, s stages, log *slog.Logger) error {
	g, all := errgroup.WithContext(context.WithoutCancel(ctx))
	observing, stopObserving := context.WithCancel(all)
	defer stopObserving()
	defer context.AfterFunc(ctx, stopObserving)()
	pumping, stopPumping := context.WithCancelCause(all)
	defer stopPumping(nil)
	connected, disconnect := context.WithCancel(all)
	defer disconnect()

	g.Go(func() error {
		err := s.observe(observing)
		log.Info("watches ended, draining the queue", "grace", grace)
		s.closeQueue()
		over := time.AfterFunc(grace, func() { stopPumping(errGrace) })
		defer over.Stop()
		<-connected.Done() // drained, or failed
		return err
	})
	g.Go(func() error {
		defer disconnect()
		return s.pump(pumping)
	})
	g.Go(func() error { return s.bus(connected) })
	err := g.Wait()
	if err == nil {
		log.Info("drained, kubecdc ends")
	}
	return err
}
