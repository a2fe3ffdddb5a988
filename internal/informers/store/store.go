package store

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Lane is the input of the bounded queue of a scope's deltas. Deltas of one key leave it in the
// order of Put and TryPut.
type Lane interface {
	// Put blocks until it has taken d, and returns an error only if ctx ended before.
	Put(ctx context.Context, key string, bytes int, d *object.Delta) error
	// TryPut takes d if live deltas leave room, and reports whether it did. It never blocks.
	TryPut(key string, bytes int, d *object.Delta) bool
	// Room returns a channel that is closed when a TryPut is likely to succeed. A loop of TryPut
	// and Room does not spin.
	Room() <-chan struct{}
}

// Options are the parameters of New. Selector, Replaced and Gate may be nil, and so may
// NoteCaptured and Save if Run is not called.
type Options struct {
	Resource *object.Resource
	Scope    string // name in events
	Lane     Lane
	Selector Selector // nil if the scope has no selectors: an object that a list misses was deleted then
	// the API server applies selectors: its ADDED and DELETED may mean that an object matches now,
	// or no longer
	Pushed  bool
	Several bool // the agent applies selectors: it sees objects that no rule takes
	// Replaced returns the number of the last replacement of the scope's log, and until when the
	// previous log was known to be whole.
	Replaced func() (number uint64, since time.Time)
	Now      func() time.Time // time of the run; it never goes back
	// Gate is called when a list begins (loading), or when changes start or stop waiting for a gap
	// or the start of a snapshot (closed).
	Gate func(loading, closed bool)
	// limit of pending versions of earlier gaps, besides one per object; 0: 10,000
	MaxVersions  int
	Snapshots    bool                            // false: none is sent, unless a replacement of the log interrupted one
	Save         func(ctx context.Context) error // saves the positions of all scopes
	NoteCaptured func()                          // called once the bus has everything that the first list made pending
	Log          *slog.Logger
	Metrics      Metrics
}

// Selector finds out what happened to an object under selectors of the API server or of the agent.
// Its methods retry until the API server answers (known), or its history no longer has the answer.
// ok is false if ctx ended first.
type Selector interface {
	// Before returns the version of the object right before o. It is outside the selectors; nil if
	// there was none.
	Before(ctx context.Context, o *object.Object) (was *object.Object, known, ok bool)
	// Exists reports whether the object existed at resourceVersion rv, or exists now if rv is 0.
	Exists(ctx context.Context, ref *object.Ref, rv uint64) (exists, known, ok bool)
}

// Filter decides which deltas are withheld. It is safe for concurrent use.
type Filter interface {
	// Withholds returns the reason not to send d, "" to send it.
	Withholds(d *object.Delta) (reason string)
}

// estimated bytes of a queued delta besides compressed ones: Delta, Object, receipt and queue item
const deltaOverhead = 384

// pendingKind is the kind of deltas that a list made pending for an entry.
type pendingKind uint8

const (
	pendingNothing  pendingKind = iota
	pendingRead                 // part of a snapshot. It precedes what known.pending has of the key, if anything
	pendingInferred             // differs from the version sent last: known.pending has the versions
)

// withChange returns the kind after a list has shown another version.
func (k pendingKind) withChange() pendingKind {
	if k == pendingRead {
		return pendingRead
	}
	return pendingInferred
}

type entry struct {
	last    *object.Object // the last-known object; nil if a list has missed it and the deletion is pending
	skipped uint32         // versions withheld since the last one sent. setLocked keeps it.
	hidden  hiddenState    // setLocked keeps it
	pending pendingKind
}

// Store holds the state of one scope. The package comment says who may call what, and the lock
// rules.
//
// Only the owner changes last-known objects. The owner and the cursor change and take pending
// deltas, all with mu held. The cursor puts it into the lane before it unlocks: TryPut does not
// block. The owner unlocks, then puts it before its live delta. Nothing can put a delta of that key
// in between: there is one owner, and the cursor no longer finds the delta pending.
type Store struct {
	o        Options
	prefix   string // of the keys of all objects
	filters  atomic.Pointer[filtering]
	filtered atomic.Bool // some versions may have been withheld

	mu       broadcast.Mutex // guards the fields from here to applying
	known    known
	list     list
	gate     gate
	begins   beginning
	snaps    snapshots
	pos      position
	log      replacements
	hidden   hiding
	gone     bool // the resource was removed: no more events follow
	stopped  bool // the gate stays closed
	caughtUp bool // the bus has everything that the first list made pending
	// a watch event is being applied, also while the lane is full or an API server is asked: its
	// deltas may not be in the lane
	applying bool

	wake     chan struct{}
	requests chan *request // for snapshots; not buffered
	kick     chan struct{} // capacity 1: runSchedule checks whether a snapshot is due
	ended    chan struct{} // closed when the cursor has ended
}

type known struct {
	objects     map[string]entry
	pending     map[string]*pending // of entries that are pendingInferred
	found       int64               // the latest time of a delta that lists have shown, in Unix nanoseconds
	pendingKeys int                 // entries that are pending
	bytes       int                 // compressed bytes of the objects
	state       Fingerprint         // of all objects
	rv          uint64              // resourceVersion up to which everything is in the store
	order       []string            // keys of pending entries, sorted
	next        int                 // index in order of the key that is sent next
}

// New returns an empty Store. Run starts it.
func New(o Options) *Store {
	s := &Store{
		o:        o,
		prefix:   o.Resource.String() + "/",
		gate:     gate{closed: make(chan struct{}), interrupt: func() {}},
		wake:     make(chan struct{}, 1),
		requests: make(chan *request),
		kick:     make(chan struct{}, 1),
		ended:    make(chan struct{}),
	}
	s.filters.Store(&filtering{})
	s.forgetLocked() // no other goroutine has s yet
	s.log.since = o.Now()
	s.noteReplacementLocked()
	s.log.announced = s.log.owed // replacements before now do not count
	return s
}

// Run sends pending deltas and takes snapshots until ctx ends. Snapshots are taken on demand, at
// the interval every (0: never) from start to start, and after a gap, a changed condition or a
// restart that requires one. It must be called at most once.
func (s *Store) Run(ctx context.Context, every time.Duration) {
	var cursor sync.WaitGroup
	cursor.Go(func() { s.catchUp(ctx) })
	s.runSchedule(ctx, every)
	cursor.Wait()
}

// setLocked writes an entry, and deletes one that has neither an object nor anything pending.
func (s *Store) setLocked(key string, e entry) {
	old := s.known.objects[key]
	e.skipped, e.hidden = old.skipped, old.hidden
	if old.last != e.last {
		if old.last != nil {
			s.known.bytes -= old.last.HeldBytes()
			s.known.state = s.known.state.xor(fingerprintOf(old.last))
		}
		if e.last != nil {
			s.known.bytes += e.last.HeldBytes()
			s.known.state = s.known.state.xor(fingerprintOf(e.last))
		}
	}
	if old.pending != pendingNothing {
		s.known.pendingKeys--
	}
	if e.pending != pendingNothing {
		s.known.pendingKeys++
	}
	if e.last == nil && e.pending == pendingNothing {
		delete(s.known.objects, key)
		s.hidden.objects -= isHidden(old.hidden)
	} else {
		s.known.objects[key] = e
	}
}

func (s *Store) gaugeLocked() {
	s.o.Metrics.Objects.Set(float64(len(s.known.objects)))
}

// heldBytes returns an upper bound of the memory of a waiting delta: Before is usually shared with
// the previous delta, or with the store.
func heldBytes(d *object.Delta) int {
	n := deltaOverhead + len(d.ChangedBy)
	for _, o := range [...]*object.Object{d.Before, d.After} {
		if o != nil {
			n += o.HeldBytes()
		}
	}
	return n
}

// View is the state of a store at one moment.
type View struct {
	Loaded       bool   // there are objects to compare a list with
	WentBack     bool   // the list shows a version that the watch should have shown before: etcd was restored
	Older        bool   // the list shows an older version of a known object: no history allows that
	Unchanged    bool   // the list that is being compared shows the last-known objects, in their versions
	Objects      int    // last-known ones, and those with a pending deletion
	Bytes        int    // compressed, of the last-known objects
	Pending      int    // deltas, including reads that the bus has not acknowledged
	CaughtUp     bool   // the bus has everything that the first list made pending
	Sweeping     bool   // a snapshot is being sent, or must follow
	Replaying    bool   // the bus may have later events of an earlier run
	Loss         *Loss  // lost history that is not announced; nil if there is none. It must not be changed.
	History      uint32 // how often etcd was restored so far
	Adopted      bool   // the store has a position of its own to resume from
	Empty        bool   // Adopted, no object exists, and the bus has everything
	Finished     bool   // no more events follow, no object exists, and the bus has everything
	Resting      bool   // no position would miss a delta that is on its way to the bus
	InFlight     int    // unacknowledged deltas of objects, except those that a relist still has to send
	Reached      uint64 // resourceVersion up to which the store has everything; during a list, that before the list
	Acknowledged uint64 // resourceVersion up to which the bus has everything
}

// View returns the current view. The signal of mu reports its next change.
func (s *Store) View() View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, _ := s.pos.ledger.Mark()
	outstanding := s.pos.ledger.Outstanding()
	v := View{
		Loaded:       s.list.at == listed || s.list.at == Relist,
		WentBack:     s.list.backwards,
		Older:        s.list.older,
		Unchanged:    s.list.isUnchanged(),
		Loss:         s.list.lost,
		History:      s.pos.history,
		Objects:      len(s.known.objects),
		Bytes:        s.known.bytes,
		Pending:      s.known.pendingKeys,
		CaughtUp:     s.caughtUp,
		Sweeping:     s.snaps.due || s.snaps.current != nil,
		Replaying:    s.known.rv < s.snaps.after,
		Adopted:      s.pos.own,
		InFlight:     outstanding,
		Reached:      s.known.rv,
		Acknowledged: m.rv,
	}
	if b := s.pos.barrier; b != nil {
		v.InFlight += b.due.Outstanding() - len(b.receipts)
	}
	if s.snaps.current != nil {
		reads := s.snaps.current.reads.Outstanding()
		v.Pending += reads
		v.InFlight += reads
	}
	nothing := s.caughtUp && len(s.known.objects) == 0 && outstanding == 0 && !s.log.owes() && !s.snaps.due
	v.Empty = nothing && s.pos.own
	v.Finished = nothing && s.gone && s.snaps.current == nil && s.pos.barrier == nil && len(s.gate.notices) == 0
	v.Resting = !s.applying && s.isRestingLocked(v.InFlight)
	return v
}

func (s *Store) isRestingLocked(inFlight int) bool {
	if s.list.at != listed {
		return inFlight == 0
	}
	return len(s.gate.notices) == 0 && s.pos.ledger.Outstanding() == 0
}

// IsCaughtUp reports whether the bus has everything that the first list made pending.
func (s *Store) IsCaughtUp() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.caughtUp
}

// Changed returns a channel that is closed by the next change.
func (s *Store) Changed() <-chan struct{} { return s.mu.Next() }

// ChangeCount returns a number that is greater after each change.
func (s *Store) ChangeCount() uint64 { return s.mu.Changes() }

// Notify wakes waiters for the store, or for anything that depends on it.
func (s *Store) Notify() { s.mu.Notify() }

// MarkGone records that the resource was removed: no more events follow.
func (s *Store) MarkGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

// Stop makes Apply block until its context ends, but lets it complete the current event.
func (s *Store) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.closeGateLocked()
}

// Metrics are the metrics of one scope.
type Metrics struct {
	Deltas map[object.Op]prometheus.Counter // of objects, handed to the lane
	Stream prometheus.Counter               // stream events handed to the lane
	// ignored watch events: no rule takes the object; the version was applied before
	Excluded, Known prometheus.Counter
	Objects         prometheus.Gauge
	Withheld        *prometheus.CounterVec // by reason
	Gaps            *prometheus.CounterVec // by reason, and whether the gap is recovered
}

func (m *Metrics) count(d *object.Delta) {
	if ev := d.Stream; ev != nil {
		m.Stream.Inc()
		if ev.Kind == object.Gap {
			m.Gaps.WithLabelValues(string(ev.Reason), strconv.FormatBool(ev.Recovered)).Inc()
		}
		return
	}
	m.Deltas[d.Op].Inc()
}
