package http

import (
	"slices"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// task is an event that waits for a request, or is part of one.
type task struct {
	e *publish.Event

	single  bool // needs its own request: binary mode, Event.Alone, or its batch failed
	cut     bool // its last attempt was cut: the connection was closed without a response
	denied  bool // its last response was 401, 403 or 404
	unasked bool // the receiver does not support Expect: 100-continue
}

// ownConnection reports whether the next attempt uses a separate connection. Before the event is handed back to be sent alone, one attempt
// uses each kind. A shared connection may be stale, or be cut because of another event (HTTP/2); a receiver at its limit may cut only new
// ones.
func (t *task) ownConnection() bool { return t.e.Alone != t.cut }

// The lanes of an endpoint. A probe takes its event from the first one that is not empty.
const (
	singles = iota // requests of one event
	batches
	seconds // denied events: one at a time, so that many of them do not delay others
)

// lane is a queue of events and its senders.
type lane struct {
	waiting []*task // the callers bound them
	senders int     // goroutines
	limit   int     // maximum of senders
	events  int     // maximum in a request
}

// preferLast moves the last task to the front, for a probe. If the receiver rejects it, it returns to the front, and the next probe takes
// another one. So newer events, perhaps of another kind, are soon tried.
func (l *lane) preferLast() {
	last := len(l.waiting) - 1
	l.waiting = slices.Insert(l.waiting[:last], 0, l.waiting[last])
}

// take moves the tasks of one request from the lane to taken.
func (l *lane) take(taken []*task) []*task {
	size, n := len("[]"), 0
	for n < min(len(l.waiting), l.events) {
		if size += len(l.waiting[n].e.Body) + len(","); n > 0 && size > maxBatchBytes {
			break
		}
		n++
	}
	taken = append(taken, l.waiting[:n]...)
	l.waiting = slices.Delete(l.waiting, 0, n)
	return taken
}
