package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/trace"
)

// newTracer makes what sends spans; nil: tracing is off.
func newTracer(cfg *config.Config, cluster, clusterUID string, log *slog.Logger, reg prometheus.Registerer) (*trace.Tracer, error) {
	c := &cfg.Tracing
	if !c.Enabled {
		return nil, nil
	}
	o := trace.Config{
		Endpoint: c.Endpoint, HeadersFile: c.HeadersFile, Insecure: c.Insecure, TLS: c.TLS,
		Version: version, Cluster: cluster, ClusterUID: clusterUID,
	}
	o.Instance, _ = os.Hostname() // in a pod its name
	_, settings := cfg.Bus.Chosen()
	bus := settings.Summary()
	if o.Destination = cmp.Or(bus.Stream, bus.Topic); o.Destination != "" {
		o.System = bus.Kind
	}
	t, err := trace.New(o, log, reg)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	return t, nil
}

// sampleRatio is the part of events that is traced.
func sampleRatio(c *config.Tracing) float64 {
	if !c.Enabled {
		return 0
	}
	return float64(c.SampleRatio)
}

// traced has events traced by t, and b's run send the spans: until all is drained.
func traced(b *bus, o *publish.Options, t *trace.Tracer) {
	if t != nil {
		o.Tracer, b.run = t, agent.Beside(b.run, t.Run)
	}
}
