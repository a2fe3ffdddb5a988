package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Publish implements publish.Bus.
func (b *Bus) Publish(e *publish.Event) {
	f := b.table.acquire(e)
	if f == nil {
		e.Done(publish.ErrClosed)
		return
	}
	f.load(b)
	if !b.table.submit(f) {
		e.Done(publish.ErrClosed)
	}
}

// send passes events to nats.go. It is the only goroutine that may block in the socket or at the
// fence.
func (b *Bus) send(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		if !b.link.up.Load() || !b.table.hasPending() {
			select {
			case <-b.table.wake:
			case <-ctx.Done():
			}
			continue
		}
		fenced := b.fence.Pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if c, ok := b.table.nextCheck(b.inbox, b.timeout); ok {
			b.sendCheck(&c, fenced)
			continue
		}
		f := b.table.next()
		switch {
		case f == nil:
		case fenced != nil:
			b.reportEnd(b.table.finish(f, outcome{kind: failed, err: fenced}))
		case f.event.DeadLetter && !b.takesDeadLetters():
			b.reportEnd(b.table.finish(f, outcome{kind: refused, detail: b.deadLetterAdvice()}))
		case b.handOver(f):
			failures = 0
		default: // the connection is lost, but nats.go has not called onDown yet
			failures++
			if pause.For(ctx, raceBackoff().Delay(failures)) != nil {
				return nil
			}
		}
	}
	return nil
}

// handOver writes the message into the connection's buffer, and reports whether the connection
// accepted it.
func (b *Bus) handOver(f *flight) bool {
	if f.failure != "" {
		f.event.Retried(f.failure)
	}
	if f.attempt > 1 {
		f.msg.Reply = string(f.appendReply(nil, b.inbox, ""))
	}
	b.dialer.guarded.Load().Carry()
	err := b.conn.Load().PublishMsg(&f.msg)
	if err != nil {
		if o := refusal(err); o != nil {
			b.reportEnd(b.table.finish(f, *o))
			return true
		}
		b.metrics.Retries.WithLabelValues(publish.ReasonConnection).Inc()
	}
	if end, ok := b.table.settle(f, err != nil, b.timeout); ok {
		b.reportEnd(end)
	}
	return err == nil
}

// timeout returns the time to wait for a response. It grows, so that a slow server, with a stalled
// disk for example, does not receive all messages again and again.
func (b *Bus) timeout(timeouts int) time.Duration {
	return min(b.cfg.AckTimeout<<min(timeouts, 10), max(maxAckTimeout, b.cfg.AckTimeout))
}

// onAnswer runs in the subscription's only goroutine. It does not block.
func (b *Bus) onAnswer(m *nats.Msg) {
	token, record := strings.CutPrefix(m.Subject[len(b.inbox)+1:], replyRecord)
	slot, call, attempt, ok := parseReply(token)
	if !ok {
		return
	}
	if record {
		b.onRecord(m, slot, call, attempt)
		return
	}
	if end, ok := b.table.noteAnswer(slot, call, attempt, b.acks.read(m)); ok {
		b.reportEnd(end)
	}
}

// onDown runs in nats.go's callback goroutine after a connection broke. It resends all events in
// flight. If the callback is late, it also resends events that were already sent on the next
// connection; the copies have the same id.
func (b *Bus) onDown(_ *nats.Conn, err error) {
	if b.link.lower() && !b.closed.Load() {
		b.metrics.Connected.Set(0)
		b.log.Warn("connection to bus lost, reconnecting", "servers", b.servers, "err", err)
	}
	// if the bus broke it itself, no event is the cause
	isolated, retried := b.table.reset(!b.dialer.hasBroken() && !b.closed.Load())
	b.metrics.Retries.WithLabelValues(publish.ReasonConnection).Add(float64(retried))
	if len(isolated) == 0 {
		return
	}
	if suppressed, ok := b.window.First("isolated"); ok {
		b.log.Warn(
			"connections were lost with the same events in flight: each of these is now sent on a connection of its own",
			"stream", b.cfg.Stream.Name,
			"events", len(isolated), "event_id", string(isolated[0].event.ID), "subject", isolated[0].subject,
			"suppressed", suppressed)
	}
	for _, end := range isolated {
		b.reportEnd(end)
	}
}

// sweep resends events whose acknowledgement is overdue.
func (b *Bus) sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			tick.Reset(b.sweepPause())
			if n, id, subject, attempt := b.table.queueOverdue(now); n > 0 {
				b.metrics.Retries.WithLabelValues(publish.ReasonTimeout).Add(float64(n))
				b.logRetry(publish.ReasonTimeout, "no acknowledgement in time", id, subject, attempt)
			}
		}
	}
}

// sweepPause returns the time until the next sweep.
func (b *Bus) sweepPause() time.Duration {
	if b.table.isEmpty() {
		return idleSweepInterval
	}
	return sweepInterval
}

// reportEnd reports the result to the event.
func (b *Bus) reportEnd(end ending) {
	e := end.event
	switch end.kind {
	case acked:
		b.noteAck(end.mark, &end.outcome)
		e.Done(nil)
	case refused:
		kind := publish.ErrRefused
		if end.tooLarge {
			kind = publish.ErrTooLarge
		}
		e.Done(fmt.Errorf("publish %s to %s: %w: %s", e.ID, end.subject, kind, end.detail))
	case failed:
		e.Done(fmt.Errorf("publish %s: %w", e.ID, end.err))
	case retry:
		b.metrics.Retries.WithLabelValues(end.reason).Inc()
		if end.reason == publish.ReasonNoResponders {
			b.wake.Raise()
		}
		if !end.alone {
			b.logRetry(end.reason, end.detail, string(e.ID), end.subject, end.attempt)
		}
		e.Done(&publish.RetryError{
			Reason: end.reason,
			Alone:  end.alone,
			Err:    errors.New(cmp.Or(end.detail, end.reason)),
		})
	}
}

// logRetry logs the first retry of each reason in each window.
func (b *Bus) logRetry(reason, detail, id, subject string, attempt uint64) {
	suppressed, ok := b.window.First(reason)
	if !ok {
		return
	}
	level, advice := slog.LevelWarn, "none: the agent retries until the bus has it"
	switch reason {
	case publish.ReasonLimit:
		level = slog.LevelError
		advice = "a limit of the account or the server is reached, events wait: raise it, or free what other streams use"
	case publish.ReasonStreamFull:
		level, advice = slog.LevelError, b.fullAdvice()
	case publish.ReasonOtherStream:
		level, advice = slog.LevelError, "another stream has the subject: make sure that only one has"
	}
	b.log.Log(context.Background(), level, "publishing an event failed, retrying", "reason", reason, "advice", advice,
		"detail", detail,
		"stream", b.cfg.Stream.Name, "event_id", id, "subject", subject, "attempt", attempt, "suppressed", suppressed)
}

// isolate sends events that may be the cause of lost connections. It sends one at a time, each on a
// separate connection.
func (b *Bus) isolate(ctx context.Context) error {
	for ctx.Err() == nil {
		f := b.table.nextAlone()
		if f == nil {
			select {
			case <-b.table.wakeAlone:
			case <-ctx.Done():
			}
			continue
		}
		for failures := 1; ; failures++ {
			o, sent := b.sendAlone(ctx, f)
			if !sent && pause.For(ctx, publish.BusyBackoff().Delay(failures)) != nil {
				o, sent = outcome{kind: failed, err: publish.ErrClosed}, true
			}
			if sent {
				b.reportEnd(b.table.finish(f, o))
				break
			}
			if suppressed, ok := b.window.First("isolate: connect"); ok {
				b.log.Warn("cannot connect to send an isolated event, retrying", "servers", b.servers, "err", o.detail,
					"suppressed", suppressed)
			}
		}
	}
	return nil
}

// sendAlone connects and sends an event. It reports false if the event was not tested: no
// connection, or the fence broke it.
func (b *Bus) sendAlone(ctx context.Context, f *flight) (o outcome, sent bool) {
	if err := b.link.awaitUp(ctx); err != nil {
		return outcome{kind: failed, err: publish.ErrClosed}, true
	}
	if f.event.DeadLetter && !b.takesDeadLetters() {
		return outcome{kind: refused, detail: b.deadLetterAdvice()}, true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := b.opener().dialer(ctx, b.fence)
	options, _, err := b.connectOptions(d)
	if err != nil {
		return outcome{detail: err.Error()}, false
	}
	closed := make(chan struct{})
	nc, err := nats.Connect(b.cfg.URL, append(options, nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) {
		close(closed)
	}))...)
	if err != nil {
		return outcome{detail: d.causeOf(err).Error()}, false
	}
	stop := context.AfterFunc(ctx, d.Break) // the request may block in the socket
	defer func() {
		stop()
		d.Break() // otherwise Close may block
		nc.Close()
		<-closed
	}()
	if err := b.fence.Pass(ctx); err != nil {
		if ctx.Err() != nil {
			err = publish.ErrClosed
		}
		return outcome{kind: failed, err: err}, true
	}
	d.guarded.Load().Carry()
	request, done := context.WithTimeout(ctx, b.cfg.AckTimeout)
	defer done()
	o, err = b.requestAlone(request, nc, f)
	switch {
	case err == nil:
		return o, true
	case errors.Is(err, nats.ErrNoResponders):
		return noResponders(), true
	case ctx.Err() != nil:
		return outcome{kind: failed, err: publish.ErrClosed}, true
	case d.hasBroken():
		return outcome{detail: err.Error()}, false
	case refusal(err) != nil:
		return *refusal(err), true
	}
	o = outcome{
		reason: publish.ReasonConnection,
		alone:  true,
		detail: "the connection was lost with only this event in flight: " + err.Error(),
	}
	if errors.Is(err, context.DeadlineExceeded) {
		o.reason, o.detail = publish.ReasonTimeout, "no acknowledgement in time of an isolated event"
	}
	if suppressed, ok := b.window.First("alone: " + o.reason); ok {
		b.log.Error("an isolated event is not acknowledged: it and later changes of its object wait", "event_id",
			string(f.event.ID), "subject", f.msg.Subject,
			"stream", b.cfg.Stream.Name, "err", o.detail, "suppressed", suppressed, "advice",
			"check the server's log for why it closes connections; if the event is the cause, move it to the dead letters (kubecdc dead-letter EVENT-ID)")
	}
	return o, true
}
