package publish

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
)

// Heard is what the last stream event of a resource on the bus says: how far an agent has come, whatever it remembers.
type Heard struct {
	Scope           string
	ResourceVersion uint64 // up to which it speaks; of a gap: its end, or its beginning where the end is not known
	History         uint32
	At              time.Time
}

// Heard is the last stream event of the resource that the stream has, of whichever scope; false: it has none that can be
// read, or there is no stream. It waits for Run to have connected and looked at the stream. What may pass it retries until
// ctx ends; its errors are the cause of ctx, and ErrClosed.
//
// The stream's leader is asked, not a replica that may lag behind: the user must be allowed to publish to
// $JS.API.STREAM.MSG.GET.<stream>, with NATSConfig.Domain to $JS.<domain>.API.STREAM.MSG.GET.<stream>.
func (n *NATS) Heard(ctx context.Context, r *object.Resource) (Heard, bool, error) {
	subject := string(n.subjects.Append(nil, &object.Delta{Stream: &object.StreamEvent{Resource: r}}))
	for failures := 1; ; failures++ {
		if err := n.gate.wait(ctx); err != nil {
			return Heard{}, false, err
		}
		if n.closed.Load() {
			return Heard{}, false, ErrClosed
		}
		record, err := n.last(ctx, subject)
		switch {
		case ctx.Err() != nil:
			return Heard{}, false, context.Cause(ctx)
		case err == nil && record == nil:
			return Heard{}, false, nil
		case err == nil:
			h, err := readHeard(record)
			if err != nil {
				n.log.Debug("the last record on a subject of stream events is none, and tells nothing", "subject", subject, "err", err)
			}
			return h, err == nil, nil
		}
		if suppressed, ok := n.window.First("heard"); ok {
			n.log.Warn("the last stream event cannot be read from the stream, trying on", "stream", n.cfg.Stream.Name, "subject", subject,
				"err", err, "advice", "the user must be allowed to publish to "+n.getSubject(), "suppressed", suppressed)
		}
		if err := Sleep(ctx, checkBackoff().Delay(failures)); err != nil {
			return Heard{}, false, err
		}
	}
}

func (n *NATS) getSubject() string { return n.apiSubject("STREAM.MSG.GET.") }

// apiSubject is where JetStream takes a request about the stream.
func (n *NATS) apiSubject(request string) string {
	if n.cfg.Domain != "" {
		return "$JS." + n.cfg.Domain + ".API." + request + n.cfg.Stream.Name
	}
	return "$JS.API." + request + n.cfg.Stream.Name
}

// JetStream's error codes for what is not there (nats-server, server/errors.json).
const (
	codeMessageNotFound = 10037
	codeStreamNotFound  = 10059
)

// last is the last record on a subject, nil where there is none, or no stream.
func (n *NATS) last(ctx context.Context, subject string) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, err
	}
	answer, err := n.conn.Load().RequestWithContext(ctx, n.getSubject(), request)
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
		return nil, fmt.Errorf("an answer that is none of JetStream's: %w", err)
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

// readHeard reads a stream event, in either content mode. An error means that the record is none.
func readHeard(record *nats.Msg) (Heard, error) {
	var e struct {
		ID, Type, Scope string
		Time            time.Time
		Data            struct {
			ResourceVersion, FromResourceVersion, ToResourceVersion string
		}
	}
	if id := header(record, AttributePrefix+"id"); id == "" {
		if err := json.Unmarshal(record.Data, &e); err != nil {
			return Heard{}, err
		}
	} else {
		e.ID, e.Type, e.Scope = id, header(record, AttributePrefix+"type"), header(record, AttributePrefix+"scope")
		var err error
		if e.Time, err = time.Parse(time.RFC3339Nano, header(record, AttributePrefix+"time")); err != nil {
			return Heard{}, err
		}
		if err := json.Unmarshal(record.Data, &e.Data); err != nil {
			return Heard{}, err
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
		return Heard{}, fmt.Errorf("its type is %q", e.Type)
	}
	if e.Scope == "" {
		return Heard{}, errors.New("it has no scope")
	}
	rv, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return Heard{}, fmt.Errorf("its resourceVersion: %w", err)
	}
	return Heard{Scope: e.Scope, ResourceVersion: rv, History: historyOf(e.ID), At: e.Time}, nil
}

// header is the first value of a header, as it was before it was percent-encoded.
func header(record *nats.Msg, name string) string {
	value := record.Header.Get(name)
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// historyOf is n where an id ends in "/h<n>", else 0.
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
