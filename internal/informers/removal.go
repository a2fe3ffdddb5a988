package informers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// life is what an informer knows of the life of its resource.
type life struct {
	kicked chan struct{} // of one element: what is waited for may be there
	// vanished is the resourceVersion at which the resource's definition was deleted, 0: it was not.
	vanished atomic.Uint64
	// buriedAt is the resourceVersion up to which it was told that there is nothing any more.
	buriedAt atomic.Uint64
	again    atomic.Pointer[func() bool] // tells if it is defined again; nil: it was not deleted
	deciding sync.Mutex                  // held while it is decided if the informer lives on
	decided  bool                        // it does not
	// edition counts how many times the definition was changed, as far as that was seen.
	edition atomic.Uint32
	ending  atomic.Pointer[context.CancelCauseFunc] // ends the HTTP watch that there is, nil: none
	// clean is one more than the edition that the last HTTP watch began with, if it ended as it should, else 0.
	clean    atomic.Uint32
	orphaned atomic.Bool // it is vanished because its namespace is: no watch ends for that
	// aggregated tells that another server serves the resource, or did so when this was known last. servedBy tells if one does
	// now; nil: nobody can be asked.
	aggregated atomic.Bool
	servedBy   func() (another, known bool)
	// definition is the uid of the resource's definition, as far as it is known. definedBy returns that of the one that there
	// is now, "": none; nil: nobody can be asked.
	definition atomic.Pointer[string]
	definedBy  func() string

	// Of the goroutine that lists: the resourceVersion at which the resource was established, behind which its first object
	// is, and when that was seen; 0: it is not known, or done with.
	born     uint64
	bornAt   time.Time
	listedAs uint32 // edition when the last list was begun
}

// isCustom tells if a definition stands behind the resource, as far as is known.
func (i *informer) isCustom() bool {
	return !discovery.IsBuiltIn(i.resource.Group) && !i.isAggregated()
}

// watchEnded notes how an HTTP watch has ended.
func (l *life) watchEnded(edition uint32, err error) {
	if err != nil {
		l.clean.Store(0)
		return
	}
	l.clean.Store(edition + 1)
}

// toldAll tells if the watch has told all that became of the objects: it ended as it should, and they are all gone. Behind a
// changed definition it may have ended before.
func (i *informer) toldAll() bool {
	return i.clean.Load() == i.edition.Load()+1 && !i.orphaned.Load() && i.store.Loss() == nil && i.store.IsEmpty()
}

// vanishedAgain reports whether the resource is being retired already. While it was, one of that name may have come and gone at rv.
func (i *informer) vanishedAgain(rv uint64) bool {
	i.deciding.Lock() // it may live on
	defer i.deciding.Unlock()
	was := i.vanished.Load()
	if was != 0 && rv > was {
		i.edition.Add(1) // what the watch has told is not all
		i.setVanished(rv)
		i.kick()
	}
	return was != 0
}

// isAggregated tells if another server serves the resource, as far as that is known. That it is registered no more does not
// change that: it may come back. It does not block.
func (l *life) isAggregated() bool {
	if l.servedBy != nil {
		if another, known := l.servedBy(); known {
			l.aggregated.Store(another)
		}
	}
	return l.aggregated.Load()
}

// definitionUID is the uid of the definition that the resource has, or had when it was known last. "": the resource is not
// known to have one. It does not block.
func (l *life) definitionUID() string {
	known := l.definition.Load()
	if l.definedBy != nil {
		if uid := l.definedBy(); uid != "" && (known == nil || uid != *known) {
			known = &uid
			l.definition.Store(known)
		}
	}
	if known == nil {
		return ""
	}
	return *known
}

// isOver tells if a watch that has ended with err shows that its resource, of which the definition is deleted, is not served
// any more. It may be served again by now, under another definition: then the watch has expired.
func (i *informer) isOver(err error) bool {
	return i.vanished.Load() != 0 && (apierrors.IsNotFound(err) || apiserver.IsGone(err) || i.orphaned.Load() && apierrors.IsForbidden(err))
}

// isBuried decides if the resource is gone: then at is the resourceVersion for which that is known.
func (i *informer) isBuried() (at uint64, gone bool) {
	if i.livesOn() {
		return 0, false
	}
	i.deciding.Lock()
	defer i.deciding.Unlock()
	at = i.vanished.Load()
	i.decided = at != 0
	return at, i.decided
}

// livesOn tells if the resource was defined again before the informer had ended: the API server goes on with an open watch then,
// or the objects were listed since. All that was deleted is told of, and what came later is told in the order of history: it is as
// if the definition had never gone.
func (i *informer) livesOn() bool {
	i.deciding.Lock()
	defer i.deciding.Unlock()
	if !i.isBackLocked() {
		return false
	}
	i.setVanished(0)
	i.kick()
	return true
}

// mayLiveOn reports whether livesOn would return true. It changes nothing.
func (i *informer) mayLiveOn() bool {
	i.deciding.Lock()
	defer i.deciding.Unlock()
	return i.isBackLocked()
}

func (i *informer) isBackLocked() bool {
	gone, again := i.vanished.Load(), i.again.Load()
	return gone != 0 && !i.decided && i.store.ResourceVersion() >= gone && (*again)()
}

// setVanished notes the resourceVersion at which the resource was deleted, 0: it was not.
func (i *informer) setVanished(rv uint64) {
	i.vanished.Store(rv)
	i.store.Notify()
}

// setBuried notes the resourceVersion up to which it was told that there is nothing any more.
func (i *informer) setBuried(at uint64) {
	i.buriedAt.Store(at)
	i.store.Notify()
}

// loadNothing takes it that there are no objects any more, and waits until ctx ends: nobody has to watch.
func (i *informer) loadNothing(ctx context.Context, at uint64) error {
	s := i.store
	at = max(at, s.ResourceVersion())
	switch {
	case s.IsLoaded():
		from := s.ResourceVersion()
		s.BeginList(store.Relist)
		switch {
		case i.toldAll():
			s.EndList(at, nil) // the watch has told all
		default:
			s.Lose(store.Loss{From: from, Since: i.since(), Reason: object.Expired, SkipIfRecovered: i.isCustom()})
			// Where it is defined again in the same versions, etcd's history may still be read.
			s.EndList(at, nil, i.gapUnlessFound(at))
		}
	case i.resume != nil: // nothing is known of the objects at the checkpoint
		i.giveUpGone(at)
	case i.born != 0 && i.born < at: // gone before it was listed: what it had, nobody has seen
		s.BeginList(store.Fresh)
		s.Lose(store.Loss{From: i.born, Since: i.bornAt, Reason: object.Expired, Unrecoverable: true})
		s.EndList(at, nil, s.Gap(at, nil))
	default: // nothing was ever sent of it
		s.BeginList(store.Fresh)
		s.EndList(at, nil)
	}
	s.MarkGone()
	i.setBuried(at)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-i.kicked:
		}
		if to := i.vanished.Load(); to > at { // what came and went meanwhile
			from := at
			at = to
			s.BeginList(store.Relist)
			s.Lose(store.Loss{From: from, Since: i.since(), Reason: object.Expired, SkipIfRecovered: i.isCustom()})
			s.EndList(at, nil, i.gapUnlessFound(at))
			i.setBuried(at)
		}
	}
}

// giveUpGone gives up what the checkpoint holds: at resourceVersion at there is nothing.
func (i *informer) giveUpGone(at uint64) {
	c := i.resume
	i.resume = nil
	i.store.Restart(store.Loss{From: c.ResourceVersion, Since: c.LastSeen, Reason: object.Expired})
	i.store.BeginList(store.Fresh)
	notices := []*store.Notice{i.store.Gap(at, nil)}
	var snap *store.Snapshot
	if i.spec.Snapshots != SnapshotNever {
		var start *store.Notice
		snap, start = i.store.NewSnapshot(at)
		notices = append(notices, start)
	}
	i.store.EndList(at, snap, notices...)
}
