package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// version is a version of an object as etcd or a consumer has it.
type version struct {
	uid string
	rv  uint64
}

// etcd is the history that the store observes, and the evidence that it is held against.
type etcd struct {
	rv      uint64
	objects map[string]version // by key
	history []Event
}

func (e *etcd) change(r *rand.Rand) {
	e.rv++
	name := string(rune('a' + r.IntN(4)))
	o := at(name, fmt.Sprint(e.rv), e.rv)
	was, exists := e.objects[o.Ref.Key]
	event := Event{Type: watch.Added, Version: e.rv, Object: o, Observed: time.Now().UnixNano()}
	switch {
	case exists && r.IntN(3) == 0:
		event.Type, event.Object = watch.Deleted, at(name, was.uid, e.rv)
		delete(e.objects, o.Ref.Key)
	case exists:
		event.Type, event.Object = watch.Modified, at(name, was.uid, e.rv)
		e.objects[o.Ref.Key] = version{was.uid, e.rv}
	default:
		e.objects[o.Ref.Key] = version{o.Ref.UID, e.rv}
	}
	e.history = append(e.history, event)
}

// lastChange returns the last change of a key up to rv.
func (e *etcd) lastChange(key string, rv uint64) (last Event, ok bool) {
	for _, event := range e.history {
		if event.Object.Ref.Key == key && event.Version <= rv {
			last, ok = event, true
		}
	}
	return last, ok
}

// at returns the objects at a resourceVersion.
func (e *etcd) at(rv uint64) map[string]version {
	objects := map[string]version{}
	for _, event := range e.history {
		switch o := event.Object; {
		case event.Version > rv:
		case event.Type == watch.Deleted:
			delete(objects, o.Ref.Key)
		default:
			objects[o.Ref.Key] = version{o.Ref.UID, event.Version}
		}
	}
	return objects
}

// model drives a store by a script of chance: changes, lost history, snapshots and slow
// acknowledgements.
type model struct {
	*etcd
	t    *testing.T
	r    *rand.Rand
	s    *Store
	lane *modelLane
	ctx  context.Context // of the run
	told int             // of history: events that the owner has applied, or skipped by a list
	lost int

	filter Filter // nil: nothing is withheld

	owner chan func()
	busy  chan struct{} // holds a token while the owner works
	stop  context.CancelFunc
	ends  sync.WaitGroup // of the run

	saved    atomic.Pointer[checkpoint.Position]
	logs     atomic.Uint64 // replacements of the log
	restarts int
	first    uint64 // resourceVersion of the first list
	resumed  uint64 // resourceVersion at which the run has resumed
	replayed uint64 // what earlier runs may have sent; 0 in the first run
}

// begin begins a run of the agent.
func (m *model) begin(ctx context.Context) {
	ctx, m.stop = context.WithCancel(ctx)
	m.ctx = ctx
	m.owner = make(chan func(), 1)
	m.busy = make(chan struct{}, 1)
	m.s = New(Options{
		Resource:     configMaps,
		Scope:        "configmaps",
		Lane:         m.lane,
		Now:          time.Now,
		Snapshots:    true,
		Log:          slog.New(slog.DiscardHandler),
		Metrics:      testMetrics(),
		Save:         m.save,
		Replaced:     func() (uint64, time.Time) { return m.logs.Load(), time.Time{} },
		NoteCaptured: func() {},
	})
	if m.filter != nil {
		m.s.SetFilter(m.filter, "", nil)
	}
	store := m.s
	m.ends.Go(func() { store.Run(ctx, 0) })
	m.ends.Go(m.own)
	p := m.saved.Load()
	switch {
	case p == nil:
		m.first = m.rv
		m.s.BeginList(Fresh)
		m.load(m.objects)
		m.s.EndList(m.rv, m.s.NewSnapshot(m.rv, true))
		m.told = len(m.history)
	case m.r.IntN(4) == 0: // etcd has compacted what was after the checkpoint
		m.s.Continue(&p.Scope)
		m.s.Resume(&p.Scope)
		m.resumed = m.rv
		m.restartFrom(p.ResourceVersion, m.objects, m.rv)
		m.told = len(m.history)
	default:
		m.resume(p)
	}
}

// resume begins a run at its checkpoint.
func (m *model) resume(p *checkpoint.Position) {
	m.s.Continue(&p.Scope)
	m.s.Resume(&p.Scope)
	m.s.BeginList(AtCheckpoint)
	m.load(m.at(p.ResourceVersion))
	m.replayed = m.rv
	m.resumed = p.ResourceVersion
	m.s.AwaitReplay(m.replayed)
	m.s.EndList(p.ResourceVersion, m.snapshotAfter(p)...)
	m.told = slices.IndexFunc(m.history, func(e Event) bool { return e.Version > p.ResourceVersion })
	if m.told < 0 {
		m.told = len(m.history)
	}
}

// own does what the owner has to do, until the run ends.
func (m *model) own() {
	busy := m.busy
	for f := range m.owner {
		f()
		<-busy
	}
}

// snapshotAfter returns the notices of the snapshot that a run begins with.
func (m *model) snapshotAfter(p *checkpoint.Position) []*Notice {
	switch {
	case p.Sweep, p.Snapshot.MayBeGivenUp():
		m.s.RequireSnapshot()
	case p.Snapshot != nil:
		return []*Notice{m.s.ResumeSnapshot("configmaps", &p.Scope)}
	}
	return nil
}

func (m *model) load(objects map[string]version) {
	for key, v := range objects {
		m.s.Load(at(key[strings.LastIndexByte(key, '/')+1:], v.uid, v.rv), nil)
	}
}

// end ends a run.
func (m *model) end() {
	m.stop()
	close(m.owner)
	m.ends.Wait()
}

// save saves the position, as the keeper of checkpoints does.
func (m *model) save(context.Context) error {
	if p, ok := m.s.Position(); ok {
		m.saved.Store(&p)
	}
	return nil
}

func (m *model) run(f func()) bool {
	select {
	case m.busy <- struct{}{}:
	default:
		return false // the owner waits for the gate, or for room
	}
	m.owner <- f
	return true
}

// pass lets time pass, sometimes enough to give up a snapshot.
func (m *model) pass() {
	sleep(time.Millisecond)
	if m.r.IntN(8) == 0 {
		sleep(time.Duration(m.r.IntN(5000)) * time.Millisecond)
	}
}

func (m *model) step(ctx context.Context) {
	switch n := m.r.IntN(26); {
	case n < 6:
		m.change(m.r)
	case n < 11:
		to := min(len(m.history), m.told+1+m.r.IntN(3))
		events := slices.Clone(m.history[m.told:to])
		if m.r.IntN(4) == 0 && to == len(m.history) {
			events = append(events, Event{Type: watch.Bookmark, Version: m.rv})
		}
		if m.run(func() { m.s.Apply(m.ctx, events, func() {}) }) {
			m.told = to
		}
	case n == 11:
		m.relist()
	case n == 12:
		store, within := m.s, m.ctx
		m.ends.Go(func() { _, _ = store.TakeSnapshot(within, "configmaps", "") })
	case n == 13:
		m.lane.leaveRoom(m.r.IntN(2) == 0)
	case n == 14:
		_ = m.save(ctx)
	case n == 15 && m.saved.Load() != nil:
		m.end()
		m.lane.crash(m.r)
		m.restarts++
		m.begin(ctx)
	case n == 16:
		m.restart()
	case n == 18:
		m.publish()
	case n == 17 && m.r.IntN(4) == 0:
		m.lane.replace()
		m.logs.Add(1)
		m.s.Rebase()
	default:
		m.lane.acknowledge(m.r)
	}
}

// relist skips the changes that the owner has not seen, and compares a list with the objects.
func (m *model) relist() {
	objects := maps.Clone(m.objects)
	rv := m.rv
	from := m.s.View().Reached
	relist := func() {
		m.s.BeginList(Relist)
		for key, v := range objects {
			m.s.Compare(at(key[strings.LastIndexByte(key, '/')+1:], v.uid, v.rv), new(object.Scanned))
		}
		m.s.Lose(Loss{From: from, Since: time.Now(), Reason: object.Expired})
		gap := m.s.Gap(rv, nil)
		gap.Sweeps = m.s.View().Loss.From < m.replayed
		m.s.EndList(rv, gap)
	}
	if m.run(relist) {
		m.told = len(m.history)
		m.lost++
	}
}

// restart gives up history, and reads the objects again.
func (m *model) restart() {
	objects := maps.Clone(m.objects)
	rv := m.rv
	if m.run(func() { m.restartFrom(m.s.View().Reached, objects, rv) }) {
		m.told = len(m.history)
		m.lost++
	}
}

func (m *model) restartFrom(lost uint64, objects map[string]version, rv uint64) {
	m.lane.forget(rv)
	m.s.Restart(Loss{From: lost, Since: time.Now(), Reason: object.Compacted})
	m.load(objects)
	m.s.EndList(rv, m.s.Gap(rv, nil), m.s.NewSnapshot(rv, false))
}

// thirdVersions withholds every third version.
type thirdVersions struct{}

func (thirdVersions) Withholds(d *object.Delta) string {
	if d.ResourceVersion%3 == 0 {
		return "third"
	}
	return ""
}

// publish publishes the progress. It claims the versions up to its own: the record has to show what
// etcd had.
func (m *model) publish() {
	r := m.s.Report(time.Time{})
	m.lane.mu.Lock()
	defer m.lane.mu.Unlock()
	c := m.lane.acked
	c.report(&r, m.restarts, m.resumed)
	for rv := m.first; rv <= c.claimed; rv++ {
		if c.isHidden(rv) {
			continue
		}
		objects, isOpen := c.at(rv)
		if !isOpen && !maps.Equal(objects, m.at(rv)) {
			m.t.Errorf("%d is claimed, hidden are %v and gaps %v: at %d the record has %v, etcd %v", c.claimed,
				c.hidden, c.gaps, rv, objects, m.at(rv))
		}
	}
}

// check checks what the store claims. With filters, the position passes what they withhold.
func (m *model) check() {
	if m.filter == nil {
		m.checkPosition()
		m.checkReport()
	}
}

// checkPosition holds the position against history: of each object the bus has acknowledged what
// etcd had at the position, or a later version, unless a restart reads it.
func (m *model) checkPosition() {
	p, ok := m.s.Position()
	if !ok || p.Log < m.logs.Load() { // a restart sends everything to the new log
		return
	}
	m.lane.mu.Lock()
	defer m.lane.mu.Unlock()
	m.checkClaim("position", p.ResourceVersion, func(key string, acked version) bool {
		switch {
		case p.Snapshot != nil && key > p.Snapshot.Cursor: // a restart reads it
		case acked.rv <= m.lane.known && (p.Sweep || p.Snapshot != nil && !m.lane.acked.touched[acked.uid]):
			// the next snapshot sweeps what only an earlier run has sent
		default:
			return false
		}
		return true
	})
}

// checkReport holds what the progress says against history.
func (m *model) checkReport() {
	r := m.s.Report(time.Time{})
	if r.ResourceVersion == 0 {
		return
	}
	m.lane.mu.Lock()
	defer m.lane.mu.Unlock()
	m.checkClaim("progress", r.ResourceVersion, func(_ string, acked version) bool {
		return m.lane.acked.isInGap(acked.rv) || acked.rv == 0 && m.logs.Load() > 0 && m.s.View().Sweeping
	})
	for _, e := range m.history {
		if m.first < e.Version && e.Version <= r.ResourceVersion && m.lane.acked.misses(e.Version) {
			m.t.Errorf("the progress is %d, and %s %s at %d is missing", r.ResourceVersion, e.Type, e.Object.Ref.Key,
				e.Version)
		}
	}
}

// checkClaim checks that the bus has acknowledged what etcd had at a resourceVersion, or a later
// version, of each object but the exempt ones.
func (m *model) checkClaim(of string, rv uint64, isExempt func(key string, acked version) bool) {
	for n := range 4 {
		key := at(string(rune('a'+n)), "", 0).Ref.Key
		last, changed := m.lastChange(key, rv)
		acked, has := m.lane.acked.objects[key]
		switch {
		case !changed, isExempt(key, acked):
		case last.Type == watch.Deleted && has && acked.rv < last.Version,
			last.Type != watch.Deleted && (!has || acked.rv < last.Version) && !m.isLater(key, last.Version):
			m.t.Errorf("the %s is %d, etcd has %s %s at %d, and the bus has acknowledged %v", of, rv, last.Type, key,
				last.Version, acked)
		}
	}
}

// isLater reports whether the bus may have acknowledged a deletion of a key after rv.
func (m *model) isLater(key string, rv uint64) bool {
	if _, has := m.lane.acked.objects[key]; has {
		return false
	}
	return slices.ContainsFunc(m.history, func(e Event) bool {
		return e.Object.Ref.Key == key && e.Type == watch.Deleted && e.Version > rv
	})
}

// play plays the history of a seed.
func play(t *testing.T, seed uint64, filter Filter) *model {
	m := &model{
		etcd:   &etcd{rv: 1, objects: map[string]version{}},
		r:      rand.New(rand.NewPCG(seed, 1)),
		filter: filter,
	}
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("the seed is %d", seed)
			}
		}()
		m.t = t
		m.lane = newModelLane(t, m.etcd, 2+m.r.IntN(4))
		m.lane.filters = filter != nil
		for range m.r.IntN(8) {
			m.change(m.r)
		}
		m.begin(t.Context())
		for range 120 {
			m.step(t.Context())
			synctest.Wait()
			m.pass()
			m.check()
		}
		m.finish()
		m.end()
	})
	return m
}

// TestStoreIsFaithful runs a store through histories of chance, with crashes. A consumer of its
// deltas has the objects of etcd. No delta passes what announces it, no sweep deletes an object
// that exists, and the position claims no change that the bus has not acknowledged.
func TestStoreIsFaithful(t *testing.T) {
	var gaps, snapshots, restarts int
	for seed := range seedsOfModels() {
		m := play(t, seed, nil)
		gaps += m.lane.gaps
		snapshots += m.lane.completed
		restarts += m.restarts
	}
	if gaps < 100 || snapshots < 200 || restarts < 300 {
		t.Errorf("the histories had %d gaps, %d snapshots and %d restarts", gaps, snapshots, restarts)
	}
}

// TestProgressTellsWhatIsHidden has filters that withhold versions. At each moment that the
// progress claims, outside of hidden spans and gaps, the record shows the objects of etcd.
func TestProgressTellsWhatIsHidden(t *testing.T) {
	for seed := range seedsOfModels() {
		play(t, seed, thirdVersions{})
	}
}

func seedsOfModels() uint64 {
	if testing.Short() {
		return 600
	}
	return 2000
}

// finish delivers and acknowledges the rest.
func (m *model) finish() {
	m.lane.leaveRoom(true)
	synctest.Wait()
	isQuiet := false
	for n := 0; !isQuiet; n++ {
		if n == 1000 {
			m.t.Fatalf("the owner has applied %d of %d changes, and waits", m.told, len(m.history))
		}
		isQuiet = m.told == len(m.history) && !m.lane.acknowledge(m.r)
		if isQuiet {
			sleep(time.Minute) // a snapshot that could not begin is tried again
			isQuiet = !m.lane.acknowledge(m.r)
		}
		events := slices.Clone(m.history[m.told:])
		if m.run(func() { m.s.Apply(m.ctx, events, func() {}) }) {
			m.told = len(m.history)
		}
		m.lane.acknowledge(m.r)
		synctest.Wait()
		m.check()
	}
	m.publish()
	if m.filter == nil {
		m.compare()
	}
}

// compare compares what a consumer has in the end with etcd.
func (m *model) compare() {
	if !maps.Equal(m.lane.acked.objects, m.objects) || !maps.Equal(m.lane.sent.objects, m.objects) {
		m.t.Errorf("a consumer has %v, and etcd %v", m.lane.acked.objects, m.objects)
	}
	for _, e := range m.history {
		if e.Version > m.first && m.lane.acked.misses(e.Version) {
			m.t.Errorf("%s %s at %d is missing outside of gaps %v", e.Type, e.Object.Ref.Key, e.Version,
				m.lane.acked.gaps)
		}
	}
	if p, ok := m.s.Position(); !ok || p.ResourceVersion != m.s.View().Reached || m.s.View().Pending > 0 {
		m.t.Errorf("the position is %d (%t), and everything up to %d is acknowledged", p.ResourceVersion, ok,
			m.s.View().Reached)
	}
	if m.lane.gaps == 0 && m.lost > 0 && m.restarts == 0 {
		m.t.Errorf("history was lost %d times, and no gap says so", m.lost)
	}
}
