package queue

import (
	"context"
	"time"
)

// Lane is one producer's access to the queue. Shares (at most twice the free part of each bound)
// and the round-robin of Get apply per lane. It is safe for concurrent use.
type Lane[T any] struct {
	q    *Queue[T]
	name string

	// All fields below are guarded by q.mu.

	held        held // waiting and in flight
	caught      held // of that, catch-up
	inFlight    int
	flightBytes int64 // bytes in flight

	// An item may be handed out if it is the oldest of its key and none of the key is in flight. An
	// item for which this is true on admission goes to the end of fresh, which is therefore sorted
	// by age. An item for which it becomes true later, when its predecessor is done, may be older
	// than any of them, so it goes to a heap. The older of the two tops is handed out. If such
	// items were appended to fresh, a key with many items would have only one handed out per round
	// over all keys, and would delay the checkpoint.
	fresh    *Item[T]
	freshEnd *Item[T]
	released byAge[T]

	next *Lane[T] // in Queue.ready
	pass uint64   // the last admission pass that found a Put of this lane above the lane's share

	room chan struct{} // returned by Room and closed when there is room; nil: no caller waits

	// refused is the item that TryPut refused last, unless it was admitted since; Room is about
	// room for it.
	refused struct {
		set   bool
		key   string
		bytes int64
	}
}

// Put adds v under key. It blocks until all rules allow it. v counts as bytes from now until Done;
// a negative number counts as 0.
//
// Put returns nil if v was added. It returns context.Cause(ctx) if ctx ended first, or ErrClosed if
// the queue was closed; then v was not added and the call has no effect.
//
// Items of one key leave in the order in which they were added. Puts of one lane are admitted in
// the order of the calls, except for Puts whose key holds its 256 items: others pass them.
func (l *Lane[T]) Put(ctx context.Context, key string, bytes int, v T) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	q := l.q
	it := &Item[T]{
		Value:  v,
		key:    key,
		lane:   l,
		bytes:  int64(max(bytes, 0)),
		weight: weight{bytes: q.weightOf(v)},
	}

	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	if q.puts.isEmpty() && q.hasRoom(it.bytes) && !l.isOverShare(it.bytes) {
		if youngest := q.keys[key]; !q.isKeyFull(youngest) {
			q.add(it, youngest)
			q.wakeReady()
			q.mu.Unlock()
			return nil
		}
	}
	w := q.newWaiter()
	w.lane = l
	w.item = it
	w.since = time.Now()
	w.keyFull = q.isKeyFull(q.keys[key])
	q.puts.push(w)
	q.wakeReady() // the earlier waiters may all wait for something other than room
	q.mu.Unlock()

	err := q.await(ctx, w)
	q.recycle(w)
	return err
}

// TryPut adds v as catch-up, in the room that live deltas leave. It requires that no Put waits for
// room, and that no Put of this lane waits for the lane to hold less. The key's share and the
// bounds must have room. It also requires that the lane then holds at most twice the remaining free
// room of the queue, and of the half for catch-up. It never blocks, and reports whether v was
// added; after false, Room signals when to try again.
//
// A Put that waits only for its key, or because its lane holds too much, does not wait for room. So
// a stuck lane blocks its own deltas and its own catch-up, but not those of others.
func (l *Lane[T]) TryPut(key string, bytes int, v T) bool {
	q := l.q
	size := int64(max(bytes, 0))

	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	l.refused.set = true
	l.refused.key = key
	l.refused.bytes = size
	if q.isRoomWanted() || l.isWaiting() || !l.hasCatchUpRoom(perFree) {
		return false
	}
	q.add(&Item[T]{
		Value: v,
		key:   key,
		lane:  l,
		bytes: size,
		weight: weight{
			bytes: q.weightOf(v),
		},
		caught: true,
	}, q.keys[key])
	q.wakeReady()
	return true
}

// Room returns a channel that is closed when TryPut on this lane is likely to succeed. The channel
// is already closed if TryPut would now add the item that it refused last or, if it refused none, a
// small one. Otherwise it is closed when the remaining free room is as large as the lane's share,
// instead of half of it. This hysteresis prevents that each freed slot at the limit wakes every
// caller. Since the last refusal counts, a loop of TryPut and Room never spins.
//
// A lane has one such channel at a time, so a caller that no longer waits leaves nothing behind. A
// closed queue closes none.
func (l *Lane[T]) Room() <-chan struct{} {
	q := l.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed && !q.isRoomWanted() && !l.isWaiting() && l.hasCatchUpRoom(perFree) {
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

// isReady reports whether the lane has an item to hand out, and is therefore in Queue.ready.
func (l *Lane[T]) isReady() bool { return l.fresh != nil || len(l.released) > 0 }

// isOverFlightShare reports whether the lane would have too many items in flight with one more. One
// item is always allowed: otherwise a small bound would admit none.
func (l *Lane[T]) isOverFlightShare() bool {
	free := l.q.flying - l.q.inFlight() - 1
	return l.q.flying > 0 && (free < 0 || l.inFlight > 0 && l.inFlight+1 > perFree*free)
}

// peek returns the oldest item that may be handed out. The lane must have one.
func (l *Lane[T]) peek() *Item[T] {
	it := l.fresh
	if it == nil || len(l.released) > 0 && l.released[0].seq < it.seq {
		return l.released[0]
	}
	return it
}

// takeOldest removes and returns the item that peek returns.
func (l *Lane[T]) takeOldest() *Item[T] {
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
