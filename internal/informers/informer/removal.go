package informer

import (
	"context"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// removal is the state of the removal of an informer's resource, or of its namespace. The manager
// learns of a removal from another watch, perhaps before this informer has read the deletions of
// its objects. The resource may exist again before that. So:
//
//  1. The manager calls Remove or RemoveWithNamespace. The informer continues to read until it has
//     passed the version of the removal, or a request shows that the resource is not served.
//  2. If the resource exists again by then, Restore undoes the removal. The manager and the owner
//     may call it.
//  3. Otherwise the owner decides once that the resource is removed (decideRemoval), and infers the
//     missing deletions (loadRemoved). From then on nothing undoes the removal.
type removal struct {
	emptyAt atomic.Uint64 // resourceVersion at which no object existed any more; 0 if not found yet

	mu        sync.Mutex
	at        uint64      // resourceVersion at which it was removed; 0 if it exists
	exists    func() bool // reports whether it exists again
	decided   bool        // final, even if it exists again
	namespace bool        // the namespace was removed with its permissions, which ends no watch
}

// Remove makes the informer end once it has sent everything: its resource was removed at rv. exists
// reports whether a resource of that name exists again. It returns false if the removal is known
// already, or a list was made after it: then the caller need not wait.
func (i *Informer) Remove(rv uint64, exists func() bool) bool {
	m := &i.removal
	m.mu.Lock()
	defer m.mu.Unlock()
	again := m.at != 0
	switch {
	case again && rv > m.at: // another one of that name may have been created and removed meanwhile
		i.generation.number.Add(1) // the watch may have missed a part
	case again, i.store.View().Reached >= rv && exists():
		return false
	default:
		m.exists = exists
	}
	i.removeLocked(rv)
	return !again
}

// RemoveWithNamespace is Remove if the namespace was removed, and with it the permission to read
// it: the watch cannot send the rest.
func (i *Informer) RemoveWithNamespace(rv uint64, exists func() bool) {
	m := &i.removal
	m.mu.Lock()
	defer m.mu.Unlock()
	m.namespace, m.exists = true, exists
	i.removeLocked(rv)
}

// removeLocked sets the resourceVersion of the removal, 0 to undo it.
func (i *Informer) removeLocked(rv uint64) {
	i.removal.at = rv
	i.store.Notify()
	i.Kick()
}

// RemovedAt returns the resourceVersion at which the resource was removed, 0 if it exists.
func (i *Informer) RemovedAt() uint64 {
	i.removal.mu.Lock()
	defer i.removal.mu.Unlock()
	return i.removal.at
}

// Restore undoes the removal if the resource exists again before the informer has decided that it
// does not, and reports whether it did. The API server continues an open watch then, or the objects
// were listed since. All deletions are sent, and later changes follow in the order of history, as
// if the resource had existed all the time.
func (i *Informer) Restore() bool {
	i.removal.mu.Lock()
	defer i.removal.mu.Unlock()
	if !i.isRestorableLocked() {
		return false
	}
	i.removal.namespace = false
	i.removeLocked(0)
	return true
}

// IsRestorable reports whether Restore would return true. It changes nothing.
func (i *Informer) IsRestorable() bool {
	i.removal.mu.Lock()
	defer i.removal.mu.Unlock()
	return i.isRestorableLocked()
}

func (i *Informer) isRestorableLocked() bool {
	m := &i.removal
	return m.at != 0 && !m.decided && i.store.View().Reached >= m.at && m.exists()
}

// decideRemoval decides whether the resource is removed. Then it did not exist at resourceVersion
// at.
func (i *Informer) decideRemoval() (at uint64, removed bool) {
	if i.Restore() {
		return 0, false
	}
	m := &i.removal
	m.mu.Lock()
	defer m.mu.Unlock()
	m.decided = m.at != 0
	return m.at, m.decided
}

// isRemovalShown reports whether err, which ended a watch, shows that the removed resource is no
// longer served. If it is served again by now, under another definition, the watch has expired.
func (i *Informer) isRemovalShown(err error) bool {
	m := &i.removal
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at != 0 &&
		(apierrors.IsNotFound(err) || apiserver.IsGone(err) || m.namespace && apierrors.IsForbidden(err))
}

// loadRemoved empties the store, and waits until ctx ends: there is nothing to watch. Its error is
// the cause of ctx.
func (i *Informer) loadRemoved(ctx context.Context, at uint64) error {
	s := i.store
	i.state.unlisted.Store(false)
	at = max(at, s.View().Reached)
	switch {
	case s.View().Loaded:
		i.inferRemoved(at)
	case i.resume != nil: // the objects at the checkpoint are not known
		c := i.resume
		i.resume = nil
		s.Restart(store.Loss{From: c.ResourceVersion, Since: c.LastSeen, Reason: object.Expired})
		notices := []*store.Notice{s.Gap(at, nil)}
		if i.spec.Snapshots != SnapshotNever {
			notices = append(notices, s.NewSnapshot(at, false))
		}
		s.EndList(at, notices...)
	case i.created != 0 && i.created < at: // removed before it was listed: its objects are not known
		s.Restart(store.Loss{From: i.created, Since: i.createdAt, Reason: object.Expired})
		s.EndList(at, s.Gap(at, nil))
	default: // nothing was ever sent
		s.BeginList(store.Fresh)
		s.EndList(at)
	}
	s.MarkGone()
	for {
		i.removal.emptyAt.Store(at)
		s.Notify()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-i.kicked:
		}
		if to := i.RemovedAt(); to > at { // a resource of that name was created and removed meanwhile
			at = to
			i.inferRemoved(at)
		}
	}
}

// inferRemoved makes the deletions pending that the watch has not sent: at resourceVersion at there
// was no object.
func (i *Informer) inferRemoved(at uint64) {
	s := i.store
	from := s.View().Reached
	s.BeginList(store.Relist)
	if i.hasWatchSentAll() {
		s.EndList(at)
		return
	}
	s.Lose(store.Loss{
		From:            from,
		Since:           i.lostSince(),
		Reason:          object.Expired,
		SkipIfRecovered: i.isCustom(),
	})
	// if it is defined again in the same versions, etcd's history may still be readable
	s.EndList(at, s.Gap(at, i.recoverVersions))
}
