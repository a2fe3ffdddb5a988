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
func (p *endpoint) open(connected prometheus.Gauge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.connected = !p.closed, connected
	p.startAll()
}

// close ends all events with ErrClosed, and returns after the last one.
func (p *endpoint) close() {
	p.mu.Lock()
	p.running, p.closed = false, true
	var left []*task
	for i := range p.lanes {
		left = append(left, p.lanes[i].waiting...)
		p.lanes[i].waiting = nil
	}
	p.due.Stop()
	p.mu.Unlock()
	p.end()
	for _, t := range left {
		t.e.Done(publish.ErrClosed)
	}
	p.senders.Wait()
	p.links.close() // for good: connections that a request returns later are closed too
}

// publish appends e to its lane.
func (p *endpoint) publish(e *publish.Event) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		e.Done(publish.ErrClosed)
		return
	}
	t := p.spare.Get().(*task) //nolint:forcetypeassert // nothing else is put there
	*t = task{e: e, single: e.Alone || len(e.Attributes) > 0}
	l := p.laneOf(t)
	l.waiting = append(l.waiting, t)
	p.start(l, 1)
	p.mu.Unlock()
}

func (p *endpoint) laneOf(t *task) *lane {
	switch {
	case t.denied:
		return &p.lanes[seconds]
	case p.batched && !t.single:
		return &p.lanes[batches]
	}
	return &p.lanes[singles]
}

// start starts up to n senders of a lane, if an event waits there and may be sent. It must be
// called with mu held.
func (p *endpoint) start(l *lane, n int) {
	if !p.running || len(l.waiting) == 0 || !p.throttle.allows(time.Now()) {
		return
	}
	for ; n > 0 && l.senders < l.limit; n-- {
		l.senders++
		p.senders.Go(func() { p.work(l) }) // close waits for it
	}
}

// startAll starts enough senders for the waiting events. It must be called with mu held.
func (p *endpoint) startAll() {
	for i := range p.lanes {
		p.start(&p.lanes[i], len(p.lanes[i].waiting))
	}
}

// probe starts the request that tests whether the receiver accepts events again.
func (p *endpoint) probe() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.lanes {
		if l := &p.lanes[i]; len(l.waiting) > 0 {
			p.start(l, 1)
			return
		}
	}
}

// work is the goroutine of a sender.
func (p *endpoint) work(l *lane) {
	for taken := []*task(nil); ; {
		var pass pass
		taken, pass = p.take(l, taken[:0])
		if len(taken) == 0 {
			return
		}
		o := p.attempt(taken)
		p.settle(taken, &o, pass)
		clear(taken)
	}
}

// take removes the events of the next request from the lane. If there are none, the sender ends.
func (p *endpoint) take(l *lane, taken []*task) ([]*task, pass) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(l.waiting) == 0 || !p.throttle.allows(time.Now()) {
		l.senders--
		return nil, pass{}
	}
	pass := p.throttle.enter()
	if pass.probe && !l.waiting[0].denied {
		l.preferLast()
	}
	return l.take(taken), pass
}

// attempt sends one request.
func (p *endpoint) attempt(taken []*task) outcome {
	if err := p.fence.Pass(p.life); err != nil {
		if p.life.Err() != nil {
			return outcome{kind: ended}
		}
		return outcome{kind: fenced, err: err}
	}
	o := p.send(p.life, p.compose(taken))
	p.noteCopies(taken, o.copies)
	p.noteHealth(o.kind)
	return o
}

// settle ends the events of a request, or returns them to their lanes.
func (p *endpoint) settle(taken []*task, o *outcome, s pass) {
	p.mu.Lock()
	p.judgeDenial(taken, o)
	shut := !p.throttle.until.IsZero()
	p.throttle.leave(s, o, time.Now())
	switch until := p.throttle.until; {
	case p.closed:
	case !until.IsZero():
		p.due.Reset(time.Until(until))
	case shut:
		p.startAll()
	}
	p.mu.Unlock()

	left := 0
	for _, t := range taken {
		if repeat, err := p.verdict(t, o, len(taken)); repeat {
			taken[left] = t
			left++
		} else {
			t.e.Done(err)
			*t = task{}
			p.spare.Put(t)
		}
	}
	p.putBack(taken[:left])
}

// judgeDenial counts denials. After too many in a row, a denial closes the throttle. It must be
// called with mu held.
func (p *endpoint) judgeDenial(taken []*task, o *outcome) {
	switch {
	case o.kind == acked:
		p.denials = 0
	case o.denied && !taken[0].e.Alone: // events sent alone are denied repeatedly
		p.denials++
	}
	o.shut = o.shut || o.denied && p.denials > allDenied
}

// putBack returns tasks to their lanes: denied ones to the end, all others to the front.
func (p *endpoint) putBack(tasks []*task) {
	p.mu.Lock()
	closed := p.closed
	for i := len(tasks) - 1; i >= 0 && !closed; i-- {
		t := tasks[i]
		l, at := p.laneOf(t), 0
		if t.denied {
			at = len(l.waiting)
		}
		l.waiting = slices.Insert(l.waiting, at, t)
		p.start(l, 1)
	}
	p.mu.Unlock()
	if closed {
		for _, t := range tasks {
			t.e.Done(publish.ErrClosed)
		}
	}
}

// ready implements Bus.Ready.
func (p *endpoint) ready() error {
	if p.life.Err() != nil {
		return publish.ErrClosed
	}
	if n := p.failures.Load(); n >= notReadyAfter {
		return fmt.Errorf("the last %d requests to %s failed: see the log", n, p.origin)
	}
	return nil
}

// noteHealth records the outcome of a request for ready.
func (p *endpoint) noteHealth(k kind) {
	up := 1.0
	switch k {
	case again, ended, fenced:
		return
	case retried:
		if p.failures.Add(1) < notReadyAfter {
			return
		}
		up = 0
	default:
		p.failures.Store(0)
	}
	if p.connected != nil {
		p.connected.Set(up)
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

// ownConnection reports whether the next attempt uses a separate connection. Before the event is
// handed back to be sent alone, one attempt uses each kind. A shared connection may be stale, or be
// cut because of another event (HTTP/2); a receiver at its limit may cut only new ones.
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
