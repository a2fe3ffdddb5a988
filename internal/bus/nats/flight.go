package nats

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// flight is an event in flight: its message, and the identification of its responses. Responses
// arrive at <inbox>.<slot>-<call>-<attempt>, those to checks at <inbox>.r<slot>-<call>-<attempt>.
// An acknowledgement counts for every attempt of the current call, because all carry the same
// event. If it says "duplicate", it counts for the attempts under the current message id. An error
// counts only for the latest attempt. Responses to older calls are ignored. A flight is reused for
// later events.
type flight struct {
	slot int

	// The table's mutex guards these.
	event    *publish.Event // nil if the flight is free
	phase    phase
	call     uint64
	attempt  uint64
	order    uint64 // of arrival
	epoch    uint64 // the table's epoch when the event was last passed to nats.go; 0 if never
	cuts     int    // lost connections that had the event in flight without a response
	timeouts int
	deadline time.Time
	failure  string   // reason of a failed attempt, not yet reported to the event
	answer   *outcome // a response that arrived during the hand-over
	claimed  uint64   // sequence of the record that the stream claims to have
	renewals int      // of the message id
	renewed  uint64   // the first attempt under the current message id

	// The goroutine that loads the flight owns these, and then the sender.
	mark    publish.Mark // the stream's end when the event arrived
	msg     nats.Msg
	buf     []byte
	msgID   [1]string
	content [1]string
	values  []string          // of the attributes, in binary mode
	names   map[string]string // attribute name to header name; there are only a few
}

// phase is the state of an attempt.
type phase byte

const (
	loading  phase = iota // the message is being composed, or there is no event
	queued                // the attempt waits for the sender
	sending               // nats.go reads the message and its event
	sent                  // the attempt waits for a response
	claimed               // the stream says that it has the event, and the check waits for the sender
	checking              // the check waits for the record
)

// replyRecord begins the last token of the reply subject of a check.
const replyRecord = "r"

const (
	headerMsgID   = "Nats-Msg-Id"
	headerContent = "content-type"
)

func newFlight(slot int) *flight {
	f := &flight{slot: slot, names: map[string]string{}}
	f.msg.Header = nats.Header{headerMsgID: f.msgID[:], headerContent: f.content[:]}
	return f
}

// load composes the message for the first attempt.
func (f *flight) load(b *Bus) {
	e := f.event
	// One string holds subject, message id and first reply subject.
	buf := f.buf[:0]
	switch {
	case e.DeadLetter:
		buf = append(buf, b.dead...)
	case e.Delta.Report != nil:
		buf = b.subjects.AppendProgress(buf, string(e.Writer))
	default:
		buf = b.subjects.Append(buf, e.Delta)
	}
	endOfSubject := len(buf)
	buf = appendMsgID(buf, e.Source, e.ID)
	if e.DeadLetter {
		buf = append(buf, deadLetterSuffix...)
	}
	endOfID := len(buf)
	buf = f.appendReply(buf, b.inbox, "")
	f.buf = buf
	s := string(buf)
	f.msg.Subject = s[:endOfSubject]
	f.msgID[0] = s[endOfSubject:endOfID]
	f.msg.Reply = s[endOfID:]
	f.msg.Data = e.Body
	f.content[0] = e.ContentType
	if len(e.Attributes) > 0 || len(f.values) > 0 {
		f.loadAttributes(e.Event)
	}
	f.mark = b.tail.Mark()
}

// loadAttributes sets the headers of binary mode (CloudEvents NATS binding 1.0.3, section 3.1.3).
// They replace those of the previous event; message id and content type stay.
func (f *flight) loadAttributes(ev *encode.Event) {
	for name := range f.msg.Header {
		if strings.HasPrefix(name, publish.AttributePrefix) {
			delete(f.msg.Header, name)
		}
	}
	// One string holds all values.
	f.buf = f.buf[:0]
	for i := range ev.Attributes {
		f.buf = publish.AppendHeaderValue(f.buf, ev.Attributes[i].Value)
		f.buf = append(f.buf, ' ') // no value contains one
	}
	rest := string(f.buf)
	clear(f.values)
	f.values = slices.Grow(f.values[:0], len(ev.Attributes)) // slices of values are taken below, so it must not move
	for i := range ev.Attributes {
		var value string
		value, rest, _ = strings.Cut(rest, " ")
		f.values = append(f.values, value)
		name, ok := f.names[ev.Attributes[i].Name]
		if !ok {
			name = publish.AttributePrefix + ev.Attributes[i].Name
			f.names[ev.Attributes[i].Name] = name
		}
		f.msg.Header[name] = f.values[i : i+1 : i+1]
	}
}

func (f *flight) appendReply(dst []byte, inbox, kind string) []byte {
	dst = append(dst, inbox...)
	dst = append(dst, '.')
	dst = append(dst, kind...)
	dst = strconv.AppendUint(dst, uint64(f.slot), 10)
	dst = append(dst, '-')
	dst = strconv.AppendUint(dst, f.call, 10)
	dst = append(dst, '-')
	return strconv.AppendUint(dst, f.attempt, 10)
}

// parseReply parses the last token of a reply subject.
func parseReply(token string) (slot int, call, attempt uint64, ok bool) {
	var v [3]uint64
	field, digits := 0, 0
	for i := range len(token) {
		switch c := token[i]; {
		case c >= '0' && c <= '9' && digits < 19: // 19 digits fit into 64 bits
			v[field] = v[field]*10 + uint64(c-'0')
			digits++
		case c == '-' && field < 2 && digits > 0:
			field++
			digits = 0
		default:
			return 0, 0, 0, false
		}
	}
	return int(v[0]), v[1], v[2], field == 2 && digits > 0
}

// msgIDLen is the length of a Nats-Msg-Id: 132 bits of a sha256.
const msgIDLen = 22

// appendMsgID appends the first 22 characters of base64url(sha256(source + "\n" + id)). JetStream
// identifies the copies of an event by this id. dst is used as scratch space beyond its length.
func appendMsgID(dst, source, id []byte) []byte {
	n := len(dst)
	dst = append(dst, source...)
	dst = append(dst, '\n')
	dst = append(dst, id...)
	sum := sha256.Sum256(dst[n:])
	// 18 bytes encode to 24 characters; the first 22 are the same as those of the whole sum.
	dst = base64.RawURLEncoding.AppendEncode(dst[:n], sum[:18])
	return dst[:n+msgIDLen]
}
