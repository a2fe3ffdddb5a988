package store

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/kubecdc/kubecdc/internal/object"
)

// recorded is what an event says of an object.
type recorded struct {
	key, uid string
	rv       uint64
	exists   bool
}

// modelConsumer has what a consumer has of the scope.
type modelConsumer struct {
	objects  map[string]version
	snapshot string          // the one under way
	begun    map[string]bool // snapshots
	from     uint64          // its resourceVersion
	touched  map[string]bool // uids that are read in it, or changed after that version
	read     map[string]bool // keys that are read in that snapshot
	floor    uint64          // resourceVersion of the last complete one

	versions map[uint64]bool // resourceVersions of all deltas
	gaps     [][2]uint64     // from, to
	record   []recorded
	complete []uint64            // resourceVersions of complete snapshots
	unread   []uint64            // ends of gaps after which only a snapshot shows the objects
	claimed  uint64              // by progress
	run      int                 // that has sent the last progress
	hidden   []object.HiddenSpan // of all progress
}

func newModelConsumer() *modelConsumer {
	return &modelConsumer{
		objects: map[string]version{},
		begun:   map[string]bool{},
		touched: map[string]bool{},
		read:    map[string]bool{},

		versions: map[uint64]bool{},
	}
}

func (c *modelConsumer) clone() *modelConsumer {
	return &modelConsumer{
		objects:  maps.Clone(c.objects),
		snapshot: c.snapshot,
		from:     c.from,
		begun:    maps.Clone(c.begun),
		touched:  maps.Clone(c.touched),
		read:     maps.Clone(c.read),
		floor:    c.floor,
		versions: maps.Clone(c.versions),
		gaps:     slices.Clone(c.gaps),
		record:   slices.Clone(c.record),
		complete: slices.Clone(c.complete),
		unread:   slices.Clone(c.unread),
		claimed:  c.claimed,
		run:      c.run,
		hidden:   slices.Clone(c.hidden),
	}
}

// take takes a delta. An older version than that of the object is a duplicate.
func (c *modelConsumer) take(key string, d *object.Delta) {
	if d.Stream != nil {
		c.takeStream(d.Stream)
		return
	}
	uid := d.Ref.UID
	switch {
	case d.Op != object.Read:
		c.touched[uid] = c.touched[uid] || d.ResourceVersion > c.from
	case d.Snapshot == c.snapshot:
		c.touched[uid] = true
		c.read[key] = true
	}
	was, has := c.objects[key]
	c.versions[d.ResourceVersion] = true
	c.record = append(c.record, recorded{key, d.Ref.UID, d.ResourceVersion, d.After != nil})
	switch {
	case !has && d.ResourceVersion <= c.floor: // it is late
	case d.After == nil && has && was.uid == d.Ref.UID:
		delete(c.objects, key)
	case d.After != nil && d.After.ResourceVersion >= was.rv:
		c.objects[key] = version{d.After.Ref.UID, d.After.ResourceVersion}
	}
}

func (c *modelConsumer) takeStream(s *object.StreamEvent) {
	switch s.Kind {
	case object.SnapshotStarted:
		if !c.begun[s.Snapshot] { // otherwise a duplicate
			clear(c.touched)
			clear(c.read)
			c.begun[s.Snapshot] = true
			c.snapshot = s.Snapshot
			c.from = s.ResourceVersion
		}
	case object.SnapshotCompleted:
		if c.snapshot == s.Snapshot {
			maps.DeleteFunc(c.objects, func(_ string, v version) bool { return !c.touched[v.uid] })
			for uid, r := range c.last(c.from) {
				if r.exists && !c.touched[uid] {
					c.record = append(c.record, recorded{r.key, uid, c.from, false})
				}
			}
			c.snapshot = ""
			c.floor = c.from
			c.complete = append(c.complete, c.from)
		}
	case object.Gap:
		c.gaps = append(c.gaps, [2]uint64{s.From, s.To})
		if s.Reason != object.Expired {
			c.unread = append(c.unread, s.To)
		}
	case object.ScopeStarted, object.ScopeEnded:
	}
}

// misses reports whether the consumer has neither a version nor a gap around it.
func (c *modelConsumer) misses(rv uint64) bool { return !c.versions[rv] && !c.isInGap(rv) }

// report takes a progress of a run that has resumed at a resourceVersion. An earlier run has
// reported the hidden spans up to its last claim.
func (c *modelConsumer) report(r *object.ScopeReport, run int, resumed uint64) {
	if r.ResourceVersion == 0 && c.claimed == 0 {
		return
	}
	isOpen := func(s object.HiddenSpan) bool { return s.Until.IsZero() }
	if run != c.run {
		for n := range c.hidden {
			if isOpen(c.hidden[n]) {
				c.hidden[n].Until.ResourceVersion = max(resumed, c.claimed+1)
			}
		}
		unreported := object.HiddenSpan{
			From:  object.Point{ResourceVersion: c.claimed + 1},
			Until: object.Point{ResourceVersion: resumed},
		}
		if c.claimed == 0 { // there was no progress before
			unreported.From.ResourceVersion = 1
			unreported.Until.ResourceVersion = r.ResourceVersion
		}
		c.hidden = append(c.hidden, unreported)
		c.run = run
	}
	c.hidden = slices.DeleteFunc(c.hidden, isOpen)
	c.hidden = slices.Concat(c.hidden, r.Hidden, r.FormerHidden)
	c.claimed = max(c.claimed, r.ResourceVersion)
}

// isHidden reports whether progress says that versions were withheld at rv.
func (c *modelConsumer) isHidden(rv uint64) bool {
	return slices.ContainsFunc(c.hidden, func(s object.HiddenSpan) bool {
		return s.From.ResourceVersion <= rv && (s.Until.IsZero() || rv < s.Until.ResourceVersion)
	})
}

// at returns the objects at rv that the record shows, and whether a gap leaves one of them open.
func (c *modelConsumer) at(rv uint64) (objects map[string]version, isOpen bool) {
	objects = map[string]version{}
	for uid, r := range c.last(rv) {
		if r.exists && r.rv > objects[r.key].rv {
			objects[r.key] = version{uid, r.rv}
			isOpen = isOpen || c.isInGap(r.rv)
		}
	}
	return objects, isOpen || c.isInGap(rv) || c.isUnread(rv)
}

// isUnread reports whether a snapshot is missing before rv: the first one, or one after a gap.
func (c *modelConsumer) isUnread(rv uint64) bool {
	isRead := func(from uint64) bool {
		return slices.ContainsFunc(c.complete, func(s uint64) bool { return from <= s && s <= rv })
	}
	return !isRead(0) || slices.ContainsFunc(c.unread, func(to uint64) bool { return to <= rv && !isRead(to) })
}

// last returns the last event up to rv of each object, by uid.
func (c *modelConsumer) last(rv uint64) map[string]recorded {
	last := map[string]recorded{}
	for _, r := range c.record {
		if r.rv <= rv && r.rv >= last[r.uid].rv {
			last[r.uid] = r
		}
	}
	return last
}

func (c *modelConsumer) isInGap(rv uint64) bool {
	return slices.ContainsFunc(c.gaps, func(g [2]uint64) bool { return g[0] < rv && rv <= g[1] })
}

// modelLane is a lane with room for a few deltas of objects. It checks each delta as a consumer
// would that receives them in this order.
type modelLane struct {
	t       *testing.T
	room    int
	forLive bool // no room is left for deltas of lists
	filters bool // versions are withheld: a consumer lacks some
	mu      sync.Mutex
	changed chan struct{}
	items   []*object.Delta // not acknowledged
	keys    []string        // of items

	sent, acked *modelConsumer // of all deltas, and of the acknowledged ones
	known       uint64         // up to here, deltas may repeat what an earlier run has sent
	repeats     bool           // the snapshot under way may be one that an earlier run has sent
	replaced    uint64         // etcd's resourceVersion at the last replacement of the log
	gaps        int
	completed   int

	etcd *etcd
}

func newModelLane(t *testing.T, e *etcd, room int) *modelLane {
	return &modelLane{
		t:       t,
		etcd:    e,
		room:    room,
		changed: make(chan struct{}),
		sent:    newModelConsumer(),
		acked:   newModelConsumer(),
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
		l.checkStreamLocked(d.Stream)
	} else {
		l.checkLocked(key, d)
	}
	l.sent.take(key, d)
}

func (l *modelLane) checkLocked(key string, d *object.Delta) {
	for _, other := range l.items { // the gate
		s := other.Stream
		if d.ResourceVersion <= l.replaced { // it may have waited for room since
			continue
		}
		if s != nil && (s.Kind == object.Gap || s.Kind == object.ScopeStarted) {
			l.t.Errorf("%s %s at %d passes %s, which is not acknowledged", d.Op, key, d.ResourceVersion, s.Kind)
		}
	}
	was, has := l.sent.objects[key]
	// An earlier run may have sent this version, or versions that a list after a gap leaves out.
	if l.filters || d.ResourceVersion <= l.known || max(was.rv, d.Previous) <= l.known && l.known > 0 {
		return
	}
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
		if d.Snapshot != l.sent.snapshot && !l.repeats {
			l.t.Errorf("%s is read in snapshot %s, and %s has begun", key, d.Snapshot, l.sent.snapshot)
		}
		if has && d.ResourceVersion != was.rv {
			l.t.Errorf("%s is read at %d, and the consumer has %v", key, d.ResourceVersion, was)
		}
	case object.Entered, object.Left:
		l.t.Errorf("%s has op %s without a selector", key, d.Op)
	}
}

func (l *modelLane) checkStreamLocked(s *object.StreamEvent) {
	switch s.Kind {
	case object.Gap:
		l.gaps++
	case object.SnapshotCompleted: // the consumer now deletes what was neither read nor changed
		l.completed++
		if l.sent.snapshot == "" && l.repeats {
			return
		}
		// After a restart, a snapshot with filters may read again what has changed since.
		isExact := !l.filters || l.known == 0
		if s.Snapshot != l.sent.snapshot || s.Objects < 0 || isExact && s.Objects != len(l.sent.read) {
			l.t.Errorf("snapshot %s of %d objects is completed after %d reads of %s", s.Snapshot, s.Objects,
				len(l.sent.read), l.sent.snapshot)
		}
		for key, v := range l.sent.objects {
			if !l.filters && !l.sent.touched[v.uid] && l.etcd.objects[key].uid == v.uid {
				l.t.Errorf("the sweep of %s deletes %s, which exists", s.Snapshot, key)
			}
		}
	case object.SnapshotStarted:
		l.repeats = l.sent.begun[s.Snapshot]
	case object.ScopeStarted, object.ScopeEnded:
	}
}

// forget makes reads of later versions follow, and deltas that do not follow the last ones.
func (l *modelLane) forget(rv uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = max(l.known, rv)
}

// replace replaces the log of the bus. The new one gets what is not acknowledged.
func (l *modelLane) replace() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = l.etcd.rv
	l.replaced = l.etcd.rv
	l.acked = newModelConsumer()
	l.sent = newModelConsumer()
	for n, d := range l.items {
		l.sent.take(l.keys[n], d)
	}
}

// crash ends the connection. The bus gets some of the deltas that are not acknowledged: the first
// ones of each key, or none.
func (l *modelLane) crash(r *rand.Rand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := map[string]bool{}
	for n, d := range l.items {
		key := l.keys[n]
		lost[key] = lost[key] || r.IntN(2) == 0
		if !lost[key] {
			l.acked.take(key, d)
		}
	}
	l.items, l.keys = nil, nil
	l.sent = l.acked.clone()
	l.known = l.etcd.rv
	l.repeats = true
	l.forLive = false
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
	l.acked.take(key, d)
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	d.Acker.Acked(d)
	return true
}
