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

// Lane is the end of the bounded queue at which a scope puts its deltas. Deltas of one key leave it in the order of Put and TryPut.
type Lane interface {
	// Put blocks until it has taken d, and returns an error only if ctx ended before.
	Put(ctx context.Context, key string, bytes int, d *object.Delta) error
	// TryPut takes d if live deltas leave room, and reports whether it did. It never blocks.
	TryPut(key string, bytes int, d *object.Delta) bool
	// Room returns a channel that is closed when a TryPut is likely to succeed. A loop of TryPut and Room does not spin.
	Room() <-chan struct{}
}

// Options are what New needs. Selector, Replaced, Gate and Save may be nil, and so may Progressed if no Run is called.
type Options struct {
	Resource *object.Resource
	Scope    string // name in events
	Lane     Lane
	// Selector is nil if the scope has no selectors. An object that a list misses was deleted then.
	Selector Selector
	Pushed   bool // the API server applies selectors: its ADDED and DELETED may mean that an object matches now, or no longer
	Several  bool // the agent applies selectors: it sees objects that no rule takes
	// Replaced returns the number of the last replacement of the log that takes the scope's events, and until when the log before it was whole.
	// nil: the bus does not know.
	Replaced func() (number uint64, since time.Time)
	// Gate is called when a list begins (loading), or when changes begin or cease to wait for a gap, or for the start of a snapshot (closed). nil:
	// nobody wants to know.
	Gate       func(loading, closed bool)
	Snapshots  bool                            // false: none are sent, except where a replaced log cut one off
	Save       func(ctx context.Context) error // saves the positions of all scopes, nil: none is saved
	Progressed func()                          // called once the bus has everything that the first list made pending
	Log        *slog.Logger
	Metrics    Metrics
}

// Selector finds out what happened to an object under selectors, those of the API server or of the agent. Its methods retry until the API
// server answers (known), or its history no longer has the answer. ok is false if ctx ended before.
type Selector interface {
	// Before returns the version of the object right before o, which is outside the selectors, nil if there was none.
	Before(ctx context.Context, o *object.Object) (was *object.Object, known, ok bool)
	// Exists reports whether the object existed at resourceVersion rv, 0: whether it exists now.
	Exists(ctx context.Context, ref *object.Ref, rv uint64) (exists, known, ok bool)
}

// Filter decides which deltas are withheld. It is safe for concurrent use.
type Filter interface {
	// Withholds returns why d is not sent, "" if it is.
	Withholds(d *object.Delta) (reason string)
}

// deltaOverhead is roughly what a queued delta holds besides compressed bytes: Delta, Object, receipt and queue item.
const deltaOverhead = 384

// pendingKind is what is to be sent of an entry because of a list.
type pendingKind uint8

const (
	pendingNothing  pendingKind = iota
	pendingRead                 // part of a snapshot
	pendingInferred             // differs from what was sent last: known.pending has the steps
)

// entry is what the store knows of one key.
type entry struct {
	last *object.Object // the last-known object, nil: a list has missed it, and that is pending
	// skipped counts the versions withheld since the last one that was sent. setLocked keeps it.
	skipped uint32
	pending pendingKind
}

// Store holds what is known of one scope. See the package comment for who may call what, and for the lock order.
//
// The owner alone changes last-known objects, the owner and the cursor what is pending, both under mu. Either takes a pending delta under
// mu. The cursor puts it into the lane before it unlocks, because TryPut does not block. The owner unlocks, and puts it in front of its live
// delta. Nobody else can put a delta of that key in between: there is one owner, and what it has taken is no longer pending for the cursor.
type Store struct {
	o        Options
	prefix   string // of the keys of all objects
	filters  atomic.Pointer[filtering]
	filtered atomic.Bool // some versions may have been withheld

	mu       broadcast.Mutex // guards what follows, down to applying
	known    known
	list     list
	gate     gate
	snaps    snapshots
	pos      position
	log      replacements
	gone     bool // the resource was removed: nothing more will come
	stopped  bool // no live delta passes any more
	caughtUp bool // the bus has everything that the first list made pending
	// applying: a watch event is applied, also while the lane is full, or an API server is asked. Its deltas may not be in the lane yet.
	applying bool

	wake     chan struct{}
	requests chan *request // for snapshots; not buffered
	kick     chan struct{} // of one element: runSchedule looks whether a snapshot is due
	ended    chan struct{} // closed when the cursor has ended
}

// known are the last-known objects, and the deltas of them that lists made pending.
type known struct {
	objects     map[string]entry
	pending     map[string]*pending // of entries that are pendingInferred
	maxSteps    int                 // in pending, because of gaps before the last one, beside one of each object
	pendingKeys int                 // entries that are pending
	bytes       int                 // compressed bytes of the objects
	state       uint64              // fingerprint of all objects
	rv          uint64              // resourceVersion up to which everything is in the store
	order       []string            // keys of pending entries, sorted
	next        int                 // index in order of the key that is sent next
}

// New returns an empty Store. Run starts it.
func New(o Options) *Store {
	s := &Store{
		o: o, prefix: o.Resource.String() + "/", known: known{maxSteps: maxSteps}, gate: gate{closed: make(chan struct{})},
		wake: make(chan struct{}, 1), requests: make(chan *request), kick: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	s.forgetLocked() // nobody else has it
	s.followLog()
	return s
}

// Run sends what lists make pending, and takes snapshots: on demand, at intervals of every (0: never) from start to start, and those that have
// to follow a gap or a changed condition. It returns when ctx ends. It must be called at most once.
func (s *Store) Run(ctx context.Context, every time.Duration) {
	var both sync.WaitGroup
	both.Go(func() { s.catchUp(ctx) })
	both.Go(func() { s.runSchedule(ctx, every) })
	both.Wait()
}

// setLocked writes an entry, and deletes one that has neither an object nor anything pending.
func (s *Store) setLocked(key string, e entry) {
	old := s.known.objects[key]
	e.skipped = old.skipped
	if old.last != e.last {
		if old.last != nil {
			s.known.bytes -= old.last.HeldBytes()
			s.known.state ^= fingerprint(old.last)
		}
		if e.last != nil {
			s.known.bytes += e.last.HeldBytes()
			s.known.state ^= fingerprint(e.last)
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
	} else {
		s.known.objects[key] = e
	}
}

// gaugeLocked sets the gauges of objects. Whoever changes many objects calls it once.
func (s *Store) gaugeLocked() {
	s.o.Metrics.Objects.Set(float64(len(s.known.objects)))
	s.o.Metrics.HeldBytes.Set(float64(s.known.bytes))
}

// heldBytes is the memory that a waiting delta holds. before is usually shared with the delta in front of it or with the store, so this
// is an upper bound.
func heldBytes(d *object.Delta) int {
	n := deltaOverhead + len(d.ChangedBy)
	if d.Before != nil {
		n += d.Before.HeldBytes()
	}
	if d.After != nil {
		n += d.After.HeldBytes()
	}
	return n
}

// View is what others wait for of a store, as it is at one moment.
type View struct {
	Adopted      bool   // there is a position of the store's own to resume from
	Empty        bool   // Adopted, no object exists, and the bus has everything
	Finished     bool   // nothing more will come, no object exists, and the bus has everything
	Resting      bool   // of a store that rests: no position would miss anything that is on its way to the bus
	InFlight     int    // deltas of objects that are not acknowledged, except for those that a relist has still to send
	Reached      uint64 // resourceVersion up to which the store has everything
	Acknowledged uint64 // resourceVersion up to which the bus has everything
}

// View returns the present view. The next change of it is told by the signal of mu.
func (s *Store) View() View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, _ := s.pos.ledger.Mark()
	outstanding := s.pos.ledger.Outstanding()
	v := View{Adopted: s.pos.own, InFlight: outstanding, Reached: s.known.rv, Acknowledged: m.rv}
	if b := s.pos.barrier; b != nil {
		v.InFlight += b.due.Outstanding() - len(b.receipts)
	}
	if s.snaps.current != nil {
		v.InFlight += s.snaps.current.reads.Outstanding()
	}
	nothing := s.caughtUp && len(s.known.objects) == 0 && outstanding == 0 && !s.log.owes() && !s.snaps.due
	v.Empty = nothing && s.pos.own
	v.Finished = nothing && s.gone && s.snaps.current == nil && s.pos.barrier == nil && len(s.gate.notices) == 0
	v.Resting = s.isRestingLocked(v.InFlight)
	return v
}

func (s *Store) isRestingLocked(inFlight int) bool {
	switch {
	case s.applying:
		return false
	case s.list.at != listed:
		return inFlight == 0
	}
	return len(s.gate.notices) == 0 && s.pos.ledger.Outstanding() == 0
}

// Changed returns a channel that is closed by the next change.
func (s *Store) Changed() <-chan struct{} { return s.mu.Next() }

// Notify wakes those who wait for the store, or for what depends on it.
func (s *Store) Notify() { s.mu.Notify() }

// MarkGone notes that the resource was removed: nothing more will come.
func (s *Store) MarkGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

// Stop makes Apply block for good, until its context ends. An event that is being applied is completed.
func (s *Store) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// Metrics are those of one scope.
type Metrics struct {
	Deltas             map[object.Op]prometheus.Counter // of objects, handed to the lane
	Stream             prometheus.Counter               // stream events handed to the lane
	Excluded, Known    prometheus.Counter               // watch events not taken: no rule takes the object; the version was applied before
	Objects, HeldBytes prometheus.Gauge
	Withheld           *prometheus.CounterVec // by reason
	Gaps               *prometheus.CounterVec // by reason, and whether the gap is recovered
}

// count counts a delta that is handed to the lane.
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
