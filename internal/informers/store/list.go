package store

import (
	"context"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// ListState is the listing state of a scope, or the purpose of the list that is being loaded.
type ListState uint8

// A list that failed half-way is restarted: its state lasts until EndList.
const (
	unlisted     ListState = iota // there are no objects to compare a list with
	Fresh                         // no objects are known: all are loaded, and read
	AtCheckpoint                  // the objects of the checkpoint are loaded, which were sent before
	listed                        // the objects are those of the last list, plus the watch since
	Relist                        // history was lost: the list is compared with the last-known objects
)

func (l ListState) isLoading() bool { return l != unlisted && l != listed }

type list struct {
	at          ListState
	rv          uint64 // of the last one
	unseen      map[string]struct{}
	differs     bool        // the list shows another version of an object, or another object
	older       bool        // the list shows an older version of a known object
	backwards   bool        // the list shows a version that the watch should have shown before
	stateBefore Fingerprint // known.state when the list first began
	lost        *Loss       // lost history that no gap event covers yet; nil if there is none
	gaps        uint64      // gap events that the bus has acknowledged
	otherForm   bool        // the API server has shown a last-known version in another form
}

// isUnchanged reports whether a Relist has shown the last-known objects, in their versions.
func (l *list) isUnchanged() bool { return l.at == Relist && !l.differs && len(l.unseen) == 0 }

// BeginList prepares for a list. The owner calls Load (Relist: Compare) for each of its objects,
// then EndList. If the list fails half-way, the owner calls BeginList again.
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
	s.gate.interrupt()
	switch snap := s.snaps.current; {
	case !snap.mayBeGivenUp():
	case at == Relist && snap.phase == snapshotTried:
		// it continues, unless history or the log is lost: then another one follows
		s.enterLocked(snap, snapshotStarting)
		snap.answer()
	default:
		s.giveUpLocked(errCatchUp)
	}
	s.closeGateLocked()
	if at != Relist {
		s.forgetLocked()
		return
	}
	s.gate.notices = slices.DeleteFunc(s.gate.notices, func(n *Notice) bool { return n.gap })
	s.list.differs = false
	s.list.older = false
	s.list.backwards = false
	s.list.unseen = make(map[string]struct{}, len(s.known.objects))
	for key, e := range s.known.objects {
		if e.last != nil {
			s.list.unseen[key] = struct{}{}
		}
	}
}

// closeGateLocked holds live deltas until every notice is acknowledged.
func (s *Store) closeGateLocked() {
	if s.gate.closed == nil {
		s.gate.closed = make(chan struct{})
	}
	s.showGateLocked()
}

func (s *Store) showGateLocked() {
	if s.o.Gate != nil {
		s.o.Gate(s.list.at.isLoading(), s.gate.closed != nil)
	}
}

// forgetLocked drops the last-known objects and everything pending. It keeps the position until
// another one is adopted.
func (s *Store) forgetLocked() {
	s.hidden.forget()
	s.known = known{objects: map[string]entry{}, pending: map[string]*pending{}}
	s.pos.ledger, s.pos.barrier = s.newLedger(mark{}), nil
	if snap := s.snaps.current; snap != nil {
		s.enterLocked(snap, snapshotDropped)
	}
	s.gate.notices = nil
	s.snaps.current = nil
	s.snaps.after = 0
}

// Load takes one object of a Fresh or AtCheckpoint list. If the list is streamed, a later version
// replaces an earlier one, and Remove takes a deletion.
func (s *Store) Load(o *object.Object, _ *object.Scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.known.objects[o.Ref.Key].last; was != nil && was.ResourceVersion > o.ResourceVersion {
		return
	}
	s.setLocked(o.Ref.Key, entry{last: o})
}

// Compare takes one object of a Relist. It does not keep m.
func (s *Store) Compare(o *object.Object, m *object.Scanned) {
	key := o.Ref.Key
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list.unseen, key)
	e := s.known.objects[key]
	if d := s.known.pending[key]; d != nil && e.last == nil { // a list has missed it
		if last := d.latest(); isVersionOf(last, o) {
			s.noteFormLocked(last, o)
			o = last // in the form that was sent
		}
	}
	if isVersionOf(e.last, o) {
		s.noteFormLocked(e.last, o)
		return // unchanged
	}
	s.addPendingLocked(key, e, 0)
	if d := s.known.pending[key]; len(s.known.pending) <= backfill.MaxRequests {
		// only the first ones are walked back
		d.managers = m.CopyManagers()
	}
	s.setLocked(key, entry{last: o, pending: e.pending.withChange()})
	s.list.differs = true
	if e.last != nil && e.last.Ref.UID == o.Ref.UID && o.ResourceVersion < e.last.ResourceVersion {
		s.list.older = true
	}
	if o.ResourceVersion <= s.known.rv { // everything up to known.rv was in the store
		s.list.backwards = true
	}
}

// Miss takes an object of a Relist that was deleted while the list was read. It has the signature
// of Compare.
func (s *Store) Miss(o *object.Object, _ *object.Scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.objects[o.Ref.Key].last != nil {
		s.list.unseen[o.Ref.Key] = struct{}{}
	}
}

// addPendingLocked makes what a list shows of a key pending. missed is the resourceVersion of a
// list without the object, else 0.
func (s *Store) addPendingLocked(key string, e entry, missed uint64) {
	next := pending{from: e.last, base: e.last, gap: s.list.gaps}
	if d := s.known.pending[key]; d != nil && d.gap == s.list.gaps {
		next = *d // it is replaced
	} else if d != nil { // the gap of the previous list is announced: its version is sent before that of this list
		versions := append(slices.Clone(d.versions), d.listed(e.last))
		next = pending{
			from:      d.from,
			outside:   d.outside,
			versions:  versions,
			base:      e.last,
			announced: len(versions),
			gap:       s.list.gaps,
		}
	}
	next.missed = missed
	s.known.pending[key] = &next
}

// EndList completes a list at resourceVersion rv. Objects that a Relist missed no longer exist;
// differences are pending. The cursor announces the notices first, in order. One of them may open a
// snapshot, whose reads follow.
func (s *Store) EndList(rv uint64, notices ...*Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list.at == Relist {
		s.snaps.after = 0 // this list is later
		for key := range s.list.unseen {
			if e := s.known.objects[key]; e.last != nil {
				s.addPendingLocked(key, e, rv)
				s.setLocked(key, entry{pending: e.pending.withChange()})
			}
		}
		if s.pos.barrier == nil {
			s.pos.barrier = &barrier{due: newCount()}
			s.pos.barrier.due.Notify(s.mu.Notify)
		}
		s.pos.barrier.receipts = append(s.pos.barrier.receipts, s.pos.ledger.Add(mark{
			rv:    rv,
			state: s.known.state.xor(s.list.stateBefore),
			since: s.o.Now().UnixNano(),
		}))
		if s.list.lost != nil {
			s.collapseLocked()
		}
	} else {
		at, r := mark{rv: rv, state: s.known.state}, reformOf(notices)
		if r != nil {
			at.state.Forms = r.was
		}
		s.pos.ledger = s.newLedger(at)
		s.pos.own = s.list.at == AtCheckpoint && s.list.lost == nil // otherwise after the acknowledgement of the gap
	}
	if s.list.at != Relist {
		s.beginLocked()
	}
	s.list.unseen = nil
	s.list.at = listed
	s.list.rv = rv
	s.known.rv = rv
	if r := reformOf(notices); r != nil {
		s.noteReformLocked(r)
	}
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

func (s *Store) startReadsLocked(snap *snapshot) {
	for key, e := range s.known.objects {
		if snap.takes(e.last) {
			s.setLocked(key, entry{last: e.last, pending: pendingRead})
		}
	}
	s.sortPendingLocked()
	s.snaps.current = snap
	s.snaps.initial = s.snaps.initial || snap.initial
	snap.initial = s.snaps.initial && snap.namespace == ""
	snap.reads.Notify(s.mu.Notify)
	if snap.resumed {
		return
	}
	snap.gone = s.hidden.gone
	snap.objects, s.snaps.lastAsked = len(s.known.order), snap.named
	if snap.namespace == "" {
		s.snaps.due, s.snaps.began = false, snap.began
	}
}

func (s *Store) sortPendingLocked() {
	s.known.order, s.known.next = s.known.order[:0], 0
	for key, e := range s.known.objects {
		if e.pending != pendingNothing {
			s.known.order = append(s.known.order, key)
		}
	}
	slices.Sort(s.known.order)
}

// Restart begins a Fresh list because the API server has another history, or none back to the
// last-known objects. The position remains until a new snapshot starts. The call that records the
// loss also drops pending deltas, and each Notice, of the old history.
func (s *Store) Restart(l Loss) {
	p, known := s.Position()
	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		if l.Reason == object.Rewound { // nothing else may show it to the next run: its objects at p may be the same
			p.Rewound, p.History = true, s.pos.history+1
		}
		s.pos.previous = &p
	}
	l.Unrecoverable = true
	s.loseLocked(l)
	if s.pos.own {
		s.list.lost.beginAt(&p)
	}
	s.pos.own, s.caughtUp = false, false
	s.beginListLocked(Fresh)
}

// isRewound reports whether the restart owes the gap of a restored etcd.
func (s *Store) isRewound() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.list.lost != nil && s.list.lost.Reason == object.Rewound
}

// Loss is a span of history that is lost and that no gap event covers yet.
type Loss struct {
	From            uint64    // resourceVersion up to which history is complete
	Since           time.Time // last contact with the API server at From
	Reason          object.GapReason
	Unrecoverable   bool // package backfill cannot find all of it
	SkipIfRecovered bool // announce no gap if every version is found
}

// beginAt makes the loss begin at the position p, if that is earlier: nothing sends again what the
// bus has not acknowledged.
func (l *Loss) beginAt(p *checkpoint.Position) {
	l.From = min(l.From, p.ResourceVersion)
	if !p.LastSeen.IsZero() && p.LastSeen.Before(l.Since) {
		l.Since = p.LastSeen
	}
}

func (s *Store) loseLocked(l Loss) {
	if l.Reason == object.Rewound {
		s.pos.history++
		s.hidden.rewind(object.Point{ResourceVersion: s.known.rv, Time: s.o.Now()})
	}
	if was := s.list.lost; was != nil {
		if was.Unrecoverable && l.Reason != object.Rewound { // the worse of both
			l.Reason = was.Reason
		}
		l.From = was.From
		l.Since = was.Since
		l.Unrecoverable = l.Unrecoverable || was.Unrecoverable
		l.SkipIfRecovered = l.SkipIfRecovered && was.SkipIfRecovered
	}
	s.list.lost = &l
}

// Lose records a loss of history. It includes an earlier loss that is not announced.
func (s *Store) Lose(l Loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(l)
}

// Gap returns the notice that history from the Loss up to rv is lost. The cursor calls find before
// it, and again after each new list. If find is nil, nothing is recovered. recovered: find found
// every version, except of objects that were created and deleted inside. whole: also those; then no
// gap is announced if the Loss has SkipIfRecovered and nothing else was lost.
//
// If etcd was restored, the position is saved first: a run that ends before the gap must not
// continue on the new history as if it were the old one.
func (s *Store) Gap(rv uint64, find func(ctx context.Context, to uint64) (whole, recovered bool, err error)) *Notice {
	whole, recovered := false, false
	n := &Notice{gap: true}
	n.prepare = func(ctx context.Context) (err error) {
		if s.isRewound() {
			err = s.o.Save(ctx)
		}
		if err == nil && find != nil {
			whole, recovered, err = find(ctx, rv)
		}
		return err
	}
	n.event = func() *object.StreamEvent {
		l := s.list.lost
		if whole && l.SkipIfRecovered && !l.Unrecoverable {
			return nil
		}
		s.snaps.due = s.snaps.due || n.Sweeps
		return &object.StreamEvent{
			Kind:      object.Gap,
			Resource:  s.o.Resource,
			Scope:     s.o.Scope,
			From:      l.From,
			To:        rv,
			Since:     s.Past(l.Since),
			Reason:    l.Reason,
			Recovered: recovered && !l.Unrecoverable,
		}
	}
	n.done = func() {
		switch b := s.pos.barrier; {
		case b == nil:
		case recovered && !s.list.lost.Unrecoverable && b.from == 0:
			b.from, b.since = s.list.lost.From, s.list.lost.Since
		case s.list.lost.Unrecoverable && s.list.lost.From <= b.from: // it also covers the earlier ones
			b.from = 0
		}
		s.list.lost = nil
		s.list.gaps++
		s.pos.own, s.pos.previous = true, nil
	}
	return n
}

// Changes returns the input of Gap's find: the loss, and each key that differs between its ends.
// There must be a Loss.
func (s *Store) Changes() (Loss, []backfill.Change) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []backfill.Change
	for key, d := range s.known.pending {
		if d.gap == s.list.gaps {
			out = append(out, backfill.Change{
				Key:      key,
				Before:   d.base,
				After:    s.known.objects[key].last,
				Managers: d.managers,
			})
		}
	}
	return *s.list.lost, out
}

// AddVersions adds the versions that backfill.Walk found to the pending deltas, and returns the
// number of versions.
func (s *Store) AddVersions(byKey map[string]backfill.Result) (versions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range byKey {
		d := s.known.pending[key]
		if d == nil || d.gap != s.list.gaps {
			continue
		}
		found := *d
		// those of a walk whose gap was not announced are replaced
		found.managers, found.versions = nil, slices.Clone(d.versions[:d.announced])
		for n, st := range w.Versions {
			found.versions = append(found.versions, link{Version: st, linked: w.Complete || n > 0})
		}
		found.last = link{Version: backfill.Version{ChangedBy: w.ChangedBy}, linked: w.Complete || len(w.Versions) > 0}
		versions += len(w.Versions)
		s.known.pending[key] = &found
	}
	return versions
}

// AddAllVersions adds the versions that backfill.EveryRevision found to the pending deltas, and
// returns the number of versions. It returns false, and changes nothing, unless the versions lead
// from the objects before the last list to the listed ones.
func (s *Store) AddAllVersions(byKey map[string][]backfill.Version) (versions int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list.at.isLoading() {
		return 0, false // another list has begun
	}
	for key, d := range s.known.pending {
		if d.gap == s.list.gaps && !backfill.Leads(d.base, byKey[key], s.known.objects[key].last) {
			return 0, false
		}
	}
	for key, way := range byKey {
		if d := s.known.pending[key]; d != nil && d.gap == s.list.gaps {
			continue
		}
		if _, known := s.known.objects[key]; known || !backfill.Leads(nil, way, nil) {
			return 0, false // contradicts what is pending
		}
	}
	for key, way := range byKey {
		d, e := &pending{gap: s.list.gaps}, s.known.objects[key]
		if was := s.known.pending[key]; was != nil {
			d.from = was.from
			d.outside = was.outside
			d.base = was.base
			d.announced = was.announced
			d.versions = slices.Clone(was.versions[:was.announced])
		}
		for _, st := range way {
			d.versions = append(d.versions, link{Version: st, linked: true})
			if st.Object != nil {
				versions++
			}
		}
		d.last = link{linked: true}
		if n := len(d.versions); e.last != nil {
			d.last, d.versions = d.versions[n-1], d.versions[:n-1]
		}
		s.known.pending[key] = d
		s.setLocked(key, entry{last: e.last, pending: e.pending.withChange()})
	}
	s.sortPendingLocked()
	return versions, true
}
