package store

import (
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// position is how far the bus has acknowledged, and in which history.
type position struct {
	ledger  *checkpoint.Ledger[mark]
	barrier *barrier // of relists whose deltas are not all sent, nil: there are none
	// own: a restart resumes from ledger and snapshot. Else it resumes from previous, nil: it starts anew.
	own      bool
	previous *checkpoint.Position
	history  uint32 // restores of etcd so far
}

// mark is a point of history: its resourceVersion, and how the fingerprint of all objects changes on the way to it.
type mark struct {
	rv, state uint64
	since     int64 // when the change was read, in Unix nanoseconds
}

// newLedger returns a ledger whose acknowledgements wake those who wait for the store.
func (s *Store) newLedger(at mark) *checkpoint.Ledger[mark] {
	l := checkpoint.NewLedger(at, func(earlier, later mark) mark {
		return mark{rv: max(earlier.rv, later.rv), state: earlier.state ^ later.state, since: earlier.since}
	})
	l.Notify(s.mu.Notify)
	return l
}

// barrier keeps the position before a gap until the bus has acknowledged everything that the relist behind it made pending: a restart must find
// the gap again, and compare again. Relists that follow before all is sent share it, because what the first one made pending is sent after the
// last one.
type barrier struct {
	receipts []*checkpoint.Receipt[mark] // one for each relist
	due      *checkpoint.Ledger[struct{}]
	// from is where the first gap begins that was announced as recovered, behind the last one that was not; 0: there is none. since is
	// when the API server last gave a sign of life then.
	from  uint64
	since time.Time
}

// newCount returns a ledger without marks: all that matters is when everything is acknowledged.
func newCount() *checkpoint.Ledger[struct{}] {
	return checkpoint.NewLedger(struct{}{}, func(a, _ struct{}) struct{} { return a })
}

// pass lets the position pass once everything sent so far is acknowledged. Nothing more will be added.
func (b *barrier) pass() {
	b.due.Seal(func() {
		for _, r := range b.receipts {
			r.Acked(nil)
		}
	})
}

// Position returns what a restart resumes from, false: it starts anew. It does not block. Resource and selection of the Scope are only set if it is
// that of Continue.
func (s *Store) Position() (checkpoint.Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pos.own {
		if s.pos.previous == nil {
			return checkpoint.Position{}, false
		}
		return *s.pos.previous, true
	}
	m, acked := s.pos.ledger.Mark()
	p := checkpoint.Position{Acked: acked}
	p.ResourceVersion, p.State, p.History, p.SnapshotBegan = m.rv, m.state, s.pos.history, s.snaps.began
	p.Log, p.Filtered = s.log.announced, s.filtered.Load()
	shown := s.snaps.current
	if shown != nil && m.rv < shown.rv {
		shown = nil // it is not announced: a restart resumes none
	}
	p.Sweep = s.snaps.due || s.snaps.current != nil && shown == nil && s.snaps.current.before.sweep
	p.Where = s.whereSentLocked(shown)
	if snap := shown; snap != nil {
		cursor, reads := snap.reads.Mark()
		p.Acked += reads
		snap.withheld = slices.DeleteFunc(snap.withheld, func(key string) bool { return key <= cursor }) // those after it are withheld again
		p.Snapshot = &checkpoint.Snapshot{
			ID: snap.id, ResourceVersion: snap.rv, Objects: snap.objects + len(snap.withheld), Namespace: snap.namespace, Cursor: cursor,
		}
	}
	return p, true
}

// Lag returns the age of the oldest change that the bus has not acknowledged, 0: it has acknowledged all.
func (s *Store) Lag() time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, ok := s.pos.ledger.Oldest()
	if !ok {
		return 0
	}
	return max(0, time.Since(time.Unix(0, m.since)))
}

// Continue makes the checkpoint c the position, until the store has one of its own, and takes over its history number.
func (s *Store) Continue(c *checkpoint.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos.previous = &checkpoint.Position{Scope: *c}
	s.pos.history, s.snaps.began, s.snaps.lastAsked = c.History, c.SnapshotBegan, c.SnapshotBegan
}

// History returns the history number: how often etcd was restored so far.
func (s *Store) History() uint32 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pos.history
}

// RaiseHistory sets the history number to at least n.
func (s *Store) RaiseHistory(n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos.history = max(s.pos.history, n)
}
