package debezium

import (
	"sync"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// mostRecent bounds the objects of each of the two generations of a history.
const mostRecent = 1 << 16

// history recognizes late events. The record may have an event again after later ones of its
// object, for example when another agent takes over. A consumer of records keeps the highest
// version; a table takes whatever comes last. So late events are not sent.
//
// It has the objects whose events were delivered last, at least mostRecent and at most twice as
// many. It is lost with the process: then the record comes again in order from the cursor on. It is
// safe for concurrent use.
type history struct {
	mu            sync.Mutex
	recent, older map[string]delivered
}

// delivered is the last event of an object that the topic has.
type delivered struct {
	version
	op    consume.Op
	scope string // of an object in a scope with selectors
}

func (d *delivered) gone() bool { return d.op == consume.Deleted || d.op == consume.Left }

func newHistory() *history { return &history{recent: map[string]delivered{}} }

func historyKey(e *consume.Event) string { return e.PartitionKey + " " + e.UID }

func (h *history) last(key string) (delivered, bool) {
	d, ok := h.recent[key]
	if !ok {
		d, ok = h.older[key]
	}
	return d, ok
}

// isLate reports whether the topic has a later event of the object.
func (h *history) isLate(e *consume.Event) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, ok := h.last(historyKey(e))
	if !ok {
		return false
	}
	at := versionOf(e.ResourceVersion, e.History())
	switch {
	case e.Op == consume.Deleted && at.sequence == 0:
		return last.gone() // a deletion at an unknown version is the last event of its object
	case last.op == consume.Left && (e.Op == consume.Read || e.Op == consume.Entered):
		return false // selected again, perhaps at a version before that of the left
	case at.below(last.version):
		return true
	case at != last.version:
		return false
	case e.Op == consume.Left && !last.gone():
		return e.Scope != last.scope // it has moved to another scope
	}
	return last.gone()
}

// clear removes all objects. At the start of a snapshot, versions may start over: etcd was restored
// while no agent watched.
func (h *history) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recent, h.older = map[string]delivered{}, nil
}

// note notes an event that was delivered.
func (h *history) note(e *consume.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := historyKey(e)
	last, _ := h.last(key)
	d := delivered{versionOf(e.ResourceVersion, e.History()), e.Op, e.Scope}
	if d.sequence == 0 { // a deletion at an unknown version
		d.version = last.version
	}
	h.put(key, d)
}

// noteGone notes that a sweep has deleted the row of an object.
func (h *history) noteGone(key string, s *source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key += " " + s.UID
	d := delivered{versionOf(s.ResourceVersion, s.History), consume.Deleted, s.Scope}
	if last, ok := h.last(key); ok && d.below(last.version) {
		d.version = last.version
	}
	h.put(key, d)
}

// put must be called with mu held.
func (h *history) put(key string, d delivered) {
	if len(h.recent) >= mostRecent {
		h.older, h.recent = h.recent, make(map[string]delivered, mostRecent)
	}
	h.recent[key] = d
}
