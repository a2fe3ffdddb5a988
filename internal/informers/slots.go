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
	// lateAfter is when a list is late that is not answered.
	lateAfter = 5 * time.Second
)

// slots bounds how many lists run at a time, over all informers.
type slots struct {
	prompt, late chan struct{} // hold an element for each list. Never closed.
	after        time.Duration // see lateAfter

	mu     sync.Mutex
	groups map[string]bool // that are late
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
	timer *time.Timer // runs while an answer is awaited

	mu   sync.Mutex
	held chan struct{} // nil: it was given back
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
	l.timer = time.AfterFunc(s.after, l.isLate)
	return l, nil
}

// isLate gives back what a list holds of which no answer has come.
func (l *slot) isLate() {
	l.of.mu.Lock()
	l.of.groups[l.group] = true
	l.of.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveBack()
}

// answered notes that the server has answered, asks that it is asked for more.
func (l *slot) answered() { l.timer.Stop() }
func (l *slot) asks()     { l.timer.Reset(l.of.after) }

// done ends the list. ok: it was read.
func (l *slot) done(ok bool) {
	l.timer.Stop()
	if ok {
		l.of.mu.Lock()
		delete(l.of.groups, l.group)
		l.of.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveBack()
}

// giveBack is for those who hold mu.
func (l *slot) giveBack() {
	if l.held != nil {
		<-l.held
		l.held = nil
	}
}
