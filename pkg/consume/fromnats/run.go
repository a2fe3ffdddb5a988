package fromnats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// RunOptions are the stream that a service reads, and the name of its consumer, which stores its
// position.
type RunOptions struct {
	JetStream               // Choose is not used
	Start     consume.Start // where to begin if the consumer does not exist yet

	// OnRetry is called when reading is interrupted or handler returns an error, and again when an
	// attempt to continue fails; OnResume when reading continues. Either may be nil.
	OnRetry  func(error)
	OnResume func()

	// Durable is the name of the consumer on the server. Run creates a missing one. It remains when
	// Run ends.
	Durable string
	// AckWait is the time after which the server delivers a record again that was neither
	// acknowledged nor reported as in progress. Run reports a record as in progress while handler
	// runs. 0: 30 s.
	AckWait time.Duration
	// OnInvalid is called with a *RecordError for a record that is not an event of kubecdc. If it
	// returns nil, Run skips the record. nil: such a record ends Run.
	OnInvalid func(error) error
}

const (
	defaultAckWait  = 30 * time.Second
	handlerRetryMax = 30 * time.Second
	// inFlight is the number of records that the server delivers ahead, if it can take them back.
	inFlight = 256
)

// Run calls handler with the events of a stream, one after another, and acknowledges each event
// after handler has returned nil. It blocks until ctx ends, and then returns its cause. It also
// returns after an error that no retry repairs, for example if the consumer was deleted.
//
// Every event is handled at least once. The order is that of the stream, as long as one Run at a
// time uses the Durable. If handler returns an error, Run calls OnRetry, and calls handler with the
// same event again, at growing intervals. After a crash or a lost connection, Run first asks the
// server to deliver unacknowledged records again. That needs nats-server 2.14 or later. With an
// older one, Run requests one record at a time, which costs a round trip per event. If two share a
// Durable, the order does not hold: use a Tracker, which keeps the highest sequence.
//
// Run does not report records that the stream removes before they were handled: configure the
// stream to keep them for longer than the service may be away.
func Run(ctx context.Context, o RunOptions, handler func(ctx context.Context, e *consume.Event) error) error {
	if o.Durable == "" {
		return errors.New("run consumer: RunOptions.Durable has no name")
	}
	o.Stream = o.name()
	if o.AckWait == 0 {
		o.AckWait = defaultAckWait
	}
	l, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	js, err := o.api(l.conn)
	if err != nil {
		return fmt.Errorf("run consumer %s: %w", o.Durable, err)
	}
	s := &service{
		o:       o,
		link:    l,
		js:      js,
		handler: handler,
	}
	if err := l.attempt(ctx, attachTimeout, s.setUp); err != nil {
		return l.explain(ctx, js, o.Stream, err)
	}
	return s.run(ctx)
}

// service is a Run.
type service struct {
	o           RunOptions
	link        *link
	js          jetstream.JetStream
	handler     func(context.Context, *consume.Event) error
	consumer    jetstream.Consumer
	id          string                // Log.ID of the stream
	size        jetstream.StreamState // at the start
	failures    int
	interrupted bool // OnRetry was called more often than OnResume

	handled [2 * inFlight]stored // the last handled records
	oldest  int                  // among them
}

// stored is a record of the stream. The time differs if the stream lost a record and used its
// sequence again.
type stored struct {
	seq uint64
	at  int64 // ns since 1970
}

// fatal is an error that no retry repairs.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// setUp finds the consumer, or creates it.
func (s *service) setUp(ctx context.Context) error {
	finding, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	stream, err := s.js.Stream(finding, s.o.Stream)
	if err != nil {
		return err
	}
	s.id, s.size = streamID(stream.CachedInfo()), stream.CachedInfo().State
	return s.link.search(ctx, searchTimeout(steadyAfter, &s.size), &s.size, func(ctx context.Context) error {
		return s.setUpIn(ctx, stream)
	})
}

// setUpIn is setUp in a stream.
func (s *service) setUpIn(ctx context.Context, stream jetstream.Stream) error {
	c, err := stream.Consumer(ctx, s.o.Durable)
	if err == nil {
		s.consumer = c
		return s.update(ctx, stream)
	}
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	want := jetstream.ConsumerConfig{
		Durable:       s.o.Durable,
		Description:   "kubecdc consumer",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       s.o.AckWait,
		MaxAckPending: s.window(),
		MaxDeliver:    -1,
		DeliverPolicy: jetstream.DeliverNewPolicy,
	}
	switch start := s.o.Start; start.Kind() {
	case consume.StartLive:
	case consume.StartBeginning:
		want.DeliverPolicy = jetstream.DeliverAllPolicy
	case consume.StartSince:
		at := start.Time()
		want.DeliverPolicy, want.OptStartTime = jetstream.DeliverByStartTimePolicy, &at
	case consume.StartAfter:
		want.DeliverPolicy, want.OptStartSeq = jetstream.DeliverByStartSequencePolicy, 1
		for _, p := range start.Positions() {
			if p.Name == s.o.Stream {
				want.OptStartSeq = max(p.Next, 1)
			}
		}
	}
	if len(s.o.Subjects) == 1 {
		want.FilterSubject = s.o.Subjects[0]
	} else {
		want.FilterSubjects = s.o.Subjects
	}
	s.consumer, err = stream.CreateConsumer(ctx, want)
	return err
}

// update applies the options to an existing consumer, except those that would change its position.
func (s *service) update(ctx context.Context, stream jetstream.Stream) error {
	got := s.consumer.CachedInfo().Config
	if got.AckPolicy != jetstream.AckExplicitPolicy {
		return fmt.Errorf(
			"consumer %s has another acknowledgement policy (%s): choose another name for RunOptions.Durable",
			s.o.Durable, got.AckPolicy)
	}
	want := got
	want.AckWait = s.o.AckWait
	want.MaxDeliver = -1
	want.MaxAckPending = s.window()
	want.FilterSubject, want.FilterSubjects = "", s.o.Subjects
	if len(s.o.Subjects) == 1 {
		want.FilterSubject, want.FilterSubjects = s.o.Subjects[0], nil
	}
	c, err := stream.UpdateConsumer(ctx, want)
	if err == nil {
		s.consumer = c
	}
	return err
}

// run handles records, and starts over after each interruption.
func (s *service) run(ctx context.Context) error {
	for {
		waited, err := s.link.waitUp(ctx)
		if waited {
			s.failures = 0
		}
		if err == nil {
			err = s.link.attempt(ctx, searchTimeout(s.failures, &s.size), s.begin)
		}
		if err == nil {
			err = s.handleRecords(ctx)
		}
		var f fatal
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.link.conn.IsClosed():
			return fmt.Errorf("run consumer %s: %w", s.o.Durable, nats.ErrConnectionClosed)
		case errors.As(err, &f):
			return fmt.Errorf("run consumer %s: %w", s.o.Durable, f.error)
		case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrConsumerDeleted):
			return fmt.Errorf("run consumer %s of stream %s: it was deleted, and its position with it; "+
				"Run creates it again from RunOptions.Start: %w", s.o.Durable, s.o.Stream, err)
		}
		s.failures++
		s.interrupted = true
		if s.o.OnRetry != nil {
			s.o.OnRetry(fmt.Errorf("run consumer %s at %s: %w", s.o.Durable, s.link.servers, err))
		}
		if err := pause.For(ctx, min(retryFirst<<min(s.failures-1, 10), retryMax)); err != nil {
			return err
		}
	}
}

// begin makes the server take back unacknowledged records, so that it delivers them first, in
// order.
func (s *service) begin(ctx context.Context) error {
	info, err := s.consumer.Info(ctx)
	if err != nil || info.NumAckPending == 0 || s.window() == 1 {
		return err
	}
	_, err = s.js.ResetConsumer(ctx, s.o.Stream, s.o.Durable)
	return err
}

// window returns the number of records that the server may deliver ahead.
func (s *service) window() int {
	var major, minor int
	if _, err := fmt.Sscanf(s.link.conn.ConnectedServerVersion(), "%d.%d", &major, &minor); err != nil || major < 2 ||
		major == 2 && minor < 14 {
		return 1
	}
	return inFlight
}

// handleRecords handles records until it is interrupted.
func (s *service) handleRecords(ctx context.Context) error {
	sub, err := newSubscription(s.consumer, s.link.conn)
	if err != nil {
		return err
	}
	defer sub.stop()
	if s.interrupted && s.o.OnResume != nil {
		s.o.OnResume()
	}
	s.interrupted = false
	for {
		select {
		case m := <-sub.messages:
			if err := s.handle(ctx, m); err != nil {
				return err
			}
			s.failures = 0
		case err := <-sub.broken:
			return err
		case status := <-s.link.status:
			if status != nats.CONNECTED {
				return nats.ErrDisconnected // records in flight are lost with the connection
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handle calls the handler with one record, and acknowledges it.
func (s *service) handle(ctx context.Context, m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	// A record that waited here for too long is delivered again.
	seq := meta.Sequence.Stream
	record := stored{seq, meta.Timestamp.UnixNano()}
	if slices.Contains(s.handled[:], record) {
		return m.Ack()
	}
	at := consume.Position{Log: consume.Log{Name: s.o.Stream, ID: s.id}, Next: seq + 1}
	e, err := consume.FromMessage(m.Headers(), m.Data())
	if err != nil {
		err = recordError(at, m.Subject(), err)
		if s.o.OnInvalid != nil {
			err = s.o.OnInvalid(err)
		}
		if err != nil {
			return fatal{err}
		}
		return m.Ack()
	}
	e.Position = at
	defer s.reportWorking(m)()
	for attempt := 0; ; attempt++ {
		if err = s.handler(ctx, e); err == nil {
			s.handled[s.oldest] = record
			s.oldest = (s.oldest + 1) % len(s.handled)
			return m.Ack()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.o.OnRetry != nil {
			s.o.OnRetry(fmt.Errorf("stream %s, record %d: handle %s: %w", s.o.Stream, seq, e.ID, err))
		}
		if err := pause.For(ctx, min(retryFirst<<min(attempt, 10), handlerRetryMax)); err != nil {
			return err
		}
	}
}

// reportWorking reports the record as in progress to the server, until the returned function is
// called.
func (s *service) reportWorking(m jetstream.Msg) (stop func()) {
	done := make(chan struct{})
	var teller sync.WaitGroup
	teller.Go(func() {
		tick := time.NewTicker(s.o.AckWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = m.InProgress() // if it fails, the record is delivered again: at least once
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		teller.Wait()
	}
}

// sleepUntil sleeps until a time, which may be over.
func sleepUntil(ctx context.Context, t time.Time) error {
	if d := time.Until(t); d > 0 {
		return pause.For(ctx, d)
	}
	return nil
}
