package relay

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// maxAhead bounds the records read after the first undelivered one: each costs memory, and is sent
// again after a crash.
const maxAhead = 65536

// marks are the low-water marks of a relay, and the records in flight beyond them.
type marks struct {
	mu      sync.Mutex
	windows map[logID]*window
	ahead   int            // slots in all windows
	busy    map[string]int // records in flight, by resource
	changed publish.Signal // the state changed; only the reader waits
}

// logID is a Log without its identity: only the latest log of a name is tracked.
type logID struct {
	name      string
	partition int
}

// window has the records of one log that were read beyond its mark.
type window struct {
	log   consume.Log
	slots []*slot // oldest first; slots[head] is not done
	head  int
	last  uint64 // position of the last record read
	mark  uint64
	any   bool // mark is set
	dirty bool // mark differs from the saved one
}

type slot struct {
	window   *window
	position uint64
	done     bool
}

func newMarks() *marks {
	return &marks{windows: map[logID]*window{}, busy: map[string]int{}, changed: publish.NewSignal()}
}

// isStuck reports whether the limit of records beyond a mark is reached, and no record in flight
// can change that.
func (m *marks) isStuck() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ahead >= maxAhead && len(m.busy) == 0
}

// add adds a record that was read. It waits while too many are in flight.
func (m *marks) add(ctx context.Context, r *driver.Record) (*slot, error) {
	if err := m.waitUntil(ctx, func() bool { return m.ahead < maxAhead || len(m.busy) == 0 }); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := logID{r.Name, r.Partition}
	w := m.windows[id]
	if w == nil || w.log != r.Log || r.Position <= w.last {
		// The first record, another log, or a restart of reading. Then the records in flight come
		// again, and must not move the mark.
		if w != nil {
			m.ahead -= len(w.slots) - w.head
		}
		w = &window{log: r.Log}
		m.windows[id] = w
	}
	s := &slot{window: w, position: r.Position}
	w.last = r.Position
	w.slots = append(w.slots, s)
	m.ahead++
	return s, nil
}

// beginRecord counts a record of the resource that goes to the target, until endRecord.
func (m *marks) beginRecord(resource string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy[resource]++
}

// endRecord ends that: the record was delivered, or skipped because the target refuses it.
func (m *marks) endRecord(resource string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy[resource]--
	if m.busy[resource] == 0 {
		delete(m.busy, resource)
	}
	m.changed.Raise()
}

// finish marks a record as finished.
func (m *marks) finish(s *slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.done {
		return
	}
	s.done = true
	w := s.window
	current := m.windows[logID{w.log.Name, w.log.Partition}] == w
	for w.head < len(w.slots) && w.slots[w.head].done {
		w.mark = w.slots[w.head].position
		w.any = true
		w.dirty = true
		w.slots[w.head] = nil
		w.head++
		if current {
			m.ahead--
		}
	}
	if w.head == len(w.slots) {
		w.slots, w.head = w.slots[:0], 0
	} else if w.head > 1024 && w.head > len(w.slots)/2 {
		w.slots = append(w.slots[:0], w.slots[w.head:]...)
		w.head = 0
	}
	m.changed.Raise()
}

// waitIdle waits until no record of the resource is in flight to the target.
func (m *marks) waitIdle(ctx context.Context, resource string) error {
	return m.waitUntil(ctx, func() bool { return m.busy[resource] == 0 })
}

// waitAllIdle waits until no record is in flight to the target.
func (m *marks) waitAllIdle(ctx context.Context) error {
	return m.waitUntil(ctx, func() bool { return len(m.busy) == 0 })
}

// waitUntil waits until holds returns true. It calls holds with mu held.
func (m *marks) waitUntil(ctx context.Context, holds func() bool) error {
	for {
		m.mu.Lock()
		ok := holds()
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// all returns the marks; dirty: only the unsaved ones.
func (m *marks) all(dirty bool) []driver.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []driver.Mark
	for _, w := range m.windows {
		if w.any && (w.dirty || !dirty) {
			out = append(out, driver.Mark{Log: w.log, Position: w.mark})
		}
	}
	return out
}

// noteSaved notes the marks that the cursor has.
func (m *marks) noteSaved(saved []driver.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range saved {
		w := m.windows[logID{s.Name, s.Partition}]
		if w != nil && w.mark == s.Position && w.log == s.Log {
			w.dirty = false
		}
	}
}

// maxHeld bounds the events of one scope, or the progress of one agent, that are held back; beyond
// it the oldest are dropped.
const maxHeld = 256

// copies holds back snapshot.completed and progress until every partition has delivered its copy.
// It belongs to the reader.
type copies struct {
	held map[scopeID][]*held // oldest first
}

type scopeID struct {
	cluster consume.ClusterKey
	scope   string
}

type held struct {
	id         string
	partitions map[logID]*slot
}

// addCopy adds one copy. The last one completes the event, and slots are those of all copies. late
// are slots of events that can never be complete, because a complete one has overtaken them in a
// partition: the relay started in between, for example.
func (c *copies) addCopy(r *driver.Record, s *slot) (slots, late []*slot, complete bool) {
	e := r.Event
	if r.Copies <= 1 || e.Type != consume.TypeSnapshotCompleted && e.Type != consume.TypeProgress {
		return []*slot{s}, nil, true
	}
	key := scopeID{e.ClusterKey(), e.Scope}
	if e.Progress != nil {
		key.scope = "progress/" + e.Progress.Writer // the name of a scope begins with its resource
	}
	var h *held
	if i := slices.IndexFunc(c.held[key], func(o *held) bool { return o.id == e.ID }); i >= 0 {
		h = c.held[key][i]
	} else {
		h = &held{id: e.ID, partitions: map[logID]*slot{}}
		if c.held == nil {
			c.held = map[scopeID][]*held{}
		}
		all := append(c.held[key], h)
		if len(all) > maxHeld {
			late = all[0].slots()
			all = all[1:]
		}
		c.held[key] = all
	}
	id := logID{r.Name, r.Partition}
	if before := h.partitions[id]; before != nil {
		late = append(late, before) // a duplicate of the copy
	}
	h.partitions[id] = s
	if r.Sparse {
		late = append(late, s) // if it is lost with this process, the next one supersedes it
	}
	if len(h.partitions) < r.Copies {
		return nil, late, false
	}
	rest := c.held[key][:0]
	for _, other := range c.held[key] {
		switch {
		case other == h:
		case other.isOvertakenBy(h):
			late = append(late, other.slots()...)
		default:
			rest = append(rest, other)
		}
	}
	c.held[key] = rest
	if len(rest) == 0 {
		delete(c.held, key)
	}
	return h.slots(), late, true
}

// release returns the slots of all held events, so that the cursor can pass them.
func (c *copies) release() []*slot {
	var out []*slot
	for _, all := range c.held {
		for _, h := range all {
			out = append(out, h.slots()...)
		}
	}
	return out
}

// isOvertakenBy reports whether later, which is complete, follows h in a partition.
func (h *held) isOvertakenBy(later *held) bool {
	for partition, s := range h.partitions {
		if l := later.partitions[partition]; l != nil && s.position < l.position {
			return true
		}
	}
	return false
}

func (h *held) slots() []*slot {
	return slices.Collect(maps.Values(h.partitions))
}
