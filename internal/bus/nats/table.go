package nats

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// isolateAfter is the number of lost connections, with the event unanswered on each, after which it
// is sent alone.
const isolateAfter = 2

// table holds the events in flight and the order in which they are sent.
type table struct {
	wake      publish.Signal // of the sender: events may be waiting
	wakeAlone publish.Signal // the same for events that are sent alone

	mu       sync.Mutex
	closed   bool
	flights  []*flight // by slot; their number is the maximum that was ever in flight
	free     []*flight
	queue    []entry // of the sender, starts at head
	head     int
	alone    []*flight // events to send alone
	claims   claims
	arrivals uint64
	epoch    uint64 // number of the connection, from 1

	secret [32]byte // of the message ids that replace those of false claims
}

// entry is a flight in the queue. It is stale if the flight has ended since: a response to an
// earlier attempt may arrive late.
type entry struct {
	*flight
	call uint64
}

func (e entry) isStale() bool { return e.flight.call != e.call || e.phase != queued }

// ending is an event that is no longer in flight, with the outcome.
type ending struct {
	outcome
	event   *publish.Event
	subject string
	attempt uint64
	mark    publish.Mark
}

func newTable() *table {
	return &table{
		epoch:     1,
		wake:      publish.NewSignal(),
		wakeAlone: publish.NewSignal(),
		secret:    newSecret(),
	}
}

// acquire returns a flight for an event, nil if the table is closed. The caller loads and submits
// it.
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
	f.attempt = 1
	f.epoch = 0
	f.cuts = 0
	f.timeouts = 0
	f.failure = ""
	f.renewals, f.renewed = 0, 0
	return f
}

// submit queues a loaded flight. It reports false if the table was closed meanwhile.
func (t *table) submit(f *flight) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	f.phase = queued
	if f.event.Alone {
		t.alone = append(t.alone, f)
		t.wakeAlone.Raise()
	} else {
		t.enqueue(f)
	}
	return true
}

// enqueue appends a flight to the queue. It must be called with mu held.
func (t *table) enqueue(f *flight) {
	t.endCheck(f)
	f.phase = queued
	if t.head > 0 && len(t.queue) == cap(t.queue) { // reuse the space before head
		t.queue, t.head = slices.Delete(t.queue, 0, t.head), 0
	}
	t.queue = append(t.queue, entry{f, f.call})
	t.wake.Raise()
}

// hasPending reports whether the queue has an entry, or the next check may begin.
func (t *table) hasPending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head < len(t.queue) || t.claims.hasRoom()
}

// next returns the next flight to send, nil if there is none. The caller owns the flight until it
// settles it.
func (t *table) next() *flight {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.head < len(t.queue) {
		e := t.queue[t.head]
		t.head++
		if t.head == len(t.queue) {
			t.queue, t.head = t.queue[:0], 0
		}
		if !e.isStale() {
			e.phase, e.epoch = sending, t.epoch
			return e.flight
		}
	}
	return nil
}

// nextAlone does the same for events that are sent alone.
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

// settle ends the hand-over. The flight then waits for a response, unless one has arrived or the
// attempt failed.
func (t *table) settle(f *flight, failed bool, timeout func(timeouts int) time.Duration) (ending, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case f.answer != nil && f.answer.duplicate:
		t.claim(f, f.answer)
	case f.answer != nil:
		return t.end(f, *f.answer), true
	case f.cuts >= isolateAfter: // the last of them was lost during the hand-over
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

// cutOff returns the outcome of an event that may be the cause of lost connections.
func cutOff() outcome {
	return outcome{
		reason: publish.ReasonConnection,
		alone:  true,
		detail: "connections were lost with the event on them",
	}
}

// finish ends a flight that the caller owns.
func (t *table) finish(f *flight, o outcome) ending {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end(f, o)
}

// noteAnswer notes a response. It reports false if the response does not end an event.
func (t *table) noteAnswer(slot int, call, attempt uint64, o outcome) (ending, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slot < 0 || slot >= len(t.flights) {
		return ending{}, false
	}
	f := t.flights[slot]
	if f.event == nil || f.call != call || o.kind != acked && f.attempt != attempt ||
		o.duplicate && attempt < f.renewed {
		return ending{}, false
	}
	switch {
	case f.phase == sending: // nats.go still reads the event, so settle ends it
		if f.answer == nil || f.answer.duplicate {
			f.answer = &o
		}
		return ending{}, false
	case f.phase == queued && o.kind != acked:
		return ending{}, false
	case o.duplicate && (f.phase == claimed || f.phase == checking): // of an earlier attempt
		return ending{}, false
	case o.duplicate:
		t.claim(f, &o)
		return ending{}, false
	}
	return t.end(f, o), true
}

// reset handles the loss of a connection: the next one resends all its events in the order of their
// arrival, except for the possible causes. cut reports whether an event may be the cause, because
// the bus did not break the connection. retried counts the resent events.
func (t *table) reset(cut bool) (isolated []ending, retried int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue, t.head = t.queue[:0], 0
	t.claims.waiting = nil
	for _, f := range t.flights {
		if f.event == nil || f.event.Alone || f.phase == loading {
			continue
		}
		if cut && f.epoch == t.epoch && f.phase != claimed && f.phase != checking {
			f.cuts++
		}
		switch {
		case f.phase == sending: // see settle
		case f.cuts >= isolateAfter:
			isolated = append(isolated, t.end(f, cutOff()))
		default:
			if f.phase != queued {
				retried++
				f.failure = publish.ReasonConnection
				f.attempt++
			}
			t.endCheck(f)
			f.phase = queued
			t.queue = append(t.queue, entry{f, f.call})
		}
	}
	slices.SortFunc(t.queue, func(a, b entry) int { return cmp.Compare(a.order, b.order) })
	t.epoch++
	return isolated, retried
}

// isEmpty reports whether nothing is in flight.
func (t *table) isEmpty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.free) == len(t.flights)
}

// queueOverdue queues events again whose acknowledgement is overdue. It returns their number, and
// the data of one of them for the log.
func (t *table) queueOverdue(now time.Time) (n int, id, subject string, attempt uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == len(t.flights) {
		return
	}
	for _, f := range t.flights {
		if f.event == nil || f.phase != sent && f.phase != checking || now.Before(f.deadline) {
			continue
		}
		if n == 0 {
			id = string(f.event.ID)
			subject = f.msg.Subject
			attempt = f.attempt
		}
		n++
		f.timeouts++
		f.attempt++
		f.failure = publish.ReasonTimeout
		t.enqueue(f)
	}
	return n, id, subject, attempt
}

// close ends all flights except those being loaded. It must be called after the senders have ended.
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

// end frees a flight. It must be called with mu held; the caller reports the result to the event
// without mu.
func (t *table) end(f *flight, o outcome) ending {
	t.endCheck(f)
	done := ending{o, f.event, f.msg.Subject, f.attempt, f.mark}
	f.event = nil
	f.phase = loading
	f.answer = nil
	f.msg.Data = nil
	t.free = append(t.free, f)
	return done
}
