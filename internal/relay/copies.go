package relay

import (
	"maps"
	"slices"

	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// maxHeld bounds the events of one scope that are held back; beyond it the oldest are dropped.
const maxHeld = 256

// copies holds back snapshot.completed and progress until every partition has delivered its copy. It belongs to the reader.
type copies struct {
	held map[scopeID][]*held // oldest first
}

type scopeID struct{ source, scope string }

type held struct {
	id         string
	partitions map[logID]*slot
}

// come adds one copy. The last one completes the event, and slots are those of all copies. late are slots of events that can never be
// complete, because a complete one has overtaken them in a partition: the relay started in between, for example.
func (c *copies) come(r *driver.Record, s *slot) (slots, late []*slot, complete bool) {
	e := r.Event
	if r.Copies <= 1 || e.Type != consume.TypeSnapshotCompleted && e.Type != consume.TypeProgress {
		return []*slot{s}, nil, true
	}
	key := scopeID{e.Source, e.Scope}
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

// overtakenBy reports whether later, which is complete, follows h in a partition.
func (h *held) overtakenBy(later *held) bool {
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
