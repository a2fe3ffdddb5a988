package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// outcome is what became of one attempt to publish.
type outcome struct {
	kind      outcomeKind
	duplicate bool   // acked: the stream had the event already
	sequence  uint64 // acked: where the stream has the event, 0: not known
	tooLarge  bool   // refused: a smaller one would be taken
	alone     bool   // retry: on a connection of its own
	reason    string // retry: label of the metric; one of the reason constants
	detail    string // retry and refused: what the server said
	err       error  // failed: it wraps publish.ErrFenced or publish.ErrClosed
}

type outcomeKind byte

const (
	retry   outcomeKind = iota // may pass: publish again
	acked                      // the stream has the event
	refused                    // the bus will never take it
	failed                     // this process may not publish any more, or Run has ended
)

// JetStream's error codes (nats-server, server/errors.json).
const (
	codeAccountLimit   = 10002
	codeNoLeader       = 10008
	codeInsufficient   = 10023
	codeMemoryLimit    = 10028
	codeStorageLimit   = 10047
	codeMessageTooBig  = 10054
	codeStoreFailed    = 10077 // a full stream too; the description tells
	codeHeadersTooBig  = 10097
	codeStreamOffline  = 10118
	codeDuplicateRaced = 10158
	codeTooMany        = 10167
)

// pubAck is JetStream's answer to a published message (ADR-1, and server.JSPubAckResponse).
type pubAck struct {
	Stream    string `json:"stream"`
	Domain    string `json:"domain"`
	Seq       uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
	Error     *struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

// ackReader reads answers to published messages, and accepts acknowledgements by one stream.
type ackReader struct {
	stream string
	domain string // "": any
	prefix []byte // of the acknowledgement as the server writes it today
}

func newAckReader(stream, domain string) ackReader {
	r := ackReader{stream: stream, domain: domain, prefix: []byte(`{"stream":"` + stream + `","seq":`)}
	if domain != "" {
		r.prefix = []byte(`{"stream":"` + stream + `","domain":"` + domain + `","seq":`)
	}
	return r
}

// read decodes an answer. What looks exactly as the server writes it is read at a glance; everything else, a space or
// another order of members, a duplicate, an error, a domain that is not configured, goes through encoding/json.
func (r *ackReader) read(m *nats.Msg) outcome {
	if digits, ok := bytes.CutPrefix(m.Data, r.prefix); ok {
		if sequence, ok := numberAndBrace(digits); ok {
			return outcome{kind: acked, sequence: sequence}
		}
	}
	if len(m.Data) == 0 {
		if status := m.Header.Get("Status"); status == "503" {
			return noResponders()
		}
		return outcome{reason: publish.ReasonMalformed, detail: "an empty answer"}
	}
	var ack pubAck
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return outcome{reason: publish.ReasonMalformed, detail: "an answer that is no acknowledgement: " + err.Error()}
	}
	switch {
	case ack.Error != nil:
		return readError(ack.Error.Code, ack.Error.ErrCode, ack.Error.Description)
	case ack.Stream == "" || ack.Seq == 0:
		return outcome{reason: publish.ReasonMalformed, detail: "an answer without stream and sequence"}
	case ack.Stream != r.stream:
		return outcome{reason: publish.ReasonOtherStream, detail: "acknowledged by stream " + ack.Stream}
	case r.domain != "" && ack.Domain != r.domain: // the leaf node and its hub may have a stream of the same name
		return outcome{reason: publish.ReasonOtherStream, detail: "acknowledged by stream " + ack.Stream + " of domain " + strconv.Quote(ack.Domain)}
	}
	return outcome{kind: acked, duplicate: ack.Duplicate, sequence: ack.Seq}
}

func noResponders() outcome {
	return outcome{reason: publish.ReasonNoResponders, detail: "no stream takes the subject"}
}

// numberAndBrace reads a positive number that ends in a closing brace.
func numberAndBrace(b []byte) (number uint64, ok bool) {
	n := len(b) - 1
	if n < 1 || n > 19 || b[n] != '}' || b[0] == '0' { // 19 digits fit into 64 bits
		return 0, false
	}
	for _, c := range b[:n] {
		if c < '0' || c > '9' {
			return 0, false
		}
		number = number*10 + uint64(c-'0')
	}
	return number, true
}

func readError(code, errCode int, description string) outcome {
	o := outcome{detail: description}
	switch errCode {
	case codeMessageTooBig, codeHeadersTooBig:
		o.kind, o.tooLarge = refused, true
	case codeStoreFailed:
		o.reason = publish.ReasonStore
		if strings.HasPrefix(description, "maximum ") { // "maximum bytes exceeded", messages, messages per subject
			o.reason = publish.ReasonStreamFull
		}
	case codeAccountLimit, codeInsufficient, codeMemoryLimit, codeStorageLimit:
		o.reason = publish.ReasonLimit
	case codeNoLeader, codeStreamOffline, codeDuplicateRaced, codeTooMany:
		o.reason = publish.ReasonUnavailable
	default:
		o.reason = publish.ReasonRejected
		if code == 503 {
			o.reason = publish.ReasonUnavailable
		}
	}
	return o
}

// refusal returns the outcome of a message that nats.go refuses to send, nil for other errors.
func refusal(err error) *outcome {
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return &outcome{kind: refused, tooLarge: true, detail: err.Error()}
	case errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return &outcome{kind: refused, detail: err.Error()}
	}
	return nil
}
