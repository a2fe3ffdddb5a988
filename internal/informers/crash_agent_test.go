package informers_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// crash is a script that is being played. It is a machine without drawn commands, whose checkpoint
// is saved by a Keeper, as in an agent: memory shows only what was saved.
type crash struct {
	*machine
	plan   *plan
	points *moments
	disk   *disk
	agent  *agent            // the last one
	late   atomic.Int64      // the longest latency of the API server
	marked map[string]uint64 // resourceVersions that the script has marked

	found   uint32    // the highest history number that was known at the last restore of etcd
	excused exception // "": none
	events  []*event  // of the record
}

func newCrash(t *testing.T, p *plan) *crash {
	c := &crash{machine: newMachine(t, p.seed), plan: p, points: &moments{at: p.at}, marked: map[string]uint64{}}
	c.initial = p.initial
	c.disk = &disk{points: c.points, saved: c.noteSave}
	c.bus.point = c.points.reachDelta
	c.machine.late = func() time.Duration { return 0 } // delay is enough
	rng, mu := rand.New(rand.NewPCG(p.seed, 3)), sync.Mutex{}
	c.late.Store(int64(600 * time.Microsecond))
	c.delay = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.Int64N(c.late.Load()))
	}
	c.do(func() { c.rv++ })
	c.taken = p.script.takes
	if c.taken.widgets != "none" && !p.script.undefined {
		c.define(true)
	}
	c.begins()
	return c
}

// noteSave makes memory show a save.
func (c *crash) noteSave(all map[string]checkpoint.Scope) {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	c.memory.scopes = all
	if first, ok := all["configmaps"]; ok && c.from == 0 && c.plan.script.mode == informer.SnapshotNever {
		c.from = first.ResourceVersion
	}
}

// conclude writes what the run was to out.
func (c *crash) conclude(out *outcome) {
	c.points.mu.Lock()
	defer c.points.mu.Unlock()
	c.notesMu.Lock()
	defer c.notesMu.Unlock()
	out.points = c.points.names
	out.where = c.points.where
	out.excused = c.excused
	out.notes = c.notes.String()
}

// plays plays the script. After the kill it starts another agent.
func (c *crash) plays() {
	c.start()
	for _, step := range c.plan.script.steps {
		step(c)
		if c.life == nil || !c.agent.isKilled() {
			continue
		}
		c.note("killed")
		c.replacesAgent()
		if !c.plan.after.rest {
			break
		}
	}
	c.points.end()
	if c.life == nil {
		c.start()
	}
}

// replacesAgent starts another agent after the kill.
func (c *crash) replacesAgent() {
	c.dies()
	if c.plan.after.slow == "API server" {
		c.late.Store(int64(60 * time.Millisecond))
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
	c.points.killNow()
	c.ends()
}

// heals ends all faults of the script.
func (c *crash) heals() {
	c.heal()
	if c.crashed && c.plan.after.slow == "bus" {
		c.bus.holds("late")
	} else {
		c.bus.holds("free")
	}
}

// agent is a run of an agent: a manager of informers, and the Keeper that saves their positions.
type agent struct {
	set     *informers.Manager
	keeper  *checkpoint.Keeper
	running context.Context // of the manager
	killed  chan struct{}   // closed once it is killed
	ended   chan struct{}   // closed when the manager has ended

	stopSet, stopKeeper context.CancelFunc
}

func (a *agent) isKilled() bool {
	select {
	case <-a.killed:
		return true
	default:
		return false
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
	keeper := checkpoint.NewKeeper(c.disk, checkpoint.Identity{ClusterUID: "uid", Cluster: "cluster"}, log, nil)
	if err := keeper.Load(c.t.Context()); err != nil {
		c.fail("load the checkpoint: %v", err)
	}
	o := informers.Options{
		Config:     c.config(),
		Spec:       c.taken.spec(),
		Snapshot:   c.plan.script.mode,
		Every:      c.plan.script.every,
		Memory:     keeper,
		Lane:       func(string) store.Lane { return c.bus },
		Log:        log,
		Registerer: prometheus.NewRegistry(),
	}
	c.log.use(&o, nil)
	c.answersStart(&o)
	set, err := informers.New(o)
	if err != nil {
		c.fail("%v", err)
	}
	informers.Hasten(set)
	c.agent = &agent{set: set, keeper: keeper, killed: make(chan struct{}), ended: make(chan struct{})}
	c.run(c.agent)
}

// run runs an agent until it is killed, or its life ends.
func (c *crash) run(a *agent) {
	saving, stopKeeper := context.WithCancel(c.t.Context())
	a.stopKeeper = stopKeeper
	a.running, a.stopSet = context.WithCancel(c.t.Context())
	c.points.setKill(sync.OnceFunc(func() { // it is called by the bus or by the agent itself, with the lock of points
		if c.plan.after.flight && c.points.where != "" {
			c.bus.flush()
		}
		c.bus.crash()
		c.disk.kill()
		a.stopSet()
		a.stopKeeper()
		close(a.killed)
	}))
	var both sync.WaitGroup
	both.Go(func() {
		defer close(a.ended)
		if err := a.set.Run(a.running); err != nil {
			c.t.Errorf("Run: %v", err)
		}
	})
	both.Go(func() { _ = a.keeper.Run(saving) })
	c.life = &life{set: a.set, end: func() {
		a.stopSet()
		a.stopKeeper()
		both.Wait()
	}}
}

// answersStart sets what an agent can ask the bus for at its start.
func (c *crash) answersStart(o *informers.Options) {
	if c.plan.bus != jetStream {
		return
	}
	o.LastEvent = func(_ context.Context, of *object.Resource) (informer.LastEvent, bool, error) {
		return c.lastEvent(of)
	}
}

// pass lets time pass. It returns early if the agent is killed.
func (c *crash) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.agent.killed:
	}
}

// endsInOrder ends the agent like a signal: the queue drains, each scope sends its progress, and
// the positions are saved.
func (c *crash) endsInOrder() {
	a := c.agent
	a.stopSet()
	<-a.ended
	for !a.isKilled() && c.bus.drained(c.t.Context(), 10*time.Millisecond) != nil {
		continue
	}
	finishing, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	var finish sync.WaitGroup
	finish.Go(func() {
		defer cancel()
		_ = a.set.Finish(finishing)
	})
	select {
	case <-finishing.Done():
	case <-a.killed:
		cancel()
	}
	finish.Wait()
	closing, cancelClosing := context.WithTimeout(c.t.Context(), time.Second)
	defer cancelClosing()
	_ = a.keeper.Close(closing) // a disk after a kill refuses it
	if a.isKilled() {
		return
	}
	c.ends()
	c.stops = append(c.stops, stop{c.bus.count(), c.memory.unfinished(), c.memory.behind(a.set.Status())})
}

// awaits waits until everything is live and on the bus, or the agent is killed. Each minute it
// sends a bookmark, as API servers do: a tombstone waits for a resourceVersion above all that was
// sent.
func (c *crash) awaits() {
	began := time.Now()
	for marked := began; !c.agent.isKilled(); {
		c.pass(20 * time.Millisecond)
		err := c.isLive(nil)
		if err == nil {
			return
		}
		if time.Since(began) > liveWithin {
			c.fail("not live after %v: %v", liveWithin, err)
		}
		if time.Since(marked) > time.Minute {
			c.bookmark()
			marked = time.Now()
		}
	}
}

// settle waits until everything is live and on the bus, at least for quiet.
func (c *crash) settle(quiet time.Duration) {
	wait(c.t.Context(), quiet)
	for began := time.Now(); ; c.bookmark() { // see awaits
		err := c.isLive(nil)
		if err == nil {
			return
		}
		if time.Since(began) > liveWithin {
			c.fail("not live %v after the last change: %v", liveWithin, err)
		}
		wait(c.t.Context(), time.Second)
	}
}

// highestHistory returns the highest history number that is saved or on record.
func (c *crash) highestHistory() (n uint32) {
	for _, saved := range c.memory.histories() {
		n = max(n, saved)
	}
	record, _ := c.bus.all()
	for _, d := range record {
		n = max(n, d.History)
		if d.Stream != nil {
			n = max(n, d.Stream.History)
		}
	}
	return n
}
