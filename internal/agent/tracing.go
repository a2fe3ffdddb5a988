package agent

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/trace"
)

// newTracer returns the sender of spans, nil if tracing is off.
func newTracer(
	cfg *config.Config, id *identity, version string, log *slog.Logger, reg prometheus.Registerer,
) (*trace.Tracer, error) {
	c := &cfg.Tracing
	if !c.Enabled {
		return nil, nil
	}
	o := trace.Config{
		Endpoint:    c.Endpoint,
		HeadersFile: c.HeadersFile,
		Insecure:    c.Insecure,
		TLS:         c.TLS,
		Version:     version,
		Cluster:     id.name,
		ClusterUID:  id.uid,
	}
	o.Instance, _ = os.Hostname() // the name of the pod, if there is one
	_, settings := cfg.Bus.Chosen()
	bus := settings.Summary()
	o.Destination = cmp.Or(bus.Stream, bus.Topic)
	if o.Destination != "" {
		o.System = bus.Kind
	}
	t, err := trace.New(o, log, reg)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	return t, nil
}

// sampleRatio returns the fraction of events that is traced.
func sampleRatio(c *config.Tracing) float64 {
	if !c.Enabled {
		return 0
	}
	return float64(c.SampleRatio)
}
