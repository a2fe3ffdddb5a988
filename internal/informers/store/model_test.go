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
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

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

// modelLane is a lane with room for a few deltas of objects. It checks each delta as a consumer
// would that receives them in this order.
type modelLane struct {
	t       *testing.T
	room    int
	forLive bool // no room is left for deltas of lists
	mu      sync.Mutex
	changed chan struct{}
	items   []*object.Delta // not acknowledged
	keys    []string        // of items

	sent, acked map[string]version // what a consumer has of each object: of all deltas, and of the acknowledged ones
	gaps        int
	snapshot    string // the one that is being sent
	touched     map[string]bool
	reads       int
	completed   int
	swept       map[string]version // by snapshots whose end is not acknowledged

	etcd *etcd
}

func newModelLane(t *testing.T, e *etcd, room int) *modelLane {
	return &modelLane{
		t:       t,
		etcd:    e,
		room:    room,
		changed: make(chan struct{}),
		sent:    map[string]version{},
		acked:   map[string]version{},
		swept:   map[string]version{},
		touched: map[string]bool{},
	}
}

func (l *modelLane) Put(ctx context.Context, key string, _ int, d *object.Delta) error {
	for {
		l.mu.Lock()
		if d.Stream != nil || l.hasRoomLocked() {
			l.takeLocked(key, d)
			l.mu.Unlock()
			return nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *modelLane) TryPut(key string, _ int, d *object.Delta) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forLive || !l.hasRoomLocked() {
		return false
	}
	l.takeLocked(key, d)
	return true
}

func (l *modelLane) Room() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.forLive && l.hasRoomLocked() {
		open := make(chan struct{})
		close(open)
		return open
	}
	return l.changed
}

// leaveRoom changes whether there is room for deltas of lists.
func (l *modelLane) leaveRoom(forLists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forLive = !forLists
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *modelLane) hasRoomLocked() bool { return len(l.items) < l.room }

func (l *modelLane) takeLocked(key string, d *object.Delta) {
	l.items, l.keys = append(l.items, d), append(l.keys, key)
	if d.Stream != nil {
		l.takeStreamLocked(d.Stream)
		return
	}
	for _, other := range l.items { // the gate
		if s := other.Stream; s != nil && (s.Kind == object.Gap || s.Kind == object.ScopeStarted) {
			l.t.Errorf("%s %s at %d passes %s, which is not acknowledged", d.Op, key, d.ResourceVersion, s.Kind)
		}
	}
	l.touched[key] = true
	was, has := l.sent[key]
	wasSent := d.Before != nil && has && was == version{d.Before.Ref.UID, d.Before.ResourceVersion}
	switch d.Op {
	case object.Created:
		if has {
			l.t.Errorf("%s at %d is created, and the consumer has it", key, d.ResourceVersion)
		}
	case object.Updated, object.Deleted:
		if !wasSent || d.Previous != was.rv {
			l.t.Errorf("%s %s at %d follows %d (%v), and the consumer has %v", d.Op, key, d.ResourceVersion, d.Previous,
				d.Before, was)
		}
	case object.Read:
		l.reads++
		if d.Snapshot != l.snapshot {
			l.t.Errorf("%s is read in snapshot %s, and %s has begun", key, d.Snapshot, l.snapshot)
		}
		if has && d.ResourceVersion != was.rv {
			l.t.Errorf("%s is read at %d, and the consumer has %v", key, d.ResourceVersion, was)
		}
	case object.Entered, object.Left:
		l.t.Errorf("%s has op %s without a selector", key, d.Op)
	}
	apply(l.sent, key, d)
}

func (l *modelLane) takeStreamLocked(s *object.StreamEvent) {
	switch s.Kind {
	case object.Gap:
		l.gaps++
	case object.SnapshotStarted:
		l.snapshot, l.reads = s.Snapshot, 0
		clear(l.touched)
	case object.SnapshotCompleted: // the consumer now deletes what was neither read nor changed
		l.completed++
		if s.Snapshot != l.snapshot || s.Objects != l.reads {
			l.t.Errorf("snapshot %s of %d objects is completed after %d reads of %s", s.Snapshot, s.Objects, l.reads,
				l.snapshot)
		}
		for key, v := range l.sent {
			if l.touched[key] {
				continue
			}
			if l.etcd.objects[key].uid == v.uid {
				l.t.Errorf("the sweep of %s deletes %s, which exists", s.Snapshot, key)
			}
			delete(l.sent, key)
			l.swept[key] = v
		}
	case object.ScopeStarted, object.ScopeEnded:
	}
}

func apply(table map[string]version, key string, d *object.Delta) {
	if d.After == nil {
		delete(table, key)
		return
	}
	table[key] = version{d.After.Ref.UID, d.After.ResourceVersion}
}

// acknowledge acknowledges one delta, the first of its key; false: there is none.
func (l *modelLane) acknowledge(r *rand.Rand) bool {
	l.mu.Lock()
	if len(l.items) == 0 {
		l.mu.Unlock()
		return false
	}
	n := r.IntN(len(l.items))
	n = slices.Index(l.keys, l.keys[n])
	d, key := l.items[n], l.keys[n]
	l.items, l.keys = slices.Delete(l.items, n, n+1), slices.Delete(l.keys, n, n+1)
	switch {
	case d.Stream == nil:
		apply(l.acked, key, d)
	case d.Stream.Kind == object.SnapshotCompleted:
		maps.DeleteFunc(l.acked, func(key string, v version) bool { return l.swept[key] == v })
		clear(l.swept)
	}
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	d.Acker.Acked(d)
	return true
}

// model drives a store by a script of chance: changes, lost history, snapshots and slow
// acknowledgements.
type model struct {
	*etcd
	t     *testing.T
	r     *rand.Rand
	s     *Store
	lane  *modelLane
	told  int // of history: events that the owner has applied, or skipped by a list
	owner chan func()
	busy  chan struct{} // holds a token while the owner works
	lost  int
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

func (m *model) step(ctx context.Context) {
	switch n := m.r.IntN(20); {
	case n < 6:
		m.change(m.r)
	case n < 11:
		to := min(len(m.history), m.told+1+m.r.IntN(3))
		events := slices.Clone(m.history[m.told:to])
		if m.r.IntN(4) == 0 && to == len(m.history) {
			events = append(events, Event{Type: watch.Bookmark, Version: m.rv})
		}
		if m.run(func() { m.s.Apply(ctx, events, func() {}) }) {
			m.told = to
		}
	case n == 11:
		m.relist()
	case n == 12:
		go func() { _, _ = m.s.TakeSnapshot(ctx, "configmaps", "") }()
	case n == 13:
		m.lane.leaveRoom(m.r.IntN(2) == 0)
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
		m.s.EndList(rv, m.s.Gap(rv, nil))
	}
	if m.run(relist) {
		m.told = len(m.history)
		m.lost++
	}
}

// checkPosition holds the position against history: of each object the bus has acknowledged what
// etcd had at the position, or a later version, unless a restart reads it.
func (m *model) checkPosition() {
	p, ok := m.s.Position()
	if !ok {
		return
	}
	m.lane.mu.Lock()
	defer m.lane.mu.Unlock()
	for n := range 4 {
		key := at(string(rune('a'+n)), "", 0).Ref.Key
		last, changed := m.lastChange(key, p.ResourceVersion)
		acked, has := m.lane.acked[key]
		switch {
		case !changed, p.Snapshot != nil && key > p.Snapshot.Cursor: // a restart reads it
		case last.Type == watch.Deleted && has && acked.rv < last.Version,
			last.Type != watch.Deleted && (!has || acked.rv < last.Version) && !m.isLater(key, last.Version):
			m.t.Errorf("the position is %d, etcd has %s %s at %d, and the bus has acknowledged %v", p.ResourceVersion,
				last.Type, key, last.Version, acked)
		}
	}
}

// isLater reports whether the bus may have acknowledged a deletion of a key after rv.
func (m *model) isLater(key string, rv uint64) bool {
	if _, has := m.lane.acked[key]; has {
		return false
	}
	return slices.ContainsFunc(m.history, func(e Event) bool {
		return e.Object.Ref.Key == key && e.Type == watch.Deleted && e.Version > rv
	})
}

// TestStoreIsFaithful runs a store through histories of chance. A consumer of its deltas has the
// objects of etcd. No delta passes what announces it, no sweep deletes an object that exists, and
// the position claims no change that the bus has not acknowledged.
func TestStoreIsFaithful(t *testing.T) {
	var gaps, snapshots int
	for seed := range uint64(600) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			m := &model{
				etcd: &etcd{objects: map[string]version{}}, t: t, r: rand.New(rand.NewPCG(seed, 1)),
				owner: make(chan func(), 1), busy: make(chan struct{}, 1),
			}
			m.lane = newModelLane(t, m.etcd, 2+m.r.IntN(4))
			m.s = New(Options{
				Resource:     configMaps,
				Scope:        "configmaps",
				Lane:         m.lane,
				Now:          time.Now,
				Snapshots:    true,
				Log:          slog.New(slog.DiscardHandler),
				Metrics:      testMetrics(),
				Save:         func(context.Context) error { return nil },
				NoteCaptured: func() {},
			})
			var ends sync.WaitGroup
			ends.Go(func() { m.s.Run(ctx, 0) })
			ends.Go(func() {
				for f := range m.owner {
					f()
					<-m.busy
				}
			})
			for range m.r.IntN(8) {
				m.change(m.r)
			}
			m.s.BeginList(Fresh)
			for key, v := range m.objects {
				m.s.Load(at(key[strings.LastIndexByte(key, '/')+1:], v.uid, v.rv), nil)
			}
			m.s.EndList(m.rv, m.s.NewSnapshot(m.rv, true))
			m.told = len(m.history)
			for range 120 {
				m.step(ctx)
				synctest.Wait()
				m.checkPosition()
			}
			m.finish(ctx)
			gaps, snapshots = gaps+m.lane.gaps, snapshots+m.lane.completed
			cancel()
			close(m.owner)
			ends.Wait()
		})
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	if gaps < 100 || snapshots < 200 {
		t.Errorf("the histories had %d gaps and %d snapshots", gaps, snapshots)
	}
}

// finish delivers and acknowledges the rest, and compares what a consumer has with etcd.
func (m *model) finish(ctx context.Context) {
	m.lane.leaveRoom(true)
	synctest.Wait()
	for n := 0; m.told < len(m.history) || m.lane.acknowledge(m.r); n++ {
		if n == 1000 {
			m.t.Fatalf("the owner has applied %d of %d changes, and waits", m.told, len(m.history))
		}
		events := slices.Clone(m.history[m.told:])
		if m.run(func() { m.s.Apply(ctx, events, func() {}) }) {
			m.told = len(m.history)
		}
		m.lane.acknowledge(m.r)
		synctest.Wait()
		m.checkPosition()
	}
	if !maps.Equal(m.lane.acked, m.objects) || !maps.Equal(m.lane.sent, m.objects) {
		m.t.Errorf("a consumer has %v, and etcd %v", m.lane.acked, m.objects)
	}
	if p, ok := m.s.Position(); !ok || p.ResourceVersion != m.s.View().Reached || m.s.View().Pending > 0 {
		m.t.Errorf("the position is %d (%t), and everything up to %d is acknowledged", p.ResourceVersion, ok,
			m.s.View().Reached)
	}
	if m.lane.gaps == 0 && m.lost > 0 {
		m.t.Errorf("history was lost %d times, and no gap says so", m.lost)
	}
}
