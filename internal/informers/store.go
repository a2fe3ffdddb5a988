package informers

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/watch"

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

// turn is a mutex that may be held for long: while the queue is full, or the API server is asked. It is a channel, so that a bubble of
// testing/synctest takes a goroutine that waits for it for blocked, and lets time pass.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// deltaOverhead is about what a queued delta holds besides compressed bytes, in bytes: Delta, Object, receipt and queue
// item.
const deltaOverhead = 384

// due says what of an entry has still to be sent because of a list.
type due uint8

const (
	dueNothing  due = iota
	dueRead         // part of a snapshot
	dueInferred     // differs from what was sent last: store.debts has the way
)

// entry is what the store knows of one key.
type entry struct {
	last *object.Object // the last-known object, nil where a list has missed it and that is still to be sent
	// skipped counts the versions withheld since the last one that was sent. set keeps it, as long as there is an object.
	skipped uint32
	due     due
}

// store holds the last-known objects of one informer and forms its deltas.
//
// last is written by the informer's owner goroutine only (lists and watches follow one another there); due and debts by it and
// by the catch-up cursor, under mu. Who takes something due does so under mu: the cursor puts it into the queue before it
// unlocks (TryPut does not block), the owner unlocks, and puts it in front of its live delta. In both cases no one
// else can put a delta of that key in between: the owner is one goroutine, and what is taken is no longer due for the
// cursor.
//
// A snapshot of what the store holds begins while no live event is between the two (turn): its read would pass the delta
// that is still to be put.
type store struct {
	o        storeOptions
	prefix   string // of the keys of all objects
	filters  atomic.Pointer[filtering]
	filtered atomic.Bool // some may have withheld something

	turn     turn        // held while a live event is applied; before mu
	applying atomic.Bool // a live event is applied; becomes true with mu held

	mu      broadcast.Mutex
	objects map[string]entry
	debts   map[string]*debt // of entries that are dueInferred
	// maxSteps bounds the versions in debts that gaps before the last one have announced, beside one of each object.
	maxSteps int
	held     int    // compressed bytes of last-known objects
	due      int    // entries that are due
	state    uint64 // fingerprint of all last-known objects
	rv       uint64 // resourceVersion up to which everything is in the store
	history  uint32 // restores of etcd so far

	// How far the bus has acknowledged (position.go).
	ledger   *checkpoint.Ledger[mark]
	barrier  *barrier // of relists whose deltas are not all sent, nil: there are none
	adopted  bool     // ledger and snapshot are what a restart goes on from; else it is previous
	previous *checkpoint.Position
	began    time.Time // of the last snapshot of the whole scope

	listing   listing // what the list that is being loaded is for; the cursor rests
	loaded    bool    // a list has been loaded
	unseen    map[string]struct{}
	listRV    uint64
	backwards bool // the list shows a version that should have been seen before
	unread    bool // the list shows another version of an object whose read is due: nobody hears of those in between
	// listState is state when the list was begun, also where it is begun again.
	listState uint64
	lost      *lost  // history that is gone and of which no gap event tells yet
	gaps      uint64 // gap events that the bus has acknowledged
	buried    bool   // the resource is gone: nothing more will come
	order     []string
	next      int           // in order: keys that are due, sorted, from here on
	announce  []*notice     // to be acknowledged before what is due behind it
	gate      chan struct{} // closed: open. Live deltas wait for it.
	open      bool
	resting   bool         // no live delta passes any more
	snapshot  *snapshot    // the one that is not on the bus to its end
	sweep     bool         // another one is to follow
	orphan    acknowledged // closed when the bus has the start of the last snapshot that was given up; nil: there is none
	toldWhere string       // the condition by which the last one told of objects as a whole
	caughtUp  bool         // all that the first list made due is on the bus

	log          logState  // rebase.go
	lastSnapshot time.Time // in the id of the last one that was asked for

	interrupt context.CancelFunc // ends what the cursor waits for; nil: it has not begun
	wake      chan struct{}
	requests  chan *request // for snapshots; not buffered
	owed      chan struct{} // of one element: takeSnapshots looks whether one is due
	ended     chan struct{} // closed when the cursor has ended
}

// storeEvent is a watch event of an object.
type storeEvent struct {
	Type      watch.EventType // Added, Modified or Deleted
	Object    *object.Object  // as it is now, or was last
	Outside   bool            // no rule takes it as it is now
	ChangedBy []byte          // as on a delta
	Observed  int64           // when it was read, in Unix nanoseconds
}

// storeFilter decides which deltas are withheld. It is safe for concurrent use.
type storeFilter interface {
	// Withholds returns why d is not sent, "" if it is.
	Withholds(d *object.Delta) (reason string)
}

// selector answers what became of an object under selectors, the API server's or the agent's. It asks until the server answers, or
// cannot tell any more (known is false). ok is false if ctx ended first. A store call blocks meanwhile, as it does on a full queue.
type selector interface {
	// Before returns what o was right before its version: outside of the selector, or not at all (nil).
	Before(ctx context.Context, o *object.Object) (was *object.Object, known, ok bool)
	// Exists reports whether the object still exists at rv, in resourceVersions. 0 is now.
	Exists(ctx context.Context, ref *object.Ref, rv uint64) (exists, known, ok bool)
}

// storeOptions are what a store begins with.
type storeOptions struct {
	Resource *object.Resource
	Scope    string // its name, in events
	Lane     Lane
	// Selector tells under selectors what became of an object, nil: there are none, what a list misses is deleted.
	Selector selector
	Pushed   bool // the API server applies selectors
	Several  bool // the agent applies selectors
	// Replaced is the last replacement of the log that takes the scope's events, nil: the bus cannot tell.
	Replaced   func() (number uint64, since time.Time)
	Snapshots  bool                            // are taken
	Save       func(ctx context.Context) error // has the position saved, nil: nothing is remembered
	Progressed func()                          // called when the first snapshot is on the bus
	Log        *slog.Logger
	Metrics    storeMetrics
}

// storeMetrics are those of a store, by the labels of its scope.
type storeMetrics struct {
	Deltas             map[object.Op]prometheus.Counter // of objects, that are handed to the queue
	Stream             prometheus.Counter               // events about the stream, as well
	Excluded, Known    prometheus.Counter               // watch events that are not taken
	Objects, HeldBytes prometheus.Gauge
	Withheld           *prometheus.CounterVec // by reason
	Gaps               *prometheus.CounterVec // by reason, and whether all of it was recovered
}

// count counts a delta that is handed to the queue.
func (m *storeMetrics) count(d *object.Delta) {
	if ev := d.Stream; ev != nil {
		m.Stream.Inc()
		if ev.Kind == object.Gap {
			m.Gaps.WithLabelValues(string(ev.Reason), strconv.FormatBool(ev.Recovered)).Inc()
		}
		return
	}
	m.Deltas[d.Op].Inc()
}

// newStore makes an empty store. Run starts it.
func newStore(o storeOptions) *store {
	s := &store{
		o: o, prefix: o.Resource.String() + "/",
		turn: newTurn(), objects: map[string]entry{}, debts: map[string]*debt{}, maxSteps: maxSteps,
		gate: make(chan struct{}), wake: make(chan struct{}, 1), requests: make(chan *request), owed: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	s.ledger = s.newLedger(mark{})
	s.followLog()
	return s
}

// apply takes one live event. It blocks until everything it makes due is in the queue, or ctx ends.
func (s *store) apply(ctx context.Context, e *storeEvent) {
	if !s.takeTurn(ctx) {
		return
	}
	defer s.endTurn()
	key, version := e.Object.Ref.Key, e.Object.ResourceVersion
	s.mu.Lock()
	last := s.objects[key].last
	s.mu.Unlock()
	same := last != nil && last.Ref.UID == e.Object.Ref.UID
	if same && (version < last.ResourceVersion || version == last.ResourceVersion && e.Type != watch.Deleted) {
		// A server that replays: this version, or a later one, is on its way already. A deletion may carry the version of
		// what it deletes, where a server does not give it one of its own.
		s.o.Metrics.Known.Inc()
		s.advance(version)
		return
	}
	live, ok := s.live(ctx, last, e)
	if !ok {
		return
	}
	if len(live) == 0 { // none of the rules takes the object, nor took it
		s.o.Metrics.Excluded.Inc()
		s.advance(version)
		return
	}

	s.mu.Lock()
	deltas, next := s.takeDue(key, e.Object.Ref.UID)
	state := s.state
	switch {
	case e.Type != watch.Deleted && !e.Outside:
		s.set(key, entry{last: e.Object})
	case same || last == nil || e.Outside:
		s.set(key, entry{})
	}
	s.rv = max(s.rv, version)
	for n, d := range live {
		m := mark{since: d.Observed}
		if n == len(live)-1 { // before that, the event is not done with
			m.rv, m.state = version, s.state^state
		}
		d.History, d.Acker = s.history, s.ledger.Add(m)
	}
	noted := s.objects[key].skipped
	s.mu.Unlock()

	// Until the turn is given back, nobody else counts what is withheld of this key.
	for n, d := range append(deltas, live...) {
		if n >= len(deltas) {
			var sent bool
			if next, sent = s.pass(d, next); !sent {
				continue
			}
		}
		s.o.Metrics.count(d)
		if s.o.Lane.Put(ctx, key, heldBytes(d), d) != nil {
			return // the agent stops: what was not taken is read again from the checkpoint or a list
		}
	}
	if next != noted {
		s.mu.Lock()
		s.skip(key, next)
		s.mu.Unlock()
	}
}

// skip notes how many versions of key are withheld. The caller holds mu.
func (s *store) skip(key string, n uint32) {
	if e, ok := s.objects[key]; ok {
		e.skipped = n
		s.objects[key] = e
	}
}

// advance notes that there is nothing of the scope up to version but what was applied.
func (s *store) advance(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv = max(s.rv, version)
	s.ledger.Advance(mark{rv: version})
}

// live forms the deltas of one live event against the last-known object, none where no rule takes the object, or took it;
// false: ctx ended before they could be told.
func (s *store) live(ctx context.Context, last *object.Object, e *storeEvent) ([]*object.Delta, bool) {
	now := e.Object
	same := last != nil && last.Ref.UID == now.Ref.UID
	d := &object.Delta{Ref: now.Ref, Scope: s.o.Scope, ResourceVersion: now.ResourceVersion, Observed: e.Observed, ChangedBy: e.ChangedBy}
	// Two facts, two deltas: the name was taken again, and the deletion in between not shown.
	gone := func() *object.Delta {
		return &object.Delta{
			Op: object.Deleted, Inferred: true, Ref: last.Ref, Before: last, Scope: s.o.Scope,
			ResourceVersion: now.ResourceVersion, Previous: last.ResourceVersion, Observed: e.Observed,
		}
	}
	switch {
	case e.Type == watch.Deleted && e.Outside && !same:
		return nil, true
	case e.Type == watch.Deleted:
		d.Op, d.Before, d.ChangedBy = object.Deleted, now, nil
		if same {
			d.Ref, d.Before, d.Previous = last.Ref, last, last.ResourceVersion
		}
		if s.o.Pushed {
			exists, known, ok := s.o.Selector.Exists(ctx, now.Ref, now.ResourceVersion)
			if !ok {
				return nil, false
			}
			if exists || !known {
				d.Op, d.Inferred = object.Left, !known
			}
		}
		return []*object.Delta{d}, true
	case e.Outside && last == nil:
		return nil, true
	case e.Outside && same: // it has changed, and no rule takes it as it is now
		d.Op, d.Ref, d.Before, d.Previous, d.ChangedBy = object.Left, last.Ref, last, last.ResourceVersion, nil
		return []*object.Delta{d}, true
	case e.Outside:
		return []*object.Delta{gone()}, true
	}

	d.After = now
	// A MODIFIED of what is not known: the version before was there, and no rule took it.
	entered := s.o.Several && e.Type == watch.Modified
	switch {
	case same:
		d.Op, d.Before, d.Previous = object.Updated, last, last.ResourceVersion
	case last != nil:
		d.Op = object.Created
		if entered {
			d.Op, d.ChangedBy = object.Entered, nil
		}
		return []*object.Delta{gone(), d}, true
	case entered:
		d.Op, d.ChangedBy = object.Entered, nil // compared with no version before, it would name all managers there ever were
	case !s.o.Pushed:
		d.Op = object.Created
	default:
		was, known, ok := s.o.Selector.Before(ctx, now)
		if !ok {
			return nil, false
		}
		switch {
		case !known:
			// Whether it was created or changed into the selector is gone from history. Entered claims less.
			d.Op, d.Inferred = object.Entered, true
		case was == nil:
			d.Op = object.Created
		default:
			d.Op, d.Before, d.Previous = object.Entered, was, was.ResourceVersion
			d.ChangedBy = nil // what it holds is compared with no version before: all managers there ever were
		}
	}
	return []*object.Delta{d}, true
}

// takeDue takes what catch-up still owes for key and is sent, to be put in front of a live delta, and owes it no longer. skipped
// is how many versions of key are withheld behind it. uid is that of the live object. The caller holds mu.
func (s *store) takeDue(key, uid string) (out []*object.Delta, skipped uint32) {
	e := s.objects[key]
	skipped = e.skipped
	if e.due == dueNothing {
		return nil, skipped
	}
	gone := object.Deleted
	if d := s.debts[key]; s.o.Selector != nil && d != nil && d.latestUID() == uid {
		gone = object.Left // the list missed it, and it is here again: it had left the selector
	}
	for {
		d, rest := s.nextDue(key, gone)
		if d != nil {
			s.expectAck("", d) // the cursor is elsewhere
			var sent bool
			if skipped, sent = s.passDue(d, skipped); sent {
				out = append(out, d)
			}
		}
		s.settle(key, rest)
		if rest == nil {
			return out, skipped
		}
	}
}

// set writes an entry, and forgets a key that has neither an object nor anything due. The caller holds mu.
func (s *store) set(key string, e entry) {
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
	if old.due != dueNothing {
		s.due--
	}
	if e.due != dueNothing {
		s.due++
	}
	if e.last == nil && e.due == dueNothing {
		delete(s.objects, key)
	} else {
		s.objects[key] = e
	}
	s.o.Metrics.Objects.Set(float64(len(s.objects)))
	s.o.Metrics.HeldBytes.Set(float64(s.held))
}

// takeTurn waits until the stream event that announces the last list is acknowledged, and takes the turn; false: ctx
// ended first. The turn is not held meanwhile: a snapshot that begins needs it to shut the gate.
func (s *store) takeTurn(ctx context.Context) bool {
	for {
		s.turn.Lock()
		s.mu.Lock()
		gate, open, resting := s.gate, s.open, s.resting
		s.applying.Store(open && !resting)
		s.mu.Unlock()
		if open && !resting {
			return true
		}
		s.turn.Unlock()
		if resting { // for good: the informer is about to be ended
			<-ctx.Done()
			return false
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return false
		}
	}
}

// endTurn gives the turn back that takeTurn has taken.
func (s *store) endTurn() {
	s.applying.Store(false)
	s.turn.Unlock()
	s.mu.Notify()
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
