package apiserver

import (
	"context"
	"sync"
	"time"
)

// A server that takes requests and answers none, such as one behind an APIService, or the webhook that converts a custom
// resource, must not hold up the lists of all others. So a list that is not answered for a while gives its slot back; and as long as
// none of its group succeeds, the lists of that group begin in a few slots of their own.

const (
	// ConcurrentLists bounds how many lists run at a time: a start over hundreds of resources must neither hammer the API
	// server nor hold hundreds of pages.
	ConcurrentLists = 8
	// concurrentLate bounds how many lists of groups that do not answer begin at a time.
	concurrentLate = 2
	// lateAtOnce is how many lists may be under way without a slot.
	lateAtOnce = 32
	// lateAfter is when a list is late that is not answered.
	lateAfter = 5 * time.Second
)

// ListSlots bounds how many lists run at a time, over all resources.
type ListSlots struct {
	prompt, late chan struct{} // hold an element for each list. Never closed.

	mu     sync.Mutex
	groups map[string]bool // that are late
	alone  int             // lists without a slot
}

// NewListSlots returns ConcurrentLists free slots.
func NewListSlots() *ListSlots {
	return &ListSlots{prompt: make(chan struct{}, ConcurrentLists), late: make(chan struct{}, concurrentLate), groups: map[string]bool{}}
}

// ListSlot belongs to one list.
type ListSlot struct {
	of    *ListSlots
	group string
	timer *time.Timer   // runs while an answer is awaited
	held  chan struct{} // nil: it was given back; under of.mu
}

// Acquire waits for a slot for a list of an API group. Its error is the cause of ctx.
func (s *ListSlots) Acquire(ctx context.Context, group string) (*ListSlot, error) {
	s.mu.Lock()
	from := s.prompt
	if s.groups[group] {
		from = s.late
	}
	s.mu.Unlock()
	select {
	case from <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l := &ListSlot{of: s, group: group, held: from}
	s.mu.Lock() // it may be late before it is returned
	defer s.mu.Unlock()
	l.timer = time.AfterFunc(lateAfter, l.expire)
	return l, nil
}

// expire gives the slot back: the list is not answered.
func (l *ListSlot) expire() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	switch {
	case l.held == nil:
	case l.of.alone == lateAtOnce:
		l.timer.Reset(lateAfter)
	default:
		l.of.groups[l.group] = true
		l.of.alone++
		<-l.held
		l.held = nil
	}
}

// Sent notes that a request for a page was sent.
func (l *ListSlot) Sent() { l.timer.Reset(lateAfter) }

// Answered notes that the answer has begun.
func (l *ListSlot) Answered() { l.timer.Stop() }

// Release ends the list. ok: it was read to its end.
func (l *ListSlot) Release(ok bool) {
	l.timer.Stop()
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if ok {
		delete(l.of.groups, l.group)
	}
	if l.held == nil {
		l.of.alone--
		return
	}
	<-l.held
	l.held = nil
}
