package http

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/publish"
)

const (
	maxBatchBytes = 1 << 20
	singleBuffer  = 16 << 10
	batchBuffer   = 64 << 10
	notReadyAfter = 5 // failed requests in a row
	// allDenied is the number of denials in a row, with no event accepted in between, above which
	// the configuration is the cause.
	allDenied = 8
)

// endpoint posts events to one URL.
//
// Events wait in lanes. A sender is a goroutine that takes events of a lane and posts them. It ends
// when the lane is empty or the throttle holds requests back. Adding to a lane and opening the
// throttle start senders, up to the lane's limit.
type endpoint struct {
	*client
	log     *slog.Logger
	metrics *publish.Metrics
	window  publish.Window
	batched bool // structured events use batched content mode

	life context.Context //nolint:containedctx // ends with Run, which cancels requests and stops senders
	end  context.CancelFunc

	failures atomic.Int64 // consecutive failed requests

	mu        sync.Mutex
	running   bool // open was called, and close was not
	closed    bool
	connected prometheus.Gauge // nil without a metric
	lanes     [3]lane
	throttle  throttle
	due       *time.Timer // fires when the throttle lets a probe through
	denials   int         // consecutive, with no event accepted in between
	spare     sync.Pool   // of *task
	senders   sync.WaitGroup
}

// newEndpoint returns an endpoint, and reads the files that cfg names.
func newEndpoint(cfg Config, log *slog.Logger, m *publish.Metrics) (*endpoint, error) {
	p := &endpoint{
		log:     log,
		metrics: m,
		batched: cfg.Batch > 1,
		spare: sync.Pool{New: func() any {
			return new(task)
		}},
		lanes: [...]lane{
			singles: {limit: maxSingles, events: 1}, batches: {limit: maxBatches, events: cfg.Batch}, seconds: {
				limit:  1,
				events: 1,
			},
		},
	}
	limit, buffer := &p.lanes[singles].limit, singleBuffer
	if p.batched {
		limit, buffer = &p.lanes[batches].limit, batchBuffer
	}
	*limit = cmp.Or(cfg.InFlight, *limit)
	var err error
	p.client, err = newClient(cfg.Client(), p.lanes[singles].limit, buffer)
	if err != nil {
		return nil, err
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.due = time.AfterFunc(time.Hour, p.probe)
	p.due.Stop()
	return p, nil
}

// open starts sending. connected, unless nil, is 1 while requests succeed.
func (ep *endpoint) open(connected prometheus.Gauge) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.running, ep.connected = !ep.closed, connected
	ep.startAll()
}

// close ends all events with ErrClosed, and returns after the last one.
func (ep *endpoint) close() {
	ep.mu.Lock()
	ep.running, ep.closed = false, true
	var left []*task
	for i := range ep.lanes {
		left = append(left, ep.lanes[i].waiting...)
		ep.lanes[i].waiting = nil
	}
	ep.due.Stop()
	ep.mu.Unlock()
	ep.end()
	for _, t := range left {
		t.e.Done(publish.ErrClosed)
	}
	ep.senders.Wait()
	ep.links.close() // for good: connections that a request returns later are closed too
}

// publish appends e to its lane.
func (ep *endpoint) publish(e *publish.Event) {
	ep.mu.Lock()
	if ep.closed {
		ep.mu.Unlock()
		e.Done(publish.ErrClosed)
		return
	}
	t := ep.spare.Get().(*task) //nolint:forcetypeassert // nothing else is put there
	*t = task{e: e, single: e.Alone || len(e.Attributes) > 0}
	l := ep.laneOf(t)
	l.waiting = append(l.waiting, t)
	ep.start(l, 1)
	ep.mu.Unlock()
}

func (ep *endpoint) laneOf(t *task) *lane {
	switch {
	case t.denied:
		return &ep.lanes[seconds]
	case ep.batched && !t.single:
		return &ep.lanes[batches]
	}
	return &ep.lanes[singles]
}

// start starts up to n senders of a lane, if an event waits there and may be sent. It must be
// called with mu held.
func (ep *endpoint) start(l *lane, n int) {
	if !ep.running || len(l.waiting) == 0 || !ep.throttle.allows(time.Now()) {
		return
	}
	for ; n > 0 && l.senders < l.limit; n-- {
		l.senders++
		ep.senders.Go(func() { ep.runSender(l) }) // close waits for it
	}
}

// startAll starts enough senders for the waiting events. It must be called with mu held.
func (ep *endpoint) startAll() {
	for i := range ep.lanes {
		ep.start(&ep.lanes[i], len(ep.lanes[i].waiting))
	}
}

// probe starts the request that tests whether the receiver accepts events again.
func (ep *endpoint) probe() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for i := range ep.lanes {
		if l := &ep.lanes[i]; len(l.waiting) > 0 {
			ep.start(l, 1)
			return
		}
	}
}

// runSender is the goroutine of a sender.
func (ep *endpoint) runSender(l *lane) {
	for taken := []*task(nil); ; {
		var pass pass
		taken, pass = ep.take(l, taken[:0])
		if len(taken) == 0 {
			return
		}
		o := ep.attempt(taken)
		ep.settle(taken, &o, pass)
		clear(taken)
	}
}

// take removes the events of the next request from the lane. If there are none, the sender ends.
func (ep *endpoint) take(l *lane, taken []*task) ([]*task, pass) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if len(l.waiting) == 0 || !ep.throttle.allows(time.Now()) {
		l.senders--
		return nil, pass{}
	}
	pass := ep.throttle.enter()
	if pass.probe && !l.waiting[0].denied {
		l.preferLast()
	}
	return l.take(taken), pass
}

// attempt sends one request.
func (ep *endpoint) attempt(taken []*task) outcome {
	if err := ep.fence.Pass(ep.life); err != nil {
		if ep.life.Err() != nil {
			return outcome{kind: ended}
		}
		return outcome{kind: fenced, err: err}
	}
	o := ep.send(ep.life, ep.compose(taken))
	ep.noteCopies(taken, o.copies)
	ep.noteHealth(o.kind)
	return o
}

// settle ends the events of a request, or returns them to their lanes.
func (ep *endpoint) settle(taken []*task, o *outcome, s pass) {
	ep.mu.Lock()
	ep.judgeDenial(taken, o)
	shut := !ep.throttle.until.IsZero()
	ep.throttle.leave(s, o, time.Now())
	switch until := ep.throttle.until; {
	case ep.closed:
	case !until.IsZero():
		ep.due.Reset(time.Until(until))
	case shut:
		ep.startAll()
	}
	ep.mu.Unlock()

	left := 0
	for _, t := range taken {
		if repeat, err := ep.judgeEvent(t, o, len(taken)); repeat {
			taken[left] = t
			left++
		} else {
			t.e.Done(err)
			*t = task{}
			ep.spare.Put(t)
		}
	}
	ep.putBack(taken[:left])
}

// judgeDenial counts denials. After too many in a row, a denial closes the throttle. It must be
// called with mu held.
func (ep *endpoint) judgeDenial(taken []*task, o *outcome) {
	switch {
	case o.kind == acked:
		ep.denials = 0
	case o.denied && !taken[0].e.Alone: // events sent alone are denied repeatedly
		ep.denials++
	}
	o.shut = o.shut || o.denied && ep.denials > allDenied
}

// putBack returns tasks to their lanes: denied ones to the end, all others to the front.
func (ep *endpoint) putBack(tasks []*task) {
	ep.mu.Lock()
	closed := ep.closed
	for i := len(tasks) - 1; i >= 0 && !closed; i-- {
		t := tasks[i]
		l, at := ep.laneOf(t), 0
		if t.denied {
			at = len(l.waiting)
		}
		l.waiting = slices.Insert(l.waiting, at, t)
		ep.start(l, 1)
	}
	ep.mu.Unlock()
	if closed {
		for _, t := range tasks {
			t.e.Done(publish.ErrClosed)
		}
	}
}

// ready implements Bus.Ready.
func (ep *endpoint) ready() error {
	if ep.life.Err() != nil {
		return publish.ErrClosed
	}
	if n := ep.failures.Load(); n >= notReadyAfter {
		return fmt.Errorf("the last %d requests to %s failed: see the log", n, ep.origin)
	}
	return nil
}

// noteHealth notes the outcome of a request for ready.
func (ep *endpoint) noteHealth(k kind) {
	up := 1.0
	switch k {
	case again, ended, fenced:
		return
	case retried:
		if ep.failures.Add(1) < notReadyAfter {
			return
		}
		up = 0
	default:
		ep.failures.Store(0)
	}
	if ep.connected != nil {
		ep.connected.Set(up)
	}
}

// task is an event that waits for a request, or is part of one.
type task struct {
	e *publish.Event

	single  bool // needs its own request: binary mode, Event.Alone, or its batch failed
	cut     bool // its last attempt was cut: the connection was closed without a response
	denied  bool // its last response was 401, 403 or 404
	unasked bool // the receiver does not support Expect: 100-continue
}

// needsOwnConnection reports whether the next attempt uses a separate connection. Before the event
// is handed back to be sent alone, one attempt uses each kind. A shared connection may be stale, or
// be cut because of another event (HTTP/2); a receiver at its limit may cut only new ones.
func (t *task) needsOwnConnection() bool { return t.e.Alone != t.cut }

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

// preferLast moves the last task to the front, for a probe. If the receiver rejects it, it returns
// to the front, and the next probe takes another one. So newer events, perhaps of another kind, are
// soon tried.
func (l *lane) preferLast() {
	last := len(l.waiting) - 1
	l.waiting = slices.Insert(l.waiting[:last], 0, l.waiting[last])
}

// take moves the tasks of one request from the lane to taken.
func (l *lane) take(taken []*task) []*task {
	size, n := len("[]"), 0
	for n < min(len(l.waiting), l.events) {
		size += len(l.waiting[n].e.Body) + len(",")
		if n > 0 && size > maxBatchBytes {
			break
		}
		n++
	}
	taken = append(taken, l.waiting[:n]...)
	l.waiting = slices.Delete(l.waiting, 0, n)
	return taken
}
