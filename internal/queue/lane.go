package queue

import (
	"context"
	"time"
)

// Lane is one producer's way into the queue: the unit of shares (no more than twice what is free of each bound) and of the round-robin in which Get serves. It is safe for concurrent use.
type Lane[T any] struct {
	q    *Queue[T]
	name string

	// All below is guarded by q.mu.

	held        held // waiting and in flight
	caught      held // of that, catch-up
	inFlight    int
	flightBytes int64 // bytes in flight

	// An item is free to be handed out when it is the oldest of its key and none of the key is in flight. One that is
	// free from the start goes to the end of fresh, which is thereby sorted by age. One that becomes free when its
	// elder is done may be older than any of them, so it waits in a heap. The older of the two tops is handed out:
	// were it always appended, a key with many items would get one of them out per round over all keys, and hold the
	// checkpoint back.
	fresh    *Item[T]
	freshEnd *Item[T]
	released byAge[T]

	next *Lane[T] // in Queue.ready
	pass uint64   // last admission pass that found a Put of this lane above the lane's share

	room chan struct{} // given by Room and closed once there is room; nil: nobody waits

	// refused is what TryPut refused last, and has not come in since; Room is about room for it.
	refused struct {
		set   bool
		key   string
		bytes int64
	}
}

// Put takes v under key once there is room by every rule, and blocks until then. bytes is what v is counted as, from
// here until Done; below 0 it counts as 0.
//
// Put returns nil when v was taken. It returns context.Cause(ctx) when ctx ended first, or ErrClosed when the queue was
// closed; then v was not taken and nothing is left of the call.
//
// Items of one key leave in the order in which they were taken. Puts of one lane are taken in the order of the calls,
// but for those whose key holds its 256 items: they let the others pass.
func (l *Lane[T]) Put(ctx context.Context, key string, bytes int, v T) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	q := l.q
	it := &Item[T]{Value: v, key: key, lane: l, bytes: int64(max(bytes, 0)), weight: weight{bytes: q.weighed(v)}}

	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	if q.puts.empty() && q.fits(it.bytes) && !l.exceeds(it.bytes) {
		if youngest := q.keys[key]; !q.full(youngest) {
			q.add(it, youngest)
			q.settle()
			q.mu.Unlock()
			return nil
		}
	}
	w := q.newWaiter()
	w.lane, w.item, w.since = l, it, time.Now()
	w.keyFull = q.full(q.keys[key])
	q.puts.push(w)
	q.settle() // those ahead may all wait for something else than room
	q.mu.Unlock()

	err := q.await(ctx, w)
	q.free(w)
	return err
}

// TryPut takes v as catch-up, in the room that live deltas leave: no Put waits for room, and none of this lane for the lane to hold
// less; neither the key's share nor a bound stands against it, and the lane holds no more than twice what is left free, of the
// queue and of the half of it that is for catch-up. It never blocks, and reports whether v was taken; after false, Room says when
// trying again is worth it.
//
// A Put that waits only for its key, or because its lane holds too much, does not wait for room: a lane that is stuck stops
// its own deltas and its own catch-up, not those of others.
func (l *Lane[T]) TryPut(key string, bytes int, v T) bool {
	q := l.q
	size := int64(max(bytes, 0))

	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	l.refused.set, l.refused.key, l.refused.bytes = true, key, size
	if q.wanted() || l.waits() || !l.roomy(perFree) {
		return false
	}
	q.add(&Item[T]{Value: v, key: key, lane: l, bytes: size, weight: weight{bytes: q.weighed(v)}, caught: true}, q.keys[key])
	q.settle()
	return true
}

// Room returns a channel that is closed when TryPut on this lane is likely to succeed. It is closed already when TryPut would take what
// it has refused last, or, if it has refused nothing, something small. Otherwise it is closed once that leaves free as much as the lane then
// holds, instead of half of it. The distance between the two is what keeps every freed slot at the border from waking every
// caller. Since the lane's last refusal counts, a loop of TryPut and Room never spins.
//
// A lane has one such channel at a time: nothing is left of a caller that waits no longer. A closed queue closes none.
func (l *Lane[T]) Room() <-chan struct{} {
	q := l.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed && !q.wanted() && !l.waits() && l.roomy(perFree) {
		now := make(chan struct{})
		close(now)
		return now
	}
	if l.room == nil {
		l.room = make(chan struct{})
		if !q.closed {
			q.rooms = append(q.rooms, l)
		}
	}
	return l.room
}

// isReady reports whether the lane has an item to hand out, and so stands in Queue.ready.
func (l *Lane[T]) isReady() bool { return l.fresh != nil || len(l.released) > 0 }

// crowds reports whether the lane would have too many items in flight with one more. One it may always have: else a small bound would
// be too small for any.
func (l *Lane[T]) crowds() bool {
	free := l.q.flying - l.q.inFlight() - 1
	return l.q.flying > 0 && (free < 0 || l.inFlight > 0 && l.inFlight+1 > perFree*free)
}

// peek returns the oldest item that is free to be handed out. The lane must have one.
func (l *Lane[T]) peek() *Item[T] {
	it := l.fresh
	if it == nil || len(l.released) > 0 && l.released[0].seq < it.seq {
		return l.released[0]
	}
	return it
}

// oldest takes out what peek returns.
func (l *Lane[T]) oldest() *Item[T] {
	it := l.peek()
	if it != l.fresh {
		return l.released.pop()
	}
	l.fresh, it.older = it.older, nil
	if l.fresh == nil {
		l.freshEnd = nil
	}
	return it
}
