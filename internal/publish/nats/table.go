package nats

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// isolateAfter is on how many connections in a row an event must have been when they were lost, without an answer, to be sent alone.
const isolateAfter = 2

// table has the events in flight, and the order in which they are to be sent.
type table struct {
	// wake tells the sender that there may be something to send. It has room for one; a full one says so already. Never closed.
	wake chan struct{}
	// wakeAlone is wake for events that are sent alone.
	wakeAlone chan struct{}

	mu       sync.Mutex
	closed   bool
	flights  []*flight // by slot; as many as were ever in flight at a time
	free     []*flight
	queue    []entry // of the sender, from head on
	head     int
	alone    []*flight // to be sent alone
	arrivals uint64
	epoch    uint64 // numbers connections, from 1
}

// entry is a flight that is to be sent, unless it has ended since: an answer to an earlier attempt may come late.
type entry struct {
	*flight
	call uint64
}

func (e entry) stale() bool { return e.flight.call != e.call || e.phase != queued }

// ending is an event that is no longer in flight, and why.
type ending struct {
	outcome
	event   *publish.Event
	subject string
	attempt uint64
	mark    publish.Mark
}

func newTable() *table {
	return &table{epoch: 1, wake: make(chan struct{}, 1), wakeAlone: make(chan struct{}, 1)}
}

// acquire returns a flight for an event, nil if the table is closed. The caller loads and submits it.
func (t *table) acquire(e *publish.Event) *flight {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	var f *flight
	if n := len(t.free); n > 0 {
		f, t.free = t.free[n-1], t.free[:n-1]
	} else {
		f = newFlight(len(t.flights))
		t.flights = append(t.flights, f)
	}
	t.arrivals++
	f.event, f.order = e, t.arrivals
	f.call++
	f.attempt, f.epoch, f.cuts, f.timeouts, f.failure = 1, 0, 0, 0, ""
	return f
}

// submit has a loaded flight sent. It reports false if the table was closed meanwhile.
func (t *table) submit(f *flight) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	f.phase = queued
	if f.event.Alone {
		t.alone = append(t.alone, f)
		signal(t.wakeAlone)
	} else {
		t.enqueue(f)
	}
	return true
}

// enqueue puts a flight at the end of the queue. It must be called with mu held.
func (t *table) enqueue(f *flight) {
	f.phase = queued
	if t.head > 0 && len(t.queue) == cap(t.queue) { // nothing is waited for: the room in front is free
		t.queue, t.head = slices.Delete(t.queue, 0, t.head), 0
	}
	t.queue = append(t.queue, entry{f, f.call})
	signal(t.wake)
}

func signal(wake chan struct{}) {
	if len(wake) == 0 { // cheaper than the attempt
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// pending reports whether there is something to send.
func (t *table) pending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head < len(t.queue)
}

// next returns the flight that is to be handed over, nil if there is none. The caller settles it, and has it until then.
func (t *table) next() *flight {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.head < len(t.queue) {
		e := t.queue[t.head]
		t.head++
		if t.head == len(t.queue) {
			t.queue, t.head = t.queue[:0], 0
		}
		if !e.stale() {
			e.phase, e.epoch = sending, t.epoch
			return e.flight
		}
	}
	return nil
}

// nextAlone is next for events that are sent alone.
func (t *table) nextAlone() *flight {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.alone) == 0 {
		return nil
	}
	f := t.alone[0]
	t.alone = slices.Delete(t.alone, 0, 1)
	f.phase = sending
	return f
}

// settle ends the hand-over of a flight: an answer is awaited until the timeout, unless there is one, or the attempt failed.
func (t *table) settle(f *flight, failed bool, timeout func(timeouts int) time.Duration) (ending, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case f.answer != nil:
		return t.end(f, *f.answer), true
	case f.cuts >= isolateAfter: // the last one meanwhile
		return t.end(f, cutOff()), true
	case failed, f.epoch != t.epoch:
		f.failure = publish.ReasonConnection
		f.attempt++
		t.enqueue(f)
	default:
		f.phase, f.deadline = sent, time.Now().Add(timeout(f.timeouts))
	}
	return ending{}, false
}

// cutOff is the outcome for an event that may be the cause of lost connections.
func cutOff() outcome {
	return outcome{reason: publish.ReasonConnection, alone: true, detail: "connections were lost with the event on them"}
}

// finish ends the flight that the caller has.
func (t *table) finish(f *flight, o outcome) ending {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end(f, o)
}

// answered takes an answer. It reports false if nothing ends with it.
func (t *table) answered(slot int, call, attempt uint64, o outcome) (ending, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slot < 0 || slot >= len(t.flights) {
		return ending{}, false
	}
	f := t.flights[slot]
	if f.event == nil || f.call != call || o.kind != acked && f.attempt != attempt {
		return ending{}, false
	}
	switch {
	case f.phase == sending: // nats.go still reads the event
		if f.answer == nil {
			f.answer = &o
		}
		return ending{}, false
	case f.phase == queued && o.kind != acked:
		return ending{}, false
	}
	return t.end(f, o), true
}

// reset takes the loss of a connection: all events on it are sent again on the next one, in the order of their arrival, but for those
// that may be the cause. cut reports whether an event may be: we did not break the connection ourselves. retried counts the others.
func (t *table) reset(cut bool) (isolated []ending, retried int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue, t.head = t.queue[:0], 0
	for _, f := range t.flights {
		if f.event == nil || f.event.Alone || f.phase == loading {
			continue
		}
		if cut && f.epoch == t.epoch {
			f.cuts++
		}
		switch {
		case f.phase == sending: // see settle
		case f.cuts >= isolateAfter:
			isolated = append(isolated, t.end(f, cutOff()))
		default:
			if f.phase == sent {
				retried++
				f.failure = publish.ReasonConnection
				f.attempt++
			}
			f.phase = queued
			t.queue = append(t.queue, entry{f, f.call})
		}
	}
	slices.SortFunc(t.queue, func(a, b entry) int { return cmp.Compare(a.order, b.order) })
	t.epoch++
	return isolated, retried
}

// overdue has events sent again whose acknowledgement has not come in time. It returns their number, and what to log of one.
func (t *table) overdue(now time.Time) (n int, id, subject string, attempt uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == len(t.flights) {
		return
	}
	for _, f := range t.flights {
		if f.event == nil || f.phase != sent || now.Before(f.deadline) {
			continue
		}
		if n == 0 {
			id, subject, attempt = string(f.event.ID), f.msg.Subject, f.attempt
		}
		n++
		f.timeouts++
		f.attempt++
		f.failure = publish.ReasonTimeout
		t.enqueue(f)
	}
	return n, id, subject, attempt
}

// close ends all flights but those that are being loaded. It must be called after the senders have ended.
func (t *table) close() (all []ending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, f := range t.flights {
		if f.event != nil && f.phase != loading {
			all = append(all, t.end(f, outcome{kind: failed, err: publish.ErrClosed}))
		}
	}
	return all
}

// end frees a flight. It must be called with mu held; the caller ends the event without.
func (t *table) end(f *flight, o outcome) ending {
	done := ending{o, f.event, f.msg.Subject, f.attempt, f.mark}
	f.event, f.phase, f.answer, f.msg.Data = nil, loading, nil, nil
	t.free = append(t.free, f)
	return done
}
