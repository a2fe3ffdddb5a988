package informers_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/scope"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// TestCrashes plays each script once, and counts its crash points: the moments before and after each record, acknowledgement and save of
// the checkpoint. Then it plays the script again for a crash point, kills the agent there, starts another one from the last save, and judges
// the record. A few points of each script are drawn. CRASHES=all takes all of them, CRASHES=17 takes one. CRASH_SEED decides which are drawn,
// and the order and times of acknowledgements and answers. One seed gives nearly the same schedule each time, not exactly: the kill may
// come at another record than the last time.
func TestCrashes(t *testing.T) {
	which, seed := crashesOf(t)
	for _, s := range scripts() {
		t.Run(s.name, func(t *testing.T) {
			for _, on := range []busKind{jetStream, otherBus} {
				t.Run(string(on), func(t *testing.T) {
					t.Parallel()
					enumerate(t, &plan{script: s, bus: on, seed: seed}, which)
				})
			}
		})
	}
}

// crashesOf returns which crash points to take, and the seed.
func crashesOf(t *testing.T) (which string, seed uint64) {
	t.Helper()
	which, seed = os.Getenv("CRASHES"), 1
	if which == "all" {
		seed = rand.Uint64N(1_000_000)
	}
	if text := os.Getenv("CRASH_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CRASH_SEED=%d", seed)
	return which, seed
}

// A busKind decides what a start can ask the bus for.
type busKind string

const (
	jetStream busKind = "JetStream" // for the last stream event of a resource
	otherBus  busKind = "another bus"
)

// plan is how a script is played.
type plan struct {
	script *script
	bus    busKind
	seed   uint64
	at     int // the crash point at which the agent is killed; 0: it is not
	after  aftermath
}

// aftermath is what follows the kill.
type aftermath struct {
	rest bool   // the rest of the script, else nothing happens any more
	slow string // "API server", "bus" or ""
}

func (a aftermath) String() string {
	text := "the script ends"
	if a.rest {
		text = "the script continues"
	}
	if a.slow != "" {
		text += ", the " + a.slow + " is slow"
	}
	return text
}

func aftermaths() []aftermath {
	return []aftermath{{}, {slow: "API server"}, {slow: "bus"}, {rest: true}}
}

// enumerate plays a script without a kill, and then with a kill at each of the chosen crash points.
func enumerate(t *testing.T, p *plan, which string) {
	uncrashed := p.play(t)
	p.report(t, uncrashed)
	var points []int
	for at := range uncrashed.points {
		points = append(points, at+1)
	}
	all := aftermaths()
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.script.name))
	rng := rand.New(rand.NewPCG(p.seed, h.Sum64()))
	drawn := 8
	if testing.Short() {
		drawn = 2
	}
	switch which {
	case "":
		rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
		points = points[:min(drawn, len(points))]
	case "all":
	default:
		at, err := strconv.Atoi(which)
		if err != nil {
			t.Fatal(err)
		}
		points = []int{at}
	}
	runs, failed, excused, missed := 0, 0, 0, 0
	for _, at := range points {
		chosen := all
		if which == "" {
			chosen = all[rng.IntN(len(all)):][:1]
		}
		for _, after := range chosen {
			crashed := *p
			crashed.at, crashed.after = at, after
			r := crashed.play(t)
			runs++
			switch {
			case r.where == "":
				missed++
			case r.excused != "":
				excused++
			case len(r.problems) > 0:
				failed++
			}
			if failed <= 2 || which != "all" {
				crashed.report(t, r)
			}
		}
	}
	t.Logf("%d crash points, %d of them taken: %d runs, %d failed, %d excused, %d without a kill",
		uncrashed.points, len(points), runs, failed, excused, missed)
	if failed > 0 {
		t.Errorf("%d of %d runs failed", failed, runs)
	}
}

// report fails the test if there are problems.
func (p *plan) report(t *testing.T, r *outcome) {
	t.Helper()
	if len(r.problems) == 0 {
		return
	}
	killed := "not killed"
	if r.where != "" {
		killed = fmt.Sprintf("killed at point %d, %s; then %s", p.at, r.where, p.after)
	}
	again := fmt.Sprintf("CRASH_SEED=%d CRASHES=%d go test -count=1 -run '^%s$' ./internal/informers", p.seed, p.at, strings.ReplaceAll(t.Name(), "/", "$/^"))
	t.Errorf("VERDICT: script %q on %s, seed %d, %s:\n  %s\nagain: %s\n%s", p.script.name, p.bus, p.seed, killed, strings.Join(r.problems, "\n  "), again, r.notes)
}

// outcome is the result of playing a script.
type outcome struct {
	points   int    // that were reached
	where    string // the crash point of the kill; "": there was none
	problems []string
	excused  exception // an exception that leaves nothing to judge; "": none
	notes    string
}

// play plays the script in a bubble of its own.
func (p *plan) play(t *testing.T) *outcome {
	out := new(outcome)
	synctest.Test(t, func(t *testing.T) {
		c := newCrash(t, p)
		defer c.close()
		defer func() {
			out.points, out.where, out.excused = c.points.count, c.points.where, c.excused
			switch failure := recover().(type) {
			case nil:
			case wrong:
				out.problems = append(out.problems, string(failure))
			default:
				panic(failure)
			}
			if out.notes = c.notes.String(); t.Failed() {
				out.problems = append(out.problems, "the test has failed")
			}
		}()
		c.plays()
		c.judges(out)
	})
	return out
}

// crash is a script that is being played: a machine whose checkpoint is kept as an agent keeps it.
type crash struct {
	*machine
	plan    *plan
	points  *moments
	disk    *disk
	keeper  *checkpoint.Keeper
	killed  chan struct{}   // closed once the agent is killed
	running context.Context // of the agent
	stopSet context.CancelFunc
	latest  atomic.Int64      // the longest latency of the API server
	marked  map[string]uint64 // resourceVersions that the script has marked
	found   uint32            // the highest history number that is saved or on record at the last restore of etcd
	events  []*event          // of the record
	excused exception
}

func newCrash(t *testing.T, p *plan) *crash {
	c := &crash{machine: newMachine(t, p.seed), plan: p, points: &moments{counts: true, at: p.at}, marked: map[string]uint64{}}
	c.disk = &disk{points: c.points, saved: func(all map[string]checkpoint.Scope) {
		c.memory.mu.Lock()
		defer c.memory.mu.Unlock()
		c.memory.scopes = all
	}}
	c.bus.point = c.points.atDelta
	c.late = func() time.Duration { return 0 }
	rng, mu := rand.New(rand.NewPCG(p.seed, 3)), sync.Mutex{}
	c.latest.Store(int64(600 * time.Microsecond))
	c.delay = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.Int64N(c.latest.Load()))
	}
	c.do(func() { c.rv++ })
	c.taken = p.script.takes
	c.defined = c.taken.widgets != "none" && !p.script.undefined
	c.begins()
	c.note("script %q on %s, seed %d, point %d, then %s", p.script.name, p.bus, p.seed, p.at, p.after)
	return c
}

// plays plays the script. After a kill it starts another agent.
func (c *crash) plays() {
	if c.defined {
		c.define(true)
	}
	for _, step := range append([]step{starts}, c.plan.script.steps...) {
		step(c)
		if c.life == nil || !c.isKilled() {
			continue
		}
		c.note("killed %s", c.points.where)
		c.replacesAgent()
		if !c.plan.after.rest {
			break
		}
	}
	c.points.stop()
	if c.life == nil {
		c.start()
	}
}

func (c *crash) isKilled() bool {
	select {
	case <-c.killed:
		return true
	default:
		return false
	}
}

// replacesAgent starts another agent after a kill.
func (c *crash) replacesAgent() {
	c.dies()
	switch c.plan.after.slow {
	case "API server":
		c.latest.Store(int64(60 * time.Millisecond))
	case "bus":
		c.bus.holds("late")
	}
	if !c.plan.after.rest {
		c.heals()
	}
	c.start()
}

// dies kills the agent, if it is not killed yet, and waits for its end.
func (c *crash) dies() {
	c.crashed = true
	if len(c.segment.choices) > 1 {
		c.vague = true
		c.segment.choices = append(c.segment.choices, choice{"none", "none"}) // see machine.restarts
	}
	c.points.mu.Lock()
	kill := c.points.kill
	c.points.mu.Unlock()
	kill()
	c.ends()
}

// heals ends all faults of the script.
func (c *crash) heals() {
	c.heal()
	if c.plan.after.slow == "bus" && c.points.where != "" {
		c.bus.holds("late")
	} else {
		c.bus.holds("free")
	}
}

// start starts an agent from the last save.
func (c *crash) start() {
	wait(c.t.Context(), time.Millisecond) // no two processes begin a snapshot in the same millisecond, which names it
	c.bus.revive()
	c.excuses()
	if len(c.memory.Scopes()) == 0 {
		c.blank = append(c.blank, c.bus.count())
	}
	log := strict(c.t, slog.New(slog.NewTextHandler(noted(c.note), nil)))
	k := checkpoint.NewKeeper(c.disk, checkpoint.Identity{ClusterUID: "uid", Cluster: "cluster", Bus: string(c.plan.bus)}, log, nil)
	if err := k.Load(c.t.Context()); err != nil {
		c.fail("load the checkpoint: %v", err)
	}
	o := informers.Options{
		Config: c.config(), Spec: c.taken.spec(), Snapshot: c.plan.script.mode, Every: c.plan.script.every, Memory: k,
		Lane: func(string) store.Lane { return c.bus }, Log: log, Registerer: prometheus.NewRegistry(),
	}
	c.log.use(&o, nil)
	c.asks(&o)
	set, err := informers.New(o)
	if err != nil {
		c.fail("%v", err)
	}
	informers.Hasten(set)
	observing, stopObserving := context.WithCancel(c.t.Context())
	saving, stopSaving := context.WithCancel(c.t.Context())
	killed := make(chan struct{})
	var both sync.WaitGroup
	ended := make(chan error, 1)
	both.Go(func() { ended <- set.Run(observing) })
	both.Go(func() { _ = k.Run(saving) })
	c.keeper, c.killed, c.running = k, killed, observing
	c.stopSet = func() {
		stopObserving()
		if err := <-ended; err != nil {
			c.fail("Run: %v", err)
		}
		ended <- nil
	}
	c.life = &life{set: set, end: sync.OnceFunc(func() {
		stopObserving()
		stopSaving()
		both.Wait()
	})}
	c.points.mu.Lock()
	defer c.points.mu.Unlock()
	c.points.kill = sync.OnceFunc(func() { // it does not block: the bus and the agent's own goroutines call it
		c.bus.crash()
		c.disk.kill()
		stopObserving()
		stopSaving()
		close(killed)
	})
}

// asks sets what the agent can ask the bus for. It is also the place for the newest record of an object.
func (c *crash) asks(o *informers.Options) {
	if c.plan.bus == jetStream {
		o.LastEvent = func(_ context.Context, of *object.Resource) (scope.LastEvent, bool, error) { return c.lastEvent(of) }
	}
}

// pass lets time pass. It returns early if the agent is killed.
func (c *crash) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.killed:
	}
}

// endsInOrder ends the agent in order: it drains, says how far it came, and saves.
func (c *crash) endsInOrder() {
	set, keeper := c.life.set, c.keeper
	c.stopSet()
	for c.bus.drained(c.t.Context(), 10*time.Millisecond) != nil && !c.isKilled() {
		continue
	}
	finishing, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	var finish sync.WaitGroup
	finished := make(chan struct{})
	finish.Go(func() {
		defer close(finished)
		_ = set.Finish(finishing)
	})
	select {
	case <-finished:
	case <-c.killed:
		cancel()
		finish.Wait()
	}
	if c.isKilled() {
		return
	}
	closing, cancelClose := context.WithTimeout(c.t.Context(), time.Second)
	defer cancelClose()
	_ = keeper.Close(closing)
	if c.isKilled() {
		return
	}
	c.ends()
	c.stops = append(c.stops, stop{c.bus.count(), c.memory.unfinished(), c.memory.behind(set.Status())})
}

// settle waits until everything is live and on the bus, at least for quiet.
func (c *crash) settle(quiet time.Duration) {
	wait(c.t.Context(), quiet)
	for began := time.Now(); ; c.bookmark() { // a tombstone waits for a resourceVersion above all that was sent
		err := c.isLive(nil)
		if err == nil {
			return
		}
		if time.Since(began) > settlesWithin {
			c.fail("not live %v after the last change: %v", settlesWithin, err)
		}
		wait(c.t.Context(), time.Second)
	}
}

// highestHistory returns the highest history number that is saved or on record.
func (c *crash) highestHistory() (n uint32) {
	for _, h := range c.memory.histories() {
		n = max(n, h)
	}
	record, _ := c.bus.all()
	for _, d := range record {
		if d.Stream != nil {
			n = max(n, d.Stream.History)
		}
		n = max(n, d.History)
	}
	return n
}
