package store

import (
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// ListState is whether there is a list of the scope, or what the list that is being loaded is for.
type ListState uint8

// A list that failed half-way is begun again: its state lasts until EndList.
const (
	// unlisted: there are no objects to compare a list with.
	unlisted ListState = iota
	// Fresh: nothing is known. The objects are loaded, and read.
	Fresh
	// AtCheckpoint: the objects are loaded as they were at the checkpoint. They were sent before.
	AtCheckpoint
	// listed: the objects are those of the last list, and of the watch since.
	listed
	// Relist: history was lost. The list is compared with the last-known objects.
	Relist
)

// isLoading reports whether a list is being loaded. The cursor rests meanwhile.
func (l ListState) isLoading() bool { return l != unlisted && l != listed }

// list is what the store knows of its last list, and of the one that is being loaded.
type list struct {
	at     ListState
	rv     uint64 // of the last one
	unseen map[string]struct{}
	// backwards: the list shows a version that should have been seen before.
	backwards bool
	// unread: the list shows another version of an object whose read is pending. The versions in between are not sent.
	unread bool
	// stateBefore is known.state when the list was begun, also if it is begun again.
	stateBefore uint64
	lost        *Loss  // history that is lost and that no gap event covers yet, nil: none
	gaps        uint64 // gap events that the bus has acknowledged
}

// BeginList prepares for a list. The owner calls Load (Relist: Compare) for each of its objects, then EndList. If the list fails half-way,
// the owner begins it again.
func (s *Store) BeginList(at ListState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginListLocked(at)
}

func (s *Store) beginListLocked(at ListState) {
	if !s.list.at.isLoading() {
		s.list.stateBefore = s.known.state
	}
	s.list.at = at
	if s.gate.interrupt != nil {
		s.gate.interrupt()
	}
	if n := s.beginningLocked(); n != nil {
		if at == Relist && n.sending {
			n.begins.answer() // it continues, unless history or the log is lost: then another one follows
			n.begins = nil
		} else {
			s.giveUpLocked(n, errCatchUp)
		}
	}
	s.closeGateLocked()
	if at != Relist {
		s.forgetLocked()
		return
	}
	s.gate.notices = slices.DeleteFunc(s.gate.notices, func(n *Notice) bool { return n.gap })
	s.list.unseen, s.list.backwards, s.list.unread = make(map[string]struct{}, len(s.known.objects)), false, false
	for key := range s.known.objects {
		s.list.unseen[key] = struct{}{}
	}
}

// closeGateLocked keeps live deltas back until every notice is acknowledged.
func (s *Store) closeGateLocked() {
	if s.gate.closed == nil {
		s.gate.closed = make(chan struct{})
	}
	s.showGateLocked()
}

// showGateLocked shows the gate to who wants to know.
func (s *Store) showGateLocked() {
	if s.o.Gate != nil {
		s.o.Gate(s.list.at.isLoading(), s.gate.closed != nil)
	}
}

// forgetLocked drops the last-known objects and everything pending. The position stays where it is until another one is adopted.
func (s *Store) forgetLocked() {
	s.known = known{objects: map[string]entry{}, pending: map[string]*pending{}, maxSteps: s.known.maxSteps}
	s.pos.ledger, s.pos.barrier = s.newLedger(mark{}), nil
	s.gate.notices, s.snaps.current = nil, nil
}

// Load takes one object of a Fresh or AtCheckpoint list.
func (s *Store) Load(o *object.Object, _ *object.Scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(o.Ref.Key, entry{last: o})
}

// Compare takes one object of a Relist. It does not keep m.
func (s *Store) Compare(o *object.Object, m *object.Scanned) {
	key := o.Ref.Key
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list.unseen, key)
	e, known := s.known.objects[key]
	switch {
	case known && e.last != nil && e.last.Ref.UID == o.Ref.UID && e.last.ResourceVersion == o.ResourceVersion:
		return // unchanged
	case e.pending == pendingRead:
		s.list.unread = true
		s.setLocked(key, entry{last: o, pending: pendingRead})
	default:
		s.addPendingLocked(key, e)
		if d := s.known.pending[key]; len(s.known.pending) <= backfill.MaxRequests { // the first ones are walked back
			d.managers = m.CopyManagers()
		}
		s.setLocked(key, entry{last: o, pending: pendingInferred})
	}
	if o.ResourceVersion <= s.known.rv { // up to there, everything was in the store
		s.list.backwards = true
	}
}

// addPendingLocked notes that a list shows another version of key than e.
func (s *Store) addPendingLocked(key string, e entry) {
	d := s.known.pending[key]
	switch {
	case d == nil:
		s.known.pending[key] = &pending{from: e.last, base: e.last, gap: s.list.gaps}
	case d.gap < s.list.gaps:
		// The gap of the list before is announced: the version that it showed is sent before that of this list.
		to := d.last
		to.Object, to.ResourceVersion = e.last, s.list.rv
		if e.last != nil {
			to.ResourceVersion = e.last.ResourceVersion
		}
		steps := append(slices.Clone(d.steps), to)
		s.known.pending[key] = &pending{from: d.from, outside: d.outside, steps: steps, base: e.last, announced: len(steps), gap: s.list.gaps}
	default:
		// No event announced the list before: its version is replaced by that of this list.
	}
}

// EndList completes a list at resourceVersion rv. Objects that a Relist missed no longer exist; what differs is pending. notices are what the
// cursor announces first, in order. One of them may be of a snapshot, whose reads follow.
func (s *Store) EndList(rv uint64, notices ...*Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list.at == Relist {
		for key := range s.list.unseen {
			switch e := s.known.objects[key]; {
			case e.pending == pendingRead:
				s.setLocked(key, entry{}) // never sent, so no deletion either
				s.snaps.current.objects--
				s.list.unread = true
			case e.last != nil:
				s.addPendingLocked(key, e)
				s.setLocked(key, entry{pending: pendingInferred})
			}
		}
		if s.pos.barrier == nil {
			s.pos.barrier = &barrier{due: newCount()}
			s.pos.barrier.due.Notify(s.mu.Notify)
		}
		s.pos.barrier.receipts = append(s.pos.barrier.receipts, s.pos.ledger.Add(mark{rv: rv, state: s.known.state ^ s.list.stateBefore, since: time.Now().UnixNano()}))
		if s.list.lost != nil {
			s.list.lost.Unrecoverable = s.list.lost.Unrecoverable || s.list.unread
			s.collapseLocked()
		}
	} else {
		s.pos.ledger = s.newLedger(mark{rv: rv, state: s.known.state})
		s.pos.own = s.list.at == AtCheckpoint && s.list.lost == nil // else once the gap is acknowledged
	}
	s.list.unseen, s.list.at, s.list.rv, s.known.rv = nil, listed, rv, rv
	s.showGateLocked()
	if n := slices.IndexFunc(notices, func(n *Notice) bool { return n.opens != nil }); n >= 0 {
		s.startReadsLocked(notices[n].opens)
	} else {
		s.sortPendingLocked()
	}
	s.gaugeLocked()
	s.gate.notices = append(notices, s.gate.notices...) // a gap precedes a snapshot that is not announced yet
	broadcast.Wake(s.wake)
}

// startReadsLocked makes the reads of a snapshot pending.
func (s *Store) startReadsLocked(snap *snapshot) {
	for key, e := range s.known.objects {
		if snap.takes(e.last) {
			s.setLocked(key, entry{last: e.last, pending: pendingRead})
		}
	}
	s.sortPendingLocked()
	s.snaps.current = snap
	snap.reads.Notify(s.mu.Notify)
	if snap.resumed {
		return
	}
	snap.where = s.Where()
	if snap.namespace == "" {
		s.snaps.due = false
	}
	snap.objects = len(s.known.order)
	s.snaps.lastAsked = snap.began
	if snap.namespace == "" {
		s.snaps.began = snap.began
	}
}

// dropReadsLocked gives up the snapshot that is being sent.
func (s *Store) dropReadsLocked() {
	for key, e := range s.known.objects {
		if e.pending == pendingRead {
			s.setLocked(key, entry{last: e.last})
		}
	}
	s.snaps.current = nil
	s.sortPendingLocked()
}

// sortPendingLocked puts pending keys in order.
func (s *Store) sortPendingLocked() {
	s.known.order, s.known.next = s.known.order[:0], 0
	for key, e := range s.known.objects {
		if e.pending != pendingNothing {
			s.known.order = append(s.known.order, key)
		}
	}
	slices.Sort(s.known.order)
}

// Restart begins a Fresh list because the API server has another history, or none that reaches back to the last-known objects. The
// present position remains until the start of a new snapshot replaces it. Pending deltas are dropped at once: they belong to the old history,
// and the acknowledgement of an earlier gap must not be taken for that of this one.
func (s *Store) Restart(l Loss) {
	p, known := s.Position()
	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		s.pos.previous = &p
	}
	s.pos.own, s.caughtUp = false, false
	l.Unrecoverable = true
	s.loseLocked(l)
	s.beginListLocked(Fresh)
}

// WentBack reports whether the list shows a version that the watch should have shown before, which means that etcd was restored.
func (s *Store) WentBack() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.list.backwards
}
