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

// mark is a point of history: the resourceVersion, and what has changed in the fingerprint of all objects on the way to it.
type mark struct {
	rv, state uint64
	since     int64 // when what has to be acknowledged was observed, in Unix nanoseconds
}

// newLedger returns a ledger whose acknowledgements wake those who wait for the store.
func (s *Store) newLedger(at mark) *checkpoint.Ledger[mark] {
	l := checkpoint.NewLedger(at, func(earlier, later mark) mark {
		return mark{rv: max(earlier.rv, later.rv), state: earlier.state ^ later.state, since: earlier.since}
	})
	l.Notify(s.mu.Notify)
	return l
}

// barrier keeps the checkpoint in front of a gap until all that the relist behind it made due is acknowledged: a restart
// must find the gap again, and compare again. Relists that follow before all is sent share it: what the first one made due
// goes out behind the last one.
type barrier struct {
	receipts []*checkpoint.Receipt[mark] // one for each relist
	due      *checkpoint.Ledger[struct{}]
	// from is where the first gap begins that was announced as recovered, behind the last one that was not; 0: there is none. since is
	// when the API server last gave a sign of life then.
	from  uint64
	since time.Time
}

// newCount is a ledger of which only matters when all is acknowledged.
func newCount() *checkpoint.Ledger[struct{}] {
	return checkpoint.NewLedger(struct{}{}, func(a, _ struct{}) struct{} { return a })
}

// Position is what a restart goes on from; false: it would begin anew. It does not block.
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
	p.Log, p.Filtered = s.log.snapshotted, s.filtered.Load()
	shown := s.snaps.current
	if shown != nil && m.rv < shown.rv {
		shown = nil // it is not announced: a restart begins none
	}
	p.Where = s.whereSentLocked(shown)
	if snap := shown; snap != nil {
		cursor, reads := snap.reads.Mark()
		p.Acked += reads
		snap.withheld = slices.DeleteFunc(snap.withheld, func(key string) bool { return key <= cursor }) // those behind are withheld again
		p.Snapshot = &checkpoint.Snapshot{
			ID: snap.id, ResourceVersion: snap.rv, Objects: snap.objects + len(snap.withheld), Namespace: snap.namespace, Cursor: cursor,
		}
	}
	return p, true
}

// Lag is for how long the oldest change that the bus has not acknowledged is known, 0: it has all.
func (s *Store) Lag() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.pos.ledger.Oldest()
	if !ok {
		return 0
	}
	return max(0, time.Since(time.Unix(0, m.since)))
}

// Continue has the store go on from the checkpoint c, which stays its position until it has one of its own.
func (s *Store) Continue(c *checkpoint.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos.previous = &checkpoint.Position{Scope: *c}
	s.pos.history, s.snaps.began, s.snaps.lastAsked = c.History, c.SnapshotBegan, c.SnapshotBegan
}

// History is the number of the history that the store is in: how often etcd was restored so far.
func (s *Store) History() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pos.history
}

// SetHistory has the store be in that history.
func (s *Store) SetHistory(n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos.history = n
}

// RaiseHistory notes that there have been that many restores of etcd at least.
func (s *Store) RaiseHistory(n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos.history = max(s.pos.history, n)
}

// pass lets the checkpoint pass once what was sent is acknowledged. Nothing more will be sent.
func (b *barrier) pass() {
	b.due.Seal(func() {
		for _, r := range b.receipts {
			r.Acked(nil)
		}
	})
}
