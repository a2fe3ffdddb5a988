package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	child "github.com/kubecdc/kubecdc/test/process"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// mostGrowth limits how much a blocked bus may make the agent's resident memory grow, and the API
// server's beyond its growth without the agent. mostHeap is the same limit for the API server's
// live heap, which has less noise.
const (
	mostGrowth = 64 << 20
	mostHeap   = 24 << 20
)

// blockedSize is the size of an object of TestBlockedBus: a few thousand updates then exceed
// mostGrowth.
const blockedSize = 16 << 10

// meter samples the resident memory of processes.
type meter struct {
	mu    sync.Mutex
	pids  map[string]int
	first map[string]int64
	most  map[string]int64
	err   error
}

// measure samples until stop is called.
func measure(t testing.TB, pids map[string]int) (m *meter, stop func()) {
	t.Helper()
	m = &meter{pids: pids, first: make(map[string]int64), most: make(map[string]int64)}
	m.sample()
	for name, now := range m.most {
		m.first[name] = now
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = wait.For(ctx, time.Hour, func() error {
			m.sample()
			return errors.New("until it is stopped")
		})
	})
	return m, func() {
		cancel()
		wg.Wait()
		m.sample()
		if m.err != nil {
			t.Fatalf("measure: %v", m.err)
		}
	}
}

func (m *meter) sample() {
	for name, pid := range m.pids {
		memory, err := child.ReadMemory(pid)
		m.mu.Lock()
		m.most[name] = max(m.most[name], memory.RSS)
		m.err = errors.Join(m.err, err)
		m.mu.Unlock()
	}
}

// growth returns the growth from the first sample to the highest.
func (m *meter) growth(name string) int64 { return m.most[name] - m.first[name] }

// heap returns the live heap of an API server after a garbage collection.
func heap(t testing.TB, p *world.Plane, server int) int64 {
	t.Helper()
	a, err := world.NewAPI(p.ConfigFor(server, controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Do(t.Context(), http.MethodGet, "/debug/pprof/heap?gc=1", "", nil); err != nil {
		t.Fatal(err)
	}
	text, err := a.Get(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "go_memstats_heap_alloc_bytes "); ok {
			bytes, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int64(bytes)
		}
	}
	t.Fatal("the API server does not report its heap")
	return 0
}

// kubeconfigOf returns a kubeconfig for one API server of several.
func kubeconfigOf(t testing.TB, p *world.Plane, server int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(path, controlplane.Admin); err != nil {
		t.Fatal(err)
	}
	var cfg *clientcmdapi.Config
	cfg, err := clientcmd.LoadFromFile(path)
	if err == nil {
		cfg.CurrentContext = fmt.Sprint("server-", server)
		err = clientcmd.WriteToFile(*cfg, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBlockedBus stops the bus while changes keep coming. Neither the agent nor the API server, on
// its behalf, may hold them in memory.
//
// Three API servers share the etcd: the writers use the first, the agent the second, and nobody the
// third. The third's watch cache gets the same changes, so any growth of the second beyond it is
// because of the agent. The test measures live heap and resident memory. The live heap is accurate
// to some 10 MiB; resident memory includes the garbage of serving.
func TestBlockedBus(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	for _, tc := range []struct {
		name    string
		updates int
		queue   string // for fewer updates than in the long tier: changes beyond the queue stay at the API server
		random  bool
		block   func(*testing.T, *world.Bus)
		unblock func(*testing.T, *world.Bus)
	}{
		{"stopped", size(4_500, 4_500, 25_000), "events: 256", false, func(t *testing.T, b *world.Bus) {
			b.Freeze(t)
		}, func(t *testing.T, b *world.Bus) { b.Thaw(t) }},
		{"killed", size(2_000, 5_000, 15_000), "bytes: 16MiB", true, func(_ *testing.T, b *world.Bus) {
			b.Kill()
		}, func(t *testing.T, b *world.Bus) { b.Start(t) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "killed" {
				slow(t)
			}
			queue := "" // the default's
			if tc.updates <= 5_000 {
				queue = "queue: {" + tc.queue + "}"
			}
			blockedBus(t, tc.updates, queue, tc.random, tc.block, tc.unblock)
		})
	}
}

func blockedBus(t *testing.T, updates int, queue string, random bool, block, unblock func(*testing.T, *world.Bus)) {
	const namespace = "blocked"
	servers := 3
	observed := 1
	idle := 2
	if build.Racing() { // The race detector adds memory of its own, so nothing is compared.
		servers = 1
		observed = 0
		idle = 0
	}
	resources := []string{"configmaps", "events"}
	p := world.StartPlane(t, controlplane.Options{APIServers: servers, NoControllerManager: true, UpstreamGC: true})
	p.NewNamespace(t, namespace)
	l := &world.Load{API: p.API, Namespace: namespace, Objects: 300, Size: blockedSize, Random: random}
	l.Create(t)

	bus := world.StartBusProcess(t)
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus:        bus,
		Kubeconfig: kubeconfigOf(t, p, observed),
		Extra:      queue,
		Watch: `
  - resources: [configmaps, events]
`,
	})
	r := p.Reader()
	r.Shallow = true
	s := world.ReadStream(t, bus, r)
	v := world.ViewOf(s.Completed(t, resources...))

	heaps := []int64{heap(t, p, observed), heap(t, p, idle)}
	block(t, bus)
	m, stop := measure(t, map[string]int{
		"agent": a.PID(), "observed": p.APIServerPID(observed), "idle": p.APIServerPID(idle),
	})
	begin := time.Now()
	l.Run(t, updates)
	wrote := time.Since(begin)
	p.Now(t)
	// A reaction to a blocked watch may take a while.
	wait.Settled(t, 3*time.Second, time.Minute, func() uint64 {
		n, err := a.Metric(t.Context(), "kubecdc_queue_events")
		if err != nil {
			t.Fatal(err)
		}
		return uint64(n)
	})
	stop()
	heapGrowth := heap(t, p, observed) - heaps[0] - (heap(t, p, idle) - heaps[1])
	blockedGauge, err := a.Metric(t.Context(), "kubecdc_queue_events")
	if err != nil {
		t.Error(err)
	}
	held, err := a.Metric(t.Context(), "kubecdc_queue_bytes")
	if err != nil {
		t.Error(err)
	}
	if blockedGauge == 0 || held == 0 {
		t.Errorf("the queue has %.0f events, %s: the bus does not hold the agent back", blockedGauge,
			world.MiB(int64(held)))
	}

	begin = time.Now()
	unblock(t, bus)
	got := world.Check(t, p, s, v, resources...)
	t.Logf(
		"%d updates in %s; queue at the end of it: %.0f events, %s held; all there %s after the bus was back: %d records expected, %d on the bus (%s), %d duplicates, %d gaps, %d inferred, %d in gaps",
		updates, wrote.Round(time.Millisecond), blockedGauge, world.MiB(int64(held)),
		time.Since(begin).Round(time.Millisecond),
		got.Expected, got.Records, world.MiB(s.Size()), got.Duplicates, len(got.Gaps), got.Inferred, got.InGaps)
	attributable := m.growth("observed") - m.growth("idle")
	t.Logf(
		"resident memory: agent %s + %s; API server of the agent %s + %s, of nobody %s + %s: because of the agent %s (live heap %s)",
		world.MiB(m.first["agent"]), world.MiB(m.growth("agent")), world.MiB(m.first["observed"]),
		world.MiB(m.growth("observed")),
		world.MiB(m.first["idle"]), world.MiB(m.growth("idle")), world.MiB(attributable), world.MiB(heapGrowth))
	if build.Racing() {
		return
	}
	if g := m.growth("agent"); g > mostGrowth {
		t.Errorf("the agent grew by %s while the bus was blocked, at most %s are allowed", world.MiB(g),
			world.MiB(mostGrowth))
	}
	if heapGrowth > mostHeap {
		t.Errorf("the API server's live heap grew by %s because of the agent, at most %s are allowed",
			world.MiB(heapGrowth), world.MiB(mostHeap))
	}
	if attributable > mostGrowth {
		t.Errorf("the API server grew by %s because of the agent, at most %s are allowed", world.MiB(attributable),
			world.MiB(mostGrowth))
	}
}

// TestHistoryLostWhileBlocked makes the API server lose its history while the bus is blocked. The
// changes in between may be lost, but the agent must report that, and must bring every object to
// its current state.
func TestHistoryLostWhileBlocked(t *testing.T) {
	slow(t)
	t.Parallel()
	notRacing(t)
	const (
		namespace = "lost"
		objects   = 120
	)
	for _, tc := range []struct {
		name string
		opts controlplane.Options
		lose func(*testing.T, *world.Plane)
		// recoverable: the API server can still list the earlier states.
		recoverable bool
	}{
		{
			"compacted",
			controlplane.Options{NoControllerManager: true, Uncached: []string{"configmaps"}},
			func(t *testing.T, p *world.Plane) {
				if err := p.Compact(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}, false,
		},
		{
			"restarted",
			controlplane.Options{NoControllerManager: true},
			func(t *testing.T, p *world.Plane) {
				if err := p.RestartAPIServer(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}, true,
		},
		{
			"restarted and compacted",
			controlplane.Options{NoControllerManager: true},
			func(t *testing.T, p *world.Plane) {
				if err := p.RestartAPIServer(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				if err := p.Compact(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // Each has a control plane of its own.
			p := world.StartPlane(t, tc.opts)
			p.NewNamespace(t, namespace)
			for _, prefix := range []string{"updated", "deleted", "replaced", "left"} {
				p.MakeConfigMaps(t, namespace, prefix, objects)
			}
			bus := world.StartBusProcess(t)
			world.StartAgent(t, p, world.AgentConfig{Bus: bus, Extra: "queue: {events: 64, bytes: 1MiB}", Watch: `
  - resources: [configmaps]
`})
			s := world.ReadStream(t, bus, p.Reader())
			v := world.ViewOf(s.Completed(t, "configmaps"))
			bus.Freeze(t)
			loseSight(t, p, namespace, objects)
			p.Now(t) // The test reads the history before it is lost.
			tc.lose(t, p)
			bus.Thaw(t)

			wait.Eventually(t, time.Minute, func() error { // The records after a gap follow at once.
				for _, rec := range s.All() {
					if rec.Stream == oracle.Gap {
						return nil
					}
				}
				if n, _ := s.Missing(oracle.Expect(p.History.Of("configmaps"), v)); n > 0 {
					return fmt.Errorf("no gap on the bus, and %d records are missing", n)
				}
				return nil
			})
			got := world.CheckIdle(t, p, s, v, 5*time.Second, "configmaps")
			t.Logf("%d records expected, %d on the bus, %d duplicates, %d inferred, %d in gaps: %s",
				got.Expected, got.Records, got.Duplicates, got.Inferred, got.InGaps, countOps(s.All()))
			for _, g := range got.Gaps {
				t.Logf("gap %d-%d, %s, recovered: %t", g.From, g.To, g.Reason, g.Recovered)
				if g.Reason != "expired" && g.Reason != "compacted" {
					oracle.Fail(t, "gap with reason %q, want expired or compacted", g.Reason)
				}
				// The agent cannot report objects that were created and deleted inside the gap.
				if g.Recovered && got.InGaps > 2*objects {
					oracle.Fail(t,
						"a gap says that all was recovered, and %d records are missing in it, of %d objects that came and went",
						got.InGaps, objects)
				}
			}
			if len(got.Gaps) == 0 && !tc.recoverable {
				oracle.Fail(t, "no gap event, though the history is gone")
			}
			if got.Inferred == 0 && !tc.recoverable {
				t.Error("nothing is inferred, though the history is gone")
			}

			// Afterwards the agent works as before.
			p.ChangeConfigMaps(t, namespace, "left", objects)
			got = world.CheckIdle(t, p, s, v, 5*time.Second, "configmaps")
			if n := len(got.Gaps); n > 1 {
				t.Errorf("%d gaps, want one", n)
			}
		})
	}
}

// loseSight makes changes that an agent may miss.
func loseSight(t testing.TB, p *world.Plane, namespace string, objects int) {
	t.Helper()
	all := world.Collection("configmaps", namespace)
	must := func(_ []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range objects {
		cm := func(name, text string) obj {
			return obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": world.Meta(name), "data": obj{"text": text}}
		}
		updated := fmt.Sprint("updated-", i)
		for n := range 1 + i%4 {
			must(p.API.MergePatch(t.Context(), all+"/"+updated, obj{"data": obj{"text": fmt.Sprint("version ", n)}}))
		}
		gone := fmt.Sprint("deleted-", i)
		must(p.API.MergePatch(t.Context(), all+"/"+gone, obj{"data": obj{"text": "at last"}}))
		must(nil, p.API.Remove(t.Context(), all+"/"+gone))
		replaced := fmt.Sprint("replaced-", i)
		must(nil, p.API.Remove(t.Context(), all+"/"+replaced))
		must(p.API.Create(t.Context(), all, cm(replaced, "another")))
		if i%2 == 0 {
			must(p.API.MergePatch(t.Context(), all+"/"+replaced, obj{"data": obj{"text": "and changed"}}))
		}
		must(p.API.Create(t.Context(), all, cm(fmt.Sprint("born-", i), "new")))
		brief := fmt.Sprint("brief-", i)
		must(p.API.Create(t.Context(), all, cm(brief, "not for long")))
		must(nil, p.API.Remove(t.Context(), all+"/"+brief))
	}
}
