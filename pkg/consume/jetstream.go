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

// DefaultStream is the stream that the agent publishes to unless it is told otherwise.
const DefaultStream = "KUBECDC"

// JetStream is a stream of NATS as a Source.
//
// An error of its readers, other than those that Reader names, says that the connection has been closed, or that the stream has
// not existed for half a minute (ErrNoStream), for which the next call waits again.
type JetStream struct {
	// URL is where NATS is, "nats://host:4222", or several with commas between. With Conn it is not used.
	URL string
	// Options go with URL: credentials, TLS, a private inbox (nats.CustomInboxPrefix).
	Options []nats.Option
	// Conn is a connection to use instead; it stays open.
	Conn *nats.Conn
	// Domain is the JetStream domain that has the stream; "": that of the server.
	Domain string
	Stream string // "": DefaultStream

	// Subjects are those that the server sends, wildcards allowed; none: all.
	Subjects []string
	// Choose, if set, is called once by Read and returns the Subjects of a query. They must include those of all events that it
	// asks for.
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
	// read: records below next were handed out, or it was asked not to begin before next. Else reading begins with the oldest record.
	read     bool
	end      uint64 // the stream's last sequence at the open
	ended    bool   // all up to end has been returned
	caughtUp bool
	missed   error // to be returned by Next

	// Between these are the records that the server has left out since looked, and that may be gone. 0: none.
	leftOutFrom, leftOutTo uint64
	looked                 time.Time
	quiet                  time.Time     // since when nothing has come, nor the server been asked
	lookAfter              time.Duration // of quiet, the server is asked: heartbeat, less in tests

	sub      *subscription // nil: there is none at present
	failures int           // since a record has come, or the connection
	told     bool          // OnRetry has been called more often than OnResume
}

const (
	// abandoned is after how long the server forgets a consumer that nobody asks.
	abandoned  = time.Minute
	apiTimeout = 10 * time.Second

	// lookInterval is how often the server is asked whether what it has left out is gone.
	lookInterval = time.Second

	retryFirst = 100 * time.Millisecond
	retryMax   = 2 * time.Second
	// goneFor is for how long a stream may be missing before Next says so: a server that starts up may not have it yet.
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
		// Only if there is something to ask the server: whether the end has come, since all that was left may have been removed
		// meanwhile; what has been passed; what has been left out.
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
			case nats.RECONNECTING: // what was on its way is lost with the connection, and counts as delivered for the server
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

// take makes an event of a message. Neither event nor error: there is none.
func (r *jetStreamReader) take(m jetstream.Msg) (*Event, error) {
	meta, err := m.Metadata()
	if err != nil || meta.Sequence.Consumer != r.sub.delivered+1 {
		// Dropped on the way here by a client that is too slow. What is on its way is asked for again.
		r.interrupted(errors.New("records were lost on the way from the server"))
		return nil, nil
	}
	r.sub.delivered++
	r.failures, r.quiet = 0, time.Now()
	seq := meta.Sequence.Stream
	r.leaveOut(seq)
	if r.q.StopAtEnd {
		if seq > r.end {
			r.ended = true
			return nil, nil
		}
		r.ended = seq == r.end || meta.NumPending == 0
	}
	r.next, r.read, r.caughtUp = seq+1, true, meta.NumPending == 0
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

// lookAround finds out, while nothing comes, how far the server has come. Where an end is waited for and nothing more will come, it begins
// anew: that shows what has been removed, and the end. Else it passes the records that the stream had at the look before: if none waits to be
// delivered at both looks, none of them is asked for. One look does not show that, because the end comes from the stream's leader and the rest
// from a server that may be behind it.
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

// leaveOut notes that the server goes on with a record that does not follow the one before it. With Subjects that is the rule. Then what lies
// between can be gone only if the server has waited for the reader: else it has looked at each record within moments.
func (r *jetStreamReader) leaveOut(seq uint64) {
	jump := r.read && seq > r.next
	if !jump || len(r.subjects) > 0 && r.sub.waited() < lookInterval {
		return
	}
	if r.leftOutTo = seq - 1; r.leftOutFrom == 0 {
		r.leftOutFrom = r.next
	}
}

// lookForRemoved asks whether records that were left out are gone.
func (r *jetStreamReader) lookForRemoved(ctx context.Context) {
	r.looked = time.Now() // If nobody answers, it is asked again later.
	err := r.link.attempt(ctx, patience(r.failures), func(ctx context.Context) error {
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

// judgeLeftOut makes what was left out a MissedError if it was removed from the beginning of the stream. first is the stream's first record.
func (r *jetStreamReader) judgeLeftOut(first uint64) {
	if r.leftOutFrom > 0 && first > r.leftOutFrom {
		r.missed = &MissedError{Log: r.position().Log, From: r.leftOutFrom, To: min(r.leftOutTo, first-1)}
	}
	r.leftOutFrom, r.looked = 0, time.Now()
}

// Close implements Reader. It also closes the connection if Read has made it. Its error is always nil.
func (r *jetStreamReader) Close() error {
	if name := r.drop(); name != "" && r.link.conn.IsConnected() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.js.DeleteConsumer(ctx, r.stream, name) // else the server forgets it by itself
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

// drop ends the subscription, if there is one, and returns its consumer's name.
func (r *jetStreamReader) drop() (consumer string) {
	if r.sub != nil {
		consumer = r.sub.consumer.CachedInfo().Name
		r.sub.stop()
		r.sub = nil
	}
	return consumer
}

// resubscribe tries until there is a subscription.
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
		err = r.link.attempt(ctx, patience(r.failures), r.subscribe)
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

// patience is for how long to wait for an answer: at first not long, since servers that start up leave questions unanswered.
func patience(failures int) time.Duration {
	return min(time.Second<<min(failures, 10), apiTimeout)
}

// subscribe makes a consumer that goes on where reading has stopped. Consumers that go without acknowledgements deliver in
// order, and count: a number that is left out tells of a loss.
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
	if r.next == 0 {
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
		_ = stream.DeleteConsumer(ctx, c.Name) // else the server forgets it by itself
		return nil
	}
	if r.next == 0 {
		r.next = consumer.CachedInfo().Delivered.Stream + 1
	}
	r.caughtUp = consumer.CachedInfo().NumPending == 0
	r.quiet = time.Now()
	r.sub, err = newSubscription(consumer, r.link.conn)
	return err
}
