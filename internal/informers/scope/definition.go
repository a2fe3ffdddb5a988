package scope

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// generation follows the definition of a resource: how many times it was changed, and whether the last HTTP watch has sent everything.
type generation struct {
	number   atomic.Uint32                           // counts the changes that were seen
	endWatch atomic.Pointer[context.CancelCauseFunc] // ends the HTTP watch that there is, nil: none
	// whole is one more than the generation that the last HTTP watch began with, if it ended without an error, else 0. Of the owner.
	whole  uint32
	listed uint32 // that of the last list. Of the owner.
}

// errGeneration ends an HTTP watch after which objects are stored in another version: nothing comes on it any more.
var errGeneration = errors.New("the objects are stored in another version")

// NewGeneration notes that the definition of the resource was changed. stored: its objects are stored in another version. The API
// server keeps older watches open for a second, and sends nothing of such objects on them. A new watch gets them, or an error that its
// history is gone, while the missed versions can still be read.
func (i *Informer) NewGeneration(stored bool) {
	i.generation.number.Add(1)
	if end := i.generation.endWatch.Load(); stored && end != nil {
		(*end)(errGeneration)
	}
}

// watchEnded notes whether an HTTP watch ended with an error.
func (g *generation) watchEnded(number uint32, err error) {
	if g.whole = 0; err == nil {
		g.whole = number + 1
	}
}

// watchSentAll reports whether the watch has sent everything that happened to the objects: it ended without an error, and they are all
// gone. After a change of the definition it may have ended before.
func (i *Informer) watchSentAll() bool {
	return i.generation.whole == i.generation.number.Load()+1 && !i.LostNamespace() && i.store.Loss() == nil && i.store.Len() == 0
}

// definition is the known origin of a resource. Its methods do not block.
type definition struct {
	current func() string                // returns the uid of the definition that exists now, "": none
	another func() (another, known bool) // reports whether another API server serves the resource now

	mu         sync.Mutex
	uid        string // of the definition that there was last
	aggregated bool   // another server serves the resource, or did at the last time when that was known
}

// IsAggregated reports whether another API server serves the resource, as far as that is known. It still does when the server is no longer
// registered: it may come back.
func (d *definition) IsAggregated() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if another, known := d.another(); known {
		d.aggregated = another
	}
	return d.aggregated
}

// UID returns the uid of the definition that the resource has, or had when it was known last. "": the resource is not known to have one.
func (d *definition) UID() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if uid := d.current(); uid != "" {
		d.uid = uid
	}
	return d.uid
}

// isCustom reports whether the resource comes from a definition, as far as is known.
func (i *Informer) isCustom() bool {
	return !i.spec.BuiltIn && !i.definition.IsAggregated()
}
