package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/proxy"
)

// crash kills the agent, which has to be running.
func (a *agent) crash() {
	a.running()
	a.killed = true
	a.kill()
}

// running notes that the agent has ended by itself, if it has, before the test ends it.
func (a *agent) running() {
	if a.ended() && !a.killed && !a.asked {
		a.early = fmt.Errorf("it had ended by itself before the test ended it: %w", a.endedWith())
	}
}

// endedWith is how a process has ended, as an error in any case.
func (a *agent) endedWith() error {
	if a.err != nil {
		return a.err
	}
	return errors.New("exit status 0")
}

// again starts the agent once more, with all that it had.
func (a *agent) again(t testing.TB) {
	t.Helper()
	stderr, err := os.OpenFile(a.log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close() // The process has its own.
	cmd := exec.Command(a.argv[0], a.argv[1:]...)
	cmd.Env = a.cmd.Env
	cmd.Stderr = stderr
	if a.process, err = start(cmd); err != nil {
		t.Fatal(err)
	}
	a.killed, a.asked = false, false
}

// reconfigure changes the agent's configuration, for when it is started again.
func (a *agent) reconfigure(t testing.TB, old, replacement string) {
	t.Helper()
	file := a.argv[slices.Index(a.argv, "--config")+1]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("the configuration has no %q:\n%s", old, text)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// runProxy runs a proxy until the test ends.
func runProxy(t testing.TB, backends ...string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.Listen(backends...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return p
}

// hostPort is the address in a URL that has nothing else.
func hostPort(url string) string {
	_, address, _ := strings.Cut(url, "://")
	return address
}

// kubeconfigVia is for an agent that reaches the API servers through a proxy.
func kubeconfigVia(t testing.TB, p *plane, via *proxy.Proxy) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(path, controlplane.Admin); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range cfg.Clusters {
		cluster.Server = "https://" + via.Addr()
	}
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// stage is a control plane, a bus and an agent, with a proxy wherever two of them talk.
type stage struct {
	*plane
	etcd     []*proxy.Proxy // Between each API server and etcd.
	api      *proxy.Proxy   // Between the agent and the API servers.
	busProxy *proxy.Proxy   // Between the agent and the bus.
	bus      *bus
	agent    *agent
	stream   *stream
	rng      *rand.Rand

	checkpoint string        // The agent's file.
	changed    int           // How many objects change has changed.
	window     time.Duration // The stream's duplicate window; 0: that of the agent's default.

	losses []loss
}

// newStage starts a control plane and a bus. The agent is left to begin.
func newStage(t testing.TB, apiServers int, rng *rand.Rand) *stage {
	t.Helper()
	var etcd []*proxy.Proxy
	p := startPlane(t, controlplane.Options{
		APIServers: apiServers, NoControllerManager: true,
		EtcdFor: func(_ int, endpoint string) (string, error) {
			p := runProxy(t, hostPort(endpoint))
			etcd = append(etcd, p)
			return "http://" + p.Addr(), nil
		},
	})
	s := stageOn(t, p, rng)
	s.etcd = etcd
	return s
}

// stageOn is newStage for a control plane that is there, without proxies before etcd.
func stageOn(t testing.TB, p *plane, rng *rand.Rand) *stage {
	t.Helper()
	s := &stage{plane: p, rng: rng, bus: startBusProcess(t)}
	var servers []string
	for i := range s.APIServers() {
		servers = append(servers, hostPort(s.APIServerURL(i)))
	}
	s.api = runProxy(t, servers...)
	s.busProxy = runProxy(t, hostPort(s.bus.URL))
	return s
}

// begin starts the agent, with its checkpoint in a file, and reads the stream.
func (s *stage) begin(t testing.TB, c agentConfig) {
	t.Helper()
	s.checkpoint = filepath.Join(t.TempDir(), "checkpoint.json")
	s.beginWith(t, c, fmt.Sprintf("file: {path: %q}", s.checkpoint))
}

// beginWith is begin with a checkpoint elsewhere.
func (s *stage) beginWith(t testing.TB, c agentConfig, checkpoint string) {
	t.Helper()
	c.Bus = &bus{URL: "nats://" + s.busProxy.Addr()}
	c.Kubeconfig = kubeconfigVia(t, s.plane, s.api)
	c.Checkpoint = "{" + checkpoint + "}"
	s.agent = startAgent(t, s.plane, c)
	s.stream = readStream(t, s.bus, s.reader())
}

// between is a while between two durations, which is a matter of luck.
func (s *stage) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rng.Int64N(int64(most-least)))
}

// pass lets some time go by: what the test is about happens meanwhile.
func pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// pause is pass for between.
func (s *stage) pause(t testing.TB, least, most time.Duration) {
	pass(t.Context(), s.between(least, most))
}

// compact forgets the history up to now, of which the oracle has read all before.
func (s *stage) compact(t testing.TB) {
	t.Helper()
	rev := s.now(t)
	if err := s.Compact(t.Context(), int64(rev)); err != nil {
		t.Fatal(err)
	}
	s.losses = append(s.losses, loss{Rev: rev, Final: true})
}

// startServer starts an API server again, which knows no history then but what it can list.
func (s *stage) startServer(t testing.TB, i int) {
	t.Helper()
	if err := s.StartAPIServer(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	s.losses = append(s.losses, loss{Rev: s.now(t)})
}

// steadyWriters change objects at a moderate rate, whatever is done to the API servers.
type steadyWriters struct {
	apis   []*api
	every  time.Duration // How often each writer takes a step.
	steps  atomic.Int64
	failed atomic.Int64 // Steps that an API server did not answer: what became of them is for etcd to tell.
}

// run takes the steps of each writer until stop is called.
func (sw *steadyWriters) run(t testing.TB, writers ...func(*writers) func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for i, make := range writers {
		wg.Go(func() {
			ws := &writersOf{apis: sw.apis, at: i % len(sw.apis)}
			ws.use()
			step := make(&ws.writers)
			tick := time.NewTicker(sw.every)
			defer tick.Stop()
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				// A step is not cut off by stop: the API server may take a request whose client has gone, after the test has looked where
				// history ends.
				attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
				err := step(attempt)
				cancel()
				sw.steps.Add(1)
				if !tolerable(err) {
					sw.failed.Add(1)
					ws.at++
					ws.use()
				}
			}
		})
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			wg.Wait()
		}
	}
	t.Cleanup(stop)
	return stop
}

// writersOf is writers that go from one API server to the next.
type writersOf struct {
	writers
	apis []*api
	at   int
}

func (w *writersOf) use() { w.api = w.apis[w.at%len(w.apis)] }

// labelled is one step of a writer of custom resources that move into and out of the selector team=payments.
func (w *writer) labelled(ctx context.Context) error {
	all := collection(widgets, w.namespace)
	name := w.name()
	uri := all + "/" + name
	w.n++
	inside := w.rng.IntN(2) == 0
	widget := obj{
		"apiVersion": widgetsGroup + "/v1", "kind": "Widget",
		"metadata": meta(name, "labels", obj{"team": team(inside)}), "spec": obj{"step": w.n},
	}
	var err error
	switch w.rng.IntN(8) {
	case 0, 1:
		_, err = w.api.create(ctx, all, widget)
	case 2, 3, 4:
		_, err = w.api.mergePatch(ctx, uri, obj{"metadata": obj{"labels": obj{"team": team(inside)}}})
	case 5:
		_, err = w.api.mergePatch(ctx, uri, obj{"spec": obj{"step": w.n}})
	case 6:
		err = w.api.remove(ctx, uri)
	case 7:
		if err = w.api.remove(ctx, uri); err == nil {
			_, err = w.api.create(ctx, all, widget)
		}
	}
	return err
}

// makeMany makes n ConfigMaps with several writers at a time.
func (p *plane) makeMany(t testing.TB, namespace, prefix string, n int) {
	t.Helper()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(n) || failed.Load() != nil {
					return
				}
				name := fmt.Sprint(prefix, "-", i)
				body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"text":%q}}`, name, name)
				if _, err := p.api.do(t.Context(), http.MethodPost, collection("configmaps", namespace), mimeJSON, body); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

// wants is what has to be on the bus of each resource, by the records that are there. Those in selected are observed under
// the selector team=payments.
func (p *plane) wants(records []record, until uint64, resources, selected []string) (map[objectKey][]expectation, view) {
	v := livesView(records, 0)
	v.Until = until
	want := expect(p.history.of(resources...), v)
	under := v
	under.Selects = func(labels map[string]string) bool { return labels["team"] == "payments" }
	for key, list := range expect(p.history.of(selected...), under) {
		want[key] = list
	}
	return want, v
}

// conclude waits until what has to be on the bus is there, or nothing has come for a while, and judges it.
func (s *stage) conclude(t testing.TB, idle time.Duration, asked func(*record) bool, resources, selected []string) (verdict, []fault) {
	t.Helper()
	until := s.now(t)
	var got verdict
	var faults []fault
	const quiet = 700 * time.Millisecond
	count, judged, since := -1, -1, time.Now()
	err := await(t.Context(), 5*time.Minute, func() error {
		records := s.stream.all()
		if n := s.stream.news(); n != count { // Not progress, which comes for ever.
			count, since = n, time.Now()
		}
		if time.Since(since) < quiet {
			return errors.New("records are coming")
		}
		if judged != count {
			judged = count
			want, v := s.wants(records, until, resources, selected)
			v.Window = s.window
			for _, x := range s.losses {
				if x.Final {
					v.Forgotten = max(v.Forgotten, x.Rev)
				}
			}
			got = judge(want, records, v)
			faults = append(got.Faults, judgeLives(want, records, s.losses, asked)...)
		}
		if len(faults) > 0 && time.Since(since) < idle {
			return errors.New("faults are left, and records may come yet")
		}
		return nil
	})
	if err != nil {
		t.Errorf("the stream does not come to rest, %d records: %v", count, err)
	}
	return got, faults
}

// news is how many records there are besides progress.
func (s *stream) news() int {
	n := 0
	for _, rec := range s.all() {
		if rec.Stream != progress {
			n++
		}
	}
	return n
}

// tellStory shows what the bus has of the objects that a few faults of each kind are of, and of their scopes, beside what
// it should have.
func (s *stage) tellStory(t testing.TB, faults []fault, resources, selected []string) {
	t.Helper()
	records := s.stream.all()
	want, _ := s.wants(records, 0, resources, selected)
	told := make(map[string]int)
	for _, f := range faults {
		if told[f.Kind]++; told[f.Kind] > 2 || f.Key.Name == "" {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s\n", f)
		const around = 6 // Changes of the object, on either side of the fault.
		list := want[f.Key]
		at := sort.Search(len(list), func(i int) bool { return list[i].Rev >= f.Rev })
		list = list[max(0, at-around):min(len(list), at+around)]
		var from, to uint64 = 0, math.MaxUint64
		if len(list) > 0 {
			from, to = list[0].Rev, list[len(list)-1].Rev
		}
		for _, e := range list {
			fmt.Fprintf(&b, "  etcd: %s %d %s\n", e.Op, e.Rev, e.ID)
		}
		for _, rec := range records {
			switch {
			case rec.Stream == "" && rec.Key == f.Key && from <= rec.Rev && rec.Rev <= to:
				fmt.Fprintf(&b, "  bus %d: %s %d, previous %d, inferred %t, %s\n", rec.Position, rec.Op, rec.Rev, rec.PrevRev, rec.Inferred, rec.ID)
			case rec.Stream == gap && rec.Scope.has(f.Key) && from <= rec.To && rec.From <= to:
				fmt.Fprintf(&b, "  bus %d: gap %d-%d, %s, recovered %t\n", rec.Position, rec.From, rec.To, rec.Reason, rec.Recovered)
			case (rec.Stream == snapshotStarted || rec.Stream == snapshotCompleted) && rec.Scope.has(f.Key) && from <= rec.Rev && rec.Rev <= to:
				fmt.Fprintf(&b, "  bus %d: %s %s at %d\n", rec.Position, rec.Stream, rec.Snapshot, rec.Rev)
			}
		}
		t.Log(b.String())
	}
}
