package fromnats

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/kubecdc/kubecdc/internal/bus/nats/searchtime"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// place is a place in a stream, and the stream's end at that time.
type place struct {
	id   string // Log.ID of the stream
	next uint64 // sequence to continue from; 0: not known yet, begin at the time of Query.Start
	read bool   // records before next were returned, or the query begins at next
	end  uint64 // last sequence of the stream when it was opened
	// searches is for how long a server may search the stream before it answers, beside the usual
	// limits.
	searches time.Duration
}

// attach creates consumers that continue at a place. Consumers without acknowledgements deliver in
// order and number their messages, so a missing number shows a loss. It changes nothing of the
// reader: its answer does. The time limits of its requests grow with failures, up to that of the
// stream's size.
func (r *jetStreamReader) attach(ctx context.Context, at place, failures int) answer {
	info, err := r.lookWithin(ctx, answerTimeout(failures))
	if err != nil {
		return answer{err: err}
	}
	at, missed := at.in(r.stream, info)
	if r.q.StopAtEnd && at.next > at.end {
		return answer{undo: func() {}, apply: func() {
			r.continueAt(at, missed)
			r.finish()
			r.noteResumption()
		}}
	}
	var m *merge
	at.searches = searchtime.For(&info.State)
	limit := searchTimeout(failures, &info.State)
	err = r.link.search(ctx, limit, &info.State, func(ctx context.Context) (err error) {
		m, err = r.consume(ctx, at)
		return err
	})
	if err != nil {
		return answer{err: err}
	}
	if r.q.StopAtEnd {
		m.searches = at.searches
	}
	undo := func() { r.abandon(m) }
	if r.lastOfEach(at) && r.q.StopAtEnd {
		// The last record of a subject may be later than the end, and those before it do not come.
		info, err := r.lookWithin(ctx, limit)
		if err != nil {
			undo()
			return answer{err: err}
		}
		at.end = info.State.LastSeq
	}
	return answer{undo: undo, apply: func() {
		r.continueAt(at, missed)
		if r.at.next == 0 {
			r.at.next = m.reached() + 1
		}
		r.merge = m
		m.moved = time.Now()
		r.caughtUp = m.isCaughtUp()
		r.noteResumption()
	}}
}

// continueAt continues at a place, after what was missed before it.
func (r *jetStreamReader) continueAt(at place, missed *consume.MissedError) {
	r.at = at
	if missed != nil {
		r.missed = missed
		if missed.Recreated {
			r.removed = gap{}
		}
	}
}

// in returns the place in a stream as it is now, and what was missed.
func (p place) in(name string, info *jetstream.StreamInfo) (place, *consume.MissedError) {
	state := info.State
	first := max(state.FirstSeq, 1)
	log := consume.Log{Name: name, ID: p.id}
	switch {
	case p.next == 0:
		return p, nil
	case state.LastSeq+1 < p.next || streamID(info) != p.id:
		missed := &consume.MissedError{
			Log:       log,
			From:      p.next,
			To:        state.LastSeq,
			Recreated: true,
		}
		return place{id: streamID(info), next: first, end: state.LastSeq}, missed
	case first > p.next:
		missed := &consume.MissedError{Log: log, From: p.next, To: first - 1}
		p.next = first
		return p, missed
	}
	return p, nil
}

// consume creates a consumer for each filter.
func (r *jetStreamReader) consume(ctx context.Context, at place) (*merge, error) {
	filters := serverFilters(r.filters)
	m := &merge{pulls: make([]*pull, len(filters)), filters: r.filters, wake: r.wake}
	err := inParallel(len(filters), func(k int) (err error) {
		name := "kubecdc-" + nuid.Next()
		if r.nameOf != nil {
			name = r.nameOf(k)
		}
		m.pulls[k], err = r.pull(ctx, at, name, filters[k], len(filters))
		return err
	})
	if err == nil {
		return m, nil
	}
	m.pulls = slices.DeleteFunc(m.pulls, func(p *pull) bool { return p == nil })
	r.abandon(m)
	return nil, err
}

// pull creates the consumer of one filter. parts is the number of consumers.
func (r *jetStreamReader) pull(ctx context.Context, at place, name, filter string, parts int) (*pull, error) {
	c := jetstream.ConsumerConfig{
		Name:              name,
		AckPolicy:         jetstream.AckNonePolicy,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       at.next,
		InactiveThreshold: abandoned,
		MemoryStorage:     true,
		Replicas:          1,
		FilterSubject:     filter,
	}
	since := r.firstTime(at, filter)
	switch {
	case r.lastOfEach(at):
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverLastPerSubjectPolicy, 0
	case !since.IsZero():
		c.DeliverPolicy = jetstream.DeliverByStartTimePolicy
		c.OptStartSeq = 0
		c.OptStartTime = &since
	}
	create := r.claim
	if r.nameOf == nil {
		create = func(ctx context.Context, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
			return r.js.CreateConsumer(ctx, r.stream, c)
		}
	}
	consumer, err := create(ctx, c)
	if err != nil {
		return nil, err
	}
	info := consumer.CachedInfo()
	before := info.Delivered.Stream
	switch {
	case at.next > 0 && !since.IsZero():
		before = max(before, at.next-1)
	case at.next > 0:
		before = at.next - 1
	}
	p, err := newPull(info, r.link.conn, r.requests+r.stream+"."+c.Name, parts, before, r.wakeUp)
	if err != nil {
		return nil, err
	}
	p.lives = r.lives
	p.since = since
	if r.nameOf == nil {
		return p, nil
	}
	if err := r.requestFirst(ctx, p, seenWithin+at.searches); err != nil {
		r.abandon(&merge{pulls: []*pull{p}})
		return nil, err
	}
	return p, nil
}

// firstTime returns the time of the first stored record of a consumer that begins at a time; zero:
// it begins at a sequence.
func (r *jetStreamReader) firstTime(at place, filter string) time.Time {
	since := r.q.ProgressSince
	switch {
	case at.next == 0 && (r.q.Start.Time().After(since) || !isProgressFilter(filter)):
		return r.q.Start.Time()
	case isProgressFilter(filter):
		return since
	}
	return time.Time{}
}

// isProgressFilter reports whether a filter matches the progress of agents, and nothing else. No
// template changes their subjects.
func isProgressFilter(filter string) bool {
	tokens := strings.Split(filter, ".")
	return len(tokens) == 4 && tokens[0] == "kubecdc" && tokens[2] == "progress"
}

// lastOfEach reports whether the next consumers deliver only the last record of each subject. Such
// a consumer cannot continue.
func (r *jetStreamReader) lastOfEach(at place) bool {
	return r.q.LastOfEach && len(r.filters) > 0 && !at.read
}

// abandon ends subscriptions, and asks the server to delete their consumers. It waits for no
// answer: the server deletes unused consumers later anyway.
func (r *jetStreamReader) abandon(m *merge) {
	m.stop()
	if !r.link.conn.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = inParallel(len(m.pulls), func(k int) error {
		if r.nameOf != nil {
			return r.release(ctx, m.pulls[k].name())
		}
		return r.js.DeleteConsumer(ctx, r.stream, m.pulls[k].name())
	})
}

// inParallel calls f for the numbers below n, some at a time. It returns the error of the lowest
// number.
func inParallel(n int, f func(k int) error) error {
	errs := make([]error, n)
	tokens := make(chan struct{}, creators)
	var all sync.WaitGroup
	for k := range n {
		tokens <- struct{}{}
		all.Go(func() {
			errs[k] = f(k)
			<-tokens
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
