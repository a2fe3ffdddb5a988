package apiserver

import (
	"context"
	"sync"
	"time"
)

// A server that accepts requests and does not answer, such as that of an APIService or of a
// conversion webhook, must not delay the lists of other groups. So a list without an answer returns
// its slot after a while. Until a list of its group succeeds, the lists of that group start in a
// few slots of their own.

const (
	// ConcurrentLists limits concurrent lists. At a start with hundreds of resources, this limits
	// the load of the API server and the pages in memory.
	ConcurrentLists = 8
	// concurrentLate limits how many lists of late groups start at a time.
	concurrentLate = 2
	// lateAtOnce limits how many lists run without a slot.
	lateAtOnce = 32
	// lateAfter is the time without an answer after which a list is late.
	lateAfter = 5 * time.Second
)

// ListSlots limits concurrent lists of all resources.
type ListSlots struct {
	prompt, late chan struct{} // have an element for each list; never closed
	turn         chan struct{} // has an element while a list has the turn; never closed

	mu     sync.Mutex
	groups map[string]bool // the late ones
	alone  int             // lists without a slot
}

// NewListSlots returns ConcurrentLists free slots.
func NewListSlots() *ListSlots {
	return &ListSlots{
		prompt: make(chan struct{}, ConcurrentLists),
		late:   make(chan struct{}, concurrentLate),
		turn:   make(chan struct{}, 1),
		groups: map[string]bool{},
	}
}

// Turn waits for the only turn of lists that are a burden to the API server, or that only broken
// watches require, and returns the function that passes it on. Such a list needs a slot too. Its
// error is the cause of ctx.
func (s *ListSlots) Turn(ctx context.Context) (pass func(), err error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ListSlot belongs to one list.
type ListSlot struct {
	of    *ListSlots
	group string
	timer *time.Timer   // runs while the list waits for an answer
	held  chan struct{} // nil: the slot was returned; guarded by of.mu
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
	s.mu.Lock() // expire may be called before Acquire returns
	defer s.mu.Unlock()
	l.timer = time.AfterFunc(lateAfter, l.expire)
	return l, nil
}

// expire returns the slot of a list without an answer.
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

// Sent records that a request for a page was sent.
func (l *ListSlot) Sent() { l.timer.Reset(lateAfter) }

// Answered records that the response has begun.
func (l *ListSlot) Answered() { l.timer.Stop() }

// Release returns the slot. ok: the list was read completely.
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
