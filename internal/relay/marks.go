package relay

import (
	"context"
	"sync"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// maxAhead is how many records may have been read, or delivered, beyond the first that has not been: each costs memory, and
// after a crash all of them come again.
const maxAhead = 65536

// marks are the low-water marks of a relay, and what is on its way beyond them.
type marks struct {
	mu      sync.Mutex
	windows map[logID]*window
	ahead   int            // slots in all windows
	busy    map[string]int // records on their way, by resource
	changed chan struct{}  // room for one: something is done. Only the reader waits. Never closed.
}

// logID is a Log without its identity: the last one counts.
type logID struct {
	name      string
	partition int
}

// window is what has been read of one place beyond its mark.
type window struct {
	log   consume.Log
	slots []*slot // oldest first; slots[head] is not done
	head  int
	last  uint64 // position of what has been read last
	mark  uint64
	any   bool // mark is one
	dirty bool // mark is not what has been saved
}

// slot is one record, or a run of records that are done.
type slot struct {
	window   *window
	position uint64
	done     bool
}

func newMarks() *marks {
	return &marks{windows: map[logID]*window{}, busy: map[string]int{}, changed: make(chan struct{}, 1)}
}

// stuck tells that too much has been read beyond a mark, and nothing that is on its way will change that.
func (m *marks) stuck() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ahead >= maxAhead && len(m.busy) == 0
}

// add takes in a record that has been read. It waits while too much is on its way.
func (m *marks) add(ctx context.Context, r *Record) (*slot, error) {
	m.mu.Lock()
	for m.ahead >= maxAhead && len(m.busy) > 0 {
		m.mu.Unlock()
		if err := m.wait(ctx); err != nil {
			return nil, err
		}
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	id := logID{r.Name, r.Partition}
	w := m.windows[id]
	if w == nil || w.log != r.Log || r.Position <= w.last {
		// The first of it; or another stream; or reading began anew, and what is still on its way comes again. What becomes of
		// that no longer moves the mark, which would otherwise run ahead of the copies.
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

// begin counts a record of the resource that is on its way to the target, end one that has come there.
func (m *marks) begin(resource string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy[resource]++
}

func (m *marks) end(resource string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[resource]--; m.busy[resource] == 0 {
		delete(m.busy, resource)
	}
	m.wake()
}

// wake has the reader look again.
func (m *marks) wake() {
	select {
	case m.changed <- struct{}{}:
	default: // it has not looked yet
	}
}

// done says that a record needs nothing any more.
func (m *marks) done(s *slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.done {
		return
	}
	s.done = true
	w := s.window
	current := m.windows[logID{w.log.Name, w.log.Partition}] == w
	for w.head < len(w.slots) && w.slots[w.head].done {
		w.mark, w.any, w.dirty = w.slots[w.head].position, true, true
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
	m.wake()
}

// idle waits until no record of the resource is on its way.
func (m *marks) idle(ctx context.Context, resource string) error {
	return m.until(ctx, func() bool { return m.busy[resource] == 0 })
}

// allIdle waits until no record is on its way.
func (m *marks) allIdle(ctx context.Context) error {
	return m.until(ctx, func() bool { return len(m.busy) == 0 })
}

// until waits until a condition holds. It calls it with mu held.
func (m *marks) until(ctx context.Context, holds func() bool) error {
	for {
		m.mu.Lock()
		ok := holds()
		m.mu.Unlock()
		if ok {
			return nil
		}
		if err := m.wait(ctx); err != nil {
			return err
		}
	}
}

func (m *marks) wait(ctx context.Context) error {
	select {
	case <-m.changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// all are the marks; dirty: only those that have not been saved.
func (m *marks) all(dirty bool) []Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Mark
	for _, w := range m.windows {
		if w.any && (w.dirty || !dirty) {
			out = append(out, Mark{w.log, w.mark})
		}
	}
	return out
}

// saved says that these marks have been.
func (m *marks) saved(saved []Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range saved {
		w := m.windows[logID{s.Name, s.Partition}]
		if w != nil && w.mark == s.Position && w.log == s.Log {
			w.dirty = false
		}
	}
}
