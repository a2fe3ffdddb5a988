package store

import (
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// ListKind is what a list is for.
type ListKind uint8

// What a list is for.
const (
	noList       ListKind = iota
	Fresh                 // nothing is known: the objects are loaded, and read
	AtCheckpoint          // the objects as they were at the checkpoint, which have been sent
	Relist                // history was lost: compared with the last-known objects
)

// BeginList prepares for a list: from here on until EndList, load (Relist: compare) is called for each object of it. A list that failed
// half-way is begun again.
func (s *Store) BeginList(kind ListKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginListLocked(kind)
}

// beginListLocked is BeginList for those who hold mu.
func (s *Store) beginListLocked(kind ListKind) {
	if s.listing == noList {
		s.listState = s.state
	}
	s.listing = kind
	if s.interrupt != nil {
		s.interrupt()
	}
	if n := s.beginningLocked(); n != nil {
		if kind == Relist && n.sending {
			n.begins.answer() // it stays, unless history or the log is lost: then another one follows
			n.begins = nil
		} else {
			s.giveUpLocked(n, errCatchUp)
		}
	}
	s.closeGateLocked()
	if kind != Relist {
		s.forgetLocked()
		return
	}
	s.announce = slices.DeleteFunc(s.announce, func(n *Notice) bool { return n.gap })
	s.unseen, s.backwards, s.unread = make(map[string]struct{}, len(s.objects)), false, false
	for key := range s.objects {
		s.unseen[key] = struct{}{}
	}
}

// closeGateLocked keeps live deltas back until every notice is acknowledged. The caller holds mu.
func (s *Store) closeGateLocked() {
	if s.open {
		s.gate, s.open = make(chan struct{}), false
	}
}

// forgetLocked drops what is known of objects, and what was to be sent of it. The checkpoint stays where it is until another one
// is adopted. The caller holds mu.
func (s *Store) forgetLocked() {
	s.objects, s.pending = map[string]entry{}, map[string]*pending{}
	s.held, s.pendingKeys, s.state, s.rv = 0, 0, 0, 0
	s.ledger, s.barrier = s.newLedger(mark{}), nil
	s.order, s.next, s.announce, s.snapshot = nil, 0, nil, nil
	s.loaded = false
}

// Load takes one object of a list, of which nothing was known.
func (s *Store) Load(o *object.Object, _ *object.Scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(o.Ref.Key, entry{last: o})
}

// Compare takes one object of a list that is read because history was lost. m is not kept.
func (s *Store) Compare(o *object.Object, m *object.Scanned) {
	key := o.Ref.Key
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unseen, key)
	e, known := s.objects[key]
	switch {
	case known && e.last != nil && e.last.Ref.UID == o.Ref.UID && e.last.ResourceVersion == o.ResourceVersion:
		return // nothing new
	case e.pending == pendingRead:
		s.unread = true
		s.setLocked(key, entry{last: o, pending: pendingRead})
	default:
		s.addPendingLocked(key, e)
		if d := s.pending[key]; len(s.pending) <= backfill.MaxRequests { // the first ones are walked back
			d.managers = m.CopyManagers()
		}
		s.setLocked(key, entry{last: o, pending: pendingInferred})
	}
	if o.ResourceVersion <= s.rv { // up to there, everything was in the store
		s.backwards = true
	}
}

// addPendingLocked notes that a list shows key otherwise than e does. The caller holds mu.
func (s *Store) addPendingLocked(key string, e entry) {
	d := s.pending[key]
	switch {
	case d == nil:
		s.pending[key] = &pending{from: e.last, base: e.last, gap: s.gaps}
	case d.gap < s.gaps:
		// Its gap is announced: what that list showed is a version to send before this list's.
		to := d.last
		to.Object, to.ResourceVersion = e.last, s.listRV
		if e.last != nil {
			to.ResourceVersion = e.last.ResourceVersion
		}
		way := append(slices.Clone(d.steps), to)
		s.pending[key] = &pending{from: d.from, outside: d.outside, steps: way, base: e.last, announced: len(way), gap: s.gaps}
	default:
		// No event told of that list: it counts for nothing.
	}
}

// EndList completes a list at resourceVersion rv: what it missed is gone, what it changed is due. snap is the snapshot that
// is to be sent, nil: none. notices are what comes first.
func (s *Store) EndList(rv uint64, snap *Snapshot, notices ...*Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listing == Relist {
		for key := range s.unseen {
			switch e := s.objects[key]; {
			case e.pending == pendingRead:
				s.setLocked(key, entry{}) // never sent: nobody has to hear that it is gone
				s.snapshot.objects--
				s.unread = true
			case e.last != nil:
				s.addPendingLocked(key, e)
				s.setLocked(key, entry{pending: pendingInferred})
			}
		}
		if s.barrier == nil {
			s.barrier = &barrier{due: newCount()}
			s.barrier.due.Notify(s.mu.Notify)
		}
		s.barrier.receipts = append(s.barrier.receipts, s.ledger.Add(mark{rv: rv, state: s.state ^ s.listState, since: time.Now().UnixNano()}))
		if s.lost != nil {
			s.lost.Unrecoverable = s.lost.Unrecoverable || s.unread
			s.collapseLocked()
		}
	} else {
		s.ledger = s.newLedger(mark{rv: rv, state: s.state})
		s.adopted = s.listing == AtCheckpoint && s.lost == nil // else once the gap is acknowledged
	}
	s.unseen, s.listing, s.loaded, s.listRV, s.rv = nil, noList, true, rv, rv
	if snap == nil {
		s.sortPendingLocked()
	} else {
		s.startReadsLocked(snap)
	}
	s.announce = append(notices, s.announce...) // a gap comes before a snapshot that is not announced yet
	s.wakeCursor()
}

// startReadsLocked makes the reads of a snapshot due. The caller holds mu.
func (s *Store) startReadsLocked(snap *Snapshot) {
	for key, e := range s.objects {
		if snap.takes(e.last) {
			s.setLocked(key, entry{last: e.last, pending: pendingRead})
		}
	}
	s.sortPendingLocked()
	s.snapshot = snap
	snap.reads.Notify(s.mu.Notify)
	if snap.resumed {
		return
	}
	snap.where = s.Where()
	if snap.namespace == "" {
		s.sweep = false
	}
	snap.objects = len(s.order)
	s.lastSnapshot = snap.began
	if snap.namespace == "" {
		s.began = snap.began
	}
}

// sortPendingLocked puts what is due in order. The caller holds mu.
func (s *Store) sortPendingLocked() {
	s.order, s.next = s.order[:0], 0
	for key, e := range s.objects {
		if e.pending != pendingNothing {
			s.order = append(s.order, key)
		}
	}
	slices.SortFunc(s.order, strings.Compare)
}

// Restart begins a fresh list: what the API server tells is another history, or begins behind a hole that cannot be compared.
// What was acknowledged so far stays the checkpoint until a new snapshot takes its place. What was to be sent is given up at
// once: it is of the old history, and the acknowledgement of an earlier gap must not pass for that of this one.
func (s *Store) Restart(l Loss) {
	p, known := s.Position()
	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		s.previous = &p
	}
	s.adopted, s.caughtUp = false, false
	l.Unrecoverable = true
	s.loseLocked(l)
	s.beginListLocked(Fresh)
}

// WentBack tells if the list shows an older version than one that was seen: etcd was restored.
func (s *Store) WentBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backwards
}
