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
func (b *Inbox[T]) Put(item T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.items = append(b.items, item)
	if len(b.items) == 1 {
		b.Ready.Raise()
	}
	return true
}

// Take returns all items. The inbox reuses emptied for later ones.
func (b *Inbox[T]) Take(emptied []T) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = emptied[:0]
	return items
}

// Close closes the inbox, and returns the items that are left.
func (b *Inbox[T]) Close() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.items
	b.items, b.closed = nil, true
	return left
}
