package publish

import "sync"

// Signal wakes one receiver. It has an element if the receiver may have work. It is never closed.
type Signal chan struct{}

// NewSignal returns a signal that is not raised.
func NewSignal() Signal { return make(Signal, 1) }

// Raise never waits: one element is enough.
func (s Signal) Raise() {
	if len(s) > 0 {
		return // cheaper than the select
	}
	select {
	case s <- struct{}{}:
	default:
	}
}

// Inbox hands items from many goroutines to one, in order. The callers bound the number of items.
type Inbox[T any] struct {
	Ready Signal // there may be items

	mu     sync.Mutex
	items  []T
	closed bool
}

// NewInbox returns an empty inbox.
func NewInbox[T any]() *Inbox[T] { return &Inbox[T]{Ready: NewSignal()} }

// Put adds an item. It reports false if the inbox is closed: then the item stays with the caller.
func (i *Inbox[T]) Put(item T) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.items = append(i.items, item)
	if len(i.items) == 1 {
		i.Ready.Raise()
	}
	return true
}

// Take returns all items. The inbox reuses emptied for later ones.
func (i *Inbox[T]) Take(emptied []T) []T {
	i.mu.Lock()
	defer i.mu.Unlock()
	items := i.items
	i.items = emptied[:0]
	return items
}

// Close closes the inbox, and returns the items that are left.
func (i *Inbox[T]) Close() []T {
	i.mu.Lock()
	defer i.mu.Unlock()
	left := i.items
	i.items, i.closed = nil, true
	return left
}
