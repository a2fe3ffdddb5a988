package agent

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/internal/admin"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// RelayProcess is a process that runs relays without an agent.
type RelayProcess struct {
	Serve  bool // metrics and probes, at the server.address of the configuration
	Build  admin.Build
	Stdout io.Writer
	Stderr io.Writer // for the log
}

// RunRelays runs the relays of a configuration until ctx ends. If there is only one, it also ends
// when that relay fails.
func RunRelays(ctx context.Context, cfg *config.Config, p *RelayProcess) error {
	out := terminal.Detect(p.Stderr, os.Getenv)
	out.Writer = terminal.NewLogWriter(ctx, out.Writer)
	log, _ := NewLogger(cfg.Log, cfg.Log.Level.Slog(), out)
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := relay.NewMetrics(reg)
	open := func(r *config.Relay) (Runner, error) {
		return NewRelay(cfg, r, cfg.Cluster, p.Stdout, nil, log, metrics)
	}
	var only Runner
	for i := range cfg.Relays { // report invalid settings before the first relay starts
		var err error
		only, err = open(&cfg.Relays[i])
		if err != nil {
			return ConfigError{err}
		}
	}
	if !p.Serve {
		return only.Run(ctx)
	}
	host := NewRelayHost(cfg.Relays, log)
	probes := host.Probes()
	if len(cfg.Relays) == 1 {
		probes[0].Ready = only.Ready
	}
	run := func(ctx context.Context) error {
		if len(cfg.Relays) == 1 {
			return only.Run(ctx)
		}
		host.Run(ctx, nil, open) // a relay that fails must not end the others
		return nil
	}
	listener, err := listen(ctx, cfg.Server.Address, true)
	if err != nil {
		return err
	}
	defer listener.Close()
	log.Info("kubecdc relays", "version", p.Build.Version, "relays", len(cfg.Relays), "server_address",
		listener.Addr().String())
	g, all := errgroup.WithContext(context.WithoutCancel(ctx))
	serving, stopServing := context.WithCancel(all)
	g.Go(func() error { return newRelayServer(reg, log, p.Build, probes).Run(serving, listener, nil) })
	g.Go(func() error {
		defer stopServing()
		relaying, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(all, stop)() // the server has failed
		return run(relaying)
	})
	return g.Wait()
}

// newRelayServer serves /metrics, /healthz and /readyz of a process with only relays: it is ready
// if all relays are.
func newRelayServer(reg *prometheus.Registry, log *slog.Logger, build admin.Build, probes []admin.Probe) *admin.Server {
	for i := range probes {
		probes[i].Aside = false
	}
	return admin.New(admin.Options{
		Registry: reg,
		Log:      log,
		Build:    build,
		Checks:   admin.NewChecks(nil, probes...),
	})
}
