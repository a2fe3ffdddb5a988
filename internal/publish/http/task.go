package http

import "github.com/kubecdc/kubecdc/internal/publish"

// task is an event that waits for a request, or is in one.
type task struct {
	e    *publish.Event
	next *task // in a lane, or among the spare ones

	single  bool // goes without others: binary mode, Event.Alone, or a batch that held it failed
	cut     bool // its last attempt ended with the connection, without an answer
	denied  bool // its last answer was 401, 403 or 404
	unasked bool // the receiver does not know requests that ask before they send their body
}

// ownConnection reports whether the next attempt goes on a connection that carries nothing else. The two attempts before the event is handed
// back to be sent alone go one each way: a connection that stands may be stale, or be cut because of another event (HTTP/2), and a
// receiver at its limit may cut only new ones.
func (t *task) ownConnection() bool { return t.e.Alone != t.cut }

// The lanes of an endpoint. A probe is of the first that has any events.
const (
	singles = iota // requests of one event
	batches
	seconds // events that were denied: one at a time, so that many of them delay no others
)

// lane is a queue of events and its senders.
type lane struct {
	head, tail *task
	senders    int // goroutines
	limit      int // of senders
	events     int // in a request, at most
}

func (l *lane) pushBack(t *task) {
	t.next = nil
	if l.head == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
}

func (l *lane) pushFront(t *task) {
	if t.next = l.head; l.head == nil {
		l.tail = t
	}
	l.head = t
}

// pop removes the first task, which must exist.
func (l *lane) pop() *task {
	t := l.head
	l.head, t.next = t.next, nil
	return t
}

// preferLast moves the last task to the front. A probe is the last one, and put back in front if the receiver does not take it: so the next one is another,
// and what has come meanwhile, perhaps of another kind, is tried soon.
func (l *lane) preferLast() {
	if l.head == l.tail {
		return
	}
	before := l.head
	for before.next != l.tail {
		before = before.next
	}
	last := l.tail
	before.next, l.tail = nil, before
	l.pushFront(last)
}

// take moves the tasks of one request to taken.
func (l *lane) take(taken []*task) []*task {
	size := len("[]")
	for l.head != nil && len(taken) < l.events {
		size += len(l.head.e.Body) + len(",")
		if len(taken) > 0 && size > maxBatchBytes {
			break
		}
		taken = append(taken, l.pop())
	}
	return taken
}
