package apiview

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

const (
	// momentWait is how long a request waits while the moments in memory are all used by others.
	momentWait = 10 * time.Second
	// stuckAfter is how long a client that uses a moment may take to read stuckBytes of its answer.
	stuckAfter = 30 * time.Second
	// stuckBytes is how much of an answer is written before the time begins again.
	stuckBytes = 32 << 10
)

// moments are the Views of /at/. Several requests may ask for a moment while it is opened, so:
//
//	request 1 ──find: a new place──▶ open ──────────────────▶ the View or an error, for all
//	request 2 ──find: the same moment──▶ join ──────────────┘
//
// The goroutine of the first request opens the moment. If the client of that request goes, it
// continues for the others. If the clients of all go, the opening is cancelled. An error is that of
// all requests that wait, and the next one opens the moment again.
//
// At most limit moments, and one more, are in memory or are being opened. One that a request uses
// is not evicted. A moment that was not final when it was read is opened again at a request after
// View.again. Requests that use the earlier View keep it, and so its place.
type moments struct {
	mu      sync.Mutex
	recent  []*moment     // the one that was used last first
	changed chan struct{} // closed when a place may be free; nil: no request waits
}

// moment is a View in memory, or one that is being opened.
type moment struct {
	at     string
	users  int           // requests
	opened chan struct{} // closed when view or err is set
	view   *View
	err    error

	// The fields below are those of the opening.
	cancel  context.CancelCauseFunc
	clients int  // that wait
	left    bool // all of them went, so that no other one may wait
}

// isOpening reports whether the moment is being opened. It must be called with moments.mu held.
func (m *moment) isOpening() bool { return m.view == nil }

// errNobodyWaits is the cause if the opening of a moment is cancelled.
var errNobodyWaits = errors.New("no client waits for the moment any more")

// limits bound the moments of a Server.
type limits struct {
	kept    int // in memory, and one more
	opening int // at a time; 0: no other limit
}

type opener func(context.Context, timeline.Moment) (*View, error)

// use returns the View of a moment, which remains in memory until leave is called. Calls for
// different moments may call open at the same time.
func (m *moments) use(ctx context.Context, at timeline.Moment, l limits, open opener) (*moment, error) {
	// The values of the request's context stay, its end is only that of one client.
	opening, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var expires <-chan time.Time // nil: places are being opened, and that takes as long as it takes
	for {
		f := m.find(at, l, cancel)
		switch {
		case f.isNew:
			return m.open(ctx, f.moment, l, func() (*View, error) { return open(opening, at) })
		case f.moment != nil:
			return m.join(ctx, f.moment, l)
		case !f.full:
			expires = nil
		case expires == nil:
			timer := time.NewTimer(momentWait)
			defer timer.Stop()
			expires = timer.C
		}
		select {
		case <-f.wait:
		case <-expires:
			return nil, errTooManyMoments(l.kept + 1)
		case <-ctx.Done():
			return nil, errUnavailable(context.Cause(ctx))
		}
	}
}

// found is the result of find.
type found struct {
	moment *moment         // that the request uses; nil: it has to wait
	isNew  bool            // the caller must open moment
	wait   <-chan struct{} // closed when it is worth to look again
	full   bool            // all places are used, and no moment is being opened
}

// find returns a moment that is in memory or is being opened. Otherwise it reserves a place, which
// the caller must open, or returns a channel to wait for. cancel ends that opening.
func (m *moments) find(at timeline.Moment, l limits, cancel context.CancelCauseFunc) found {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	isValid := func(in *moment) bool {
		return in.at == at.String() && !in.left && (in.isOpening() || !in.view.isOutdated(now))
	}
	if i := slices.IndexFunc(m.recent, isValid); i >= 0 {
		in := m.recent[i]
		copy(m.recent[1:i+1], m.recent[:i])
		m.recent[0] = in
		in.users++
		in.clients++
		return found{moment: in}
	}
	m.recent = slices.DeleteFunc(m.recent, func(in *moment) bool {
		return in.at == at.String() && !in.isOpening() && in.users == 0 // outdated
	})
	m.evict(l)
	opening := 0
	for _, in := range m.recent {
		if in.isOpening() {
			opening++
		}
	}
	isFull := len(m.recent) > l.kept
	if isFull || l.opening > 0 && opening >= l.opening {
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		return found{wait: m.changed, full: isFull && opening == 0}
	}
	in := &moment{
		at:      at.String(),
		users:   1,
		opened:  make(chan struct{}),
		cancel:  cancel,
		clients: 1,
	}
	m.recent = slices.Insert(m.recent, 0, in)
	return found{moment: in, isNew: true}
}

// open reads a moment into the place that find has reserved.
func (m *moments) open(ctx context.Context, in *moment, l limits, open func() (*View, error)) (*moment, error) {
	var view *View
	err := errUnavailable(errors.New("the reading of the moment was aborted"))
	defer context.AfterFunc(ctx, func() { m.giveUp(in) })()
	defer func() { m.finish(in, view, err, l) }() // also if open panics
	view, err = open()
	if known := apierrors.APIStatus(nil); err != nil && !errors.As(err, &known) {
		err = errUnavailable(err)
	}
	return in, err
}

// finish notes the result of an opening.
func (m *moments) finish(in *moment, view *View, err error, l limits) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in.cancel(nil)
	in.view = view
	in.err = err
	in.left = false
	if err != nil {
		m.recent = slices.DeleteFunc(m.recent, func(other *moment) bool { return other == in })
	}
	close(in.opened)
	m.evict(l)
	m.wake()
}

// join waits until another request has opened a moment.
func (m *moments) join(ctx context.Context, in *moment, l limits) (*moment, error) {
	select {
	case <-in.opened:
		return in, in.err
	default:
	}
	select {
	case <-in.opened:
		return in, in.err
	case <-ctx.Done():
		m.giveUp(in)
		m.leave(in, l)
		return nil, errUnavailable(context.Cause(ctx))
	}
}

// giveUp notes that a client waits for an opening no more. The opening ends with the last one.
func (m *moments) giveUp(in *moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in.clients--
	if in.clients == 0 && in.isOpening() {
		in.left = true
		in.cancel(errNobodyWaits)
	}
}

// leave ends a use of a moment.
func (m *moments) leave(in *moment, l limits) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in.users--
	m.evict(l)
	m.wake()
}

// evict removes the moments above the limit that no request uses. It must be called with mu held.
func (m *moments) evict(l limits) {
	for i := len(m.recent) - 1; i >= 0 && len(m.recent) > l.kept; i-- {
		if m.recent[i].users == 0 && !m.recent[i].isOpening() {
			m.recent = slices.Delete(m.recent, i, i+1)
		}
	}
}

// wake wakes the requests that wait for a place. It must be called with mu held.
func (m *moments) wake() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// steady is the answer to a client that uses a moment. It ends the connection, or the stream of
// HTTP/2, if the client is stuck.
type steady struct{ http.ResponseWriter }

// Write implements io.Writer.
func (s steady) Write(p []byte) (int, error) {
	c := http.NewResponseController(s.ResponseWriter)
	// of HTTP/2, it would end the stream even if nothing is to be written
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	n := 0
	for {
		_ = c.SetWriteDeadline(time.Now().Add(stuckAfter)) // a writer that has none is that of a test
		part := p[n:min(n+stuckBytes, len(p))]
		written, err := s.ResponseWriter.Write(part)
		n += written
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// Unwrap returns the writer below, for http.ResponseController.
func (s steady) Unwrap() http.ResponseWriter { return s.ResponseWriter }
