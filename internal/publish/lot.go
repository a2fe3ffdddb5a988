package publish

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

func parkBackoff() backoff { return backoff{first: time.Second, limit: time.Minute} }

// parked is an item whose event could not be published.
type parked[I any] struct {
	item    I
	attempt int
	due     time.Time
}

// lot is where such items wait for their next attempt. It has no bound of its own: each keeps its slot in the queue.
type lot[I any] struct {
	mu     sync.Mutex
	byDue  parkedHeap[I]
	closed bool // nothing comes from workers any more: one last attempt for each, now
	last   int  // how many of those are still to come

	changed chan struct{} // room for one: the earliest due time may have changed. Never closed.
}

func newLot[I any]() *lot[I] { return &lot[I]{changed: make(chan struct{}, 1)} }

func (l *lot[I]) add(p parked[I]) {
	l.mu.Lock()
	heap.Push(&l.byDue, p)
	l.mu.Unlock()
	l.signal()
}

func (l *lot[I]) signal() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// close makes take hand out what is there once more, at once, and then end.
func (l *lot[I]) close() {
	l.mu.Lock()
	l.closed, l.last = true, len(l.byDue)
	for i := range l.byDue {
		l.byDue[i].due = time.Time{} // before all that fails once more
	}
	l.mu.Unlock()
	l.signal()
}

// take waits until an item is due. It reports false when ctx has ended, or after the last attempts.
func (l *lot[I]) take(ctx context.Context) (parked[I], bool) {
	for {
		if ctx.Err() != nil {
			return parked[I]{}, false
		}
		var due <-chan time.Time
		l.mu.Lock()
		switch {
		case l.closed && l.last == 0:
			l.mu.Unlock()
			return parked[I]{}, false
		case len(l.byDue) > 0:
			wait := time.Until(l.byDue[0].due)
			if wait <= 0 || l.closed {
				if l.closed {
					l.last--
				}
				p := heap.Pop(&l.byDue).(parked[I])
				l.mu.Unlock()
				return p, true
			}
			due = time.After(wait)
		}
		l.mu.Unlock()
		select {
		case <-due:
		case <-l.changed:
		case <-ctx.Done():
		}
	}
}

func (l *lot[I]) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byDue)
}

type parkedHeap[I any] []parked[I]

func (h parkedHeap[I]) Len() int           { return len(h) }
func (h parkedHeap[I]) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h parkedHeap[I]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *parkedHeap[I]) Push(x any)        { *h = append(*h, x.(parked[I])) }

func (h *parkedHeap[I]) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = parked[I]{} // the slice outlives the item
	*h = old[:len(old)-1]
	return last
}
