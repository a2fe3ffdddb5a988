package queue

import (
	"context"
	"slices"
	"time"
)

// waiter is one call of Put or Get that waits. Waiters are reused: done is made once.
type waiter[T any] struct {
	prev, next *waiter[T]
	queued     bool       // in a list, not finished; guarded by Queue.mu
	done       chan error // capacity 1, sent to once, on finish: sending under the lock never blocks

	lane    *Lane[T]  // Put
	item    *Item[T]  // Put: to be taken. Get: handed out, valid when done says nil
	since   time.Time // Put: when it began to wait
	keyFull bool      // Put: the key's share is used up; kept true to the fact by setKeyFull
}

// waitList is a list of waiters in order of arrival.
type waitList[T any] struct{ first, last *waiter[T] }

func (l *waitList[T]) empty() bool { return l.first == nil }

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

// free gives w back for reuse. Only the call that waited with it may do so: it alone knows that done is empty again.
func (q *Queue[T]) free(w *waiter[T]) {
	w.lane, w.item = nil, nil
	q.waiters.Put(w)
}

// await blocks until w is finished or ctx ends, whichever the lock says came first:
//
//	waiter                              Done, in another goroutine
//	------                              --------------------------
//	                                    lock; admits w, sends nil to done; unlock
//	select sees done and ctx.Done() ready, takes ctx.Done()
//	lock; w is no longer queued: what ctx lost the race against has happened
//	receives nil: the item was taken, its slot is in use, and the caller is told so
//
// Were it to return the context's error here, the caller would put its value again later: a duplicate. In the other
// order w leaves the list under the lock, so nobody can admit it any more, and done stays empty. The same holds for a
// Get: a worker that lost the race gets its item, with a nil error, and must finish it.
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
	q.settle() // those behind a Put that gave up may fit where it did not
	q.mu.Unlock()
	return context.Cause(ctx)
}

// finish takes w from list and wakes its call with err.
func (q *Queue[T]) finish(list *waitList[T], w *waiter[T], err error) {
	if list == &q.puts {
		q.unblock(w)
	} else {
		list.remove(w)
	}
	w.done <- err
}

// unblock takes the waiting Put w from the list and counts the time that it was there.
func (q *Queue[T]) unblock(w *waiter[T]) {
	q.puts.remove(w)
	q.blocked += time.Since(w.since)
}

// settle brings the queue to rest after any change: whoever can go on now is woken, nobody else. After it, no Put waits
// that could be admitted, and no Get waits while an item is free to be handed out and may be in flight.
func (q *Queue[T]) settle() {
	for w := q.nextPut(); w != nil; w = q.nextPut() {
		q.add(w.item, q.keys[w.item.key])
		q.finish(&q.puts, w, nil)
	}
	for !q.gets.empty() {
		it := q.take()
		if it == nil {
			break
		}
		w := q.gets.last // the one that came last has the warmest stack; one that is left waiting has nothing to lose
		w.item = it
		q.finish(&q.gets, w, nil)
	}
	if q.closed && q.held.events == 0 {
		for !q.gets.empty() {
			q.finish(&q.gets, q.gets.first, ErrClosed)
		}
	}
	if len(q.rooms) > 0 && !q.wanted() {
		q.rooms = slices.DeleteFunc(q.rooms, func(l *Lane[T]) bool {
			open := !l.waits() && l.roomy(perFree-1)
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

// nextPut returns the waiting Put that is to be let in now, or nil.
//
// settle asks again from the start after each Put, since that may change what stands against another; the list is only as
// long as there are informers blocked.
func (q *Queue[T]) nextPut() *waiter[T] {
	w := q.firstPut()
	if w == nil || !q.fits(w.item.bytes) {
		return nil
	}
	return w
}

// firstPut returns the waiting Put that the next room is for, or nil:
//
//  1. A Put whose key is full is passed over; it waits for its key, not for room.
//  2. So is a Put for which its lane holds too much for what is free, and with it all later Puts of its lane, so that they
//     keep their order.
//  3. The first Put of those left gets the room, or keeps all behind it waiting: a smaller one that slipped by would
//     take the room that the larger one is waiting for, again and again.
//
// A lane that holds nothing never holds too much, so that no item is too large for it; and an empty queue fits any item, so
// that none is too large for the queue.
func (q *Queue[T]) firstPut() *waiter[T] {
	q.pass++
	for w := q.puts.first; w != nil; w = w.next {
		switch {
		case w.keyFull || w.lane.pass == q.pass:
		case w.lane.exceeds(w.item.bytes):
			w.lane.pass = q.pass
		default:
			return w
		}
	}
	return nil
}

// wanted reports whether a Put waits for room that any other would take from it.
func (q *Queue[T]) wanted() bool { return q.firstPut() != nil }

// waits reports whether a Put of the lane waits because the lane holds too much for it. What it says is as of a wanted that was
// false: only that looks at all who wait.
func (l *Lane[T]) waits() bool { return l.pass == l.q.pass }

// fits reports whether the bounds have room for an item of this size. An empty queue has, for any.
func (q *Queue[T]) fits(size int64) bool {
	return q.held.events == 0 || q.held.events < q.bound.events && size <= q.bound.bytes-q.held.bytes
}

// full reports whether the key whose youngest item is given has used up its share.
func (q *Queue[T]) full(youngest *Item[T]) bool {
	return youngest != nil && youngest.n >= q.keyShare
}

// setKeyFull tells the Puts that wait with this key whether its share is used up. It is called only when that changes, so
// that no walk over the waiting Puts has to look their keys up.
func (q *Queue[T]) setKeyFull(key string, full bool) {
	for w := q.puts.first; w != nil; w = w.next {
		if w.item.key == key {
			w.keyFull = full
		}
	}
}

// held is what somebody holds of the queue.
type held struct {
	events int
	bytes  int64
}

func (h *held) add(size int64)    { h.events, h.bytes = h.events+1, h.bytes+size }
func (h *held) remove(size int64) { h.events, h.bytes = h.events-1, h.bytes-size }

// within reports whether a lane that holds h of what all hold together would, with one more item, hold no more than n times
// what is then free of bound. A lane that holds nothing would.
func (h held) within(n int64, all, bound held, size int64) bool {
	if h.events == 0 {
		return true
	}
	events, bytes := int64(bound.events-all.events-1), bound.bytes-all.bytes
	return size <= bytes && int64(h.events)+1 <= n*events && h.bytes+size <= n*(bytes-size)
}

// exceeds reports whether one more item of this size is too much for the lane: it would hold more than perFree times what is
// left free.
func (l *Lane[T]) exceeds(size int64) bool {
	return !l.held.within(perFree, l.q.held, l.q.bound, size)
}

// roomy reports whether the lane may take what TryPut has refused last, or an item of no size, as catch-up, with no more than n times of
// what is left free: of the queue, and of the half of it that is for catch-up.
func (l *Lane[T]) roomy(n int64) bool {
	q := l.q
	half := held{q.bound.events / 2, q.bound.bytes / 2}
	size := l.refused.bytes
	return l.held.within(n, q.held, q.bound, size) && l.caught.within(n, q.caught, half, size) &&
		(!l.refused.set || q.fits(size) && !q.full(q.keys[l.refused.key]))
}
