package scope

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// removal is the state of the removal of an informer's resource, or of its namespace.
type removal struct {
	mu        sync.Mutex
	at        uint64      // resourceVersion at which it was removed, 0: it exists
	exists    func() bool // reports whether it exists again
	decided   bool        // it is not resumed, even if it exists again
	namespace bool        // the namespace is removed: its permissions are too, and no watch ends for that
	emptyAt   uint64      // resourceVersion up to which it was found that no object exists any more, 0: it was not
}

// Remove makes the informer end once it has sent everything: its resource was removed at rv. exists reports whether a resource of that name
// exists again. It returns false if nothing has to be waited for: the removal is known, or a list was made after it.
func (i *Informer) Remove(rv uint64, exists func() bool) bool {
	m := &i.removal
	m.mu.Lock()
	defer m.mu.Unlock()
	again := m.at != 0
	switch {
	case again && rv > m.at: // one of that name may have come and gone meanwhile
		i.generation.number.Add(1) // what the watch has sent is not everything
	case again, i.store.ResourceVersion() >= rv && exists():
		return false
	default:
		m.exists = exists
	}
	i.removeLocked(rv)
	return !again
}

// RemoveWithNamespace is Remove if the namespace was removed, and the permission to read it too: its watch cannot send the rest.
func (i *Informer) RemoveWithNamespace(rv uint64, exists func() bool) {
	m := &i.removal
	m.mu.Lock()
	defer m.mu.Unlock()
	m.namespace, m.exists = true, exists
	i.removeLocked(rv)
}

// removeLocked sets the resourceVersion of the removal, 0: there is none any more.
func (i *Informer) removeLocked(rv uint64) {
	i.removal.at = rv
	i.store.Notify()
	i.Kick()
}

// RemovedAt returns the resourceVersion at which the resource was removed, 0: it exists.
func (i *Informer) RemovedAt() uint64 {
	i.removal.mu.Lock()
	defer i.removal.mu.Unlock()
	return i.removal.at
}

// LostNamespace reports whether RemoveWithNamespace was called, and not undone since.
func (i *Informer) LostNamespace() bool {
	i.removal.mu.Lock()
	defer i.removal.mu.Unlock()
	return i.removal.namespace
}

// FoundNamespace undoes LostNamespace: the namespace exists again, and the informer continues.
func (i *Informer) FoundNamespace() {
	i.removal.mu.Lock()
	defer i.removal.mu.Unlock()
	i.removal.namespace = false
}

// Restore undoes the removal, and reports whether it did, if the resource exists again before the informer has decided that it does not: the
// API server continues an open watch then, or the objects were listed since. All deletions are sent, and later changes are sent in the order
// of history, as if the resource had existed all the time.
func (i *Informer) Restore() bool {
	i.removal.mu.Lock()
	defer i.removal.mu.Unlock()
	if !i.isRestorableLocked() {
		return false
	}
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
	return m.at != 0 && !m.decided && i.store.ResourceVersion() >= m.at && m.exists()
}

// decideRemoval decides whether the resource is removed: then at is a resourceVersion at which it did not exist.
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

// endsRemoved reports whether a watch that has ended with err shows that its resource, which was removed, is not served any more. It may be
// served again by now, under another definition: then the watch has expired.
func (i *Informer) endsRemoved(err error) bool {
	m := &i.removal
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at != 0 && (apierrors.IsNotFound(err) || apiserver.IsGone(err) || m.namespace && apierrors.IsForbidden(err))
}

// setEmpty notes the resourceVersion up to which no object exists any more.
func (i *Informer) setEmpty(at uint64) {
	i.removal.mu.Lock()
	i.removal.emptyAt = at
	i.removal.mu.Unlock()
	i.store.Notify()
}

// emptyAt returns the resourceVersion of setEmpty, 0: it was not called.
func (i *Informer) emptyAt() uint64 {
	i.removal.mu.Lock()
	defer i.removal.mu.Unlock()
	return i.removal.emptyAt
}

// loadRemoved sets the store to no objects, and waits until ctx ends: there is nothing to watch. Its error is the cause of ctx.
func (i *Informer) loadRemoved(ctx context.Context, at uint64) error {
	s := i.store
	i.state.setUnlisted(false)
	at = max(at, s.ResourceVersion())
	switch {
	case s.IsLoaded():
		i.inferRemoved(at)
	case i.resume != nil: // nothing is known of the objects at the checkpoint
		i.giveUpGone(at)
	case i.created != 0 && i.created < at: // gone before it was listed: its objects are not known
		s.BeginList(store.Fresh)
		s.Lose(store.Loss{From: i.created, Since: i.createdAt, Reason: object.Expired, Unrecoverable: true})
		s.EndList(at, s.Gap(at, nil))
	default: // nothing was ever sent of it
		s.BeginList(store.Fresh)
		s.EndList(at)
	}
	s.MarkGone()
	i.setEmpty(at)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-i.kicked:
		}
		if to := i.RemovedAt(); to > at { // a resource of that name was created and removed meanwhile
			at = to
			i.inferRemoved(at)
			i.setEmpty(at)
		}
	}
}

// inferRemoved makes the deletions pending that the watch has not sent: at resourceVersion at there was no object.
func (i *Informer) inferRemoved(at uint64) {
	s := i.store
	from := s.ResourceVersion()
	s.BeginList(store.Relist)
	if i.watchSentAll() {
		s.EndList(at)
		return
	}
	s.Lose(store.Loss{From: from, Since: i.since(), Reason: object.Expired, SkipIfRecovered: i.isCustom()})
	s.EndList(at, i.gapUnlessFound(at)) // if it is defined again in the same versions, etcd's history may still be read
}

// giveUpGone gives up the checkpoint: at resourceVersion at there is no object.
func (i *Informer) giveUpGone(at uint64) {
	c := i.resume
	i.resume = nil
	i.store.Restart(store.Loss{From: c.ResourceVersion, Since: c.LastSeen, Reason: object.Expired})
	i.store.BeginList(store.Fresh)
	notices := []*store.Notice{i.store.Gap(at, nil)}
	if i.spec.Snapshots != SnapshotNever {
		notices = append(notices, i.store.NewSnapshot(at))
	}
	i.store.EndList(at, notices...)
}
