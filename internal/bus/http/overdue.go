package http

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// shortestWait is the time without progress after which a request is overdue, unless the receiver
// has been slow lately. A copy then has as long again, until delivery resumes within 20 s.
const shortestWait = 10 * time.Second

// send sends a request and classifies the response. The body is not read after send has returned.
func (c *client) send(ctx context.Context, r *request) outcome {
	defer r.body.detach()
	generation := c.links.generation()
	first := attempt{own: r.own, ask: r.ask, timeout: c.timeout}
	var o outcome
	if wait := c.pace.overdueAfter(c.timeout); wait < c.timeout {
		o = c.sendWithCopies(ctx, r, first, wait)
	} else {
		o = c.exchange(ctx, r, first)
	}
	if o.reason == publish.ReasonTimeout {
		c.links.renew(generation) // so that the retry does not use the next dead connection
	}
	return o
}

// sendWithCopies sends a request. If the request is overdue, it sends copies too.
//
// HTTP/1.1 has no ping: a slow receiver looks like a connection that swallows all data. So an
// overdue request stays in flight until its timeout. Meanwhile a copy is sent on a new
// connection, and the first response counts. Consumers recognize the copy by its id.
func (c *client) sendWithCopies(ctx context.Context, r *request, first attempt, wait time.Duration) outcome {
	ctx, end := context.WithCancel(ctx)
	defer end()
	generation := c.links.generation()
	var copied outcome
	done := make(chan struct{})
	overdue := time.AfterFunc(wait, func() {
		defer close(done)
		if r.body.waitForStall(ctx, wait) != nil {
			return
		}
		c.links.renew(generation)
		copied = c.sendCopies(ctx, r, wait)
		if copied.answered {
			end()
		}
	})
	o := c.exchange(ctx, r, first)
	end()
	if overdue.Stop() {
		return o
	}
	<-done
	if copied.answered && o.kind != acked {
		return copied
	}
	o.copies = copied.copies
	return o
}

// sendCopies sends copies of an overdue request, one at a time and each on a new connection, until
// one is answered or ctx ends.
func (c *client) sendCopies(ctx context.Context, r *request, timeout time.Duration) (o outcome) {
	for copies := 1; c.fence.Pass(ctx) == nil; copies++ {
		o = c.exchange(ctx, r, attempt{own: true, timeout: timeout})
		o.copies = copies
		if o.answered || pause.For(ctx, publish.BusyBackoff().Delay(copies)) != nil {
			break
		}
	}
	return o
}

// waitForStall returns nil when nothing of the body has been read for a time, and the cause of ctx
// if that ends first. A large body takes its time on a slow network.
func (p *payload) waitForStall(ctx context.Context, d time.Duration) error {
	for {
		p.mu.Lock()
		rest := d - time.Since(p.lastRead)
		p.mu.Unlock()
		if rest <= 0 {
			return nil
		}
		if err := pause.For(ctx, rest); err != nil {
			return err
		}
	}
}

// pace is how fast the receiver answers.
type pace struct {
	took  atomic.Int64 // ns until the slowest of the recent responses
	pings atomic.Bool  // the last response used HTTP/2, which finds dead connections by pings
}

// overdueAfter returns the time after which a request with a timeout is overdue. A request that is
// never overdue ends at its timeout.
func (p *pace) overdueAfter(timeout time.Duration) time.Duration {
	if p.pings.Load() {
		return timeout
	}
	return min(max(shortestWait, 2*time.Duration(p.took.Load())), timeout)
}

func (p *pace) note(res *http.Response, took time.Duration) {
	const forget = 8 // responses after which little of a slow one counts
	slowest := p.took.Load()
	p.took.Store(max(took.Nanoseconds(), slowest-slowest/forget))
	p.pings.Store(res.ProtoMajor >= 2)
}

// noteCopies counts the copies of a request, and logs the first in each window.
func (ep *endpoint) noteCopies(taken []*task, copies int) {
	if copies == 0 {
		return
	}
	for _, t := range taken {
		for range copies {
			ep.metrics.Retries.WithLabelValues(publish.ReasonTimeout).Inc()
			t.e.Retried(publish.ReasonTimeout)
		}
	}
	if suppressed, ok := ep.window.First("overdue"); ok {
		ep.log.Warn("no response, sent again on a new connection", "receiver", ep.origin, "copies", copies,
			"event_id", string(taken[0].e.ID), "suppressed", suppressed,
			"advice", "none, unless it repeats: then the receiver is slow, or the network swallows data")
	}
}
