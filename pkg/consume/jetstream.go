package consume

import (
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

// Start says where in a stream reading begins. The zero value is Live.
type Start struct {
	kind startKind
	at   time.Time
	seq  uint64
}

type startKind int

const (
	startLive startKind = iota
	startBeginning
	startSince
	startAfter
)

// Live begins with the first record that is published after the open.
func Live() Start { return Start{} }

// Beginning begins with the oldest record that the stream holds.
func Beginning() Start { return Start{kind: startBeginning} }

// Since begins with the first record that was stored at t or later.
func Since(t time.Time) Start { return Start{kind: startSince, at: t} }

// After begins behind the record of that sequence in the stream, see JetStream.Position. After(0) is Beginning.
func After(position uint64) Start {
	if position == 0 {
		return Beginning()
	}
	return Start{kind: startAfter, seq: position}
}

// JetStreamOptions say what to read.
type JetStreamOptions struct {
	// URL is where NATS is, "nats://host:4222", or several with commas between. With Conn it is not used.
	URL string
	// Options go with URL: credentials, TLS, a private inbox (nats.CustomInboxPrefix).
	Options []nats.Option
	// Conn is a connection to use instead; it stays open.
	Conn *nats.Conn
	// Domain is the JetStream domain that has the stream; "": that of the server.
	Domain string

	Stream   string   // "": DefaultStream
	Subjects []string // only these, wildcards allowed; none: all
	// ChooseSubjects, if set, is called once, at the open, and returns Subjects.
	ChooseSubjects func(ctx context.Context, stream jetstream.Stream) []string
	Start          Start
	// StopAtEnd makes Next return io.EOF once all that was in the stream at the open has been read.
	StopAtEnd bool
	// OnRetry is told why reading has been interrupted, and again why the next attempt to go on has failed; OnResume, when it
	// goes on. Called by Next. nil: nobody is.
	OnRetry  func(error)
	OnResume func()
}

// JetStream reads the events of a stream in its order, each once, across lost connections and restarts of the server:
// what is behind the last event is asked for anew. It belongs to one goroutine.
type JetStream struct {
	o    JetStreamOptions
	link *link
	js   jetstream.JetStream

	created time.Time // of the stream

	next   uint64 // sequence to go on from; 0: not known yet, begin at o.Start.at
	last   uint64 // what Position says
	end    uint64 // the stream's last sequence at the open
	ended  bool   // all up to end has been returned
	missed error  // to be returned by Next

	// Between these are the records that the server has left out since looked, and that may be gone. 0: none.
	leftOutFrom, leftOutTo uint64
	looked                 time.Time
	quiet                  time.Time     // since when nothing has come, nor the server been asked
	lookAfter              time.Duration // of quiet, the server is asked: heartbeat, less in tests

	sub      *subscription // nil: there is none at present
	failures int           // since a record has come, or the connection
	told     bool          // OnRetry has been told more than OnResume
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

// OpenJetStream connects, unless a connection is given, and finds the stream. Close ends it.
func OpenJetStream(ctx context.Context, o JetStreamOptions) (*JetStream, error) {
	if o.Stream == "" {
		o.Stream = DefaultStream
	}
	l, err := connect(ctx, &o)
	if err != nil {
		return nil, err
	}
	r := &JetStream{o: o, link: l, lookAfter: heartbeat}
	if r.js, err = o.api(l.conn); err == nil {
		err = l.attempt(ctx, apiTimeout, r.open)
	}
	if err != nil {
		err = l.explain(ctx, r.js, o.Stream, err)
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func (r *JetStream) open(ctx context.Context) error {
	stream, err := r.js.Stream(ctx, r.o.Stream)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	state := info.State
	r.end, r.created = state.LastSeq, info.Created
	if r.o.ChooseSubjects != nil {
		r.o.Subjects = r.o.ChooseSubjects(ctx, stream)
	}
	switch r.o.Start.kind {
	case startLive:
		r.next, r.last = state.LastSeq+1, state.LastSeq
	case startBeginning:
		r.next = max(state.FirstSeq, 1)
	case startAfter:
		r.next, r.last = r.o.Start.seq+1, r.o.Start.seq
	case startSince:
	}
	return r.subscribe(ctx)
}

// Stream is the name of the stream.
func (r *JetStream) Stream() string { return r.o.Stream }

// Position is the sequence in the stream behind which reading goes on, to be given to After later: that of the event which
// Next has returned last. With Subjects it may be higher: while Next waits, it passes records that are not asked for.
func (r *JetStream) Position() uint64 { return r.last }

// Next waits for the next event. Its error is io.EOF where the stream has been read to its end and StopAtEnd is set, the
// cause of ctx where that has ended, a *RecordError where a record cannot be read, a *MissedError where records are gone: the
// next call goes on behind them. Other errors are for good, or nearly: the connection has been closed, or the stream has not
// existed for half a minute (ErrNoStream), for which the next call waits again.
func (r *JetStream) Next(ctx context.Context) (*Event, error) {
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
		if (r.o.StopAtEnd || len(r.o.Subjects) > 0 || r.leftOutFrom > 0) && len(r.sub.messages) == 0 {
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
func (r *JetStream) take(m jetstream.Msg) (*Event, error) {
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
	if r.o.StopAtEnd {
		if seq > r.end {
			r.ended = true
			return nil, nil
		}
		r.ended = seq == r.end || meta.NumPending == 0
	}
	r.next, r.last = seq+1, seq
	e, err := FromMessage(m.Headers(), m.Data())
	if err != nil {
		return nil, recordError(r.o.Stream, seq, m.Subject(), err)
	}
	return e, nil
}

func recordError(stream string, seq uint64, subject string, err error) error {
	return &RecordError{Where: fmt.Sprintf("stream %s, record %d (%s)", stream, seq, subject), Err: err}
}

// lookAround finds out, while nothing comes, how far the server has come. Where an end is waited for and nothing more will come, it begins
// anew: that shows what has been removed, and the end. Else it passes the records that the stream had at the look before: if none waits to be
// delivered at both looks, none of them is asked for. One look does not show that, because the end comes from the stream's leader and the rest
// from a server that may be behind it.
func (r *JetStream) lookAround(ctx context.Context) {
	r.quiet = time.Now()
	err := r.link.attempt(ctx, apiTimeout, func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, r.o.Stream)
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
		case !all || !s.Created.Equal(r.created):
			r.sub.end = 0
		case r.o.StopAtEnd:
			r.drop()
		default:
			if end := r.sub.end; r.next > 0 && end >= r.next {
				r.next, r.last = end+1, end
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
func (r *JetStream) leaveOut(seq uint64) {
	jump := r.last > 0 && r.next > 0 && seq > r.next
	if !jump || len(r.o.Subjects) > 0 && r.sub.waited() < lookInterval {
		return
	}
	if r.leftOutTo = seq - 1; r.leftOutFrom == 0 {
		r.leftOutFrom = r.next
	}
}

// lookForRemoved asks whether records that were left out are gone.
func (r *JetStream) lookForRemoved(ctx context.Context) {
	r.looked = time.Now() // If nobody answers, it is asked again later.
	err := r.link.attempt(ctx, patience(r.failures), func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, r.o.Stream)
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
func (r *JetStream) judgeLeftOut(first uint64) {
	if r.leftOutFrom > 0 && first > r.leftOutFrom {
		r.missed = &MissedError{Stream: r.o.Stream, From: r.leftOutFrom, To: min(r.leftOutTo, first-1)}
	}
	r.leftOutFrom, r.looked = 0, time.Now()
}

// Close ends reading, and the connection if OpenJetStream has made it. It implements io.Closer; its error is always nil.
func (r *JetStream) Close() error {
	if name := r.drop(); name != "" && r.link.conn.IsConnected() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.js.DeleteConsumer(ctx, r.o.Stream, name) // else the server forgets it by itself
	}
	r.ended = true
	r.link.close()
	return nil
}

func (r *JetStream) interrupted(err error) {
	r.drop()
	r.failures++
	r.told = true
	if r.o.OnRetry != nil {
		r.o.OnRetry(fmt.Errorf("read stream %s at %s: %w", r.o.Stream, r.link.servers, err))
	}
}

// drop ends the subscription, if there is one, and returns its consumer's name.
func (r *JetStream) drop() (consumer string) {
	if r.sub != nil {
		consumer = r.sub.consumer.CachedInfo().Name
		r.sub.stop()
		r.sub = nil
	}
	return consumer
}

// resubscribe tries until there is a subscription.
func (r *JetStream) resubscribe(ctx context.Context) error {
	var missingSince time.Time
	for {
		waited, err := r.link.up(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("read stream %s at %s: %w", r.o.Stream, r.link.servers, err)
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
			return r.link.explain(ctx, r.js, r.o.Stream, err)
		}
		r.interrupted(err)
	}
}

func (r *JetStream) resumed() {
	if r.told && r.o.OnResume != nil {
		r.o.OnResume()
	}
	r.told = false
}

// patience is for how long to wait for an answer: at first not long, since servers that start up leave questions unanswered.
func patience(failures int) time.Duration {
	return min(time.Second<<min(failures, 10), apiTimeout)
}

// subscribe makes a consumer that goes on where reading has stopped. Consumers that go without acknowledgements deliver in
// order, and count: a number that is left out tells of a loss.
func (r *JetStream) subscribe(ctx context.Context) error {
	stream, err := r.js.Stream(ctx, r.o.Stream)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	state := info.State
	switch first := max(state.FirstSeq, 1); {
	case r.next == 0:
	case state.LastSeq+1 < r.next || !info.Created.Equal(r.created):
		r.missed = &MissedError{Stream: r.o.Stream, From: r.next, To: state.LastSeq, Recreated: true}
		r.leftOutFrom = 0
		r.next, r.end, r.created = first, state.LastSeq, info.Created
		r.last = first - 1
	case first > r.next:
		r.missed = &MissedError{Stream: r.o.Stream, From: r.next, To: first - 1}
		r.next = first
	}
	if r.o.StopAtEnd && r.next > r.end {
		r.ended = true
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
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &r.o.Start.at
	}
	if len(r.o.Subjects) == 1 {
		c.FilterSubject = r.o.Subjects[0] // also known to servers before 2.10
	} else {
		c.FilterSubjects = r.o.Subjects
	}
	consumer, err := stream.CreateConsumer(ctx, c)
	if err != nil {
		return err
	}
	if r.o.StopAtEnd && consumer.CachedInfo().NumPending == 0 {
		r.ended = true
		_ = stream.DeleteConsumer(ctx, c.Name) // else the server forgets it by itself
		return nil
	}
	r.quiet = time.Now()
	r.sub, err = newSubscription(consumer, r.link.conn)
	return err
}
