package informers

import (
	"context"
	"sync"
	"time"
)

// A server that takes requests and answers none, such as one behind an APIService, or the webhook that converts a custom
// resource, must not hold up the lists of all others. So a list that is not answered for a while gives its slot back; and as long as
// none of its group succeeds, the lists of that group begin in a few slots of their own.

const (
	// concurrentLists bounds how many lists run at a time: a start over hundreds of resources must neither hammer the API
	// server nor hold hundreds of pages.
	concurrentLists = 8
	// concurrentLate bounds how many lists of groups that do not answer begin at a time.
	concurrentLate = 2
	// lateAtOnce is how many lists may be under way without a slot.
	lateAtOnce = 32
	// lateAfter is when a list is late that is not answered.
	lateAfter = 5 * time.Second
)

// slots bounds how many lists run at a time, over all informers.
type slots struct {
	prompt, late chan struct{} // hold an element for each list. Never closed.
	after        time.Duration // see lateAfter

	mu     sync.Mutex
	groups map[string]bool // that are late
	alone  int             // lists without a slot
}

func newSlots() *slots {
	return &slots{
		prompt: make(chan struct{}, concurrentLists), late: make(chan struct{}, concurrentLate), after: lateAfter, groups: map[string]bool{},
	}
}

// slot is a list's.
type slot struct {
	of    *slots
	group string
	timer *time.Timer   // runs while an answer is awaited
	held  chan struct{} // nil: it was given back; under the slots' mu
}

// take waits for a slot. Its error is the cause of ctx.
func (s *slots) take(ctx context.Context, group string) (*slot, error) {
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
	l := &slot{of: s, group: group, held: from}
	s.mu.Lock() // it may be late before it is returned
	defer s.mu.Unlock()
	l.timer = time.AfterFunc(s.after, l.isLate)
	return l, nil
}

// isLate gives back what a list holds of which no answer has come.
func (l *slot) isLate() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	switch {
	case l.held == nil:
	case l.of.alone == lateAtOnce:
		l.timer.Reset(l.of.after)
	default:
		l.of.groups[l.group] = true
		l.of.alone++
		<-l.held
		l.held = nil
	}
}

// answered notes that the server has answered, asks that it is asked for more.
func (l *slot) answered() { l.timer.Stop() }
func (l *slot) asks()     { l.timer.Reset(l.of.after) }

// done ends the list. ok: it was read.
func (l *slot) done(ok bool) {
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
