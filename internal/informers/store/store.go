package store

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Lane is an informer's end of the bounded queue. Deltas of one key leave in the order in which they came.
type Lane interface {
	// Put blocks until there is room, or ctx ends; then d was not taken.
	Put(ctx context.Context, key string, bytes int, d *object.Delta) error
	// TryPut takes d in the room that live deltas leave. It never blocks; false: not taken.
	TryPut(key string, bytes int, d *object.Delta) bool
	// Roomy blocks until a TryPut is likely to succeed, or ctx ends.
	Roomy(ctx context.Context) error
}

// Options are what a store begins with.
type Options struct {
	Resource *object.Resource
	Scope    string // its name, in events
	Lane     Lane
	// Selector tells under selectors what became of an object, nil: there are none, what a list misses is deleted.
	Selector Selector
	Pushed   bool // the API server applies selectors
	Several  bool // the agent applies selectors
	// Replaced is the last replacement of the log that takes the scope's events, nil: the bus cannot tell.
	Replaced   func() (number uint64, since time.Time)
	Snapshots  bool                            // are taken
	Save       func(ctx context.Context) error // has the position saved, nil: nothing is remembered
	Progressed func()                          // called when the first snapshot is on the bus
	Log        *slog.Logger
	Metrics    Metrics
}

// Selector answers what became of an object under selectors, the API server's or the agent's. It asks until the server answers, or
// cannot tell any more (known is false). ok is false if ctx ended first. A store call blocks meanwhile, as it does on a full queue.
type Selector interface {
	// Before returns what o was right before its version: outside of the selector, or not at all (nil).
	Before(ctx context.Context, o *object.Object) (was *object.Object, known, ok bool)
	// Exists reports whether the object still exists at rv, in resourceVersions. 0 is now.
	Exists(ctx context.Context, ref *object.Ref, rv uint64) (exists, known, ok bool)
}

// Filter decides which deltas are withheld. It is safe for concurrent use.
type Filter interface {
	// Withholds returns why d is not sent, "" if it is.
	Withholds(d *object.Delta) (reason string)
}

// deltaOverhead is about what a queued delta holds besides compressed bytes, in bytes: Delta, Object, receipt and queue
// item.
const deltaOverhead = 384

// pendingKind says what of an entry has still to be sent because of a list.
type pendingKind uint8

const (
	pendingNothing  pendingKind = iota
	pendingRead                 // part of a snapshot
	pendingInferred             // differs from what was sent last: store.debts has the way
)

// entry is what the store knows of one key.
type entry struct {
	last *object.Object // the last-known object, nil where a list has missed it and that is still to be sent
	// skipped counts the versions withheld since the last one that was sent. set keeps it, as long as there is an object.
	skipped uint32
	pending pendingKind
}

// Store holds the last-known objects of one informer and forms its deltas.
//
// last is written by the informer's owner goroutine only (lists and watches follow one another there); due and debts by it and
// by the catch-up cursor, under mu. Who takes something due does so under mu: the cursor puts it into the queue before it
// unlocks (TryPut does not block), the owner unlocks, and puts it in front of its live delta. In both cases no one
// else can put a delta of that key in between: the owner is one goroutine, and what is taken is no longer due for the
// cursor.
//
// A snapshot of what the store holds begins while no live event is between the two (turn): its read would pass the delta
// that is still to be put.
type Store struct {
	o        Options
	prefix   string // of the keys of all objects
	filters  atomic.Pointer[filtering]
	filtered atomic.Bool // some may have withheld something

	turn     turn        // held while a live event is applied; before mu
	applying atomic.Bool // a live event is applied; becomes true with mu held

	mu      broadcast.Mutex
	objects map[string]entry
	pending map[string]*pending // of entries that are pendingInferred
	// maxSteps bounds the versions in debts that gaps before the last one have announced, beside one of each object.
	maxSteps    int
	held        int    // compressed bytes of last-known objects
	pendingKeys int    // entries that are due
	state       uint64 // fingerprint of all last-known objects
	rv          uint64 // resourceVersion up to which everything is in the store
	history     uint32 // restores of etcd so far

	// How far the bus has acknowledged (position.go).
	ledger   *checkpoint.Ledger[mark]
	barrier  *barrier // of relists whose deltas are not all sent, nil: there are none
	adopted  bool     // ledger and snapshot are what a restart goes on from; else it is previous
	previous *checkpoint.Position
	began    time.Time // of the last snapshot of the whole scope

	listing   ListKind // what the list that is being loaded is for; the cursor rests
	loaded    bool     // a list has been loaded
	unseen    map[string]struct{}
	listRV    uint64
	backwards bool // the list shows a version that should have been seen before
	unread    bool // the list shows another version of an object whose read is due: nobody hears of those in between
	// listState is state when the list was begun, also where it is begun again.
	listState uint64
	lost      *Loss  // history that is gone and of which no gap event tells yet
	gaps      uint64 // gap events that the bus has acknowledged
	gone      bool   // the resource is gone: nothing more will come
	order     []string
	next      int           // in order: keys that are due, sorted, from here on
	announce  []*Notice     // to be acknowledged before what is due behind it
	gate      chan struct{} // closed: open. Live deltas wait for it.
	open      bool
	stopped   bool         // no live delta passes any more
	snapshot  *Snapshot    // the one that is not on the bus to its end
	sweep     bool         // another one is to follow
	orphan    acknowledged // closed when the bus has the start of the last snapshot that was given up; nil: there is none
	sentWhere string       // the condition by which the last one told of objects as a whole
	caughtUp  bool         // all that the first list made due is on the bus

	log          replacements // rebase.go
	lastSnapshot time.Time    // in the id of the last one that was asked for

	interrupt context.CancelFunc // ends what the cursor waits for; nil: it has not begun
	wake      chan struct{}
	requests  chan *request // for snapshots; not buffered
	kick      chan struct{} // of one element: runSchedule looks whether one is due
	ended     chan struct{} // closed when the cursor has ended
}

// New makes an empty store. Run starts it.
func New(o Options) *Store {
	s := &Store{
		o: o, prefix: o.Resource.String() + "/",
		turn: newTurn(), objects: map[string]entry{}, pending: map[string]*pending{}, maxSteps: maxSteps,
		gate: make(chan struct{}), wake: make(chan struct{}, 1), requests: make(chan *request), kick: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	s.ledger = s.newLedger(mark{})
	s.followLog()
	return s
}

// Run sends what lists make due, and takes snapshots: after every, measured from the start of the last one (0: never), on demand, and those
// that have to follow a gap or a changed condition. It returns when ctx ends.
func (s *Store) Run(ctx context.Context, every time.Duration) {
	var both sync.WaitGroup
	both.Go(func() { s.catchUp(ctx) })
	both.Go(func() { s.runSchedule(ctx, every) })
	both.Wait()
}

// setLocked writes an entry, and forgets a key that has neither an object nor anything due. The caller holds mu.
func (s *Store) setLocked(key string, e entry) {
	old := s.objects[key]
	e.skipped = old.skipped
	if old.last != e.last {
		if old.last != nil {
			s.held -= old.last.HeldBytes()
			s.state ^= fingerprint(old.last)
		}
		if e.last != nil {
			s.held += e.last.HeldBytes()
			s.state ^= fingerprint(e.last)
		}
	}
	if old.pending != pendingNothing {
		s.pendingKeys--
	}
	if e.pending != pendingNothing {
		s.pendingKeys++
	}
	if e.last == nil && e.pending == pendingNothing {
		delete(s.objects, key)
	} else {
		s.objects[key] = e
	}
	s.o.Metrics.Objects.Set(float64(len(s.objects)))
	s.o.Metrics.HeldBytes.Set(float64(s.held))
}

// wakeCursor has the cursor look at what there is to do.
func (s *Store) wakeCursor() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake: it looks at the state, not at the number of wakes
	}
}

// heldBytes is what a delta holds while it waits, in bytes. before is usually shared with the delta in front of it or
// with the store, so this is an upper bound.
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
