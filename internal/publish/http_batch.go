package publish

import (
	"context"
	"slices"
	"sync"
)

// batcher sends events together that wait at the same moment. Nobody waits for more to come: a sender that is free sends
// what there is, and what comes while all are busy fills the next requests.
type batcher struct {
	// post sends what take hands it when the request may go, a JSON array of events and how many they are; none: nothing.
	post    func(ctx context.Context, take func() (body []byte, events int)) httpResult
	events  int // in a request, at most
	senders int // each a call of run

	mu      sync.Mutex
	waiting []*seat   // oldest first; at most as many as there are calls of Publish
	some    sync.Cond // a sender may have something to do; its L is mu
	closed  bool      // no seat is taken any more

	// seats are those of calls that have had their result: nobody knows them any more, and their channels are empty. To make
	// one for each call costs as much as to wait in it.
	seats sync.Pool
}

// seat is one call that wants its event in a batch.
type seat struct {
	body       []byte
	httpFlight *httpFlight      // that took it; nil: it waits. Under batcher.mu
	done       chan *httpResult // has room for the one result. Never closed
}

// httpFlight is one request.
type httpFlight struct {
	calls  int // that wait for its end; under batcher.mu
	cancel context.CancelFunc
}

func newBatcher(events, senders int, post func(context.Context, func() ([]byte, int)) httpResult) *batcher {
	b := &batcher{post: post, events: events, senders: senders}
	b.some.L = &b.mu
	b.seats.New = func() any { return &seat{done: make(chan *httpResult, 1)} }
	return b
}

// send sends an event with others. Its bytes are not read any more when it returns.
func (b *batcher) send(ctx context.Context, body []byte) httpResult {
	s := b.seats.Get().(*seat) // nothing else is put there
	s.body, s.httpFlight = body, nil
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return httpResult{kind: httpEnded}
	}
	b.waiting = append(b.waiting, s)
	b.mu.Unlock()
	b.some.Signal()
	select {
	case r := <-s.done:
		s.body = nil
		b.seats.Put(s)
		return *r
	case <-ctx.Done():
		return b.leave(s)
	}
}

// leave is what becomes of a call whose ctx has ended. Where its event is on its way, that of others is too, and the request
// goes on as long as one of them waits. The seat is not used again: a result may still come.
func (b *batcher) leave(s *seat) httpResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case r := <-s.done: // it was faster
		return *r
	default:
	}
	if s.httpFlight == nil {
		b.waiting = slices.DeleteFunc(b.waiting, func(o *seat) bool { return o == s })
	} else if s.httpFlight.calls--; s.httpFlight.calls == 0 {
		s.httpFlight.cancel()
	}
	return httpResult{kind: httpEnded}
}

// run is one sender. It returns after close.
func (b *batcher) run(ctx context.Context) {
	var body []byte
	var taken []*seat
	for b.wait() {
		body, taken = b.round(ctx, body[:0], taken[:0])
		if cap(body) > 2*maxBatchBytes { // an event that large is rare
			body = nil
		}
	}
}

// wait waits for events, and returns false after close.
func (b *batcher) wait() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) == 0 && !b.closed {
		b.some.Wait()
	}
	return !b.closed
}

// round sends one batch and tells all that are in it what became of it. It returns the buffers for the next one.
func (b *batcher) round(ctx context.Context, body []byte, taken []*seat) ([]byte, []*seat) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &httpFlight{cancel: cancel}
	r := b.post(ctx, func() ([]byte, int) {
		body, taken = b.take(f, body, taken)
		return body, len(taken)
	}).of(len(taken))
	for _, s := range taken {
		s.done <- &r
	}
	clear(taken)
	return body, taken
}

// take takes the oldest that wait, and appends their events as a JSON array. It copies them under the lock: a call may
// return when its ctx ends, and then its event is no longer ours to read.
func (b *batcher) take(f *httpFlight, body []byte, taken []*seat) ([]byte, []*seat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body = append(body, '[')
	for _, s := range b.waiting[:min(len(b.waiting), b.events)] {
		if len(taken) > 0 {
			if len(body)+len(s.body) > maxBatchBytes {
				break
			}
			body = append(body, ',')
		}
		body = append(body, s.body...)
		s.httpFlight = f
		taken = append(taken, s)
	}
	f.calls = len(taken)
	b.waiting = slices.Delete(b.waiting, 0, len(taken))
	return append(body, ']'), taken
}

// close ends the senders, and the calls that wait. Those on their way end with their requests.
func (b *batcher) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, s := range b.waiting {
		s.done <- &httpResult{kind: httpEnded}
	}
	b.waiting = nil
	b.some.Broadcast()
}

// of is what the result of a request with that many events means for one of them.
func (r httpResult) of(events int) httpResult {
	if events <= 1 {
		return r
	}
	switch r.kind {
	case httpRefused, httpTooLarge: // perhaps only one of them
		return httpResult{kind: httpAgain, alone: true}
	case httpRetry: // one of them may make the receiver fail: then the others must not wait for it
		r.alone = !r.shut
		r.status = 0 // nothing speaks against any one of them
	case httpAcked, httpAgain, httpEnded, httpFenced:
	}
	return r
}
