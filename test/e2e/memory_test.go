package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/bench/feed"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	child "github.com/kubecdc/kubecdc/test/process"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

const (
	// mostMemory limits the agent's peak of resident memory with large objects to half of the
	// chart's limit.
	mostMemory = 256 << 20
	// chartLimit is GOMEMLIMIT as the chart sets it: 90 % of 512Mi.
	chartLimit = "GOMEMLIMIT=483183820"
)

// memoryLoad is the load that TestMemory sends through the agent.
type memoryLoad struct {
	Size    int // The size of an object, in bytes.
	Objects int
	Updates int
	Stopped time.Duration // The shortest time for which the bus is stopped.
}

// stoppable is a destination that can be stopped: its connections stay open, and nothing answers.
type stoppable struct {
	world.Destination
	stop, resume func()
}

// TestMemory stops the bus while large objects change, resumes it, and compares the agent's peak of
// resident memory with mostMemory. The objects compress to less than 1 KB, so the queue holds all
// updates. Only the limit of bytes in flight keeps the workers from decoding hundreds of them at
// once.
//
// The API server is the stand-in of the benchmarks: etcd would need gigabytes for this history.
func TestMemory(t *testing.T) {
	slow(t)
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	notRacing(t)
	loads := []memoryLoad{{Size: 400_000, Objects: 240, Updates: 600}}
	if seconds := world.EnvUint(t, "MEMORY", 0); seconds > 0 {
		held := time.Duration(seconds) * time.Second
		loads = []memoryLoad{{400_000, 600, 3000, held}, {850_000, 600, 3000, held}}
	}
	type bus struct {
		name  string
		start func(*testing.T) stoppable
	}
	buses := []bus{
		{"nats", func(t *testing.T) stoppable {
			b := world.StartBusProcess(t)
			return stoppable{b, func() { b.Freeze(t) }, func() { b.Thaw(t) }}
		}},
		{"kafka", func(t *testing.T) stoppable {
			kafka.Require(t)
			k := world.StartKafka(t, kafka.Options{})
			must := func(err error) {
				if err != nil {
					t.Error(err)
				}
			}
			return stoppable{k, func() { must(k.Node(0).Pause()) }, func() { must(k.Node(0).Continue()) }}
		}},
		{"http", func(t *testing.T) stoppable {
			s := startSink(t)
			return stoppable{s, s.stop, s.resume}
		}},
	}
	for _, load := range loads {
		for _, b := range buses {
			t.Run(fmt.Sprintf("%s %d KB", b.name, load.Size/1000), func(t *testing.T) { load.run(t, b.start(t)) })
		}
	}
}

func (l memoryLoad) run(t *testing.T, to stoppable) {
	server, kubeconfig := startFeed(t, feed.Options{Pods: l.Objects, Padding: l.Size})
	a := world.StartAgent(t, nil, world.AgentConfig{Bus: to, Kubeconfig: kubeconfig, Env: []string{chartLimit}, Watch: `
  - resources: [pods]
`})
	// All objects and the two markers of the snapshot.
	acknowledged(t, a, l.Objects+2)
	first, err := child.ReadMemory(a.PID())
	if err != nil {
		t.Fatal(err)
	}
	to.stop()
	begin := time.Now()
	release(t, server, l.Updates)
	wait.Eventually(t, 2*time.Minute, func() error {
		taken, err := a.Metric(t.Context(), "kubecdc_publish_events_total") // A process takes a moment to stop.
		if err != nil {
			return err
		}
		queued, err := a.Metric(t.Context(), "kubecdc_queue_events")
		if err == nil && taken+queued < float64(l.Objects+2+l.Updates) {
			err = fmt.Errorf("%v of %d updates are in the queue", queued, l.Updates)
		}
		return err
	})
	world.Pass(t.Context(), l.Stopped-time.Since(begin))
	stopped, err := child.ReadMemory(a.PID())
	if err != nil {
		t.Fatal(err)
	}
	inFlight, err := a.Metric(t.Context(), "kubecdc_queue_inflight")
	if err != nil {
		t.Fatal(err)
	}
	to.resume()
	acknowledged(t, a, l.Objects+2+l.Updates)
	last, err := child.ReadMemory(a.PID())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("resident memory at its peak: first sync %s, bus stopped %s with %v events in flight, in all %s",
		world.MiB(first.Peak), world.MiB(stopped.Peak), inFlight, world.MiB(last.Peak))
	if last.Peak > mostMemory {
		t.Errorf("the agent's resident memory was %s at its peak, at most %s are allowed", world.MiB(last.Peak),
			world.MiB(mostMemory))
	}
}

// acknowledged waits until the bus has acknowledged that many events.
func acknowledged(t testing.TB, a *world.Agent, want int) {
	t.Helper()
	wait.Eventually(t, 5*time.Minute, func() error {
		got, err := a.Metric(t.Context(), "kubecdc_publish_events_total")
		if err == nil && got < float64(want) {
			err = fmt.Errorf("%v of %d events are acknowledged", got, want)
		}
		return err
	})
}

// startFeed serves the benchmarks' stand-in for an API server until the test ends.
func startFeed(t testing.TB, o feed.Options) (s *feed.Server, kubeconfig string) {
	t.Helper()
	s, err := feed.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var g errgroup.Group
	g.Go(func() error { return s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Errorf("feed: %v", err)
		}
	})
	text, err := s.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return s, kubeconfig
}

// release makes the feed send that many updates at once.
func release(t testing.TB, s *feed.Server, updates int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		fmt.Sprintf("%s/start?updates=%d", s.ControlURL(), updates), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		err = response.Body.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sink is an HTTP receiver that stores nothing.
type sink struct {
	url string

	mu   sync.Mutex
	open chan struct{} // If it is closed, requests are answered.
}

func startSink(t testing.TB) *sink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{url: "http://" + l.Addr().String()}
	s.stop()
	s.resume()
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	var g errgroup.Group
	g.Go(func() error { return server.Serve(l) })
	t.Cleanup(func() {
		_ = server.Close()
		if err := g.Wait(); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("sink: %v", err)
		}
	})
	return s
}

func (s *sink) Config() string { return fmt.Sprintf("http: {url: %q}", s.url) }

func (*sink) Read(t testing.TB, _ *oracle.Reader) *world.Stream {
	t.Helper()
	t.Fatal("a sink keeps nothing")
	return nil
}

func (s *sink) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = make(chan struct{})
}

func (s *sink) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.open)
}

// ServeHTTP does not read a request while the sink is stopped.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	select {
	case <-open:
	case <-r.Context().Done():
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusNoContent)
}
