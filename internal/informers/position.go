package informers

import (
	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// position is that of the store with what the informer observes.
func (i *informer) position() (checkpoint.Position, bool) {
	p, ok := i.store.Position()
	p.Retiring = i.retiring.Load()
	if !ok || p.Resource != "" { // the checkpoint that it began with: it may be of another version of the resource
		return p, ok
	}
	i.selection.Record(&p.Scope)
	p.Aggregated, p.Definition = i.definition.IsAggregated(), i.definition.UID()
	p.Ignored = i.ignores
	p.LastSeen = i.state.lastSeen()
	return p, true
}
