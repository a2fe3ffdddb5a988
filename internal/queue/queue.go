package queue

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrClosed is returned by Put and Get of a closed queue.
var ErrClosed = errors.New("queue: closed")

// maxPerKey is the maximum number of items of one key, waiting and in flight.
const maxPerKey = 256

// perFree is how many slots, bytes and items in flight a lane may hold for each that remains free.
//
// A lane whose items are never acknowledged (its topic is missing, for example) must not hold
// everything and stop all others. But with a fixed share, most of the queue would be unused while
// one lane alone has work. This bound is that of dynamic thresholds in switches with a shared
// buffer: one lane alone has at most two thirds. If the items of k lanes are never acknowledged,
// the other lanes get one part in 2k+1. That holds if the k lanes fill up together. If they fill up
// one after the other, the others get one part in 3^k.
const perFree = 2

// Options has the bounds. A value of Events or Bytes below 1 counts as 1.
type Options struct {
	Events int   // items, waiting and in flight
	Bytes  int64 // as counted by Put
	// InFlight bounds the items in flight. A lane has at most two of them for each that remains
	// free, but may always have one. 0: no bound.
	InFlight int
	// InFlightBytes bounds the bytes in flight, as WeighBy and Resize count them; a larger item is
	// in flight alone. 0: no bound.
	InFlightBytes int64
}

// Queue is a bounded queue of values with keys. Producers put values through lanes, workers get
// them, and a value keeps its room until it is done: see the package comment. It is safe for
// concurrent use.
type Queue[T any] struct {
	bound    held
	keyShare uint16
	flying   int               // Options.InFlight
	since    func(T) time.Time // see AgeBy
	weigh    func(T) int64     // see WeighBy
	flight   flight

	waiters sync.Pool // of *waiter[T]

	mu     sync.Mutex // guards all fields below, and the lanes
	lanes  map[string]*Lane[T]
	keys   map[string]*Item[T] // the youngest item of each key that holds items
	closed bool

	held   held // waiting and in flight
	caught held // of that, catch-up
	queued int  // waiting
	seq    uint64

	// ready lists the lanes that have an item to hand out, in the order of service.
	ready, readyEnd *Lane[T]

	gets  waitList[T]
	puts  waitList[T]
	rooms []*Lane[T] // lanes with an open channel of Room
	pass  uint64     // number of the last admission pass

	first, last *Item[T] // of all items that hold a slot, by admission

	blocked time.Duration // by Puts that no longer wait
	drained chan struct{} // created by Drained, closed when the queue is empty
}

// New returns an empty queue that registers its metrics with reg, unless that is nil.
func New[T any](o Options, reg prometheus.Registerer) *Queue[T] {
	q := &Queue[T]{
		bound:    held{max(o.Events, 1), min(max(o.Bytes, 1), math.MaxInt64/8)}, // isWithin multiplies by up to perFree
		keyShare: maxPerKey,
		flying:   max(o.InFlight, 0),
		lanes:    map[string]*Lane[T]{},
		keys:     map[string]*Item[T]{},
		weigh:    func(T) int64 { return 0 },
		flight:   flight{bound: min(max(o.InFlightBytes, 0), math.MaxInt64/8)},
	}
	newMetrics(reg, q.Stats, q.bound, q.flight.bound)
	return q
}

// Lane returns the lane with the name, and creates it if necessary. Lanes are served round-robin,
// one item each.
func (q *Queue[T]) Lane(name string) *Lane[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, ok := q.lanes[name]
	if !ok {
		l = &Lane[T]{q: q, name: name}
		q.lanes[name] = l
	}
	return l
}

// Release removes the name: the next call of Lane creates a new lane. The old lane stays usable,
// and the order per key holds across both. Without Release, the queue keeps a lane for each name
// that was ever used.
func (q *Queue[T]) Release(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.lanes, name)
}

// Get returns the oldest item of the lane whose turn it is, among those whose key has none in
// flight. It blocks until there is an item that fits into the free part of Options.InFlight and
// Options.InFlightBytes, and into its lane's share of both. Every item that Get returns must be
// passed to Done or to Suspend.
//
// It returns context.Cause(ctx) if ctx ended first, and ErrClosed if the queue is closed and empty.
// An item in flight may return to the queue.
func (q *Queue[T]) Get(ctx context.Context) (*Item[T], error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	q.mu.Lock()
	if it := q.takeItem(); it != nil {
		q.mu.Unlock()
		return it, nil
	}
	if q.closed && q.held.events == 0 {
		q.mu.Unlock()
		return nil, ErrClosed
	}
	w := q.newWaiter()
	q.gets.push(w)
	q.mu.Unlock()

	err := q.await(ctx, w)
	it := w.item
	q.recycle(w)
	if err != nil {
		return nil, err
	}
	return it, nil
}

// Done releases items of Get after the bus has acknowledged them: their slots and bytes become
// free, and the next items of their keys may be handed out. It must be called exactly once per
// item; otherwise it panics.
func (q *Queue[T]) Done(items ...*Item[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range items {
		q.finishItem(it)
	}
	q.wakeReady()
}

func (q *Queue[T]) finishItem(it *Item[T]) {
	if it.lane.q != q || it.state != inFlight {
		//nolint:forbidigo // A defect of the caller, which no caller could handle: its count of free slots is wrong by now.
		panic("queue: Done of an item that is not in flight")
	}
	it.state = outside
	q.unlink(it)
	q.held.remove(it.bytes)
	it.lane.held.remove(it.bytes)
	if it.caught {
		q.caught.remove(it.bytes)
		it.lane.caught.remove(it.bytes)
	}
	it.lane.inFlight--
	q.flight.finish(&it.weight, &it.lane.flightBytes)

	youngest := it
	if it.next != it {
		youngest = q.keys[it.key]
	}
	if q.isKeyFull(youngest) {
		q.setKeyFull(it.key, false)
	}
	if successor := it.next; successor == it {
		delete(q.keys, it.key)
	} else {
		youngest.n--
		youngest.next = successor
		q.release(successor)
	}
	it.next = nil // the caller may keep the item, which must not keep its successors in memory
}

// release makes an item available: its predecessor is done, or it is resumed.
func (q *Queue[T]) release(it *Item[T]) {
	if !it.lane.isReady() {
		q.enqueue(it.lane)
	}
	it.lane.released.push(it)
}

// Suspend frees the bytes in flight of an item that waits for another attempt. The item stays in
// flight: no other item of its key is handed out, and it counts against Options.InFlight and its
// lane's share of that. It may be called between Get and Resume.
func (q *Queue[T]) Suspend(it *Item[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flight.finish(&it.weight, &it.lane.flightBytes)
	q.wakeReady()
}

// Resume makes Get hand out a suspended item again, as the oldest of its key.
func (q *Queue[T]) Resume(it *Item[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.lane.q != q || it.state != inFlight {
		return
	}
	it.state = waiting
	q.flight.finish(&it.weight, &it.lane.flightBytes)
	it.weight.bytes = q.weightOf(it.Value)
	q.queued++
	it.lane.inFlight--
	q.release(it)
	q.wakeReady()
}

// Resize corrects the bytes in flight of an item when its size in memory is known. It never waits:
// if the item is larger than WeighBy estimated, the bound may be exceeded by the difference. It may
// be called between Get and Done. A suspended item has bytes in flight again, without another Get.
func (q *Queue[T]) Resize(it *Item[T], bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.lane.q != q || it.state != inFlight {
		return
	}
	before := it.weight.bytes
	q.flight.resize(&it.weight, &it.lane.flightBytes, max(bytes, 0))
	if bytes < before || before == 0 {
		// now that it has bytes in flight, the lane may lose the place in line that others wait for
		q.wakeReady()
	}
}

// Close drains the queue: Put and TryPut fail from now on, waiting Puts return ErrClosed, and Get
// returns items until the queue is empty. Close may be called again.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.rooms = true, nil
	for !q.puts.isEmpty() {
		q.finish(&q.puts, q.puts.first, ErrClosed)
	}
	q.wakeReady()
}

// Drained blocks until no item waits or is in flight, which is final after Close, or until ctx
// ends; then it returns context.Cause(ctx).
func (q *Queue[T]) Drained(ctx context.Context) error {
	q.mu.Lock()
	if q.held.events == 0 {
		q.mu.Unlock()
		return nil
	}
	if q.drained == nil {
		q.drained = make(chan struct{})
	}
	drained := q.drained
	q.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// AgeBy sets the function that returns the start of a value's wait, for the metric of the oldest.
// It must be called before the queue is used.
func (q *Queue[T]) AgeBy(since func(T) time.Time) { q.since = since }

// WeighBy sets the function that estimates the memory of a value in flight, in bytes; without it,
// values count 0. It must be called before the queue is used.
func (q *Queue[T]) WeighBy(weigh func(T) int64) { q.weigh = weigh }

// Stats is the state of a queue at one moment.
type Stats struct {
	Events        int           // items that hold a slot
	Inflight      int           // of those, handed out by Get and not done
	InflightBytes int64         // as WeighBy and Resize count them
	Bytes         int64         // held
	Blocked       time.Duration // the time that Puts waited for room, summed over calls
	Oldest        time.Duration // age of the item that has held its slot for longest, as AgeBy returns it; 0: no items
	Waiting       int           // Puts that wait for room
}

// Stats returns the current state of the queue.
func (q *Queue[T]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := Stats{
		Events:        q.held.events,
		Inflight:      q.inFlight(),
		InflightBytes: q.flight.bytes,
		Bytes:         q.held.bytes,
		Blocked:       q.blocked,
	}
	// Waiting Puts count too: a Put that is blocked for an hour must be visible during that hour.
	for w := q.puts.first; w != nil; w = w.next {
		s.Blocked += time.Since(w.since)
		s.Waiting++
	}
	if q.first != nil && q.since != nil {
		s.Oldest = max(0, time.Since(q.since(q.first.Value)))
	}
	return s
}

// Bounds returns the bounds of the queue.
func (q *Queue[T]) Bounds() (events int, bytes int64) { return q.bound.events, q.bound.bytes }

// Len returns the number of items that hold a slot, waiting or in flight.
func (q *Queue[T]) Len() int { return q.Stats().Events }

// Bytes returns the bytes of the items that hold a slot, as counted by Put.
func (q *Queue[T]) Bytes() int64 { return q.Stats().Bytes }

// add admits it, at the end of its key. youngest is q.keys[it.key].
func (q *Queue[T]) add(it, youngest *Item[T]) {
	l := it.lane
	q.seq++
	it.seq = q.seq
	it.state = waiting
	q.link(it)
	q.queued++
	q.held.add(it.bytes)
	l.held.add(it.bytes)
	if it.caught {
		q.caught.add(it.bytes)
		l.caught.add(it.bytes)
	}
	if l.refused.set && l.refused.key == it.key {
		// The key continues, with the refused value or without it.
		l.refused.set = false
		l.refused.key = ""
		l.refused.bytes = 0
	}

	q.keys[it.key] = it
	it.n, it.next = 1, it
	if youngest != nil {
		it.n = youngest.n + 1
		it.next, youngest.next = youngest.next, it
	}
	if q.isKeyFull(it) {
		q.setKeyFull(it.key, true)
	}
	if youngest != nil {
		return // it becomes available with the Done of its predecessor
	}
	if !l.isReady() {
		q.enqueue(l)
	}
	if l.freshEnd == nil {
		l.fresh = it
	} else {
		l.freshEnd.older = it
	}
	l.freshEnd = it
}

// takeItem hands out an item and moves its lane to the end of the line. It returns nil if no item
// may be handed out; skipped lanes keep their place.
func (q *Queue[T]) takeItem() *Item[T] {
	l, before, overtakes := q.nextLane()
	if l == nil {
		return nil
	}
	if before == nil {
		q.ready = l.next
	} else {
		before.next = l.next
	}
	if q.readyEnd == l {
		q.readyEnd = before
	}
	l.next = nil
	it := l.takeOldest()
	it.state = inFlight
	q.queued--
	l.inFlight++
	q.flight.start(&it.weight, &l.flightBytes, overtakes)
	if l.isReady() {
		q.enqueue(l)
	}
	return it
}

func (q *Queue[T]) inFlight() int { return q.held.events - q.queued }

// enqueue appends the lane, which must not be in the line.
func (q *Queue[T]) enqueue(l *Lane[T]) {
	if q.readyEnd == nil {
		q.ready = l
	} else {
		q.readyEnd.next = l
	}
	q.readyEnd = l
}

// link appends it to all items that hold a slot, unlink removes it.
func (q *Queue[T]) link(it *Item[T]) {
	it.earlier = q.last
	if q.last == nil {
		q.first = it
	} else {
		q.last.later = it
	}
	q.last = it
}

func (q *Queue[T]) unlink(it *Item[T]) {
	if it.earlier == nil {
		q.first = it.later
	} else {
		it.earlier.later = it.later
	}
	if it.later == nil {
		q.last = it.earlier
	} else {
		it.later.earlier = it.earlier
	}
	it.earlier, it.later = nil, nil // the caller may keep the item, which must not keep the others in memory
}
