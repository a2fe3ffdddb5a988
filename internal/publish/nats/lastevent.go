package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// LastStreamEvent returns the last stream event of the resource in the stream, of whichever scope; false: there is none that can be
// read, or no stream. It waits until Run has connected and checked the stream. It retries after temporary errors until ctx ends; its
// errors are the cause of ctx, and ErrClosed.
//
// It asks the stream's leader, not a replica that may lag behind: the user must be allowed to publish to
// $JS.API.STREAM.MSG.GET.<stream>, with Config.Domain to $JS.<domain>.API.STREAM.MSG.GET.<stream>.
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
				b.log.Debug("the last record on a subject of stream events is not one of ours", "subject", subject, "err", err)
			}
			return h, err == nil, nil
		}
		if suppressed, ok := b.window.First("last event"); ok {
			b.log.Warn("the last stream event cannot be read from the stream, trying on", "stream", b.cfg.Stream.Name, "subject", subject,
				"err", err, "advice", "the user must be allowed to publish to "+b.getSubject(), "suppressed", suppressed)
		}
		if err := publish.Sleep(ctx, checkBackoff().Delay(failures)); err != nil {
			return publish.StreamEvent{}, false, err
		}
	}
}

func (b *Bus) getSubject() string { return b.apiSubject("STREAM.MSG.GET.") }

// apiSubject returns the subject of a request to JetStream about the stream.
func (b *Bus) apiSubject(request string) string {
	if b.cfg.Domain != "" {
		return "$JS." + b.cfg.Domain + ".API." + request + b.cfg.Stream.Name
	}
	return "$JS.API." + request + b.cfg.Stream.Name
}

// JetStream's error codes for what is not there (nats-server, server/errors.json).
const (
	codeMessageNotFound = 10037
	codeStreamNotFound  = 10059
)

// last returns the last record on a subject, nil if there is none, or no stream.
func (b *Bus) last(ctx context.Context, subject string) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, publish.RequestTimeout)
	defer cancel()
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, err
	}
	answer, err := b.conn.Load().RequestWithContext(ctx, b.getSubject(), request)
	if err != nil {
		return nil, err
	}
	var found struct { // server.JSApiMsgGetResponse
		Message *struct {
			Header []byte `json:"hdrs"`
			Data   []byte `json:"data"`
		} `json:"message"`
		Error *struct {
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &found); err != nil {
		return nil, fmt.Errorf("not an answer of JetStream: %w", err)
	}
	switch {
	case found.Error != nil && (found.Error.ErrCode == codeMessageNotFound || found.Error.ErrCode == codeStreamNotFound):
		return nil, nil
	case found.Error != nil:
		return nil, errors.New(found.Error.Description)
	case found.Message == nil:
		return nil, errors.New("an answer without a message")
	}
	record := &nats.Msg{Header: nats.Header{}, Data: found.Message.Data}
	if len(found.Message.Header) > 0 {
		if record.Header, err = nats.DecodeHeadersMsg(found.Message.Header); err != nil {
			return nil, fmt.Errorf("headers of the record: %w", err)
		}
	}
	return record, nil
}

// readStreamEvent reads a stream event, in either content mode. An error means that the record is none.
func readStreamEvent(record *nats.Msg) (publish.StreamEvent, error) {
	var e struct {
		ID, Type, Scope string
		Time            time.Time
		Data            struct {
			ResourceVersion, FromResourceVersion, ToResourceVersion string
		}
	}
	if id := header(record, publish.AttributePrefix+"id"); id == "" {
		if err := json.Unmarshal(record.Data, &e); err != nil {
			return publish.StreamEvent{}, err
		}
	} else {
		e.ID, e.Type, e.Scope = id, header(record, publish.AttributePrefix+"type"), header(record, publish.AttributePrefix+"scope")
		var err error
		if e.Time, err = time.Parse(time.RFC3339Nano, header(record, publish.AttributePrefix+"time")); err != nil {
			return publish.StreamEvent{}, err
		}
		if err := json.Unmarshal(record.Data, &e.Data); err != nil {
			return publish.StreamEvent{}, err
		}
	}
	version := e.Data.ResourceVersion
	switch kind, _ := strings.CutPrefix(e.Type, "dev.kubecdc."); object.StreamKind(kind) {
	case object.SnapshotStarted, object.SnapshotCompleted, object.Progress:
	case object.Gap:
		if version = e.Data.ToResourceVersion; version == "" {
			version = e.Data.FromResourceVersion
		}
	default:
		return publish.StreamEvent{}, fmt.Errorf("its type is %q", e.Type)
	}
	if e.Scope == "" {
		return publish.StreamEvent{}, errors.New("it has no scope")
	}
	rv, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return publish.StreamEvent{}, fmt.Errorf("its resourceVersion: %w", err)
	}
	return publish.StreamEvent{Scope: e.Scope, ResourceVersion: rv, History: historyOf(e.ID), At: e.Time}, nil
}

// header returns the first value of a header, as it was before it was percent-encoded.
func header(record *nats.Msg, name string) string {
	value := record.Header.Get(name)
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// historyOf returns n if an id ends in "/h<n>", else 0.
func historyOf(id string) uint32 {
	i := strings.LastIndex(id, "/h")
	if i < 0 {
		return 0
	}
	history, err := strconv.ParseUint(id[i+len("/h"):], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(history)
}
