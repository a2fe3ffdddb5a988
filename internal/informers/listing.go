package informers

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/object"
)

// listing is what a list is for.
type listing uint8

const (
	notListing listing = iota
	listFresh          // nothing is known: the objects are loaded, and read
	listResume         // the objects as they were at the checkpoint, which have been sent
	listAgain          // history was lost: compared with the last-known objects
)

// lost is history that is gone and of which no gap event tells yet.
type lost struct {
	from   uint64    // resourceVersion up to which there is no hole
	since  time.Time // the last sign of life then
	reason object.GapReason
	untold bool // walking back cannot tell all of it
	quiet  bool // nobody has to hear of it where all of it is found
}

// notice is what comes before what a list made due: prepare is called, then event is sent and acknowledged, then done
// called. Any may be nil. event and done are called under mu; event nil, or what it returns: nothing is sent.
type notice struct {
	prepare func(ctx context.Context) error
	event   func() *object.StreamEvent
	done    func()
	gap     bool // of lost history: where more is lost before it is acknowledged, the next one tells of both
	// begins is a snapshot that is given up if it cannot begin in time, nil: there is none. sending: its start was handed to the queue.
	// Both are under mu.
	begins  *snapshot
	sending bool
	rebase  bool      // of a log that was replaced
	opens   *snapshot // whose start it tells; nil: it tells another thing
}

// beginList prepares for a list: from here on until endList, load (listAgain: compare) is called for each object of it. A list that failed
// half-way is begun again.
func (s *store) beginList(kind listing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enterList(kind)
}

// enterList is beginList for those who hold mu.
func (s *store) enterList(kind listing) {
	if s.listing == notListing {
		s.listState = s.state
	}
	s.listing = kind
	if s.interrupt != nil {
		s.interrupt()
	}
	if n := s.beginning(); n != nil {
		if kind == listAgain && n.sending {
			n.begins.answer() // it stays, unless history or the log is lost: then another one follows
			n.begins = nil
		} else {
			s.giveUp(n, errCatchUp)
		}
	}
	s.shutGate()
	if kind != listAgain {
		s.forget()
		return
	}
	s.announce = slices.DeleteFunc(s.announce, func(n *notice) bool { return n.gap })
	s.unseen, s.backwards, s.unread = make(map[string]struct{}, len(s.objects)), false, false
	for key := range s.objects {
		s.unseen[key] = struct{}{}
	}
}

// shutGate keeps live deltas back until every notice is acknowledged. The caller holds mu.
func (s *store) shutGate() {
	if s.open {
		s.gate, s.open = make(chan struct{}), false
	}
}

// forget drops what is known of objects, and what was to be sent of it. The checkpoint stays where it is until another one
// is adopted. The caller holds mu.
func (s *store) forget() {
	s.objects, s.debts = map[string]entry{}, map[string]*debt{}
	s.held, s.due, s.state, s.rv = 0, 0, 0, 0
	s.ledger, s.barrier = s.newLedger(mark{}), nil
	s.order, s.next, s.announce, s.snapshot = nil, 0, nil, nil
	s.loaded = false
}

// restart begins a fresh list: what the API server tells is another history, or begins behind a hole that cannot be compared.
// What was acknowledged so far stays the checkpoint until a new snapshot takes its place. What was to be sent is given up at
// once: it is of the old history, and the acknowledgement of an earlier gap must not pass for that of this one.
func (s *store) restart(l lost) {
	p, known := s.position()
	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		s.previous = &p
	}
	s.adopted, s.caughtUp = false, false
	l.untold = true
	s.lose(l)
	s.enterList(listFresh)
}

// loses is lose for those who do not hold mu.
func (s *store) loses(l lost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose(l)
}

// wentBack tells if the list shows an older version than one that was seen: etcd was restored.
func (s *store) wentBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backwards
}

// sweepBehind has a snapshot follow what is due behind a gap, if that is announced.
func (s *store) sweepBehind(gap *notice) {
	event := gap.event
	gap.event = func() *object.StreamEvent { // under mu
		ev := event()
		s.sweep = s.sweep || ev != nil
		return ev
	}
}

// losing is the history that is lost and not announced, nil: none.
func (s *store) losing() *lost {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// isLoaded tells if there is anything to compare a list with.
func (s *store) isLoaded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded
}

// reached is the resourceVersion up to which everything is in the store. While a list is read again, it is the one before.
func (s *store) reached() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rv
}

// changes are the names to walk back for the gap that is about to be announced.
func (s *store) changes() (lost, []backfill.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []backfill.Change
	for key, d := range s.debts {
		if d.gap == s.gaps {
			out = append(out, backfill.Change{Key: key, Before: d.base, After: s.objects[key].last, Managers: d.managers})
		}
	}
	return *s.lost, out
}

// found adds to the debts what walking back has found, and counts the versions.
func (s *store) found(byKey map[string]backfill.Result) (versions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range byKey {
		d := s.debts[key]
		if d == nil || d.gap != s.gaps {
			continue
		}
		way := slices.Clone(d.way[:d.told]) // an earlier walk, whose gap was not announced, counts for nothing
		for n, st := range w.Steps {
			way = append(way, link{Step: st, linked: w.Complete || n > 0})
		}
		versions += len(w.Steps)
		s.debts[key] = &debt{
			from: d.from, outside: d.outside, way: way, base: d.base, told: d.told, gap: d.gap,
			last: link{Step: backfill.Step{ChangedBy: w.ChangedBy}, linked: w.Complete || len(w.Steps) > 0},
		}
	}
	return versions
}

// foundAll makes due what was found of each name at each revision, and counts the versions; false: it does not lead from what the
// lists before have to what the last one has, and nothing is changed.
func (s *store) foundAll(byKey map[string][]backfill.Step) (versions int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, d := range s.debts {
		if d.gap == s.gaps && !backfill.Leads(d.base, byKey[key], s.objects[key].last) {
			return 0, false
		}
	}
	for key, way := range byKey {
		if d := s.debts[key]; d != nil && d.gap == s.gaps {
			continue
		}
		if _, known := s.objects[key]; known || !backfill.Leads(nil, way, nil) {
			return 0, false // what is due of it tells another story
		}
	}
	for key, way := range byKey {
		d, e := &debt{gap: s.gaps}, s.objects[key]
		if was := s.debts[key]; was != nil {
			d.from, d.outside, d.base, d.told = was.from, was.outside, was.base, was.told
			d.way = slices.Clone(was.way[:was.told])
		}
		for _, st := range way {
			d.way = append(d.way, link{Step: st, linked: true})
			if st.Object != nil {
				versions++
			}
		}
		d.last = link{linked: true}
		if n := len(d.way); e.last != nil {
			d.last, d.way = d.way[n-1], d.way[:n-1]
		}
		s.debts[key] = d
		s.set(key, entry{last: e.last, due: dueInferred})
	}
	s.line()
	return versions, true
}

// lose notes that history is gone. What was lost before, and not announced, is a part of it. The caller holds mu.
func (s *store) lose(l lost) {
	if l.reason == object.Rewound {
		s.history++
	}
	if was := s.lost; was != nil {
		if was.untold && l.reason != object.Rewound { // the graver of both
			l.reason = was.reason
		}
		l.from, l.since, l.untold, l.quiet = was.from, was.since, l.untold || was.untold, l.quiet && was.quiet
	}
	s.lost = &l
}

// gap is the notice that history up to rv was lost. find looks for what it can of it, nil: nothing. recovered: every change was
// found, but for objects that came and went. whole: those as well; if nothing else was lost, no gap is announced. find is called again
// where a new list has come between.
func (s *store) gap(rv uint64, find func(ctx context.Context) (whole, recovered bool, err error)) *notice {
	whole, recovered := false, false
	n := &notice{gap: true}
	if find != nil {
		n.prepare = func(ctx context.Context) (err error) {
			whole, recovered, err = find(ctx)
			return err
		}
	}
	n.event = func() *object.StreamEvent {
		l := s.lost
		if whole && l.quiet && !l.untold {
			return nil
		}
		return &object.StreamEvent{
			Kind: object.Gap, Resource: s.o.Resource, Scope: s.o.Scope, From: l.from, To: rv, Since: l.since, Reason: l.reason,
			Recovered: recovered && !l.untold,
		}
	}
	n.done = func() {
		switch b := s.barrier; {
		case b == nil:
		case recovered && !s.lost.untold && b.from == 0:
			b.from, b.since = s.lost.from, s.lost.since
		case s.lost.untold && s.lost.from <= b.from: // it covers the earlier ones, too
			b.from = 0
		}
		s.lost = nil
		s.gaps++
		s.adopted, s.previous = true, nil
	}
	return n
}

// load takes one object of a list, of which nothing was known.
func (s *store) load(o *object.Object, _ *object.Scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(o.Ref.Key, entry{last: o})
}

// compare takes one object of a list that is read because history was lost. m is not kept.
func (s *store) compare(o *object.Object, m *object.Scanned) {
	key := o.Ref.Key
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unseen, key)
	e, known := s.objects[key]
	switch {
	case known && e.last != nil && e.last.Ref.UID == o.Ref.UID && e.last.ResourceVersion == o.ResourceVersion:
		return // nothing new
	case e.due == dueRead:
		s.unread = true
		s.set(key, entry{last: o, due: dueRead})
	default:
		s.differs(key, e)
		if d := s.debts[key]; len(s.debts) <= backfill.MaxRequests { // the first ones are walked back
			d.managers = m.CopyManagers()
		}
		s.set(key, entry{last: o, due: dueInferred})
	}
	if o.ResourceVersion <= s.rv { // up to there, everything was in the store
		s.backwards = true
	}
}

// differs notes that a list shows key otherwise than e does. The caller holds mu.
func (s *store) differs(key string, e entry) {
	d := s.debts[key]
	switch {
	case d == nil:
		s.debts[key] = &debt{from: e.last, base: e.last, gap: s.gaps}
	case d.gap < s.gaps:
		// Its gap is announced: what that list showed is a version to send before this list's.
		to := d.last
		to.Object, to.ResourceVersion = e.last, s.listRV
		if e.last != nil {
			to.ResourceVersion = e.last.ResourceVersion
		}
		way := append(slices.Clone(d.way), to)
		s.debts[key] = &debt{from: d.from, outside: d.outside, way: way, base: e.last, told: len(way), gap: s.gaps}
	default:
		// No event told of that list: it counts for nothing.
	}
}

// endList completes a list at resourceVersion rv: what it missed is gone, what it changed is due. snap is the snapshot that
// is to be sent, nil: none. notices are what comes first.
func (s *store) endList(rv uint64, snap *snapshot, notices ...*notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listing == listAgain {
		for key := range s.unseen {
			switch e := s.objects[key]; {
			case e.due == dueRead:
				s.set(key, entry{}) // never sent: nobody has to hear that it is gone
				s.snapshot.objects--
				s.unread = true
			case e.last != nil:
				s.differs(key, e)
				s.set(key, entry{due: dueInferred})
			}
		}
		if s.barrier == nil {
			s.barrier = &barrier{due: newCount()}
			s.barrier.due.Notify(s.mu.Notify)
		}
		s.barrier.receipts = append(s.barrier.receipts, s.ledger.Add(mark{rv: rv, state: s.state ^ s.listState, since: time.Now().UnixNano()}))
		if s.lost != nil {
			s.lost.untold = s.lost.untold || s.unread
			s.collapse()
		}
	} else {
		s.ledger = s.newLedger(mark{rv: rv, state: s.state})
		s.adopted = s.listing == listResume && s.lost == nil // else once the gap is acknowledged
	}
	s.unseen, s.listing, s.loaded, s.listRV, s.rv = nil, notListing, true, rv, rv
	if snap == nil {
		s.line()
	} else {
		s.send(snap)
	}
	s.announce = append(notices, s.announce...) // a gap comes before a snapshot that is not announced yet
	s.wakeCursor()
}

// send makes the reads of a snapshot due. The caller holds mu.
func (s *store) send(snap *snapshot) {
	for key, e := range s.objects {
		if snap.takes(e.last) {
			s.set(key, entry{last: e.last, due: dueRead})
		}
	}
	s.line()
	s.snapshot = snap
	snap.reads.Notify(s.mu.Notify)
	if snap.resumed {
		return
	}
	snap.where = s.where()
	if snap.namespace == "" {
		s.sweep = false
	}
	snap.objects = len(s.order)
	s.lastSnapshot = snap.began
	if snap.namespace == "" {
		s.began = snap.began
	}
}

// line puts what is due in order. The caller holds mu.
func (s *store) line() {
	s.order, s.next = s.order[:0], 0
	for key, e := range s.objects {
		if e.due != dueNothing {
			s.order = append(s.order, key)
		}
	}
	slices.SortFunc(s.order, strings.Compare)
}

// wakeCursor has the cursor look at what there is to do.
func (s *store) wakeCursor() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake: it looks at the state, not at the number of wakes
	}
}
