package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// DefaultStream is the agent's default stream.
const DefaultStream = "KUBECDC"

// JetStream is a stream of NATS as a Source.
//
// Besides the errors that Reader names, its readers return an error if the connection was closed. If the stream has not existed for half a
// minute, they return ErrNoStream, and the next call waits again.
type JetStream struct {
	// URL is the server, "nats://host:4222", or several separated by commas. It is ignored if Conn is set.
	URL string
	// Options are those of the connection to URL: credentials, TLS, a private inbox (nats.CustomInboxPrefix).
	Options []nats.Option
	// Conn is a connection to use instead; it stays open.
	Conn *nats.Conn
	// Domain is the JetStream domain of the stream; "": the server's.
	Domain string
	Stream string // "": DefaultStream

	// Subjects are the subjects to read, with wildcards; none: all.
	Subjects []string
	// Choose, if set, returns the Subjects of a query. Read calls it once. The subjects must include those of all events that the query asks
	// for. Choose may clear LastOfEach: then Read requests all records of the subjects.
	Choose func(ctx context.Context, stream jetstream.Stream, q *Query) []string
}

// jetStreamReader reads a stream. After an interruption it asks for the records after the last event.
type jetStreamReader struct {
	q        Query
	stream   string
	subjects []string
	link     *link
	js       jetstream.JetStream

	id   string // Log.ID of the stream
	next uint64 // sequence to continue from; 0: not known yet, begin at Query.Start.at
	// read: records before next were returned, or the query begins at next. Otherwise reading begins with the oldest record.
	read     bool
	end      uint64 // the stream's last sequence at the open
	ended    bool   // all up to end has been returned
	caughtUp bool
	missed   error // to be returned by Next

	// These enclose the records that the server has left out since looked, and that may have been removed. 0: none.
	leftOutFrom, leftOutTo uint64
	looked                 time.Time
	quiet                  time.Time     // time of the last record or request
	lookAfter              time.Duration // time of quiet after which the server is asked: heartbeat, less in tests

	sub      *subscription   // nil: none at present
	ahead    []*subscription // of the segments that follow sub's
	passed   []string        // consumers of the segments before sub's
	failures int             // since the last record, or connection
	told     bool            // OnRetry has been called more often than OnResume
}

const (
	// abandoned is the time after which the server deletes an unused consumer.
	abandoned  = time.Minute
	apiTimeout = 10 * time.Second

	// lookInterval is the interval at which the server is asked whether left out records were removed.
	lookInterval = time.Second

	retryFirst = 100 * time.Millisecond
	retryMax   = 2 * time.Second
	// goneFor is the time for which a stream may be missing before Next returns an error: a server that starts may not have it yet.
	goneFor = 30 * time.Second
)

// Read connects, unless a connection is given, and finds the stream.
func (s *JetStream) Read(ctx context.Context, q Query) (Reader, error) {
	r, err := s.read(ctx, q)
	if err != nil {
		return nil, err // not a Reader that holds nil
	}
	return r, nil
}

func (s *JetStream) read(ctx context.Context, q Query) (*jetStreamReader, error) {
	l, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	r := &jetStreamReader{q: q, stream: s.name(), subjects: s.Subjects, link: l, lookAfter: heartbeat}
	if r.js, err = s.api(l.conn); err == nil {
		err = l.attempt(ctx, apiTimeout, func(ctx context.Context) error { return r.open(ctx, s) })
	}
	if err != nil {
		err = l.explain(ctx, r.js, r.stream, err)
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func (s *JetStream) name() string { return cmp.Or(s.Stream, DefaultStream) }

func (r *jetStreamReader) open(ctx context.Context, s *JetStream) error {
	stream, err := r.js.Stream(ctx, r.stream)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	state := info.State
	r.end, r.id = state.LastSeq, streamID(info)
	if s.Choose != nil {
		r.subjects = s.Choose(ctx, stream, &r.q)
	}
	switch r.q.Start.kind {
	case startLive:
		r.next, r.read = state.LastSeq+1, state.LastSeq > 0
	case startBeginning:
		r.next = max(state.FirstSeq, 1)
	case startAfter:
		r.next = max(state.FirstSeq, 1)
		for _, p := range r.q.Start.after {
			if p.Name == r.stream && p.Next > 1 {
				r.next, r.read, r.id = p.Next, true, cmp.Or(p.ID, r.id)
			}
		}
	case startSince:
	}
	return r.subscribe(ctx)
}

// streamID is the Log.ID of a stream.
func streamID(info *jetstream.StreamInfo) string { return info.Created.UTC().Format(time.RFC3339Nano) }

// Positions implements Reader.
func (r *jetStreamReader) Positions() []Position { return []Position{r.position()} }

func (r *jetStreamReader) position() Position {
	return Position{Log{Name: r.stream, ID: r.id}, max(r.next, 1)}
}

// CaughtUp implements Reader.
func (r *jetStreamReader) CaughtUp() bool { return r.caughtUp }

// Next implements Reader.
func (r *jetStreamReader) Next(ctx context.Context) (*Event, error) {
	for {
		if err := r.missed; err != nil {
			r.missed = nil
			return nil, err
		}
		if r.leftOutFrom > 0 && (r.ended || time.Since(r.looked) >= lookInterval) {
			r.lookForRemoved(ctx)
			continue
		}
		if r.ended {
			return nil, io.EOF
		}
		if r.sub == nil {
			if err := r.resubscribe(ctx); err != nil {
				return nil, err
			}
			continue
		}
		// Questions to the server: is the end reached, because the remaining records were removed? How far has it passed records? Were left out
		// records removed? Without a question, only records can wake the reader.
		var idle <-chan time.Time
		if (r.q.StopAtEnd || len(r.subjects) > 0 || r.leftOutFrom > 0) && len(r.sub.messages) == 0 {
			idle = time.After(time.Until(r.quiet.Add(r.lookAfter)))
		}
		select {
		case m := <-r.sub.messages:
			e, err := r.take(m)
			if e != nil || err != nil {
				return e, err
			}
		case err := <-r.sub.broken:
			r.interrupted(err)
		case s := <-r.link.status:
			switch s {
			case nats.RECONNECTING: // records in flight are lost with the connection, and count as delivered on the server
				r.interrupted(nats.ErrDisconnected)
			case nats.CLOSED:
				r.drop()
			}
		case <-idle:
			r.lookAround(ctx)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take returns the event of a message. Neither event nor error: it has none.
func (r *jetStreamReader) take(m jetstream.Msg) (*Event, error) {
	meta, err := m.Metadata()
	if err != nil || meta.Sequence.Consumer != r.sub.delivered+1 {
		// The client library dropped it because the reader is too slow. Records in flight are requested again.
		r.interrupted(errors.New("records were lost on the way from the server"))
		return nil, nil
	}
	r.sub.delivered++
	r.failures, r.quiet = 0, time.Now()
	seq := meta.Sequence.Stream
	fewer := meta.NumPending+1 < r.sub.pending
	r.sub.pending = meta.NumPending
	if until := r.sub.segment.until; until > 0 && seq >= until {
		r.leaveOut(until, fewer)
		r.nextSegment()
		return nil, nil
	}
	r.leaveOut(seq, fewer)
	if r.q.StopAtEnd {
		beyond := r.q.LastOfEach // the last record of a subject may be later than the end
		if seq > r.end && !beyond {
			r.ended = true
			return nil, nil
		}
		r.ended = seq == r.end && !beyond || meta.NumPending == 0
	}
	r.next, r.read, r.caughtUp = seq+1, true, meta.NumPending == 0
	if r.sub.exhausted() {
		r.drop()
	}
	e, err := FromMessage(m.Headers(), m.Data())
	if err != nil {
		return nil, recordError(r.position(), m.Subject(), err)
	}
	e.Position = r.position()
	return e, nil
}

func recordError(at Position, subject string, err error) error {
	return &RecordError{Position: at, Where: fmt.Sprintf("stream %s, record %d (%s)", at.Name, at.Next-1, subject), Err: err}
}

// lookAround asks the server for its position while no records arrive. If the reader waits for an end and no record is left, it subscribes again:
// the new subscription shows removed records and the end. Otherwise it passes the records that the stream had at the previous look: if no
// record was waiting for delivery at both looks, none of them matches the query. One look is not enough: the end comes from the stream's
// leader, and the rest from a server that may lag.
func (r *jetStreamReader) lookAround(ctx context.Context) {
	r.quiet = time.Now()
	err := r.link.attempt(ctx, apiTimeout, func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, r.stream)
		if err != nil {
			return err
		}
		info, err := r.sub.consumer.Info(ctx)
		if err != nil {
			return err
		}
		s := stream.CachedInfo()
		r.judgeLeftOut(s.State.FirstSeq)
		switch all := info.NumPending == 0 && info.Delivered.Consumer == r.sub.delivered; {
		case !all || streamID(s) != r.id:
			r.sub.end = 0
		case r.q.StopAtEnd:
			r.drop()
		default:
			r.caughtUp = true
			if end := r.sub.end; r.next > 0 && end >= r.next {
				r.next, r.read = end+1, true
				r.sub.blocked.Store(0)
			}
			r.sub.end = s.State.LastSeq
		}
		return nil
	})
	if errors.Is(err, nats.ErrDisconnected) {
		r.interrupted(err)
	}
}

// leaveOut records that the server continues with a record that does not follow the previous one. With Subjects that is normal. Then the records
// in between can have been removed only if fewer records are left than before, less the delivered one. If others have arrived, that may not show,
// but then the server must have waited for the reader: otherwise it has looked at each within moments.
func (r *jetStreamReader) leaveOut(seq uint64, fewer bool) {
	jump := r.read && seq > r.next
	if !jump || len(r.subjects) > 0 && !fewer && r.sub.waited() < lookInterval {
		return
	}
	if r.leftOutTo = seq - 1; r.leftOutFrom == 0 {
		r.leftOutFrom = r.next
	}
}

// lookForRemoved asks whether left out records were removed.
func (r *jetStreamReader) lookForRemoved(ctx context.Context) {
	r.looked = time.Now() // If there is no answer, it asks again later.
	err := r.link.attempt(ctx, answerTimeout(r.failures), func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, r.stream)
		if err == nil {
			r.judgeLeftOut(stream.CachedInfo().State.FirstSeq)
		}
		return err
	})
	if r.ended && err != nil {
		r.leftOutFrom = 0 // the end must not wait for it
	}
	if errors.Is(err, nats.ErrDisconnected) && r.sub != nil {
		r.interrupted(err)
	}
}

// judgeLeftOut turns left out records into a MissedError if they were removed from the beginning of the stream. first is the stream's first record.
func (r *jetStreamReader) judgeLeftOut(first uint64) {
	if r.leftOutFrom > 0 && first > r.leftOutFrom {
		r.missed = &MissedError{Log: r.position().Log, From: r.leftOutFrom, To: min(r.leftOutTo, first-1)}
	}
	r.leftOutFrom, r.looked = 0, time.Now()
}

// Close implements Reader. It also closes a connection that Read has opened. Its error is always nil.
func (r *jetStreamReader) Close() error {
	if names := append(r.passed, r.drop()...); r.link.conn.IsConnected() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, name := range names {
			_ = r.js.DeleteConsumer(ctx, r.stream, name) // if it fails, the server deletes it later
		}
	}
	r.ended = true
	r.link.close()
	return nil
}

func (r *jetStreamReader) interrupted(err error) {
	r.drop()
	r.failures++
	r.told = true
	if r.q.OnRetry != nil {
		r.q.OnRetry(fmt.Errorf("read stream %s at %s: %w", r.stream, r.link.servers, err))
	}
}

// drop ends the subscriptions, if any, and returns their consumers' names.
func (r *jetStreamReader) drop() (consumers []string) {
	if r.sub != nil {
		for _, s := range append([]*subscription{r.sub}, r.ahead...) {
			consumers = append(consumers, s.consumer.CachedInfo().Name)
			s.stop()
		}
		r.sub, r.ahead = nil, nil
	}
	return consumers
}

// resubscribe retries until there is a subscription.
func (r *jetStreamReader) resubscribe(ctx context.Context) error {
	var missingSince time.Time
	for {
		waited, err := r.link.up(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("read stream %s at %s: %w", r.stream, r.link.servers, err)
		case waited:
			r.failures = 0
		case r.failures > 1:
			if err := sleep(ctx, min(retryFirst<<min(r.failures-2, 10), retryMax)); err != nil {
				return err
			}
		}
		err = r.link.attempt(ctx, answerTimeout(r.failures), r.subscribe)
		switch {
		case err == nil:
			r.resumed()
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			missingSince = time.Time{}
		case missingSince.IsZero():
			missingSince = time.Now()
		case time.Since(missingSince) > goneFor:
			return r.link.explain(ctx, r.js, r.stream, err)
		}
		r.interrupted(err)
	}
}

func (r *jetStreamReader) resumed() {
	if r.told && r.q.OnResume != nil {
		r.q.OnResume()
	}
	r.told = false
}

// answerTimeout is the time limit of a request. The first ones are short, because a server that starts leaves requests unanswered.
func answerTimeout(failures int) time.Duration {
	return min(time.Second<<min(failures, 10), apiTimeout)
}

// subscribe creates a consumer that continues where reading has stopped. Consumers without acknowledgements deliver in order and number their
// messages, so a missing number shows a loss.
func (r *jetStreamReader) subscribe(ctx context.Context) error {
	stream, err := r.js.Stream(ctx, r.stream)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	state := info.State
	switch first := max(state.FirstSeq, 1); {
	case r.next == 0:
	case state.LastSeq+1 < r.next || streamID(info) != r.id:
		r.missed = &MissedError{Log: r.position().Log, From: r.next, To: state.LastSeq, Recreated: true}
		r.leftOutFrom = 0
		r.next, r.read, r.end, r.id = first, false, state.LastSeq, streamID(info)
	case first > r.next:
		r.missed = &MissedError{Log: r.position().Log, From: r.next, To: first - 1}
		r.next = first
	}
	if r.q.StopAtEnd && r.next > r.end {
		r.ended, r.caughtUp = true, true
		return nil
	}
	c := jetstream.ConsumerConfig{
		Name:              "kubecdc-" + nuid.Next(),
		AckPolicy:         jetstream.AckNonePolicy,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       r.next,
		InactiveThreshold: abandoned,
		MemoryStorage:     true,
		Replicas:          1,
	}
	switch {
	case r.lastOfEach():
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverLastPerSubjectPolicy, 0
	case r.next == 0:
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &r.q.Start.at
	}
	if len(r.subjects) == 1 {
		c.FilterSubject = r.subjects[0] // also known to servers before 2.10
	} else {
		c.FilterSubjects = r.subjects
	}
	consumer, err := stream.CreateConsumer(ctx, c)
	if err != nil {
		return err
	}
	if r.q.StopAtEnd && consumer.CachedInfo().NumPending == 0 {
		r.ended, r.caughtUp = true, true
		_ = stream.DeleteConsumer(ctx, c.Name) // if it fails, the server deletes it later
		return nil
	}
	if r.next == 0 {
		r.next = consumer.CachedInfo().Delivered.Stream + 1
	}
	r.caughtUp = consumer.CachedInfo().NumPending == 0
	r.quiet = time.Now()
	return r.divide(ctx, stream, consumer, c)
}

// lastOfEach reports whether the next consumer delivers only the last record of each subject. Such a consumer cannot continue.
func (r *jetStreamReader) lastOfEach() bool { return r.q.LastOfEach && len(r.subjects) > 0 && !r.read }
