package bustest

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// NATS is a bus whose Run is under way.
type NATS struct {
	*nats.Bus
	Log         *LogBuffer
	Reg         *prometheus.Registry
	DeadLetters Publisher
	Ended       chan struct{} // closed when Run has returned Err
	Err         error
	Stop        func() // ends Run, and waits for it

	publisher Publisher
}

// NATSConfig is the configuration of a bus on the server at url.
func NATSConfig(url string) nats.Config {
	return nats.Config{
		URL: url, Env: driver.Env{Cluster: "prod-eu-1", MaxEventBytes: 900 << 10},
		Stream: natsconfig.Stream{Create: true},
	}
}

// RunNATS runs a bus until the test ends.
func RunNATS(tb testing.TB, cfg nats.Config, prepare ...func(*nats.Bus)) *NATS {
	tb.Helper()
	r := &NATS{Log: new(LogBuffer), Reg: prometheus.NewPedanticRegistry(), Ended: make(chan struct{})}
	var err error
	r.Bus, err = nats.New(cfg, r.Log.Logger(), publish.NewMetrics(r.Reg))
	if err != nil {
		tb.Fatal(err)
	}
	r.publisher, r.DeadLetters = Await(r.Bus, false), Await(r.Bus, true)
	for _, f := range prepare {
		f(r.Bus)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(r.Ended)
		r.Err = r.Run(ctx)
	}()
	r.Stop = func() { cancel(); <-r.Ended }
	tb.Cleanup(func() {
		r.Stop()
		if tb.Failed() {
			tb.Logf("log of the bus:\n%s", r.Log)
		}
	})
	return r
}

// Publish publishes an event, and waits for its end.
func (r *NATS) Publish(ctx context.Context, ev *encode.Event) error {
	return r.publisher.Publish(ctx, ev)
}

// Metric is the function of that name for the metrics of the bus.
func (r *NATS) Metric(tb testing.TB, name, label string) float64 {
	tb.Helper()
	return Metric(tb, r.Reg, name, label)
}
