package world

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/proxy"
	"github.com/kubecdc/kubecdc/test/wait"
)

// running sets early if the agent has already ended by itself.
func (a *Agent) running() {
	if a.Ended() && !a.Killed && !a.asked {
		a.early = fmt.Errorf("it had ended by itself before the test ended it: %w", a.endedWith())
	}
}

// endedWith returns the exit status of the process as an error, even if it is 0.
func (a *Agent) endedWith() error {
	if a.Err != nil {
		return a.Err
	}
	return errors.New("exit status 0")
}

// Server is a bus in a separate process.
type Server interface {
	Destination
	Kill()              // Ends the process as a crash does.
	Start(t testing.TB) // Restarts the process with its data.
	Freeze(t testing.TB)
	Thaw(t testing.TB)
}

// Stage is a control plane, a bus and an agent, with a proxy on each connection between them.
type Stage struct {
	*Plane
	Etcd     []*proxy.Proxy // Between each API server and etcd.
	API      *proxy.Proxy   // Between the agent and the API servers.
	BusProxy *proxy.Proxy   // Between the agent and the bus.
	Server   Server         // The bus.
	Bus      *Bus           // The same; nil with Kafka.
	via      Destination    // The bus as the agent reaches it.
	Agent    *Agent
	Stream   *Stream
	RNG      *rand.Rand

	Checkpoint string        // The agent's file.
	changed    int           // The number of objects that Change has changed.
	Window     time.Duration // The stream's duplicate window; 0: the agent's default.

	Losses []oracle.Loss
	// Former, Delay and Clock are those of oracle.Outside.
	Former bool
	Delay  time.Duration
	Clock  func(time.Time) time.Time
}

// NewStage starts a control plane and NATS. Begin starts the agent.
func NewStage(t testing.TB, apiServers int, rng *rand.Rand) *Stage {
	t.Helper()
	p, etcd := planeBehindProxies(t, apiServers)
	s := StageOn(t, p, rng)
	s.Etcd = etcd
	return s
}

// NewKafkaStage is NewStage with a Kafka broker.
func NewKafkaStage(t testing.TB, apiServers int, rng *rand.Rand) *Stage {
	t.Helper()
	p, etcd := planeBehindProxies(t, apiServers)
	s := &Stage{
		Plane: p,
		Etcd:  etcd,
		RNG:   rng,
		API:   proxyOf(t, p),
	}
	k := StartKafka(t, kafka.Options{Advertise: func(_ int, _ kafka.Listener, addr string) (string, error) {
		s.BusProxy = RunProxy(t, addr)
		return s.BusProxy.Addr(), nil
	}})
	s.Server, s.via = k, k
	return s
}

// planeBehindProxies starts a control plane with a proxy between each API server and etcd.
func planeBehindProxies(t testing.TB, apiServers int) (*Plane, []*proxy.Proxy) {
	t.Helper()
	var etcd []*proxy.Proxy
	p := StartPlane(t, controlplane.Options{
		APIServers: apiServers, NoControllerManager: true,
		EtcdFor: func(_ int, endpoint string) (string, error) {
			p := RunProxy(t, HostPort(endpoint))
			etcd = append(etcd, p)
			return "http://" + p.Addr(), nil
		},
	})
	return p, etcd
}

// StageOn is NewStage with an existing control plane, without proxies in front of etcd.
func StageOn(t testing.TB, p *Plane, rng *rand.Rand) *Stage {
	t.Helper()
	bus := StartBusProcess(t)
	via := RunProxy(t, HostPort(bus.URL))
	return &Stage{
		Plane:    p,
		RNG:      rng,
		API:      proxyOf(t, p),
		Server:   bus,
		Bus:      bus,
		BusProxy: via,
		via: &Bus{
			URL: "nats://" + via.Addr(),
		},
	}
}

// proxyOf runs a proxy in front of the API servers.
func proxyOf(t testing.TB, p *Plane) *proxy.Proxy {
	t.Helper()
	var servers []string
	for i := range p.APIServers() {
		servers = append(servers, HostPort(p.APIServerURL(i)))
	}
	return RunProxy(t, servers...)
}

// Begin starts the agent, with its checkpoint in a file, and reads the stream.
func (s *Stage) Begin(t testing.TB, c AgentConfig) {
	t.Helper()
	s.Checkpoint = filepath.Join(t.TempDir(), "checkpoint.json")
	s.BeginWith(t, c, fmt.Sprintf("file: {path: %q}", s.Checkpoint))
}

// BeginWith is Begin with a given checkpoint setting.
func (s *Stage) BeginWith(t testing.TB, c AgentConfig, checkpoint string) {
	t.Helper()
	c.Bus = s.via
	if c.Kubeconfig == "" {
		c.Kubeconfig = KubeconfigVia(t, s.Plane, s.API)
	}
	c.Checkpoint = "{" + checkpoint + "}"
	s.Agent = StartAgent(t, s.Plane, c)
	s.Stream = s.Server.Read(t, s.Reader())
}

// Between returns a random duration between two durations.
func (s *Stage) Between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.RNG.Int64N(int64(most-least)))
}

// Pass waits for d or until ctx ends.
func Pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Pause waits for a random duration between two durations.
func (s *Stage) Pause(t testing.TB, least, most time.Duration) {
	Pass(t.Context(), s.Between(least, most))
}

// CompactNow compacts etcd at the current revision, after the oracle has read the history up to
// there.
func (s *Stage) CompactNow(t testing.TB) {
	t.Helper()
	rev := s.Now(t)
	if err := s.Compact(t.Context(), int64(rev)); err != nil {
		t.Fatal(err)
	}
	s.Losses = append(s.Losses, oracle.Loss{Rev: rev, Final: true})
}

// StartServer restarts an API server. It then has no history from before its first list.
func (s *Stage) StartServer(t testing.TB, i int) {
	t.Helper()
	if err := s.StartAPIServer(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	s.LoseHistory(t, i)
}

// LoseHistory records that API server i has lost the history in its watch caches, and waits until
// these are filled. The API server creates the cache of a custom resource at the first request.
func (s *Stage) LoseHistory(t testing.TB, i int) {
	t.Helper()
	api, err := NewAPI(s.ConfigFor(i, controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"/api/v1/configmaps", "/api/v1/secrets"}
	_, err = api.Get(t.Context(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+oracle.Widgets)
	if err == nil {
		paths = append(paths, "/apis/"+oracle.WidgetsGroup+"/v1/widgets")
	} else if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	from := s.Now(t)
	for _, path := range paths {
		wait.Eventually(t, time.Minute, func() error {
			_, err := api.Get(t.Context(),
				fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=NotOlderThan", path, from))
			return err
		})
	}
	s.Losses = append(s.Losses, oracle.Loss{Rev: s.Now(t)})
}

// wants returns the expectations for the resources, according to the snapshots in the records. The
// agent observes those in selected with the selector team=payments.
func (p *Plane) wants(
	records []oracle.Record, until uint64, resources, selected []string,
) (map[oracle.ObjectKey][]oracle.Expectation, oracle.View) {
	v := oracle.LivesView(records, 0)
	v.Until = until
	want := oracle.Expect(p.History.Of(resources...), v)
	under := v
	under.Selects = func(labels map[string]string) bool { return labels["team"] == "payments" }
	for key, list := range oracle.Expect(p.History.Of(selected...), under) {
		want[key] = list
	}
	return want, v
}

// restarted reports whether an agent was started between two times. A stage without its own agent
// has several, and they come and go all the time.
func (s *Stage) restarted(from, to time.Time) bool {
	return s.Agent == nil || s.Agent.restarted(from, to)
}

// busLimit is the largest message that the buses of stages take, by default: NATS 1 MiB, and Kafka
// a little more.
const busLimit = 1 << 20

// idle is the time without a record after which no more is expected. A snapshot of an agent that
// resumes waits until the watch has sent what the bus may have. If nothing changes, a bookmark ends
// the wait: the API server sends one a minute.
const idle = 90 * time.Second

// Conclude waits until the records have no faults, or until no record has arrived for the time
// idle, and returns the verdict.
func (s *Stage) Conclude(
	t testing.TB, asked func(*oracle.Record) bool, resources, selected []string,
) (oracle.Verdict, []oracle.Fault) {
	t.Helper()
	until := s.Now(t)
	var got oracle.Verdict
	var faults []oracle.Fault
	const quiet = 700 * time.Millisecond
	count := -1
	judged := -1
	since := time.Now()
	err := wait.For(t.Context(), 5*time.Minute, func() error {
		records := s.Stream.All()
		if n := s.Stream.news(); n != count { // Without progress, which the agent sends all the time.
			count, since = n, time.Now()
		}
		if time.Since(since) < quiet {
			return errors.New("records are coming")
		}
		if judged != count {
			judged = count
			got, faults = s.Stream.lanes().
				JudgeLives(records,
					func(records []oracle.Record) (map[oracle.ObjectKey][]oracle.Expectation, oracle.View) {
						want, v := s.wants(records, until, resources, selected)
						v.Window = s.Window
						for _, x := range s.Losses {
							if x.Final {
								v.Forgotten = max(v.Forgotten, x.Rev)
							}
						}
						return want, v
					}, s.Losses, oracle.Outside{
						Asked:     asked,
						Restarted: s.restarted,
						Former:    s.Former,
						Delay:     s.Delay,
						Clock:     s.Clock,
						Limit:     busLimit,
					})
		}
		// It says what is before it.
		mayPass := slices.ContainsFunc(faults, func(f oracle.Fault) bool { return f.Kind != "progress" })
		if mayPass && time.Since(since) < idle {
			return errors.New("faults are left, and records may come yet")
		}
		return nil
	})
	if err != nil {
		t.Errorf("the stream does not come to rest, %d records: %v", count, err)
	}
	return got, faults
}

// TellStory logs the expected and the actual records around a few faults of each kind, with the
// gaps and snapshots of their scopes.
func (s *Stage) TellStory(t testing.TB, faults []oracle.Fault, resources, selected []string) {
	t.Helper()
	records := s.Stream.All()
	want, _ := s.wants(records, 0, resources, selected)
	told := make(map[string]int)
	for _, f := range faults {
		told[f.Kind]++
		if told[f.Kind] > 2 || f.Key.Name == "" {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s\n", f)
		const around = 6 // The number of changes of the object before and after the fault.
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
				fmt.Fprintf(&b, "  bus %d: %s %d, previous %d, inferred %t, %s\n", rec.Position, rec.Op, rec.Rev,
					rec.PrevRev, rec.Inferred, rec.ID)
			case rec.Stream == oracle.Gap && rec.Scope.Has(f.Key) && from <= rec.To && rec.From <= to:
				fmt.Fprintf(&b, "  bus %d: gap %d-%d, %s, recovered %t\n", rec.Position, rec.From, rec.To, rec.Reason,
					rec.Recovered)
			case (rec.Stream == oracle.SnapshotStarted || rec.Stream == oracle.SnapshotCompleted) &&
				rec.Scope.Has(f.Key) && from <= rec.Rev && rec.Rev <= to:
				fmt.Fprintf(&b, "  bus %d: %s %s at %d\n", rec.Position, rec.Stream, rec.Snapshot, rec.Rev)
			}
		}
		t.Log(b.String())
	}
}
