package apiview

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/timeline"
)

const (
	// momentWait is how long a request waits while the moments in memory are all used by others.
	momentWait = 10 * time.Second
	// stuckAfter is how long a client that uses a moment may take to read stuckBytes of its answer.
	stuckAfter = 30 * time.Second
	// stuckBytes is how much of an answer is written before the time begins again.
	stuckBytes = 32 << 10
)

// moments are the Views of /at/. At most limit of them, and one more, are in memory. A View that a request uses is not evicted, and another
// one is opened only if no more than limit are left.
type moments struct {
	mu      sync.Mutex
	recent  []*moment     // the one that was used last first
	opening bool          // one is being opened
	changed chan struct{} // closed when a moment is released or has been opened; nil: no request waits
}

// moment is a View in memory.
type moment struct {
	view  *View
	users int // requests
}

// use returns the View of a moment, which remains in memory until release is called. open is called once at a time.
func (m *moments) use(ctx context.Context, at timeline.Moment, limit int, open func(context.Context, timeline.Moment) (*View, error)) (*moment, error) {
	expired := time.NewTimer(momentWait)
	defer expired.Stop()
	for {
		found, wait, full := m.find(at, limit)
		if found != nil {
			return found, nil
		}
		if wait == nil {
			return m.open(ctx, at, limit, open)
		}
		var timeout <-chan time.Time
		if full {
			timeout = expired.C // a moment that is being read is waited for as long as it takes
		}
		select {
		case <-wait:
		case <-timeout:
			return nil, errTooManyMoments(limit + 1)
		case <-ctx.Done():
			return nil, errUnavailable(context.Cause(ctx))
		}
	}
}

// find returns a moment that is in memory. Otherwise it reserves the place of one more, which the caller must open, or returns a channel to
// wait for, and whether all places are used.
func (m *moments) find(at timeline.Moment, limit int) (found *moment, wait <-chan struct{}, full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.IndexFunc(m.recent, func(in *moment) bool { return in.view.moment.String() == at.String() }); i >= 0 {
		found = m.recent[i]
		copy(m.recent[1:i+1], m.recent[:i])
		m.recent[0] = found
		found.users++
		return found, nil, false
	}
	full = len(m.recent) > limit
	if !m.opening && !full {
		m.opening = true
		return nil, nil, false
	}
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return nil, m.changed, full
}

// open reads a moment into the place that find has reserved.
func (m *moments) open(ctx context.Context, at timeline.Moment, limit int, open func(context.Context, timeline.Moment) (*View, error)) (_ *moment, err error) {
	var opened *moment
	defer func() { // also if open panics
		m.mu.Lock()
		defer m.mu.Unlock()
		m.opening = false
		if opened != nil {
			m.recent = slices.Insert(m.recent, 0, opened)
		}
		m.evict(limit)
	}()
	v, err := open(ctx, at)
	if known := apierrors.APIStatus(nil); err != nil && !errors.As(err, &known) {
		return nil, errUnavailable(err)
	} else if err != nil {
		return nil, err
	}
	opened = &moment{view: v, users: 1}
	return opened, nil
}

// release ends a use.
func (m *moments) release(used *moment, limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used.users--
	m.evict(limit)
}

// evict removes the moments above the limit that no request uses, and wakes the requests that wait. It must be called with mu held.
func (m *moments) evict(limit int) {
	for i := len(m.recent) - 1; i >= 0 && len(m.recent) > limit; i-- {
		if m.recent[i].users == 0 {
			m.recent = slices.Delete(m.recent, i, i+1)
		}
	}
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// steady is the answer to a client that uses a moment. It ends the connection, or the stream of HTTP/2, if the client is stuck.
type steady struct{ http.ResponseWriter }

// Write implements io.Writer.
func (w steady) Write(p []byte) (int, error) {
	c := http.NewResponseController(w.ResponseWriter)
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }() // of HTTP/2, it would end the stream even if nothing is to be written
	n := 0
	for {
		_ = c.SetWriteDeadline(time.Now().Add(stuckAfter)) // a writer that has none is that of a test
		part := p[n:min(n+stuckBytes, len(p))]
		written, err := w.ResponseWriter.Write(part)
		if n += written; err != nil || n == len(p) {
			return n, err
		}
	}
}

// Unwrap returns the writer below, for http.ResponseController.
func (w steady) Unwrap() http.ResponseWriter { return w.ResponseWriter }
