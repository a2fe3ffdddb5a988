package fromnats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/nats/searchtime"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// jetStreamReader reads a stream. After an interruption it asks for the records after the last
// event.
type jetStreamReader struct {
	q        consume.Query
	stream   string
	requests string // prefix of the subjects of requests for records
	filters  []string
	about    func(subject string) consume.About // nil: nothing is known
	nameOf   func(k int) string                 // of the k-th consumer; nil: random
	id       string                             // of the reader, for its consumers with fixed names
	link     *link
	js       jetstream.JetStream

	at       place
	ended    bool // all records up to the end were returned
	caughtUp bool
	missed   error // to be returned by Next

	removed gap       // may have been removed before the server looked at them; to == 0: none
	looked  time.Time // when the server was last asked about that

	merge       *merge // nil: none at present
	wake        chan struct{}
	failures    int           // since the last record, or connection
	retryAt     time.Time     // the next attempt to continue is not made before
	interrupted bool          // OnRetry has been called more often than OnResume
	lags        int           // interruptions since a server has last looked further
	missing     time.Time     // since when the stream has not existed; zero: it exists
	called      time.Time     // when Next was last called
	beat        time.Duration // interval of heartbeats at rest: heartbeat, less in tests
	lives       time.Duration // how long the server keeps a request: expires, less in tests
	patience    time.Duration // how long a server may look no further: lagAfter, less in tests

	// A request to the server outlives the context of a call of Next, which may be shorter than an
	// answer takes.
	answers chan answer        // of the request under way; nil: there is none
	cancel  context.CancelFunc // ends that request
}

// answer is the result of a request. apply belongs to the reader's goroutine.
type answer struct {
	err   error
	apply func()
	undo  func() // instead of apply, if the reader is closed
}

const (
	// abandoned is the time after which the server deletes an unused consumer.
	abandoned  = time.Minute
	apiTimeout = 10 * time.Second
	// attachTimeout limits all requests of an attempt to read together.
	attachTimeout = 3*apiTimeout + 2*searchtime.Most

	// lookInterval is the interval at which the server is asked whether records were removed.
	lookInterval = time.Second

	retryFirst = 100 * time.Millisecond
	retryMax   = 2 * time.Second
	// goneFor is the time for which a stream may be missing before Next returns an error: a server
	// that starts may not have it yet.
	goneFor = 30 * time.Second

	// A server that looks no further for lagAfter is replaced by another. After mostLags of them
	// Next returns an error.
	lagAfter = 10 * time.Second
	mostLags = 6
	// steadyAfter is a number of failures after which the limits of requests do not grow any more.
	steadyAfter = 10
	// mostLooks is the number of further questions at the end about removed records.
	mostLooks = 3
	// creators is the number of consumers that are created or deleted at a time.
	creators = 8
)

func (r *jetStreamReader) open(ctx context.Context, s *JetStream) error {
	info, err := r.lookWithin(ctx, apiTimeout)
	if err != nil {
		return err
	}
	r.at = place{id: streamID(info), end: info.State.LastSeq}
	if s.OnOpen != nil {
		s.OnOpen(info)
	}
	if s.Choose != nil {
		if err := r.choose(ctx, s); err != nil {
			return err
		}
	}
	if r.nameOf != nil && len(r.filters) > mostFilters {
		return fmt.Errorf("%d subjects: consumers with fixed names can have at most %d", len(r.filters), mostFilters)
	}
	switch r.q.Start.Kind() {
	case consume.StartLive:
		r.at.next, r.at.read = info.State.LastSeq+1, info.State.LastSeq > 0
	case consume.StartBeginning:
		r.at.next = max(info.State.FirstSeq, 1)
	case consume.StartAfter:
		r.at.next = max(info.State.FirstSeq, 1)
		for _, p := range r.q.Start.Positions() {
			if p.Name == r.stream && p.Next > 1 {
				r.at.next, r.at.read = p.Next, true
				r.at.id = cmp.Or(p.ID, r.at.id)
			}
		}
	case consume.StartSince: // attach finds the place
	}
	a := r.attach(ctx, r.at, steadyAfter)
	if a.err == nil {
		a.apply()
	}
	return a.err
}

// choose sets the filters by s.Choose, which has limits of its own.
func (r *jetStreamReader) choose(ctx context.Context, s *JetStream) error {
	finding, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	stream, err := r.js.Stream(finding, r.stream)
	if err != nil {
		return err
	}
	r.filters = s.Choose(ctx, stream, &r.q)
	return nil
}

// errNoLeader reports that no server leads the stream. Then any of them answers, and it may lag.
var errNoLeader = errors.New("the stream has no leader at present")

// look returns the stream's state, as its leader has it.
func (r *jetStreamReader) look(ctx context.Context) (*jetstream.StreamInfo, error) {
	for attempt := 0; ; attempt++ {
		stream, err := r.js.Stream(ctx, r.stream)
		if err != nil {
			return nil, err
		}
		info := stream.CachedInfo()
		if info.Cluster == nil || info.Cluster.Leader != "" {
			return info, nil
		}
		if pause.For(ctx, min(retryFirst<<min(attempt, 10), retryMax)) != nil {
			return nil, errNoLeader
		}
	}
}

// lookWithin is look with a time limit.
func (r *jetStreamReader) lookWithin(ctx context.Context, limit time.Duration) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return r.look(ctx)
}

// streamID is the Log.ID of a stream.
func streamID(info *jetstream.StreamInfo) string { return info.Created.UTC().Format(time.RFC3339Nano) }

// Positions implements consume.Reader.
func (r *jetStreamReader) Positions() []consume.Position {
	return []consume.Position{r.position(r.at.next)}
}

func (r *jetStreamReader) position(next uint64) consume.Position {
	return consume.Position{Log: consume.Log{Name: r.stream, ID: r.at.id}, Next: max(next, 1)}
}

// CaughtUp implements consume.Reader.
func (r *jetStreamReader) CaughtUp() bool { return r.caughtUp }

// Next implements consume.Reader.
func (r *jetStreamReader) Next(ctx context.Context) (*consume.Event, error) {
	record, err := r.nextRecord(ctx)
	if err != nil {
		return nil, err
	}
	at := r.position(record.seq + 1)
	e, err := consume.FromMessage(record.Header, record.Data)
	if err != nil {
		invalid := recordError(at, record.Subject, err)
		if r.about != nil {
			invalid.About = r.about(record.Subject)
		}
		return nil, invalid
	}
	e.Position = at
	return e, nil
}

// nextRecord is Next for a record that need not be an event.
func (r *jetStreamReader) nextRecord(ctx context.Context) (*record, error) {
	if r.merge != nil && (time.Since(r.called) > r.lives || r.merge.hasLapsed()) {
		r.drop() // the server may have deleted the consumers of a reader that asks for nothing
	}
	defer func() { r.called = time.Now() }()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for {
		if err := r.missed; err != nil {
			r.missed = nil
			return nil, err
		}
		if next := r.takeRecord(); next != nil {
			return next, nil
		}
		if r.missed != nil {
			continue
		}
		if r.ended && r.removed.to == 0 {
			return nil, io.EOF
		}
		if err := r.ask(ctx); err != nil {
			return nil, err
		}
		if err := r.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// takeRecord returns the next record, if it has arrived and is the next one for certain.
func (r *jetStreamReader) takeRecord() *record {
	m := r.merge
	if m == nil || r.ended {
		return nil
	}
	gaps, err := m.advance(max(r.at.next, 1) - 1)
	for _, g := range gaps {
		r.suspect(g)
	}
	if err == nil {
		err = m.request(r.heartbeats())
	}
	if err != nil {
		r.noteInterruption(err)
		return nil
	}
	if r.q.StopAtEnd && m.hasPassed(r.at.end) {
		r.finish()
		return nil
	}
	next := m.take()
	if next != nil {
		r.failures, r.lags = 0, 0
		r.pass(next.seq + 1)
	}
	r.pass(m.reached() + 1)
	r.caughtUp = m.isCaughtUp()
	if next != nil && r.q.StopAtEnd && m.hasPassed(r.at.end) {
		r.finish()
	}
	return next
}

// heartbeats returns the interval of the heartbeats to request.
func (r *jetStreamReader) heartbeats() time.Duration {
	if r.q.StopAtEnd {
		return quickHeartbeat
	}
	return r.beat
}

// pass moves the place. It never goes back.
func (r *jetStreamReader) pass(next uint64) {
	if next > r.at.next {
		r.at.next, r.at.read = next, true
	}
}

// finish ends reading: all records up to the end were returned.
func (r *jetStreamReader) finish() {
	r.pass(r.at.end + 1)
	r.ended, r.caughtUp = true, true
}

func recordError(at consume.Position, subject string, err error) *consume.RecordError {
	return &consume.RecordError{
		Position: at,
		Where:    fmt.Sprintf("stream %s, record %d (%s)", at.Name, at.Next-1, subject),
		Err:      err,
	}
}

// suspect notes that records may have been removed before the server looked at them.
func (r *jetStreamReader) suspect(g gap) {
	if !r.at.read {
		return // the query begins with the oldest record
	}
	if r.removed.to == 0 {
		r.removed.from = g.from
	}
	r.removed.from, r.removed.to = min(r.removed.from, g.from), max(r.removed.to, g.to)
}

// judgeRemoved turns suspected records into a MissedError if they were removed from the beginning
// of the stream. first is the stream's first record.
func (r *jetStreamReader) judgeRemoved(first uint64) {
	if g := r.removed; g.to > 0 && first > g.from {
		r.missed = &consume.MissedError{Log: r.position(1).Log, From: g.from, To: min(g.to, first-1)}
	}
	r.removed = gap{}
}

// ask starts the next request to the server, if one is due and none is under way.
func (r *jetStreamReader) ask(ctx context.Context) error {
	if r.answers != nil {
		return nil
	}
	if r.removed.to > 0 && (r.ended || time.Since(r.looked) >= lookInterval) {
		r.start(answerTimeout(r.failures), r.lookForRemoved)
		return nil
	}
	if r.ended {
		return nil
	}
	if r.merge != nil {
		return nil
	}
	waited, err := r.link.waitUp(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("read stream %s at %s: %w", r.stream, r.link.servers, err)
	case waited:
		r.failures, r.retryAt = 0, time.Time{}
	}
	if err := sleepUntil(ctx, r.retryAt); err != nil {
		return err
	}
	at, failures := r.at, r.failures
	r.start(attachTimeout, func(ctx context.Context) answer { return r.attach(ctx, at, failures) })
	return nil
}

// start makes a request in the background, with a time limit. wait takes its answer.
func (r *jetStreamReader) start(limit time.Duration, f func(context.Context) answer) {
	answers := make(chan answer, 1)
	ctx, cancel := context.WithCancel(context.Background())
	r.answers, r.cancel = answers, cancel
	go func() {
		var a answer
		err := r.link.attempt(ctx, limit, func(ctx context.Context) error {
			a = f(ctx)
			return a.err
		})
		if err != nil && a.err == nil { // the connection was lost afterwards
			a.undo()
			a = answer{}
		}
		a.err = err
		answers <- a
	}()
}

// wait returns when there may be something new. Its error is the cause of ctx, or final.
func (r *jetStreamReader) wait(ctx context.Context) error {
	var status <-chan nats.Status
	if r.answers == nil { // otherwise the request watches the connection
		status = r.link.status
	}
	var idle <-chan time.Time
	if r.merge != nil {
		idle = time.After(time.Until(r.idleUntil()))
	}
	select {
	case <-r.wake:
	case a := <-r.answers:
		r.cancel()
		r.answers = nil
		return r.applyAnswer(a)
	case s := <-status:
		switch s {
		case nats.RECONNECTING: // records in flight are lost with the connection, and count as delivered on the server
			r.noteInterruption(nats.ErrDisconnected)
		case nats.CLOSED:
			r.drop()
		}
	case <-idle:
		return r.judgeIdle()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// idleUntil returns the time at which judgeIdle must be called, if nothing comes.
func (r *jetStreamReader) idleUntil() time.Time {
	until := r.merge.silentAt()
	for _, other := range []time.Time{r.lagsAt(), r.quickAt(), r.lookAt()} {
		if !other.IsZero() && other.Before(until) {
			until = other
		}
	}
	return until
}

// lagsAt returns the time at which the servers will have looked no further for too long. It is zero
// if the reader waits for no end.
func (r *jetStreamReader) lagsAt() time.Time {
	if !r.q.StopAtEnd || r.ended {
		return time.Time{}
	}
	last := r.merge.moved
	if r.called.After(last) { // the reader may have been slow
		last = r.called
	}
	return last.Add(r.patience + r.merge.grace())
}

// quickAt returns the time at which quick heartbeats must be requested again, zero if they need
// not.
func (r *jetStreamReader) quickAt() time.Time {
	p := r.merge.lowest()
	if p == nil {
		return time.Time{}
	}
	if behind := r.merge.waitsFor(p.head.seq); behind != nil {
		return behind.quick
	}
	return time.Time{}
}

// lookAt returns the time at which the server must be asked about removed records, zero if it need
// not.
func (r *jetStreamReader) lookAt() time.Time {
	if r.removed.to == 0 || r.answers != nil {
		return time.Time{}
	}
	return r.looked.Add(lookInterval)
}

// judgeIdle replaces consumers that are silent, or whose servers look no further. After too many of
// the latter it returns an error.
func (r *jetStreamReader) judgeIdle() error {
	now := time.Now()
	lagsAt := r.lagsAt()
	switch {
	case now.After(r.merge.silentAt()):
		r.noteInterruption(errors.New("the server sends no heartbeats"))
	case !lagsAt.IsZero() && !now.Before(lagsAt):
		err := r.merge.errLag(r.at.end)
		r.lags++
		if r.lags >= mostLags {
			return fmt.Errorf("read stream %s at %s: %w", r.stream, r.link.servers, err)
		}
		r.noteInterruption(err)
	}
	return nil
}

// applyAnswer applies an answer, or notes its error.
func (r *jetStreamReader) applyAnswer(a answer) error {
	err := a.err
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		r.missing = time.Time{}
	}
	switch {
	case err == nil:
		a.apply()
		return nil
	case r.ended:
		r.failures++
		if r.failures <= mostLooks {
			return nil // it will be asked again
		}
		return fmt.Errorf(
			"read stream %s at %s to its end: whether records %d to %d were removed unread is not known: %w",
			r.stream, r.link.servers, r.removed.from, r.removed.to, err)
	case r.merge != nil && !errors.Is(err, nats.ErrDisconnected): // it will be asked again
		r.looked = time.Now()
		return nil
	case !errors.Is(err, jetstream.ErrStreamNotFound):
	case r.missing.IsZero():
		r.missing = time.Now()
	case time.Since(r.missing) > goneFor:
		r.missing = time.Time{}
		return r.link.explain(context.Background(), r.js, r.stream, err)
	}
	r.noteInterruption(err)
	return nil
}

// lookForRemoved asks whether suspected records were removed.
func (r *jetStreamReader) lookForRemoved(ctx context.Context) answer {
	info, err := r.look(ctx)
	return answer{err: err, undo: func() {}, apply: func() {
		r.looked = time.Now()
		r.judgeRemoved(info.State.FirstSeq)
	}}
}

// Close implements consume.Reader. It also closes a connection that Read has opened. Its error is
// always nil.
func (r *jetStreamReader) Close() error {
	if r.answers != nil {
		r.cancel()
		if a := <-r.answers; a.err == nil {
			a.undo()
		}
		r.answers = nil
	}
	r.drop()
	r.ended = true
	r.removed = gap{}
	r.link.close()
	return nil
}

func (r *jetStreamReader) noteInterruption(err error) {
	r.drop()
	r.failures++
	r.retryAt = time.Time{}
	if r.failures > 1 {
		r.retryAt = time.Now().Add(min(retryFirst<<min(r.failures-2, 10), retryMax))
	}
	r.interrupted = true
	if r.q.OnRetry != nil {
		r.q.OnRetry(fmt.Errorf("read stream %s at %s: %w", r.stream, r.link.servers, err))
	}
}

// drop ends the subscriptions, if any, and deletes their consumers.
func (r *jetStreamReader) drop() {
	if r.merge != nil {
		r.abandon(r.merge)
		r.merge = nil
	}
}

func (r *jetStreamReader) noteResumption() {
	if r.interrupted && r.q.OnResume != nil {
		r.q.OnResume()
	}
	r.interrupted = false
}

// answerTimeout is the time limit of a request. The first ones are short, because a server that
// starts leaves requests unanswered.
func answerTimeout(failures int) time.Duration {
	return min(time.Second<<min(failures, steadyAfter), apiTimeout)
}

// searchTimeout is answerTimeout of a request for which the server may have to read the stream.
func searchTimeout(failures int, s *jetstream.StreamState) time.Duration {
	return min(time.Second<<min(failures, steadyAfter), apiTimeout+searchtime.For(s))
}

// wakeUp makes Next look at what has arrived.
func (r *jetStreamReader) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
