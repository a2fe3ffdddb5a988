package http_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

type logBuffer = bustest.LogBuffer

var (
	wait    = bustest.Wait
	event   = bustest.Event
	lines   = bustest.Lines
	pods    = bustest.Pods
	discard = bustest.Discard
)

// running is a bus whose Run is under way. Its Publisher waits for what becomes of an event, and
// publishes those again that are handed back.
type running struct {
	bustest.Publisher
	dead bustest.Publisher
	bus  *publishhttp.Bus
	log  *logBuffer
	reg  *prometheus.Registry
	stop func()
}

func run(tb testing.TB, cfg publishhttp.Config) *running {
	tb.Helper()
	r := &running{log: new(logBuffer), reg: prometheus.NewPedanticRegistry()}
	var err error
	r.bus, err = publishhttp.New(cfg, r.log.Logger(), publish.NewMetrics(r.reg))
	if err != nil {
		tb.Fatal(err)
	}
	r.Publisher, r.dead = bustest.Await(r.bus, false), bustest.Await(r.bus, true)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.bus.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(func() {
		r.stop()
		if tb.Failed() {
			tb.Logf("log of the bus:\n%s", r.log)
		}
	})
	return r
}

func (r *running) metric(tb testing.TB, name, label string) float64 {
	tb.Helper()
	return bustest.Metric(tb, r.reg, name, label)
}

// once publishes an event, and returns how it ends.
func (r *running) once(ev *encode.Event, alone bool) <-chan error {
	done := make(chan error, 2) // a second one would be an error of the bus, and shows
	e := publish.NewEvent(ev, func(err error) { done <- err }, nil)
	e.Alone = alone
	r.bus.Publish(e)
	return done
}

// serve starts a receiver.
func serve(tb testing.TB, handler http.HandlerFunc) string {
	tb.Helper()
	s := httptest.NewServer(handler)
	tb.Cleanup(s.Close)
	return s.URL
}
