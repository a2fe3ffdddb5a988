package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/bench/definitions"
	"github.com/kubecdc/kubecdc/test/bench/record"
	"github.com/kubecdc/kubecdc/test/process"
)

// objectsEach is how many objects each definition has.
const objectsEach = 10

const (
	// settles is how long a contestant is left idle after it has all objects. Bookmarks and
	// progress come once a minute.
	settles = 90 * time.Second
	// rests is how long it is left idle after that, to measure its consumption at rest.
	rests = 2 * time.Minute
)

// allThere is how long a contestant may take until it has all objects.
const allThere = 5 * time.Minute

// DefinitionsReport is the outcome of --only crds.
type DefinitionsReport struct {
	Definitions int               `json:"definitions"`
	Objects     int               `json:"objects"` // of each
	Runs        []*DefinitionsRun `json:"runs"`
}

// DefinitionsRun is one start of a contestant.
type DefinitionsRun struct {
	Contestant string `json:"contestant"`
	Refusing   bool   `json:"refusing"` // the API server had few seats and rejected further requests
	// Failure says what was missing at the timeout, or what else failed. Times are meaningless
	// then.
	Failure string `json:"failure,omitempty"`

	Loaded  float64 `json:"loaded"`  // seconds until all objects are loaded
	Watched float64 `json:"watched"` // seconds until the last resource is watched
	Sent    float64 `json:"sent"`    // seconds until all objects are on the bus

	Requests definitions.Requests `json:"requests"`

	CPU       float64        `json:"cpu"`       // seconds of CPU until then
	ServerCPU float64        `json:"serverCPU"` // seconds of CPU of the API server until then
	Rest      float64        `json:"rest"`      // milliseconds of CPU per second afterwards
	Memory    process.Memory `json:"memory"`
	HeapKept  int64          `json:"heapKept"` // bytes that a garbage collection kept
}

// starter is a contestant of --only crds.
type starter struct {
	name string
	spec func(b *bench, r *definitionsRig) (process.Spec, error)
	// loaded returns when all objects are loaded.
	loaded func(ctx context.Context, r *definitionsRig) error
	// collect makes the process collect garbage.
	collect func(ctx context.Context, r *definitionsRig) error
}

type definitionsRig struct {
	dir, kubeconfig, sinkURL, address string
	groups                            []string
	child                             *process.Child
}

// definitions measures starts in a cluster with many definitions, in turns.
func (b *bench) definitions(ctx context.Context) (_ *DefinitionsReport, err error) {
	dir, err := os.MkdirTemp(b.dir, "kubecdc-bench-*")
	if err != nil {
		return nil, err
	}
	if !b.keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	starters := []starter{
		{standard, baselineSpec, announced, collectBaseline},
		{agent, agentSpec, ready, collectAgent},
	}
	var users []string
	for _, s := range starters {
		users = append(users, s.name)
	}
	world, err := definitions.Start(ctx, definitions.Options{
		Definitions: b.crds,
		Objects:     objectsEach,
		Users:       users,
		Dir:         dir,
		Output:      b.stderr,
		Progress:    b.progress,
	})
	if err != nil {
		return nil, err
	}
	defer world.Stop()
	report := &DefinitionsReport{Definitions: b.crds, Objects: objectsEach}
	var failed error // the last failure of a run
	for i := range b.repeat + 1 {
		refusing := i == b.repeat // once, after all others: the limit stays
		if refusing {
			if err := world.Limit(ctx); err != nil {
				return report, err
			}
		}
		for n := range starters {
			s := starters[(n+i)%len(starters)]
			run, err := b.start(ctx, world, s, filepath.Join(dir, fmt.Sprintf("%s-%d", s.name, i)), refusing)
			if err != nil {
				return report, fmt.Errorf("%s: %w", s.name, err)
			}
			report.Runs = append(report.Runs, run)
			if run.Failure != "" {
				b.progress("%s: %s", s.name, run.Failure)
				failed = fmt.Errorf("%s: %.200s", s.name, run.Failure)
			}
		}
	}
	return report, failed
}

// start runs a contestant until it has all objects, and a little longer. A failure of the
// contestant is in the run; an error is one of the benchmark itself.
func (b *bench) start(
	ctx context.Context, world *definitions.World, s starter, dir string, refusing bool,
) (run *DefinitionsRun, err error) {
	run = &DefinitionsRun{Contestant: s.name, Refusing: refusing}
	r := &definitionsRig{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), groups: world.Groups()}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := world.WriteKubeconfig(r.kubeconfig, definitions.User(s.name)); err != nil {
		return nil, err
	}
	bus, err := b.openBus(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bus.close()) }()
	spec, err := s.spec(b, r)
	if err != nil {
		return nil, err
	}
	server, err := process.CPU(world.APIServerPID(0))
	if err != nil {
		return nil, err
	}
	b.progress("%s: starting%s", s.name,
		pick(refusing, fmt.Sprintf(", with %d seats at the API server", definitions.Seats), ""))
	began := time.Now()
	r.child, err = process.Start(spec)
	if err != nil {
		return nil, err
	}
	defer r.child.Kill()
	if err := b.begin(ctx, world, s, r, bus, began, run); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		run.Failure = r.child.Failed(err).Error()
		run.Requests, err = world.Requests(s.name, began)
		return run, err
	}
	used, err := process.CPU(r.child.PID())
	if err != nil {
		return nil, err
	}
	after, err := process.CPU(world.APIServerPID(0))
	if err != nil {
		return nil, err
	}
	run.CPU, run.ServerCPU = used.Seconds(), (after - server).Seconds()
	b.progress("%s: loaded %.1f s, watched %.1f s, on the bus %.1f s", s.name, run.Loaded, run.Watched, run.Sent)
	if err := b.rested(ctx, s, r, run); err != nil {
		return nil, err
	}
	run.Requests, err = world.Requests(s.name, began)
	if err != nil {
		return nil, err
	}
	return run, r.child.Stop(time.Minute)
}

// begin waits until a contestant has all objects.
func (b *bench) begin(
	ctx context.Context, world *definitions.World, s starter, r *definitionsRig, bus *definitionsBus, began time.Time,
	run *DefinitionsRun,
) (err error) {
	ctx, cancel := context.WithTimeout(ctx, allThere)
	defer cancel()
	if err := s.loaded(ctx, r); err != nil {
		return fmt.Errorf("not all objects are loaded: %w", err)
	}
	run.Loaded = time.Since(began).Seconds()
	run.Sent, err = bus.await(ctx, r.child, b.crds*objectsEach, began)
	if err != nil {
		return err
	}
	return b.watched(ctx, world, s.name, began, run)
}

// rested leaves a contestant idle and measures its consumption.
func (b *bench) rested(ctx context.Context, s starter, r *definitionsRig, run *DefinitionsRun) error {
	if err := rest(ctx, r.child, settles); err != nil {
		return err
	}
	used, err := process.CPU(r.child.PID())
	if err != nil {
		return err
	}
	if err := rest(ctx, r.child, rests); err != nil {
		return err
	}
	now, err := process.CPU(r.child.PID())
	if err != nil {
		return err
	}
	run.Rest = float64((now - used).Microseconds()) / 1e3 / rests.Seconds()
	run.Memory, err = process.ReadMemory(r.child.PID())
	if err != nil {
		return err
	}
	log, err := os.Stat(r.child.Log)
	if err != nil {
		return err
	}
	for run.HeapKept == 0 {
		if err := s.collect(ctx, r); err != nil {
			return r.child.Failed(err)
		}
		run.HeapKept, _ = heapKept(r.child.Log, log.Size()) // an error means that nothing was collected yet
	}
	return nil
}

// watched waits until every resource has been watched.
func (b *bench) watched(
	ctx context.Context, world *definitions.World, name string, began time.Time, run *DefinitionsRun,
) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		q, err := world.Requests(name, began)
		if err != nil {
			return err
		}
		if q.Resources == b.crds {
			run.Watched = q.Watched.Sub(began).Seconds()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d resources are watched: %w", q.Resources, b.crds, context.Cause(ctx))
		}
	}
}

// rest leaves a process idle.
func rest(ctx context.Context, child *process.Child, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-child.Done():
		return child.Failed(errors.New("ended by itself"))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// definitionsBus is a JetStream of one run.
type definitionsBus struct {
	child    *process.Child
	conn     *nats.Conn
	consumer jetstream.Consumer
}

func (b *bench) openBus(ctx context.Context, r *definitionsRig) (bus *definitionsBus, err error) {
	bus = &definitionsBus{}
	defer func() {
		if err != nil {
			err = errors.Join(err, bus.close())
		}
	}()
	bus.child, err = process.Start(process.Spec{
		Name:      "sink",
		Argv:      []string{b.self, "sink", "--dir", filepath.Join(r.dir, "streams")},
		Log:       filepath.Join(r.dir, "sink.log"),
		Announces: true,
	})
	if err != nil {
		return bus, err
	}
	line, err := bus.child.Ready(ctx)
	if err != nil {
		return bus, err
	}
	var address sinkAddress
	if err := json.Unmarshal(line, &address); err != nil {
		return bus, err
	}
	r.sinkURL = address.URL
	bus.conn, err = nats.Connect(address.URL, nats.MaxReconnects(-1))
	if err != nil {
		return bus, err
	}
	js, err := jetstream.New(bus.conn)
	if err != nil {
		return bus, err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name:       record.Stream,
		Subjects:   []string{record.Subjects},
		Storage:    jetstream.FileStorage,
		Replicas:   1,
		Duplicates: 2 * time.Minute,
		Discard:    jetstream.DiscardNew,
	})
	if err != nil {
		return bus, err
	}
	bus.consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject:     "kubecdc." + record.Cluster + ".object.>",
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: time.Hour,
	})
	return bus, err
}

// await returns how many seconds after began n objects were on the bus.
func (d *definitionsBus) await(ctx context.Context, child *process.Child, n int, began time.Time) (float64, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var got uint64
	for {
		info, err := d.consumer.Info(ctx)
		if err == nil {
			got = info.NumPending
			if got >= uint64(n) {
				return time.Since(began).Seconds(), nil
			}
		}
		select {
		case <-tick.C:
		case <-child.Done():
			return 0, errors.New("ended by itself")
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d objects are on the bus: %w", got, n, errors.Join(err, context.Cause(ctx)))
		}
	}
}

func (d *definitionsBus) close() error {
	if d.conn != nil {
		d.conn.Close()
	}
	if d.child == nil {
		return nil
	}
	return d.child.Stop(10 * time.Second)
}

// traced makes the Go runtime log the live heap of each collection.
func traced() []string { return []string{"GODEBUG=gctrace=1"} }

func baselineSpec(b *bench, r *definitionsRig) (process.Spec, error) {
	return process.Spec{
		Name:      standard,
		Log:       filepath.Join(r.dir, "contestant.log"),
		Env:       traced(),
		Announces: true,
		Argv: []string{
			b.self, "baseline", "--kubeconfig", r.kubeconfig, "--bus", r.sinkURL, "--groups", definitions.Suffix,
		},
	}, nil
}

func announced(ctx context.Context, r *definitionsRig) error {
	_, err := r.child.Ready(ctx)
	return err
}

func agentSpec(b *bench, r *definitionsRig) (process.Spec, error) {
	var resources []string
	for _, g := range r.groups {
		resources = append(resources, "*."+g)
	}
	var err error
	r.address, err = freeAddress()
	if err != nil {
		return process.Spec{}, err
	}
	argv, err := b.agentArguments(r.dir, r.kubeconfig, r.sinkURL, r.address, resources, "")
	return process.Spec{
		Name: agent,
		Argv: argv,
		Log:  filepath.Join(r.dir, "contestant.log"),
		Env:  traced(),
	}, err
}

// ready waits until the agent is ready, that is, all first lists are loaded. With a thousand scopes
// each query costs the agent something.
func ready(ctx context.Context, r *definitionsRig) error {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if status, err := get(ctx, "http://"+r.address+"/readyz"); err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.child.Done():
			return errors.New("ended by itself")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func get(ctx context.Context, url string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// collectAgent requests the agent's metrics. Repeated requests leave enough garbage for a
// collection.
func collectAgent(ctx context.Context, r *definitionsRig) error {
	_, err := get(ctx, "http://"+r.address+"/metrics")
	return err
}
