package informers

import (
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// mark is a point of history: the resourceVersion, and what has changed in the fingerprint of all objects on the way to it.
type mark struct {
	rv, state uint64
	since     int64 // when what has to be acknowledged was observed, in Unix nanoseconds
}

// newLedger returns a ledger whose acknowledgements wake those who wait for the store.
func (s *store) newLedger(at mark) *checkpoint.Ledger[mark] {
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

// pass lets the checkpoint pass once what was sent is acknowledged. Nothing more will be sent.
func (b *barrier) pass() {
	b.due.Seal(func() {
		for _, r := range b.receipts {
			r.Acked(nil)
		}
	})
}

// fingerprint is of one version of one object. Those of all objects are combined by exclusive or: their order does not
// matter, and one is taken out as it is put in.
func fingerprint(o *object.Object) uint64 { return fingerprintOf(o.Ref, o.ResourceVersion) }

func fingerprintOf(ref *object.Ref, rv uint64) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := range len(ref.UID) {
		h = (h ^ uint64(ref.UID[i])) * prime
	}
	// What differs in the lowest bits only has to differ in all of them: splitmix64's finalizer.
	h ^= rv * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// size is how many bytes the last-known objects take.
func (s *store) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// lag is for how long the oldest change that the bus has not acknowledged is known, 0: it has all.
func (s *store) lag() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.ledger.Oldest()
	if !ok {
		return 0
	}
	return max(0, time.Since(time.Unix(0, m.since)))
}

// position is what a restart goes on from; false: it would begin anew. It does not block.
func (s *store) position() (checkpoint.Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.adopted {
		if s.previous == nil {
			return checkpoint.Position{}, false
		}
		return *s.previous, true
	}
	m, acked := s.ledger.Mark()
	p := checkpoint.Position{Acked: acked}
	p.ResourceVersion, p.State, p.History, p.SnapshotBegan = m.rv, m.state, s.history, s.began
	p.Log, p.Filtered = s.log.told, s.filtered.Load()
	shown := s.snapshot
	if shown != nil && m.rv < shown.rv {
		shown = nil // it is not announced: a restart begins none
	}
	p.Where = s.whereTold(shown)
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

// continues has the store go on from the checkpoint c, which stays its position until it has one of its own.
func (s *store) continues(c *checkpoint.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.previous = &checkpoint.Position{Scope: *c}
	s.history, s.began, s.lastSnapshot = c.History, c.SnapshotBegan, c.SnapshotBegan
}

// historyNow is the number of the history that the store is in: how often etcd was restored so far.
func (s *store) historyNow() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history
}

// setHistory has the store be in that history.
func (s *store) setHistory(n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = n
}

// knowHistory notes that there have been that many restores of etcd at least.
func (s *store) knowHistory(n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = max(s.history, n)
}

// position is that of the store with what the informer observes.
func (i *informer) position() (checkpoint.Position, bool) {
	p, ok := i.store.position()
	p.Retiring = i.retiring.Load()
	if !ok || p.Resource != "" { // the checkpoint that it began with: it may be of another version of the resource
		return p, ok
	}
	i.selection.Record(&p.Scope)
	p.Aggregated, p.Definition = i.isAggregated(), i.definitionUID()
	p.Ignored = i.ignores
	p.LastSeen = i.state.lastSeen()
	return p, true
}
