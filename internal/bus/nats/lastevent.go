package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// LastStreamEvent returns the last stream event of the resource in the stream, of any scope. It
// reports false if no readable one exists, or no stream. It waits until Run has connected and
// checked the stream, and retries after temporary errors until ctx ends. It returns only the cause
// of ctx and ErrClosed as errors.
//
// It asks the stream's leader, because a replica may lag behind: the user must be allowed to
// publish to $JS.API.STREAM.MSG.GET.<stream>, with Config.Domain to
// $JS.<domain>.API.STREAM.MSG.GET.<stream>.
func (b *Bus) LastStreamEvent(ctx context.Context, r *object.Resource) (publish.StreamEvent, bool, error) {
	return lastEvent(ctx, b, b.subjects.OfStream(r), readStreamEvent)
}

// LastObjectEvent returns the newest event of an object of the resource, of any scope. It reports
// false if the newest record is not readable, or does not show an observed version: an inferred
// event, or one of an object that left a scope. Otherwise it is like LastStreamEvent.
func (b *Bus) LastObjectEvent(ctx context.Context, r *object.Resource) (publish.ObjectEvent, bool, error) {
	return lastEvent(ctx, b, []string{b.subjects.OfResource(r)},
		func(record *nats.RawStreamMsg) (publish.ObjectEvent, error) {
			return readObjectEvent(record, b.cfg.Cluster, r)
		})
}

// lastEvent reads the last record on any of some subjects.
func lastEvent[E any](
	ctx context.Context, b *Bus, subjects []string, read func(*nats.RawStreamMsg) (E, error),
) (e E, ok bool, err error) {
	var newest *nats.RawStreamMsg
	for _, subject := range subjects {
		record, err := askStream(ctx, b, subject, func(ctx context.Context) (*nats.RawStreamMsg, error) {
			return b.lastRecord(ctx, subject)
		})
		if err != nil {
			return e, false, err
		}
		if record != nil && (newest == nil || newest.Sequence < record.Sequence) {
			newest = record
		}
	}
	if newest == nil {
		return e, false, nil
	}
	e, err = read(newest)
	if err != nil {
		b.log.Debug("the last record on a subject cannot be used", "subject", newest.Subject, "err", err)
	}
	return e, err == nil, nil
}

// askStream asks for the last records on a subject until the stream answers. Its errors are the
// cause of ctx and ErrClosed.
func askStream[A any](
	ctx context.Context, b *Bus, subject string, ask func(context.Context) (A, error),
) (none A, err error) {
	for failures := 1; ; failures++ {
		if err := b.link.awaitUp(ctx); err != nil {
			return none, err
		}
		answer, err := ask(ctx)
		switch {
		case ctx.Err() != nil:
			return none, context.Cause(ctx)
		case err == nil:
			return answer, nil
		}
		if suppressed, ok := b.window.First("last event"); ok {
			b.log.Warn("cannot read the last event on a subject, retrying", "stream", b.cfg.Stream.Name, "subject",
				subject,
				"err", err, "advice", "allow the user to publish to "+b.apiSubject("STREAM.MSG.GET."), "suppressed",
				suppressed)
		}
		if err := pause.For(ctx, checkBackoff().Delay(failures)); err != nil {
			return none, err
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

// lastRecord returns the last record on a subject, nil without a record or a stream.
func (b *Bus) lastRecord(ctx context.Context, subject string) (*nats.RawStreamMsg, error) {
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
	case e.Stream == nil && !e.IsFormerProgress() || e.Scope == "":
		return publish.StreamEvent{}, fmt.Errorf("it is a %q, of scope %q", e.Type, e.Scope)
	}
	version := e.ResourceVersion // of the former progress of a scope, before an upgrade
	if s := e.Stream; s != nil {
		version = cmp.Or(s.ResourceVersion, s.ToResourceVersion, s.FromResourceVersion)
	}
	rv, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return publish.StreamEvent{}, fmt.Errorf("its resourceVersion: %w", err)
	}
	return publish.StreamEvent{
		Scope:           e.Scope,
		ResourceVersion: rv,
		History:         e.History(),
		At:              e.Time,
	}, nil
}

// readObjectEvent parses an event that shows a version of an object of r. It returns an error if
// the record is something else.
func readObjectEvent(record *nats.RawStreamMsg, cluster string, r *object.Resource) (publish.ObjectEvent, error) {
	e, err := consume.FromMessage(record.Header, record.Data)
	switch {
	case err != nil:
		return publish.ObjectEvent{}, err
	case e.Data == nil || e.DeadLetterReason != "":
		return publish.ObjectEvent{}, fmt.Errorf("it is a %q", e.Type)
	case e.Data.Inferred || e.Op == consume.Left:
		return publish.ObjectEvent{}, fmt.Errorf("its operation is %s, inferred: %t", e.Op, e.Data.Inferred)
	case e.GroupResource() != r.String() || e.Cluster != cluster:
		return publish.ObjectEvent{}, fmt.Errorf("it is about %s of cluster %q", e.GroupResource(), e.Cluster)
	}
	rv, err := strconv.ParseUint(e.ResourceVersion, 10, 64)
	if err != nil {
		return publish.ObjectEvent{}, fmt.Errorf("its resourceVersion: %w", err)
	}
	out := publish.ObjectEvent{
		Namespace:       e.Namespace,
		Name:            e.Name,
		UID:             e.UID,
		ResourceVersion: rv,
		History:         e.History(),
		Gone:            e.Op == consume.Deleted,
	}
	if len(e.Data.ChangedBy) > 0 {
		out.ChangedBy, err = json.Marshal(e.Data.ChangedBy)
	}
	return out, err
}
