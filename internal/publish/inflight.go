package publish

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/encode"
)

// waiter is one call of Publish on its way: the message, and whom its acknowledgement belongs to. Acknowledgements come
// to subjects <inbox>.<index>-<call>-<attempt>. A positive one counts for any attempt of the current call, all carry the
// same event under the same id; a negative one only for the current attempt. What belongs to an older call is ignored.
type waiter struct {
	index int

	Mu       sync.Mutex
	waiting  bool            // an outcome is due; whoever clears it sends to done, or takes the wait back
	Sending  bool            // within PublishMsg, which may block in the socket
	ctx      context.Context //nolint:containedctx // of the call, while it waits: the sweeper looks whether it has ended
	call     uint64
	late     uint64 // the call that the last check found sending after the end of its ctx, 0: none
	attempt  uint64
	deadline time.Time

	// done has room for the one outcome that the cleared waiting allows, so that sending to it never blocks. Publish
	// empties it before the next attempt. Never closed.
	done chan outcome

	msg     nats.Msg
	buf     []byte
	msgID   [1]string
	subject string
	content [1]string
	values  []string          // of attributes, in binary mode
	names   map[string]string // of attributes, a fixed few: their headers
}

func newWaiter(index int) *waiter {
	w := &waiter{index: index, done: make(chan outcome, 1), names: map[string]string{}}
	w.msg.Header = nats.Header{headerMsgID: w.msgID[:], headerContent: w.content[:]}
	return w
}

// load makes the waiter ready for the first attempt to publish ev, as a dead letter or as what it is.
func (w *waiter) load(n *NATS, ev *encode.Event, dead bool) {
	w.Mu.Lock()
	w.call++
	w.Mu.Unlock()

	// One string holds subject, message id and first reply subject.
	b := w.buf[:0]
	if dead {
		b = append(b, n.dead...)
	} else {
		b = n.subjects.Append(b, ev.Delta)
	}
	endOfSubject := len(b)
	b = appendMsgID(b, ev.Source, ev.ID)
	if dead {
		b = append(b, deadLetterSuffix...)
	}
	endOfID := len(b)
	b = w.appendReply(b, n.inbox, 1)
	w.buf = b
	s := string(b)
	w.subject = s[:endOfSubject]
	w.msg.Subject = w.subject
	w.msgID[0] = s[endOfSubject:endOfID]
	w.msg.Reply = s[endOfID:]
	w.msg.Data = ev.Body
	w.content[0] = ev.ContentType
	if len(ev.Attributes) > 0 || len(w.values) > 0 {
		w.loadAttributes(ev)
	}
}

// loadAttributes sets the headers of binary mode (CloudEvents NATS binding 1.0.3, section 3.1.3), in place of those of
// the event before. Message id and content type stay.
func (w *waiter) loadAttributes(ev *encode.Event) {
	for name := range w.msg.Header {
		if strings.HasPrefix(name, AttributePrefix) {
			delete(w.msg.Header, name)
		}
	}
	// One string holds all values.
	w.buf = w.buf[:0]
	for i := range ev.Attributes {
		w.buf = AppendHeaderValue(w.buf, ev.Attributes[i].Value)
		w.buf = append(w.buf, ' ') // no value contains one
	}
	rest := string(w.buf)
	clear(w.values)
	w.values = slices.Grow(w.values[:0], len(ev.Attributes)) // the slices of it below must not move
	for i := range ev.Attributes {
		var value string
		value, rest, _ = strings.Cut(rest, " ")
		w.values = append(w.values, value)
		name, ok := w.names[ev.Attributes[i].Name]
		if !ok {
			name = AttributePrefix + ev.Attributes[i].Name
			w.names[ev.Attributes[i].Name] = name
		}
		w.msg.Header[name] = w.values[i : i+1 : i+1]
	}
}

const (
	headerMsgID   = "Nats-Msg-Id"
	headerContent = "content-type"
)

func (w *waiter) appendReply(dst []byte, inbox string, attempt uint64) []byte {
	dst = append(dst, inbox...)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, uint64(w.index), 10)
	dst = append(dst, '-')
	dst = strconv.AppendUint(dst, w.call, 10)
	dst = append(dst, '-')
	return strconv.AppendUint(dst, attempt, 10)
}

// parseReply reads the last token of a reply subject.
func parseReply(token string) (index int, call, attempt uint64, ok bool) {
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

// arm begins an attempt: from now on its outcome may come.
func (w *waiter) arm(ctx context.Context, attempt uint64, timeout time.Duration) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.waiting, w.Sending = true, true
	w.ctx, w.attempt, w.deadline = ctx, attempt, time.Now().Add(timeout)
}

// sent says that the message has left for the socket or its buffer.
func (w *waiter) sent() {
	w.Mu.Lock()
	w.Sending = false
	w.Mu.Unlock()
}

// disarm takes the wait back. If an outcome was faster, it returns that.
func (w *waiter) disarm() (outcome, bool) {
	w.Mu.Lock()
	waiting := w.waiting
	w.waiting = false
	w.Mu.Unlock()
	if waiting {
		return outcome{}, false
	}
	// Whoever cleared waiting has sent, or is between clearing and sending, which does not block.
	return <-w.done, true
}

// onItsWay tells whether an outcome is due.
func (w *waiter) onItsWay() bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.waiting
}

// answer hands over what the server said to an attempt of a call.
func (w *waiter) answer(call, attempt uint64, o outcome) {
	w.Mu.Lock()
	take := w.waiting && call == w.call && (o.kind == acked || attempt == w.attempt)
	if take {
		w.waiting = false
	}
	w.Mu.Unlock()
	if take {
		w.done <- o
	}
}

// fail ends the current attempt, if one waits.
func (w *waiter) fail(o outcome) {
	w.Mu.Lock()
	waiting := w.waiting
	w.waiting = false
	w.Mu.Unlock()
	if waiting {
		w.done <- o
	}
}

// check ends the attempt if its acknowledgement is overdue. It reports whether the call is stuck: its ctx had ended at the
// last check already, and it cannot return, since the socket takes nothing or the connection's lock is held by someone in
// that situation.
func (w *waiter) check(now time.Time) (stuck bool) {
	w.Mu.Lock()
	late := w.Sending && w.ctx.Err() != nil
	stuck = late && w.late == w.call
	w.late = 0
	if late {
		w.late = w.call
	}
	overdue := w.waiting && !w.Sending && now.After(w.deadline)
	if overdue {
		w.waiting = false
	}
	w.Mu.Unlock()
	if overdue {
		w.done <- outcome{reason: ReasonTimeout, detail: "no acknowledgement in time"}
	}
	return stuck
}
