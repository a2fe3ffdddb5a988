package informers_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// broker is both a queue and a bus. At most one delta per key is in flight. Recorded deltas are
// acknowledged later, in any order.
type broker struct {
	mu      sync.Mutex
	change  chan struct{} // closed and replaced at each change
	rng     *rand.Rand
	lanes   map[string][]*object.Delta // by key
	flying  map[string]bool            // the first of the lane is on record
	waiting int
	how     string
	crashed bool
	record  []*object.Delta
	told    []reported
	crashes []int
	point   func(moment string, d *object.Delta) // called before and after each record and acknowledgement; nil: not
}

// reported is a progress of the agent that is on record.
type reported struct {
	*object.Delta
	at int // how much was on record before
}

func newBroker(seed uint64) *broker {
	return &broker{
		change: make(chan struct{}),
		rng:    rand.New(rand.NewPCG(seed, 2)),
		lanes:  map[string][]*object.Delta{},
		flying: map[string]bool{},
		how:    "free",
	}
}

func (b *broker) touchLocked() {
	close(b.change)
	b.change = make(chan struct{})
}

// await waits until cond returns true. cond is called with mu held.
func (b *broker) await(ctx context.Context, cond func() bool) error {
	for {
		b.mu.Lock()
		if cond() {
			b.mu.Unlock()
			return nil
		}
		change := b.change
		b.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *broker) putLocked(key string, room int, d *object.Delta) bool {
	if b.waiting >= room || b.crashed || b.how == "full" {
		return false
	}
	b.lanes[key] = append(b.lanes[key], d)
	b.waiting++
	b.touchLocked()
	return true
}

func (b *broker) Put(ctx context.Context, key string, _ int, d *object.Delta) error {
	return b.await(ctx, func() bool { return b.putLocked(key, 20, d) })
}

func (b *broker) TryPut(key string, _ int, d *object.Delta) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.putLocked(key, 10, d)
}

func (b *broker) Room() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting < 10 && !b.crashed && b.how != "full" {
		now := make(chan struct{})
		close(now)
		return now
	}
	return b.change
}

// keepsLocked reports whether the bus does not acknowledge a delta now.
func (b *broker) keepsLocked(d *object.Delta) bool {
	if d.Report != nil {
		return b.how == "nothing" || b.how == "stream"
	}
	switch b.how {
	case "nothing":
		return true
	case "stream", "objects":
		return (d.Stream != nil) == (b.how == "stream")
	case "configmaps", "widgets":
		if d.Stream != nil {
			return d.Stream.Resource.Name == b.how
		}
		return d.Ref.Resource.Name == b.how
	case "o1":
		return d.Stream == nil && d.Ref.Name() == "o1"
	default:
		return false
	}
}

// run publishes and acknowledges until ctx ends.
func (b *broker) run(ctx context.Context) {
	var keys []string
	for b.await(ctx, func() bool {
		keys = keys[:0]
		for key, lane := range b.lanes {
			if !b.crashed && (!b.flying[key] || !b.keepsLocked(lane[0])) {
				keys = append(keys, key)
			}
		}
		return len(keys) > 0
	}) == nil {
		b.mu.Lock()
		pace := 400 * time.Microsecond
		if b.how == "late" {
			pace = 40 * time.Millisecond
		}
		pace = time.Duration(b.rng.Int64N(int64(pace)))
		b.mu.Unlock()
		wait(ctx, pace)
		if ctx.Err() != nil {
			return
		}
		slices.Sort(keys)
		b.step(keys)
	}
}

// step publishes or acknowledges the first delta of one of the keys.
func (b *broker) step(keys []string) {
	b.mu.Lock()
	key := keys[b.rng.IntN(len(keys))]
	lane := b.lanes[key]
	if len(lane) == 0 || b.crashed || b.flying[key] && b.keepsLocked(lane[0]) {
		b.mu.Unlock()
		return
	}
	d, flies := lane[0], b.flying[key]
	b.mu.Unlock()
	defer b.touch()
	if flies {
		b.acknowledge(key, d)
	} else {
		b.publish(key, d)
	}
}

// publish puts the first delta of a key on record.
func (b *broker) publish(key string, d *object.Delta) {
	b.reach("before the record", d)
	b.mu.Lock()
	if !b.isFirstLocked(key, d) {
		b.mu.Unlock()
		return
	}
	b.flying[key] = true
	b.putOnRecordLocked(d)
	b.mu.Unlock()
	b.reach("after the record", d)
}

func (b *broker) putOnRecordLocked(d *object.Delta) {
	if d.Report != nil {
		b.told = append(b.told, reported{d, len(b.record)})
		return
	}
	b.record = append(b.record, d)
}

// acknowledge acknowledges the first delta of a key.
func (b *broker) acknowledge(key string, d *object.Delta) {
	b.reach("before the acknowledgement", d)
	b.mu.Lock()
	if !b.isFirstLocked(key, d) {
		b.mu.Unlock()
		return
	}
	delete(b.flying, key)
	b.lanes[key] = b.lanes[key][1:]
	if len(b.lanes[key]) == 0 {
		delete(b.lanes, key)
	}
	b.waiting--
	b.mu.Unlock()
	if d.Acker != nil {
		d.Acker.Acked(d)
	}
	b.reach("after the acknowledgement", d)
}

// isFirstLocked reports whether d is still the first delta of its key: a crash drops the queue.
func (b *broker) isFirstLocked(key string, d *object.Delta) bool {
	return len(b.lanes[key]) > 0 && b.lanes[key][0] == d
}

func (b *broker) reach(moment string, d *object.Delta) {
	if b.point != nil && d.Report == nil {
		b.point(moment, d)
	}
}

func (b *broker) touch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touchLocked()
}

// holds sets how, which decides what the bus accepts and acknowledges.
func (b *broker) holds(how string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.how = how
	b.touchLocked()
}

func (b *broker) isFree() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.how == "free" || b.how == "late"
}

// flush puts the first delta of each key on record: each was in flight, and no acknowledgement
// follows.
func (b *broker) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(b.lanes)) {
		if !b.flying[key] {
			b.putOnRecordLocked(b.lanes[key][0])
		}
	}
}

// crash drops the queue. Its deltas that are already on record stay there without an
// acknowledgement.
func (b *broker) crash() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crashed, b.waiting = true, 0
	clear(b.lanes)
	clear(b.flying)
	b.crashes = append(b.crashes, len(b.record))
	b.touchLocked()
}

func (b *broker) revive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crashed = false
	b.touchLocked()
}

// count returns the number of recorded deltas.
func (b *broker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.record)
}

// drained waits until everything is acknowledged.
func (b *broker) drained(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return b.await(ctx, func() bool { return b.waiting == 0 })
}

func (b *broker) all() (record []*object.Delta, crashes []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.record), slices.Clone(b.crashes)
}

func (b *broker) allTold() []reported {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.told)
}

// has reports whether a version is on record, from a change or a read.
func (b *broker) has(resource string, v *version) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.record, func(d *object.Delta) bool {
		return d.Stream == nil && d.Ref.Resource.String() == resource && d.Ref.UID == v.uid &&
			d.ResourceVersion == v.rv && valueOf(d.After) == v.value
	})
}
