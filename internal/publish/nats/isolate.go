package nats

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// isolate sends events that may be the cause of lost connections. It sends one at a time, each on a separate connection.
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
			if !sent && publish.Sleep(ctx, publish.BusyBackoff().Delay(failures)) != nil {
				o, sent = outcome{kind: failed, err: publish.ErrClosed}, true
			}
			if sent {
				b.done(b.table.finish(f, o))
				break
			}
			if suppressed, ok := b.window.First("isolate: connect"); ok {
				b.log.Warn("cannot connect to send an isolated event, retrying", "servers", b.servers, "err", o.detail, "suppressed", suppressed)
			}
		}
	}
	return nil
}

// sendAlone connects and sends an event. It reports false if the event was not tested: no connection, or the fence broke it.
func (b *Bus) sendAlone(ctx context.Context, f *flight) (o outcome, sent bool) {
	if err := b.link.wait(ctx); err != nil {
		return outcome{kind: failed, err: publish.ErrClosed}, true
	}
	if f.event.DeadLetter && !b.takesDeadLetters() {
		return outcome{kind: refused, detail: b.deadLetterAdvice()}, true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := b.cfg.dialer(ctx, b.fence)
	options, _, err := b.connectOptions(d)
	if err != nil {
		return outcome{detail: err.Error()}, false
	}
	closed := make(chan struct{})
	nc, err := nats.Connect(b.cfg.URL, append(options, nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))...)
	if err != nil {
		return outcome{detail: d.why(err).Error()}, false
	}
	stop := context.AfterFunc(ctx, d.Break) // the request may block in the socket
	defer func() {
		stop()
		d.Break() // otherwise Close may block
		nc.Close()
		<-closed
	}()
	if err := b.fence.Pass(ctx); err != nil {
		return outcome{kind: failed, err: err}, true
	}
	d.guarded.Load().Carry()
	request, done := context.WithTimeout(ctx, b.cfg.AckTimeout)
	defer done()
	answer, err := nc.RequestMsgWithContext(request, &f.msg)
	switch {
	case err == nil:
		return b.acks.read(answer), true
	case errors.Is(err, nats.ErrNoResponders):
		return noResponders(), true
	case ctx.Err() != nil:
		return outcome{kind: failed, err: publish.ErrClosed}, true
	case d.broke():
		return outcome{detail: err.Error()}, false
	case refusal(err) != nil:
		return *refusal(err), true
	}
	o = outcome{reason: publish.ReasonConnection, alone: true, detail: "the connection was lost with only this event in flight: " + err.Error()}
	if errors.Is(err, context.DeadlineExceeded) {
		o.reason, o.detail = publish.ReasonTimeout, "no acknowledgement in time of an isolated event"
	}
	if suppressed, ok := b.window.First("alone: " + o.reason); ok {
		b.log.Error("an isolated event is not acknowledged: it and later changes of its object wait", "event_id", string(f.event.ID), "subject", f.msg.Subject,
			"stream", b.cfg.Stream.Name, "err", o.detail, "suppressed", suppressed, "advice",
			"check the server's log for why it closes connections; if the event is the cause, move it to the dead letters (kubecdc dead-letter EVENT-ID)")
	}
	return o, true
}
