package nats

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// An acknowledgement that says "duplicate" is a claim: it names the sequence of a record that has
// the event's message id, and nothing was stored. The claim is wrong if the server has lost that
// record, or if another client has sent a record with this id, which is predictable. So the bus
// reads the record from the stream's leader before the event ends:
//
//	sent ──"duplicate"──▶ claimed ──▶ checking ──it is this event──▶ ended
//	  ▲                                  │
//	  └──── under another message id ◀───┘ it is another one, or there is none
//
// The sender writes the requests, at most maxChecks at a time, so that thousands of duplicates
// after a restart do not wait for each other. If a request has no answer, or its connection
// breaks, the event is sent again: the answer to that is the next claim.

const (
	// maxChecks is the maximum number of records that are read at a time.
	maxChecks = 32
	// maxCheckBytes bounds the bodies of the events whose records are read at a time: each answer
	// has about the size of its event. A larger event is checked alone.
	maxCheckBytes = 4 << 20
)

// codeNoRecord is the error of JetStream for a sequence without a record.
const codeNoRecord = 10037

// claims are the flights whose acknowledgement says that the stream has the event already. The
// table's mutex guards them.
type claims struct {
	waiting []waitingClaim
	checks  int // requests under way
	bytes   int // of their events
}

// waitingClaim is a flight whose check has not begun. It is stale if the flight has left its phase
// since; another event may then be loaded into it.
type waitingClaim struct {
	entry
	size int // of the event
}

// claim makes a flight wait for its check. It must be called with mu held.
func (t *table) claim(f *flight, o *outcome) {
	f.phase, f.answer = claimed, nil
	f.claimed = o.sequence
	f.attempt++
	t.claims.waiting = append(t.claims.waiting, waitingClaim{entry{f, f.call}, len(f.msg.Data)})
	t.wake.Raise()
}

// hasRoom reports whether the next check may begin.
func (c *claims) hasRoom() bool {
	if len(c.waiting) == 0 || c.checks >= maxChecks {
		return false
	}
	return c.checks == 0 || c.bytes+c.waiting[0].size <= maxCheckBytes
}

// recordCheck is a request for the record of a claim.
type recordCheck struct {
	flight        *flight
	call, attempt uint64
	reply         string
	sequence      uint64
}

// nextCheck returns the next check to send. It reports false if there is none, or no room.
func (t *table) nextCheck(inbox string, timeout func(timeouts int) time.Duration) (c recordCheck, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.claims.hasRoom() {
		e := t.claims.waiting[0].entry
		t.claims.waiting = t.claims.waiting[1:]
		if e.flight.call != e.call || e.phase != claimed {
			continue
		}
		e.phase, e.deadline = checking, time.Now().Add(timeout(e.timeouts))
		t.claims.checks++
		t.claims.bytes += len(e.msg.Data)
		return recordCheck{e.flight, e.call, e.attempt, string(e.appendReply(nil, inbox, replyRecord)), e.claimed}, true
	}
	return recordCheck{}, false
}

// endCheck ends the check of a flight that leaves its phase. It must be called with mu held.
func (t *table) endCheck(f *flight) {
	if f.phase != checking {
		return
	}
	t.claims.checks--
	t.claims.bytes -= len(f.msg.Data)
	if t.claims.hasRoom() {
		t.wake.Raise()
	}
}

// failCheck queues an event again whose check was not sent.
func (t *table) failCheck(c *recordCheck) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := c.flight
	if f.call != c.call || f.attempt != c.attempt || f.phase != checking {
		return
	}
	f.failure = publish.ReasonConnection
	f.attempt++
	t.enqueue(f)
}

// falseClaim describes an event whose record is not what the acknowledgement claims.
type falseClaim struct {
	id, subject string
	sequence    uint64
}

// noteCheck notes the result of a check. is reports whether the record is the event of the flight;
// nil: the stream has no such record. It returns a false claim, after which the event is sent
// again, or the end of the event.
func (t *table) noteCheck(slot int, call, attempt uint64, is func(*flight) bool) (end *ending, wrong *falseClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.underCheck(slot, call, attempt)
	switch {
	case f == nil:
		return nil, nil
	case is != nil && is(f):
		e := t.end(f, outcome{kind: acked, duplicate: true, sequence: f.claimed})
		return &e, nil
	}
	wrong = &falseClaim{string(f.event.ID), f.msg.Subject, f.claimed}
	f.renew(&t.secret)
	f.failure = publish.ReasonFalseDuplicate
	t.enqueue(f)
	return nil, wrong
}

// endFailedCheck ends an event whose check is not sent, or has no result.
func (t *table) endFailedCheck(slot int, call, attempt uint64, o outcome) (ending, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.underCheck(slot, call, attempt)
	if f == nil {
		return ending{}, false
	}
	return t.end(f, o), true
}

// underCheck returns the flight that waits for the answer to a check; nil if none does.
func (t *table) underCheck(slot int, call, attempt uint64) *flight {
	if slot < 0 || slot >= len(t.flights) {
		return nil
	}
	f := t.flights[slot]
	if f.event == nil || f.call != call || f.attempt != attempt || f.phase != checking {
		return nil
	}
	return f
}

// renew replaces the message id. The new one is random to everyone else, and the same for each
// retry of the event in this process. A stream that says "duplicate" of that, too, gets yet
// another one.
func (f *flight) renew(secret *[32]byte) {
	f.renewals++
	f.attempt++
	f.renewed = f.attempt
	sum := sha256.New()
	sum.Write(secret[:])
	sum.Write(strconv.AppendInt(nil, int64(f.renewals), 10))
	sum.Write([]byte("\n" + f.msgID[0]))
	f.msgID[0] = base64.RawURLEncoding.EncodeToString(sum.Sum(nil))[:msgIDLen]
}

func newSecret() (s [32]byte) {
	_, _ = rand.Read(s[:]) // it never fails
	return s
}

// isInRecord reports whether a record has the event of the flight. event was read from the record;
// nil: the record is not an event. A stream with a subject_transform stores records under other
// subjects. The id alone is not enough. Two clusters of one name may have stream events with the
// same id, and a gap in one cluster is not a gap in the other.
func (f *flight) isInRecord(record *nats.Msg, event *consume.Event, transformed bool) bool {
	e := f.event
	switch {
	case record.Subject != f.msg.Subject && !transformed:
		return false
	case event != nil:
		same := event.Source == string(e.Source) && event.ClusterUID == string(e.ClusterUID) && event.ID == string(e.ID)
		return same && sameChange(string(event.Type), string(e.Type))
	}
	return len(e.Attributes) == 0 && bytes.Equal(record.Data, f.msg.Data)
}

// sameChange reports whether events of these types and one id are the same change. One version of
// an object may be created, updated or entered, depending on what an agent saw before. An agent
// that was killed, or that takes over, may send another one under the same id.
func sameChange(a, b string) bool {
	return a == b || isVersion(a) && isVersion(b)
}

func isVersion(eventType string) bool {
	word, isObject := strings.CutPrefix(eventType, object.ObjectTypePrefix)
	return isObject && (word == object.Created.Word() || word == object.Updated.Word() || word == object.Entered.Word())
}

// sendCheck asks the stream's leader for the record of a claim. fenced ends the event instead.
func (b *Bus) sendCheck(c *recordCheck, fenced error) {
	if fenced != nil {
		if end, ok := b.table.endFailedCheck(c.flight.slot, c.call, c.attempt, outcome{kind: failed, err: fenced}); ok {
			b.reportEnd(end)
		}
		return
	}
	if b.conn.Load().PublishMsg(b.recordRequest(c.sequence, c.reply)) != nil {
		b.table.failCheck(c) // the event is sent again when there is a connection
	}
}

// recordRequest returns the request for a record. Package jetstream would ask any replica.
func (b *Bus) recordRequest(sequence uint64, reply string) *nats.Msg {
	return &nats.Msg{
		Subject: b.apiSubject("STREAM.MSG.GET."),
		Reply:   reply,
		Data:    append(strconv.AppendUint([]byte(`{"seq":`), sequence, 10), '}'),
	}
}

// onRecord processes the answer to a check, in the goroutine of onAnswer.
func (b *Bus) onRecord(m *nats.Msg, slot int, call, attempt uint64) {
	is, err := b.readRecord(m)
	if err != nil {
		if end, ok := b.table.endFailedCheck(slot, call, attempt, cannotCheck(err)); ok {
			b.reportEnd(end)
		}
		return
	}
	end, wrong := b.table.noteCheck(slot, call, attempt, is)
	switch {
	case end != nil:
		b.reportEnd(*end)
	case wrong != nil:
		b.noteFalseClaim(wrong)
	}
}

// readRecord returns a function that reports whether the record in the answer to a check is the
// event of a flight; nil if the stream has no such record.
func (b *Bus) readRecord(m *nats.Msg) (is func(*flight) bool, err error) {
	if m == nil || len(m.Data) == 0 {
		return nil, errors.New(noResponders().detail)
	}
	record, err := parseRecord(m.Data)
	switch {
	case errors.Is(err, errNoRecord):
		return nil, nil
	case err != nil:
		return nil, err
	}
	event, err := consume.FromMessage(record.Header, record.Data)
	if err != nil {
		event = nil
	}
	transformed := b.transformed.Load()
	return func(f *flight) bool { return f.isInRecord(record, event, transformed) }, nil
}

var errNoRecord = errors.New("the stream has no such record")

// parseRecord parses the answer to a request for a record (server.JSApiMsgGetResponse). Package
// json would take most of the time of a check.
func parseRecord(answer []byte) (*nats.Msg, error) {
	record, refused := &nats.Msg{}, []byte(nil)
	m := jsonscan.NewMembers(answer)
	if !m.Enter('{') {
		return nil, errors.New("the answer is not an object")
	}
	for name, ok := m.Next(); ok; name, ok = m.Next() {
		switch {
		case string(name) == "error":
			refused = m.Value()
		case string(name) == "message" && m.Enter('{'):
			readMessage(m, record)
		default:
			m.Value()
		}
	}
	err := m.End()
	switch {
	case err != nil:
		return nil, err
	case refused != nil:
		return nil, readRefusal(refused)
	case record.Subject == "":
		return nil, errors.New("an answer without a record")
	}
	return record, nil
}

// readMessage reads the members of a stored message. A header that cannot be read is not the
// agent's.
func readMessage(m *jsonscan.Members, record *nats.Msg) {
	for name, ok := m.Next(); ok; name, ok = m.Next() {
		field := string(name)
		text, _ := jsonscan.Text(m.Value())
		switch field {
		case "subject":
			record.Subject = text
		case "hdrs":
			header, _ := base64.StdEncoding.DecodeString(text)
			record.Header, _ = nats.DecodeHeadersMsg(header)
		case "data":
			record.Data, _ = base64.StdEncoding.DecodeString(text)
		}
	}
}

// readRefusal returns the error of JetStream.
func readRefusal(refused []byte) error {
	var e struct {
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	}
	if err := json.Unmarshal(refused, &e); err != nil {
		return err
	}
	if e.ErrCode == codeNoRecord {
		return errNoRecord
	}
	return errors.New(e.Description)
}

// cannotCheck returns the outcome of an event whose claim the stream's leader cannot confirm now.
func cannotCheck(err error) outcome {
	return outcome{
		reason: publish.ReasonUnavailable,
		detail: "the stream says that it has the event, and cannot show it: " + err.Error(),
	}
}

// requestAlone sends an isolated event on its connection, and checks the answer. An event whose
// claim does not hold is sent again.
func (b *Bus) requestAlone(ctx context.Context, nc *nats.Conn, f *flight) (outcome, error) {
	for {
		answer, err := nc.RequestMsgWithContext(ctx, &f.msg)
		if err != nil {
			return outcome{}, err
		}
		o := b.acks.read(answer)
		if !o.duplicate {
			return o, nil
		}
		answer, err = nc.RequestMsgWithContext(ctx, b.recordRequest(o.sequence, ""))
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			return outcome{}, err
		}
		is, err := b.readRecord(answer)
		switch {
		case err != nil:
			return cannotCheck(err), nil
		case is != nil && is(f):
			return o, nil
		}
		b.table.renew(f)
		b.noteFalseClaim(&falseClaim{string(f.event.ID), f.msg.Subject, o.sequence})
	}
}

// renew replaces the message id of a flight that the caller owns.
func (t *table) renew(f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.renew(&t.secret)
}

// noteFalseClaim counts and logs an acknowledgement of a record that is not the event's.
func (b *Bus) noteFalseClaim(c *falseClaim) {
	b.metrics.Retries.WithLabelValues(publish.ReasonFalseDuplicate).Inc()
	suppressed, ok := b.window.First(publish.ReasonFalseDuplicate)
	if !ok {
		return
	}
	b.log.Error(
		"the stream calls an event a duplicate of a record that is not there, or is another one: it is sent under another message id",
		"stream", b.cfg.Stream.Name, "event_id", c.id, "subject", c.subject, "claimed_sequence", c.sequence,
		"suppressed", suppressed,
		"advice",
		"find out who else may write to the stream; compare the server's version with docs/reference/compatibility.md")
}
