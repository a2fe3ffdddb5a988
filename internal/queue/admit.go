package queue

import (
	"context"
	"slices"
	"time"
)

// waiter is a blocked call of Put or Get. Waiters are reused: done is created once.
type waiter[T any] struct {
	prev, next *waiter[T]
	queued     bool       // in a list, not finished; guarded by Queue.mu
	done       chan error // capacity 1; finish sends once, so sending under the lock never blocks

	lane    *Lane[T]  // Put
	item    *Item[T]  // Put: the item to admit. Get: the item handed out, valid if done receives nil
	since   time.Time // Put: the start of the wait
	keyFull bool      // Put: the key's share is used up; setKeyFull keeps it up to date
}

// waitList is a list of waiters in order of arrival.
type waitList[T any] struct{ first, last *waiter[T] }

func (l *waitList[T]) isEmpty() bool { return l.first == nil }

func (l *waitList[T]) push(w *waiter[T]) {
	w.queued = true
	w.prev, w.next = l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
}

func (l *waitList[T]) remove(w *waiter[T]) {
	w.queued = false
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

func (q *Queue[T]) newWaiter() *waiter[T] {
	if w, ok := q.waiters.Get().(*waiter[T]); ok {
		return w
	}
	return &waiter[T]{done: make(chan error, 1)}
}

// recycle returns w for reuse. Only the call that waited with it may do so, because only that call
// knows that done is empty again.
func (q *Queue[T]) recycle(w *waiter[T]) {
	w.lane, w.item = nil, nil
	q.waiters.Put(w)
}

// await blocks until w is finished or ctx ends. The lock decides which came first:
//
//	waiter                              Done, in another goroutine
//	------                              --------------------------
//	                                    lock; admits w, sends nil to done; unlock
//	select sees done and ctx.Done() ready, takes ctx.Done()
//	lock; w is no longer queued: Done came first
//	receives nil: the item was admitted and holds a slot, and the caller gets nil
//
// If it returned the context's error here, the caller would put its value again later: a duplicate.
// In the other order, w leaves the list under the lock, so it cannot be admitted any more, and done
// stays empty. The same holds for a Get: a worker whose context ended too late gets its item, with
// a nil error, and must finish it.
func (q *Queue[T]) await(ctx context.Context, w *waiter[T]) error {
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	q.mu.Lock()
	if !w.queued {
		q.mu.Unlock()
		return <-w.done
	}
	if w.item != nil { // a Put
		q.unblock(w)
	} else {
		q.gets.remove(w)
	}
	q.wakeReady() // Puts after an abandoned one may fit although it did not
	q.mu.Unlock()
	return context.Cause(ctx)
}

// finish removes w from list and wakes its call with err.
func (q *Queue[T]) finish(list *waitList[T], w *waiter[T], err error) {
	if list == &q.puts {
		q.unblock(w)
	} else {
		list.remove(w)
	}
	w.done <- err
}

// unblock removes the waiting Put w from the list and adds its waiting time.
func (q *Queue[T]) unblock(w *waiter[T]) {
	q.puts.remove(w)
	q.blocked += time.Since(w.since)
}

// wakeReady wakes, after any change, exactly the calls that can proceed. After it, no Put waits
// that could be admitted, and no Get waits while an item may be handed out.
func (q *Queue[T]) wakeReady() {
	for w := q.nextPut(); w != nil; w = q.nextPut() {
		q.add(w.item, q.keys[w.item.key])
		q.finish(&q.puts, w, nil)
	}
	for !q.gets.isEmpty() {
		it := q.takeItem()
		if it == nil {
			break
		}
		w := q.gets.last // the last waiter has the warmest stack; fairness does not matter among workers
		w.item = it
		q.finish(&q.gets, w, nil)
	}
	if q.closed && q.held.events == 0 {
		for !q.gets.isEmpty() {
			q.finish(&q.gets, q.gets.first, ErrClosed)
		}
	}
	if len(q.rooms) > 0 && !q.isRoomWanted() {
		q.rooms = slices.DeleteFunc(q.rooms, func(l *Lane[T]) bool {
			open := !l.isWaiting() && l.hasCatchUpRoom(perFree-1)
			if open {
				close(l.room)
				l.room = nil
			}
			return open
		})
	}
	if q.drained != nil && q.held.events == 0 {
		close(q.drained)
		q.drained = nil
	}
}

// nextPut returns the waiting Put that can be admitted now, or nil.
//
// wakeReady restarts it after each Put, since each admission may change what blocks another; the
// list is only as long as the number of blocked informers.
func (q *Queue[T]) nextPut() *waiter[T] {
	w := q.firstPut()
	if w == nil || !q.hasRoom(w.item.bytes) {
		return nil
	}
	return w
}

// firstPut returns the waiting Put that gets the next free room, or nil:
//
//  1. A Put whose key is full is skipped; it waits for its key, not for room.
//  2. A Put is skipped if its lane holds too much in relation to the free room. All later Puts of
//     that lane are skipped too, so that they keep their order.
//  3. The first of the remaining Puts gets the room, or blocks all later ones: smaller Puts could
//     otherwise take the room that a larger one waits for, again and again.
//
// A lane that holds nothing never holds too much, so no item is too large for it. An empty queue
// fits any item, so no item is too large for the queue.
func (q *Queue[T]) firstPut() *waiter[T] {
	q.pass++
	for w := q.puts.first; w != nil; w = w.next {
		switch {
		case w.keyFull || w.lane.pass == q.pass:
		case w.lane.isOverShare(w.item.bytes):
			w.lane.pass = q.pass
		default:
			return w
		}
	}
	return nil
}

// isRoomWanted reports whether a Put waits for room, so that no other call may take it.
func (q *Queue[T]) isRoomWanted() bool { return q.firstPut() != nil }

// isWaiting reports whether a Put of the lane waits because the lane holds too much. The result is
// valid only after isRoomWanted has returned false: only then did firstPut visit all waiters.
func (l *Lane[T]) isWaiting() bool { return l.pass == l.q.pass }

// hasRoom reports whether the bounds have room for an item of this size. An empty queue fits any
// item.
func (q *Queue[T]) hasRoom(size int64) bool {
	return q.held.events == 0 || q.held.events < q.bound.events && size <= q.bound.bytes-q.held.bytes
}

// isKeyFull reports whether the key with the given youngest item has used up its share.
func (q *Queue[T]) isKeyFull(youngest *Item[T]) bool {
	return youngest != nil && youngest.n >= q.keyShare
}

// setKeyFull updates the Puts that wait with this key. It is called only when the state changes, so
// that a pass over the waiting Puts needs no lookup of keys.
func (q *Queue[T]) setKeyFull(key string, full bool) {
	for w := q.puts.first; w != nil; w = w.next {
		if w.item.key == key {
			w.keyFull = full
		}
	}
}

// held is a number of events and bytes that hold room in the queue.
type held struct {
	events int
	bytes  int64
}

func (h *held) add(size int64)    { h.events, h.bytes = h.events+1, h.bytes+size }
func (h *held) remove(size int64) { h.events, h.bytes = h.events-1, h.bytes-size }

// isWithin reports whether a lane that holds h may hold one more item of this size: then it must
// hold at most n times the remaining free part of bound. all is the total held by all lanes. It
// returns true for a lane that holds nothing.
func (h held) isWithin(n int64, all, bound held, size int64) bool {
	if h.events == 0 {
		return true
	}
	events, bytes := int64(bound.events-all.events-1), bound.bytes-all.bytes
	return size <= bytes && int64(h.events)+1 <= n*events && h.bytes+size <= n*(bytes-size)
}

// isOverShare reports whether one more item of this size is too much for the lane: it would hold
// more than perFree times the remaining free room.
func (l *Lane[T]) isOverShare(size int64) bool {
	return !l.held.isWithin(perFree, l.q.held, l.q.bound, size)
}

// hasCatchUpRoom reports whether the lane may take the item that TryPut refused last, or an item of
// size 0, as catch-up. The lane may then hold at most n times the remaining free room, both of the
// queue and of the half for catch-up.
func (l *Lane[T]) hasCatchUpRoom(n int64) bool {
	q := l.q
	half := held{q.bound.events / 2, q.bound.bytes / 2}
	size := l.refused.bytes
	return l.held.isWithin(n, q.held, q.bound, size) && l.caught.isWithin(n, q.caught, half, size) &&
		(!l.refused.set || q.hasRoom(size) && !q.isKeyFull(q.keys[l.refused.key]))
}
