package relay

import "github.com/kubecdc/kubecdc/pkg/consume"

// maxHeld is how many events of one scope are held back; beyond it the oldest are forgotten.
const maxHeld = 256

// copies holds back events of which each partition has a copy and that say something about all that is before them, until
// the last partition has come to its copy. It belongs to the reader.
type copies struct {
	held map[scopeID][]*held // oldest first
}

type scopeID struct{ source, scope string }

type held struct {
	id         string
	partitions map[logID]*slot
}

// come takes in one copy: either the event is to be held back, or, complete, it goes on; slots are then those of all copies,
// done once it is delivered. late are slots of events that will never be complete, since one that is has overtaken them in
// some partition and thus in all: the relay began in between, say.
func (c *copies) come(r *Record, s *slot) (slots, late []*slot, complete bool) {
	e := r.Event
	if r.Copies <= 1 || e.Type != consume.TypeSnapshotCompleted && e.Type != consume.TypeProgress {
		return []*slot{s}, nil, true
	}
	key := scopeID{e.Source, e.Scope}
	var h *held
	for _, other := range c.held[key] {
		if other.id == e.ID {
			h = other
		}
	}
	if h == nil {
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
		late = append(late, before) // a copy of the copy
	}
	h.partitions[id] = s
	if r.Sparse {
		late = append(late, s) // if it is lost with this process, the next one says more
	}
	if len(h.partitions) < r.Copies {
		return nil, late, false
	}
	rest := c.held[key][:0]
	for _, other := range c.held[key] {
		switch {
		case other == h:
		case other.overtakenBy(h):
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

// release returns the slots of all that is held back. The events stay, but the cursor no longer waits for them.
func (c *copies) release() []*slot {
	var out []*slot
	for _, all := range c.held {
		for _, h := range all {
			out = append(out, h.slots()...)
		}
	}
	return out
}

// overtakenBy tells whether later, of which all copies have come, lies behind h.
func (h *held) overtakenBy(later *held) bool {
	for partition, s := range h.partitions {
		if l := later.partitions[partition]; l != nil && s.position < l.position {
			return true
		}
	}
	return false
}

func (h *held) slots() []*slot {
	out := make([]*slot, 0, len(h.partitions))
	for _, s := range h.partitions {
		out = append(out, s)
	}
	return out
}
