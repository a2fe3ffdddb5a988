package queue

import "time"

// State returns a consistent snapshot of the queue's counts.
func (q *Queue[T]) State() (events, inFlight int, bytes int64) {
	s := q.Stats()
	return s.Events, s.Inflight, s.Bytes
}

// SetKeyShare replaces the 256 items of a key by a number that a model can reach.
func (q *Queue[T]) SetKeyShare(n int) { q.keyShare = uint16(n) }

// Waiting returns the number of waiting calls of Put and Get, of waiting channels of Room, and of
// keys. Calls that have ended must leave none of them behind.
func (q *Queue[T]) Waiting() (puts, gets, rooms, keys int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	count := func(l *waitList[T]) (n int) {
		for w := l.first; w != nil; w = w.next {
			n++
		}
		return n
	}
	return count(&q.puts), count(&q.gets), len(q.rooms), len(q.keys)
}

// Blocked returns the time that Puts have waited so far.
func (q *Queue[T]) Blocked() time.Duration { return q.Stats().Blocked }
