package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// LastStreamEvent returns the last stream event of the resource in the stream, of any scope. It reports false if no readable one exists, or
// no stream. It waits until Run has connected and checked the stream, and retries after temporary errors until ctx ends. It returns only
// the cause of ctx and ErrClosed as errors.
//
// It asks the stream's leader, because a replica may lag behind: the user must be allowed to publish to $JS.API.STREAM.MSG.GET.<stream>,
// with Config.Domain to $JS.<domain>.API.STREAM.MSG.GET.<stream>.
func (b *Bus) LastStreamEvent(ctx context.Context, r *object.Resource) (publish.StreamEvent, bool, error) {
	subject := string(b.subjects.Append(nil, &object.Delta{Stream: &object.StreamEvent{Resource: r}}))
	for failures := 1; ; failures++ {
		if err := b.link.wait(ctx); err != nil {
			return publish.StreamEvent{}, false, err
		}
		record, err := b.last(ctx, subject)
		switch {
		case ctx.Err() != nil:
			return publish.StreamEvent{}, false, context.Cause(ctx)
		case err == nil && record == nil:
			return publish.StreamEvent{}, false, nil
		case err == nil:
			h, err := readStreamEvent(record)
			if err != nil {
				b.log.Debug("the last record on a subject of stream events is not from kubecdc", "subject", subject, "err", err)
			}
			return h, err == nil, nil
		}
		if suppressed, ok := b.window.First("last event"); ok {
			b.log.Warn("cannot read the last stream event, retrying", "stream", b.cfg.Stream.Name, "subject", subject,
				"err", err, "advice", "allow the user to publish to "+b.apiSubject("STREAM.MSG.GET."), "suppressed", suppressed)
		}
		if err := publish.Sleep(ctx, checkBackoff().Delay(failures)); err != nil {
			return publish.StreamEvent{}, false, err
		}
	}
}

// apiSubject returns the subject of a JetStream API request about the stream.
func (b *Bus) apiSubject(request string) string {
	if b.cfg.Domain != "" {
		return "$JS." + b.cfg.Domain + ".API." + request + b.cfg.Stream.Name
	}
	return "$JS.API." + request + b.cfg.Stream.Name
}

// jetStreamIn returns the API of JetStream in a domain; "": in the server's.
func jetStreamIn(domain string, conn *nats.Conn) (jetstream.JetStream, error) {
	if domain == "" {
		return jetstream.New(conn)
	}
	return jetstream.NewWithDomain(conn, domain)
}

// last returns the last record on a subject, nil without a record or a stream.
func (b *Bus) last(ctx context.Context, subject string) (*nats.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, publish.RequestTimeout)
	defer cancel()
	// Package jetstream would ask any replica if the stream permits that.
	js, err := b.conn.Load().JetStream(nats.Domain(b.cfg.Domain))
	if err != nil {
		return nil, err
	}
	record, err := js.GetLastMsg(b.cfg.Stream.Name, subject, nats.Context(ctx))
	if errors.Is(err, nats.ErrMsgNotFound) || errors.Is(err, nats.ErrStreamNotFound) {
		return nil, nil
	}
	return record, err
}

// readStreamEvent parses a stream event. It returns an error if the record is something else.
func readStreamEvent(record *nats.RawStreamMsg) (publish.StreamEvent, error) {
	e, err := consume.FromMessage(record.Header, record.Data)
	switch {
	case err != nil:
		return publish.StreamEvent{}, err
	case e.Stream == nil || e.Scope == "":
		return publish.StreamEvent{}, fmt.Errorf("it is a %q, of scope %q", e.Type, e.Scope)
	}
	version := cmp.Or(e.Stream.ResourceVersion, e.Stream.ToResourceVersion, e.Stream.FromResourceVersion)
	rv, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return publish.StreamEvent{}, fmt.Errorf("its resourceVersion: %w", err)
	}
	return publish.StreamEvent{Scope: e.Scope, ResourceVersion: rv, History: e.History(), At: e.Time}, nil
}
