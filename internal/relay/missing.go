package relay

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

const (
	// clockSkew is how far the clocks of this process and of an agent may be apart.
	clockSkew = 5 * time.Minute
	// sendLag is how much later than its time an event may come to the bus.
	sendLag = 2 * time.Minute
	// maxMissing bounds the resources of missing. Beyond it, all resources count as one.
	maxMissing = 256
)

// missing says which events the target lacks although the relay selects them: those that the relay
// has missed or skipped. It is kept with the cursor, because only a later snapshot replaces them.
type missing struct {
	mu    sync.Mutex
	state missingState
}

type missingState struct {
	Latest time.Time       `json:"latest,omitzero"` // the latest time of an event that was read
	All    *hole           `json:"all,omitempty"`   // of any resource
	Of     map[string]hole `json:"of,omitempty"`    // by resource, as resourceOf names it
}

// hole is a span of time from which events are missing. A snapshot that begins after its end has
// what they would have shown.
type hole struct {
	From  time.Time `json:"from,omitzero"` // zero: not known
	Until time.Time `json:"until"`
}

// with returns the span of both.
func (h hole) with(other hole) hole {
	if other.From.Before(h.From) {
		h.From = other.From
	}
	if other.Until.After(h.Until) {
		h.Until = other.Until
	}
	return h
}

// read notes the time of an event that was read.
func (m *missing) read(e *consume.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Time.After(m.state.Latest) {
		m.state.Latest = e.Time
	}
}

// lose notes that the target does not get an event.
func (m *missing) lose(e *consume.Event, now time.Time) {
	if e == nil || e.Resource == "" || e.Time.IsZero() {
		m.loseAny(now)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key, h := resourceOf(e), hole{e.Time, e.Time}
	if known, ok := m.state.Of[key]; ok {
		h = known.with(h)
	}
	if m.state.Of == nil {
		m.state.Of = map[string]hole{}
	}
	m.state.Of[key] = h
	if len(m.state.Of) > maxMissing {
		for _, h := range m.state.Of {
			m.add(h)
		}
		m.state.Of = nil
	}
}

// loseAny notes that the target does not get some records. Nothing is known about them, except that
// they were on the bus before now.
func (m *missing) loseAny(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := hole{Until: now.Add(clockSkew)}
	if !m.state.Latest.IsZero() {
		h.From = m.state.Latest.Add(-sendLag)
	}
	m.add(h)
}

// forget notes that nobody knows what former relays of this name have lost.
func (m *missing) forget(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(hole{Until: now.Add(clockSkew)})
}

// add adds a hole in all resources. mu is held.
func (m *missing) add(h hole) {
	if m.state.All != nil {
		h = m.state.All.with(h)
	}
	m.state.All = &h
}

// around returns the hole of a resource of a cluster; false: there is none.
func (m *missing) around(of consume.ClusterKey, resource string) (hole, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.state.Of[resourceIn(of, resource)]
	switch {
	case m.state.All == nil:
		return h, ok
	case !ok:
		return *m.state.All, true
	}
	return m.state.All.with(h), true
}

// until returns the end of the hole of a resource of a cluster; false: there is none.
func (m *missing) until(of consume.ClusterKey, resource string) (time.Time, bool) {
	h, ok := m.around(of, resource)
	return h.Until, ok
}

// note returns the state for the cursor.
func (m *missing) note() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	note, err := json.Marshal(&m.state)
	if err != nil {
		return nil // times of years that JSON cannot have: the next relay does not know
	}
	return note
}

// load takes the state from the cursor. It returns an error if it is none.
func (m *missing) load(note []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(note) == 0 {
		return nil
	}
	return json.Unmarshal(note, &m.state)
}
