package http

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// allDenied is how many denials in a row, with nothing taken in between, are the fault of the receiver's configuration, or ours, and not that of an event.
	allDenied = 8
)

// endpoint is one URL that events are posted to.
//
// Events wait in lanes. A sender is a goroutine that takes events of a lane, posts them, and ends when nothing waits there or the throttle holds
// requests back. Whatever adds to a lane or opens the throttle starts senders, up to the lane's limit.
type endpoint struct {
	*client
	log     *slog.Logger
	metrics *publish.Metrics
	window  publish.Window
	batched bool // structured events go in batched content mode

	life context.Context //nolint:containedctx // ends with Run: it frees requests and senders
	end  context.CancelFunc

	failures atomic.Int64 // requests in a row that failed

	mu        sync.Mutex
	running   bool // open was called, and close was not
	closed    bool
	connected prometheus.Gauge // nil: not kept
	lanes     [3]lane
	throttle  throttle
	due       *time.Timer // when the throttle lets a probe through
	denials   int         // in a row, with no event taken in between
	spare     *task       // tasks to be used again
	senders   sync.WaitGroup
}

// newEndpoint checks cfg and reads the files that it names.
func newEndpoint(cfg Config, log *slog.Logger, m *publish.Metrics) (*endpoint, error) {
	if cfg.Batch < 0 || cfg.Timeout.Duration < 0 || cfg.InFlight < 0 {
		return nil, errors.New("batch, timeout and in-flight requests must not be negative")
	}
	p := &endpoint{log: log, metrics: m, batched: cfg.Batch > 1, lanes: [...]lane{
		singles: {limit: maxSingles, events: 1}, batches: {limit: maxBatches, events: cfg.Batch}, seconds: {limit: 1, events: 1},
	}}
	limit, buffer := &p.lanes[singles].limit, singleBuffer
	if p.batched {
		limit, buffer = &p.lanes[batches].limit, batchBuffer
	}
	if cfg.InFlight > 0 {
		*limit = cfg.InFlight
	}
	var err error
	if p.client, err = newClient(cfg.client(), p.lanes[singles].limit, buffer); err != nil {
		return nil, err
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.due = time.AfterFunc(time.Hour, p.probe)
	p.due.Stop()
	return p, nil
}

// open starts to send. connected, unless nil, is 1 while requests succeed.
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
		for l := &p.lanes[i]; l.head != nil; {
			left = append(left, l.pop())
		}
	}
	p.due.Stop()
	p.mu.Unlock()
	p.end()
	for _, t := range left {
		t.e.Done(publish.ErrClosed)
	}
	p.senders.Wait()
	p.links.close() // for good: connections that a request still gives back are closed too
}

// publish takes e over.
func (p *endpoint) publish(e *publish.Event) {
	if !p.add(e) {
		e.Done(publish.ErrClosed)
	}
}

// add puts e into its lane; false: after the end.
func (p *endpoint) add(e *publish.Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	t := p.spare
	if t == nil {
		t = new(task)
	} else {
		p.spare = t.next
	}
	*t = task{e: e, single: e.Alone || len(e.Attributes) > 0}
	l := p.laneOf(t)
	l.pushBack(t)
	p.start(l, 1)
	return true
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

// start starts up to n senders of a lane, while something waits there and may be sent. The caller holds mu.
func (p *endpoint) start(l *lane, n int) {
	if !p.running || l.head == nil || !p.throttle.allows(time.Now()) {
		return
	}
	for ; n > 0 && l.senders < l.limit; n-- {
		l.senders++
		p.senders.Go(func() { p.send(l) }) // close waits for it
	}
}

// startAll starts as many senders as there are events for. The caller holds mu.
func (p *endpoint) startAll() {
	for i := range p.lanes {
		l, n := &p.lanes[i], 0
		for t := l.head; t != nil && n < l.limit; t = t.next {
			n++
		}
		p.start(l, n)
	}
}

// probe starts the request that finds out whether the receiver takes events again.
func (p *endpoint) probe() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.lanes {
		if l := &p.lanes[i]; l.head != nil {
			p.start(l, 1)
			return
		}
	}
}

// send is a sender.
func (p *endpoint) send(l *lane) {
	for taken := []*task(nil); ; {
		var pass pass
		if taken, pass = p.take(l, taken[:0]); len(taken) == 0 {
			return
		}
		o := p.attempt(taken)
		p.settle(taken, &o, pass)
		clear(taken)
	}
}

// take takes the events of the next request. If there are none the sender ends.
func (p *endpoint) take(l *lane, taken []*task) ([]*task, pass) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.head == nil || !p.throttle.allows(time.Now()) {
		l.senders--
		return nil, pass{}
	}
	pass := p.throttle.enter()
	if pass.probe && !l.head.denied {
		l.preferLast()
	}
	return l.take(taken), pass
}

// attempt makes one request.
func (p *endpoint) attempt(taken []*task) outcome {
	if err := p.fence.Pass(p.life); err != nil {
		if p.life.Err() != nil {
			return outcome{kind: ended}
		}
		return outcome{kind: fenced, err: err}
	}
	o := p.post(p.compose(taken))
	p.noteHealth(o.kind)
	return o
}

// settle ends the events of a request, or puts them back to be sent again.
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
			p.reuse(t)
		}
	}
	p.putBack(taken[:left])
}

// judgeDenial counts denials. If all events are denied the outcome is that of any request. The caller holds mu.
func (p *endpoint) judgeDenial(taken []*task, o *outcome) {
	switch {
	case o.kind == acked:
		p.denials = 0
	case o.denied && !taken[0].e.Alone: // those that are sent alone are denied again and again
		p.denials++
	}
	o.shut = o.shut || o.denied && p.denials > allDenied
}

// putBack puts tasks back: in front of those that came later, or last among those that were denied.
func (p *endpoint) putBack(tasks []*task) {
	p.mu.Lock()
	closed := p.closed
	for i := len(tasks) - 1; i >= 0 && !closed; i-- {
		t := tasks[i]
		l := p.laneOf(t)
		if t.denied {
			l.pushBack(t)
		} else {
			l.pushFront(t)
		}
		p.start(l, 1)
	}
	p.mu.Unlock()
	if closed {
		for _, t := range tasks {
			t.e.Done(publish.ErrClosed)
		}
	}
}

func (p *endpoint) reuse(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*t = task{next: p.spare}
	p.spare = t
}

// ready is Bus.Ready.
func (p *endpoint) ready() error {
	if p.life.Err() != nil {
		return publish.ErrClosed
	}
	if n := p.failures.Load(); n >= notReadyAfter {
		return fmt.Errorf("the last %d requests to %s failed: see the log", n, p.origin)
	}
	return nil
}

// noteHealth keeps what ready says. kind is that of a request.
func (p *endpoint) noteHealth(k kind) {
	failed := int64(0)
	switch k {
	case again, ended, fenced:
		return
	case retried:
		if failed = p.failures.Add(1); failed < notReadyAfter {
			return
		}
	default:
		p.failures.Store(0)
	}
	if p.connected == nil {
		return
	}
	if failed == 0 {
		p.connected.Set(1)
	} else {
		p.connected.Set(0)
	}
}
