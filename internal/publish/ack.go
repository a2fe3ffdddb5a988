package publish

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// outcome is what became of one attempt to publish.
type outcome struct {
	kind      outcomeKind
	duplicate bool   // acked: the stream had the event already
	sequence  uint64 // acked: where the stream has the event, 0: not known
	tooLarge  bool   // refused: a smaller one would be taken
	cut       bool   // retry: the connection was lost while the event was on its way
	reason    string // retry: label of the metric; one of the reason constants
	detail    string // retry and refused: what the server said
	err       error  // fenced: it wraps ErrFenced
}

type outcomeKind byte

const (
	retry   outcomeKind = iota // may pass: publish again
	acked                      // the stream has the event
	refused                    // the bus will never take it
	ended                      // ctx has ended, or the publisher was closed
	fenced                     // this process may not publish any more
)

// Why an event is published once more; values of the label reason.
const (
	reasonTimeout      = "timeout"       // no acknowledgement in time
	reasonConnection   = "connection"    // the connection broke, or is not there
	reasonNoResponders = "no_responders" // no stream takes the subject: it is gone, or has no leader
	reasonStreamFull   = "stream_full"   // discard new: backpressure
	reasonLimit        = "account_limit" // a limit of the account or the server
	reasonStore        = "store_failed"  // the server could not write
	reasonUnavailable  = "unavailable"   // no leader, too many requests, offline, the first copy still in process
	reasonOtherStream  = "other_stream"  // acknowledged by another stream than the configured one
	reasonRejected     = "rejected"      // any other error of the server
	reasonMalformed    = "malformed"     // no JetStream acknowledgement at all
	reasonHeld         = "held"          // not sent: another event is sent alone (not counted)
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

// ackReader tells acknowledgements by one stream.
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
			return outcome{reason: reasonNoResponders, detail: "no stream takes the subject"}
		}
		return outcome{reason: reasonMalformed, detail: "an empty answer"}
	}
	var ack pubAck
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return outcome{reason: reasonMalformed, detail: "an answer that is no acknowledgement: " + err.Error()}
	}
	switch {
	case ack.Error != nil:
		return readError(ack.Error.Code, ack.Error.ErrCode, ack.Error.Description)
	case ack.Stream == "" || ack.Seq == 0:
		return outcome{reason: reasonMalformed, detail: "an answer without stream and sequence"}
	case ack.Stream != r.stream:
		return outcome{reason: reasonOtherStream, detail: "acknowledged by stream " + ack.Stream}
	case r.domain != "" && ack.Domain != r.domain: // the leaf node and its hub may have a stream of the same name
		return outcome{reason: reasonOtherStream, detail: "acknowledged by stream " + ack.Stream + " of domain " + strconv.Quote(ack.Domain)}
	}
	return outcome{kind: acked, duplicate: ack.Duplicate, sequence: ack.Seq}
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
		o.reason = reasonStore
		if strings.HasPrefix(description, "maximum ") { // "maximum bytes exceeded", messages, messages per subject
			o.reason = reasonStreamFull
		}
	case codeAccountLimit, codeInsufficient, codeMemoryLimit, codeStorageLimit:
		o.reason = reasonLimit
	case codeNoLeader, codeStreamOffline, codeDuplicateRaced, codeTooMany:
		o.reason = reasonUnavailable
	default:
		o.reason = reasonRejected
		if code == 503 {
			o.reason = reasonUnavailable
		}
	}
	return o
}
