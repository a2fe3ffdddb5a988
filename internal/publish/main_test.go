package publish_test

import (
	"context"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/publishtest"
)

func TestMain(m *testing.M) {
	publish.TakeForRemote()
	os.Exit(publishtest.Main(m))
}

type (
	logBuffer = publishtest.LogBuffer
	direction = publishtest.Direction
)

const (
	toServer = publishtest.ToServer
	toClient = publishtest.ToClient
)

var (
	startServer = publishtest.StartServer
	stop        = publishtest.StopServer
	portOf      = publishtest.PortOf
	admin       = publishtest.Admin
	records     = publishtest.Records
	startProxy  = publishtest.StartProxy
	wait        = publishtest.Wait
	event       = publishtest.Event
	lines       = publishtest.Lines
	pods        = publishtest.Pods
	discard     = publishtest.Discard
)

// running is a NATS publisher whose Run is under way.
type running struct {
	*publish.NATS
	log  *logBuffer
	reg  *prometheus.Registry
	done chan struct{} // closed when Run has returned err
	err  error
	stop func()
}

// bus is the publisher as a Bus.
func (r *running) bus() publish.Bus { return publish.Blocking(r, nil, nil) }

func testConfig(url string) publish.NATSConfig {
	return publish.NATSConfig{
		URL: url, Cluster: "prod-eu-1", MaxEventBytes: 900 << 10, Stream: publish.Stream{Create: true},
	}
}

func run(tb testing.TB, cfg publish.NATSConfig) *running {
	tb.Helper()
	r := &running{log: new(logBuffer), reg: prometheus.NewPedanticRegistry(), done: make(chan struct{})}
	n, err := publish.NewNATS(cfg, r.log.Logger(), publish.NewMetrics(r.reg))
	if err != nil {
		tb.Fatal(err)
	}
	r.NATS = n
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(r.done)
		r.err = n.Run(ctx)
	}()
	r.stop = func() { cancel(); <-r.done }
	tb.Cleanup(func() {
		r.stop()
		if tb.Failed() {
			tb.Logf("log of the publisher:\n%s", r.log)
		}
	})
	return r
}

func (r *running) metric(tb testing.TB, name, label string) float64 {
	tb.Helper()
	return publishtest.Metric(tb, r.reg, name, label)
}
