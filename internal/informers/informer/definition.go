package informer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// generation counts the changes of the resource's definition. After one, watches that are open may
// end too early, and versions of the resource may be stored in another form.
type generation struct {
	number   atomic.Uint32                           // counts the changes seen
	endWatch atomic.Pointer[context.CancelCauseFunc] // ends the current HTTP watch; nil if there is none
	// cleanEnd is one more than the generation at the start of the last HTTP watch, if that ended
	// without an error, else 0. Owner only.
	cleanEnd uint32
	listed   uint32 // generation of the last list. Owner only.
}

// errGeneration ends an HTTP watch after which objects are stored in another version: it sends
// nothing more.
var errGeneration = errors.New("the objects are stored in another version")

// NewGeneration records a change of the resource's definition. stored: the API server stores the
// objects in another version from now on. It keeps older watches open for a second, but sends
// nothing of such objects on them. A new watch gets them, or an error that its history is gone,
// while the missed versions can still be read.
func (i *Informer) NewGeneration(stored bool) {
	i.generation.number.Add(1)
	if end := i.generation.endWatch.Load(); stored && end != nil {
		(*end)(errGeneration)
	}
}

// hasWatchSentAll reports whether the watch has sent every change of the objects: it ended without
// an error, and no object is left. After a change of the definition it may have ended too early.
func (i *Informer) hasWatchSentAll() bool {
	v, _ := i.View()
	return i.generation.cleanEnd == i.generation.number.Load()+1 && !v.LostNamespace && v.Loss == nil && v.Objects == 0
}

// definition has the last known origin of a resource.
type definition struct {
	mu         sync.Mutex
	uid        string // uid of the last definition
	aggregated bool   // another server serves the resource, or did when that was last known
}

// IsAggregated reports whether another API server serves the resource, as far as known. It stays
// true after the server is no longer registered: it may return.
func (i *Informer) IsAggregated() bool {
	d := &i.definition
	d.mu.Lock()
	defer d.mu.Unlock()
	if another, known := i.deps.AnotherHas(i.resource); known {
		d.aggregated = another
	}
	return d.aggregated
}

// Definition returns the uid of the resource's definition, or of its last known one; "" if none is
// known.
func (i *Informer) Definition() string {
	d := &i.definition
	d.mu.Lock()
	defer d.mu.Unlock()
	if uid := i.deps.DefinitionOf(i.resource); uid != "" {
		d.uid = uid
	}
	return d.uid
}

// isCustom reports whether the resource comes from a definition, as far as is known.
func (i *Informer) isCustom() bool { return !i.spec.BuiltIn && !i.IsAggregated() }
