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

// outcome is the result of one attempt to publish.
type outcome struct {
	kind      outcomeKind
	duplicate bool   // acked: the stream had the event already
	sequence  uint64 // acked: sequence of the record in the stream; 0 if unknown
	tooLarge  bool   // refused: the bus accepts a smaller event
	alone     bool   // retry: the next attempt uses a separate connection
	reason    string // retry: label of the metric; one of the reason constants
	detail    string // retry and refused: what the server said
	err       error  // failed: it wraps publish.ErrFenced or publish.ErrClosed
}

type outcomeKind byte

const (
	retry   outcomeKind = iota // the cause may be temporary: publish again
	acked                      // the stream has the event
	refused                    // the bus rejects the event for good
	failed                     // this process may not publish any more, or Run has ended
)

// JetStream's error codes (nats-server, server/errors.json).
const (
	codeAccountLimit   = 10002
	codeNoLeader       = 10008
	codeInsufficient   = 10023
	codeMemoryLimit    = 10028
	codeStorageLimit   = 10047
	codeInvalidConfig  = 10052
	codeMessageTooBig  = 10054
	codeOverlap        = 10065
	codeReplicas       = 10074
	codeStoreFailed    = 10077 // also for a full stream; the description distinguishes the two
	codeHeadersTooBig  = 10097
	codeSealed         = 10109
	codeStreamOffline  = 10118
	codeDuplicateRaced = 10158
	codeTooMany        = 10167
)

// pubAck is JetStream's response to a published message (ADR-1, and server.JSPubAckResponse).
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

// ackReader parses responses to published messages. It accepts acknowledgements of one stream only.
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

// read parses a response. A fast path handles the exact form that the server writes. All others go
// through encoding/json: other spacing or order of members, a duplicate, an error, a domain that is
// not configured.
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
		return outcome{reason: publish.ReasonMalformed, detail: "an empty response"}
	}
	var ack pubAck
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return outcome{
			reason: publish.ReasonMalformed,
			detail: "a response that is not an acknowledgement: " + err.Error(),
		}
	}
	switch {
	case ack.Error != nil:
		return readError(ack.Error.Code, ack.Error.ErrCode, ack.Error.Description)
	case ack.Stream == "" || ack.Seq == 0:
		return outcome{reason: publish.ReasonMalformed, detail: "a response without stream and sequence"}
	case ack.Stream != r.stream:
		return outcome{reason: publish.ReasonOtherStream, detail: "acknowledged by stream " + ack.Stream}
	case r.domain != "" && ack.Domain != r.domain: // a leaf node and its hub may each have a stream of this name
		return outcome{
			reason: publish.ReasonOtherStream,
			detail: "acknowledged by stream " + ack.Stream + " of domain " + strconv.Quote(ack.Domain),
		}
	}
	return outcome{kind: acked, duplicate: ack.Duplicate, sequence: ack.Seq}
}

func noResponders() outcome {
	return outcome{reason: publish.ReasonNoResponders, detail: "no stream has the subject"}
}

// numberAndBrace parses a positive number that is followed by a closing brace at the end.
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
