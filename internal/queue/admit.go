package queue

import (
	"context"
	"time"
)

// waiter is one call of Put, Get or Roomy that waits. Waiters are reused: done is made once.
type waiter[T any] struct {
	prev, next *waiter[T]
	queued     bool       // in a list, not finished; guarded by Queue.mu
	done       chan error // capacity 1, sent to once, on finish: sending under the lock never blocks

	lane    *Lane[T]
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

// wait blocks the calling Put or Roomy until w is finished or ctx ends.
func (q *Queue[T]) wait(ctx context.Context, w *waiter[T]) error {
	err := q.await(ctx, w)
	q.free(w)
	return err
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
// Get: a worker that lost the race gets its item, with a nil error, and has to finish it.
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
	switch {
	case w.item != nil: // a Put
		q.unblock(w)
	case w.lane != nil: // a Roomy
		q.rooms.remove(w)
	default:
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
// that could be admitted, and no Get waits while an item is free to be handed out.
func (q *Queue[T]) settle() {
	for w := q.nextPut(); w != nil; w = q.nextPut() {
		q.add(w.item, q.keys[w.item.key])
		q.finish(&q.puts, w, nil)
	}
	for q.gets.first != nil && q.ready != nil {
		w := q.gets.last // the one that came last has the warmest stack; one that is left waiting has nothing to lose
		w.item = q.take()
		q.finish(&q.gets, w, nil)
	}
	if q.closed && q.queued == 0 {
		for !q.gets.empty() {
			q.finish(&q.gets, q.gets.first, ErrClosed)
		}
	}
	if !q.rooms.empty() && q.below(3, 8) && !q.wanted() {
		for w := q.rooms.first; w != nil; {
			next := w.next
			if w.lane.curable() {
				q.finish(&q.rooms, w, nil)
			}
			w = next
		}
	}
	if q.drained != nil && q.events == 0 {
		close(q.drained)
		q.drained = nil
	}
}

// nextPut returns the waiting Put that is to be let in now, or nil:
//
//  1. A Put whose key is full is passed over; it waits for its key, not for room.
//  2. A Put that would bring its lane above half of a bound stands back behind every lane that stays within, and with
//     it all later Puts of its lane, so that they keep their order.
//  3. The first Put of those left gets the room, or keeps all behind it waiting: a smaller one that slipped by would
//     take the room that the larger one is waiting for, again and again.
//  4. When no Put is left within its lane's share, nobody waits that a share would protect. Then the first of those
//     above it gets the room.
//
// A lane that holds nothing is always within its share, so that no item is too large for it; and an empty queue fits
// any item, so that none is too large for the queue.
//
// settle asks again from the start after each Put, since that may change what stands against another; the list is only as
// long as there are informers blocked, and in a full queue its first Put ends the walk.
func (q *Queue[T]) nextPut() *waiter[T] {
	q.pass++
	var above *waiter[T]
	for w := q.puts.first; w != nil; w = w.next {
		if w.keyFull {
			continue
		}
		if w.lane.pass != q.pass && !w.lane.exceeds(w.item.bytes) {
			return q.ifFits(w)
		}
		w.lane.pass = q.pass
		if above == nil {
			above = w
		}
	}
	return q.ifFits(above)
}

func (q *Queue[T]) ifFits(w *waiter[T]) *waiter[T] {
	if w == nil || !q.fits(w.item.bytes) {
		return nil
	}
	return w
}

// fits reports whether the bounds have room for an item of this size. An empty queue has, for any.
func (q *Queue[T]) fits(size int64) bool {
	return q.events == 0 || q.events < q.maxEvents && size <= q.maxBytes-q.bytes
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

// exceeds reports whether one more item of this size brings the lane above half of a bound.
func (l *Lane[T]) exceeds(size int64) bool {
	return l.events > 0 && (l.events >= l.q.maxEvents/2 || size > l.q.maxBytes/2-l.bytes)
}

// below reports whether the queue is filled below num/den of both bounds.
func (q *Queue[T]) below(num, den int64) bool {
	return int64(q.events)*den < int64(q.maxEvents)*num && q.bytes*den < q.maxBytes*num
}

// wanted reports whether a Put waits for room, rather than for its key.
func (q *Queue[T]) wanted() bool {
	for w := q.puts.first; w != nil; w = w.next {
		if !w.keyFull {
			return true
		}
	}
	return false
}
