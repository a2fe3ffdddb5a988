package publish

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	// suspectAfter is how many connections in a row a call must have lost, unanswered, to be suspected.
	suspectAfter = 2
	// guiltyAfter is how often an event must be cut off alone to be refused.
	guiltyAfter = 2
	// promptly is how soon the cut must come, beside the time that the server took for its last answer.
	promptly = time.Second
	// controlPeriod is how long, at least, a connection must stand with nothing on it between the first time and the
	// second. As much again is random: a server that goes down some fixed time after each start must not meet it.
	controlPeriod = 500 * time.Millisecond
	// quarantinePoll is how often conditions are looked at that nobody announces.
	quarantinePoll = 2 * time.Millisecond
)

// quarantine holds everybody back while events that may have made the server cut the connection are sent one by one.
type quarantine struct {
	on   atomic.Bool   // all that the hot path looks at
	turn chan struct{} // has room for one: who is in it is sent alone. Full: the next suspect waits. Never closed.

	mu       sync.Mutex
	suspects int
	over     chan struct{} // closed when the last suspect has left
}

func newQuarantine() *quarantine { return &quarantine{turn: make(chan struct{}, 1)} }

func (q *quarantine) enter() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.suspects++; q.suspects == 1 {
		q.over = make(chan struct{})
		q.on.Store(true)
	}
}

func (q *quarantine) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.suspects--; q.suspects == 0 {
		q.on.Store(false)
		close(q.over)
	}
}

// wait returns nil once nobody is suspected, the cause of ctx if that ends first.
func (q *quarantine) wait(ctx context.Context) error {
	q.mu.Lock()
	over := q.over
	q.mu.Unlock()
	if over == nil {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// alone sends a suspect when nothing else is on its way, on a connection whose stream has just answered. It returns what
// became of it: refused only where that connection was cut at once, stood idle for the control period once it was there
// again, and was cut at once again when the event was sent. A cut in the control period acquits: it comes without the
// event too. attempt is the call's.
func (n *NATS) alone(ctx context.Context, w *waiter, attempt *uint64, timeouts int) outcome {
	n.quarantine.enter()
	defer n.quarantine.leave()
	select {
	case n.quarantine.turn <- struct{}{}:
		defer func() { <-n.quarantine.turn }()
	case <-ctx.Done():
		return outcome{kind: ended}
	}
	if suppressed, ok := n.window.First("suspect"); ok {
		n.log.Warn("connections were lost with the same events on their way, each of these is sent alone", "stream", n.cfg.Stream.Name,
			"subject", w.subject, "suppressed", suppressed)
	}
	acquitted := outcome{reason: ReasonConnection, detail: "connection lost, also without this event"}
	for cuts := 0; ; {
		if n.gate.wait(ctx) != nil || n.closed.Load() {
			return outcome{kind: ended}
		}
		epoch := n.gate.current()
		if n.poll(ctx, func() bool { return n.silent(w) }) != nil {
			return outcome{kind: ended}
		}
		if cuts > 0 {
			over := time.Now().Add(controlPeriod + rand.N(controlPeriod))
			if n.poll(ctx, func() bool { return n.gate.current() != epoch || time.Now().After(over) }) != nil {
				return outcome{kind: ended}
			}
			if n.gate.current() != epoch {
				return acquitted
			}
		}
		took, err := n.probe(ctx)
		switch {
		case ctx.Err() != nil:
			return outcome{kind: ended}
		case n.gate.current() != epoch:
			if cuts > 0 {
				return acquitted
			}
			continue // the cut that was on its way when the gate was open still
		case err != nil:
			return outcome{reason: ReasonUnavailable, detail: "the stream does not answer: " + err.Error()}
		}
		*attempt++
		sent := time.Now()
		o := n.try(ctx, w, *attempt, timeouts, true)
		if !o.cut || time.Since(sent) > took+promptly {
			o.cut = false
			return o
		}
		if cuts++; cuts == guiltyAfter {
			return outcome{kind: refused, detail: "the server cuts the connection right after this event, also when it is sent alone"}
		}
	}
}

// silent tells whether no call but w's is on its way. With the quarantine on, none begins.
func (n *NATS) silent(w *waiter) bool {
	for _, other := range n.Waiters {
		if other != w && other.onItsWay() {
			return false
		}
	}
	return true
}

// poll waits for a condition that nobody announces, or until Run or ctx ends.
func (n *NATS) poll(ctx context.Context, cond func() bool) error {
	tick := time.NewTicker(quarantinePoll)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if n.closed.Load() {
			return ErrClosed
		}
	}
	return nil
}

// probe asks the stream for an answer on the way that events take, and tells how long that took. What it publishes says
// that it is for a stream of another name, so JetStream takes it through the stream's queue and its leader's log, and then
// turns it down.
func (n *NATS) probe(ctx context.Context) (time.Duration, error) {
	ctx, lost := n.gate.during(ctx)
	defer lost()
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	start := time.Now()
	_, err := n.conn.Load().RequestMsgWithContext(ctx, &nats.Msg{
		Subject: string(n.subjects.Append(nil, &object.Delta{Stream: &object.StreamEvent{Resource: &object.Resource{Name: "probe"}}})),
		Header:  nats.Header{nats.ExpectedStreamHdr: {"no " + n.cfg.Stream.Name}},
	})
	return time.Since(start), err
}
