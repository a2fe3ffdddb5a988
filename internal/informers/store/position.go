package store

import (
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// position is the acknowledged part of history, and the history number.
type position struct {
	ledger  *checkpoint.Ledger[mark]
	barrier *barrier // of relists whose deltas are not all sent; nil if there are none
	// own: a restart resumes from ledger and snapshot. Otherwise it resumes from previous, or
	// starts over if that is nil.
	own      bool
	previous *checkpoint.Position
	history  uint32 // restores of etcd so far
}

// mark is a point of history: its resourceVersion, and the change of the fingerprint of all objects
// up to it.
type mark struct {
	rv    uint64
	state Fingerprint
	since int64 // time of the change's read, in Unix nanoseconds
}

func (s *Store) newLedger(at mark) *checkpoint.Ledger[mark] {
	l := checkpoint.NewLedger(at, func(earlier, later mark) mark {
		return mark{rv: max(earlier.rv, later.rv), state: earlier.state.xor(later.state), since: earlier.since}
	})
	l.Notify(s.mu.Notify)
	return l
}

// barrier holds the position before a gap until the bus has everything that the relist after the
// gap made pending: a restart must find the gap again. Relists before all is sent share one
// barrier, because pending deltas of the first are sent after the last one.
type barrier struct {
	receipts []*checkpoint.Receipt[mark] // one for each relist
	due      *checkpoint.Ledger[struct{}]
	// start of the first gap announced as recovered since the last unrecovered one; 0 if there is
	// none
	from  uint64
	since time.Time // last contact with the API server at from
}

// newCount returns a ledger without marks.
func newCount() *checkpoint.Ledger[struct{}] {
	return checkpoint.NewLedger(struct{}{}, func(a, _ struct{}) struct{} { return a })
}

// Position returns where a restart resumes, or false if it starts over. Resource and selection are
// set only in the position of Continue. LastSeen is the time of the oldest change that the bus has
// not acknowledged, zero if there is none.
func (s *Store) Position() (checkpoint.Position, bool) {
	s.mu.RLock() // what it changes, nobody waits for
	defer s.mu.RUnlock()
	if p := s.pos.previous; !s.pos.own && p != nil {
		return *p, true
	} else if !s.pos.own {
		return checkpoint.Position{}, false
	}
	var p checkpoint.Position
	p.LastSeen = s.pos.oldest() // before Mark: an acknowledgement in between may advance that
	m, acked := s.pos.ledger.Mark()
	p.Acked = acked
	p.ResourceVersion = m.rv
	p.State = m.state.Versions
	p.Forms = m.state.Forms
	p.History, p.SnapshotBegan = s.pos.history, s.snaps.began
	p.Initial, p.ObservedSince = s.snaps.initial, s.begins.since
	p.Log = s.log.announced
	p.Filtered = s.filtered.Load()
	p.Where = s.Where()
	if p.Filtered {
		hides := s.hidden.covers(m.rv)
		p.Hides = &hides
	}
	shown := s.snaps.current
	if shown != nil && m.rv < shown.rv {
		shown = nil // it is not announced: a restart does not resume it
	}
	p.Sweep = s.snaps.due || s.snaps.current != nil && shown == nil && s.snaps.current.before.sweep
	if snap := shown; snap != nil {
		cursor, reads := snap.reads.Mark()
		p.Acked += reads
		// later keys are withheld again
		snap.withheld = slices.DeleteFunc(snap.withheld, func(key string) bool { return key <= cursor })
		p.Snapshot = &checkpoint.Snapshot{
			ID:              snap.id,
			Announced:       !snap.mayBeGivenUp(),
			Begun:           snap.begun,
			ResourceVersion: snap.rv,
			Objects:         snap.objects + len(snap.withheld),
			Namespace:       snap.namespace,
			Cursor:          cursor,
		}
	}
	return p, true
}

// Lag returns the age of the oldest change that the bus has not acknowledged, or 0.
func (s *Store) Lag() time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if at := s.pos.oldest(); !at.IsZero() {
		return max(0, s.o.Now().Sub(at))
	}
	return 0
}

// oldest returns the time of the oldest change that the bus has not acknowledged, zero if there is
// none.
func (p *position) oldest() (at time.Time) {
	if m, ok := p.ledger.Oldest(); ok {
		at = time.Unix(0, m.since)
	}
	return at
}

// Past returns t, or now if t is in the future: the clock of an earlier run was ahead.
func (s *Store) Past(t time.Time) time.Time {
	if now := s.o.Now(); t.After(now) {
		return now
	}
	return t
}

// Continue makes the checkpoint c the position until the store has one of its own, and adopts its
// history number.
func (s *Store) Continue(c *checkpoint.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos.previous = &checkpoint.Position{Scope: *c}
	s.pos.history, s.snaps.initial = c.History, c.Initial
	s.snaps.began = s.Past(c.SnapshotBegan)
	s.snaps.lastAsked = s.snaps.began
	s.begins.since = s.Past(c.ObservedSince)
	if c.Snapshot == nil || c.Snapshot.Namespace != "" {
		s.snaps.completed = s.snaps.began
	}
	if c.Filtered {
		s.filtered.Store(true)
	}
	isShown := !c.Filtered || c.Hides != nil && !*c.Hides
	if !isShown {
		s.inheritHiddenLocked(c)
	}
}

// RaiseHistory sets the history number to at least n.
func (s *Store) RaiseHistory(n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.pos.history {
		s.pos.history = n
		s.hidden.rewind(object.Point{ResourceVersion: s.known.rv, Time: s.o.Now()})
	}
}
