package informers

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Phase is what an informer is doing.
type Phase string

// The phases of an informer.
const (
	PhaseListing  Phase = "listing"  // no list has been loaded yet
	PhaseWatching Phase = "watching" // live
	PhaseBlocked  Phase = "blocked"  // the queue is full; the watch goes on when there is room
	PhaseFailing  Phase = "failing"  // retried with backoff
	PhaseUnserved Phase = "unserved" // named by the selection, not served by the API server
)

// Status is how one informer is doing, for people and probes.
type Status struct {
	Scope    string
	Phase    Phase
	Synced   bool      // a list has been loaded
	Error    string    // why it is failing
	Reason   string    // the class of Error, as in the metrics
	LastSeen time.Time // last event or bookmark, zero: none yet
}

// warnEvery is how often one informer's persisting error is logged.
const warnEvery = time.Minute

// state is the mutable part of an informer's status.
type state struct {
	mu      sync.Mutex
	sync    bool
	blocked bool
	err     error
	last    time.Time

	warned       time.Time
	warnedReason string
}

func (s *state) synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sync
}

func (s *state) listed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sync, s.err = true, nil
}

// recovered notes that what failed works again.
func (s *state) recovered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = nil
}

func (s *state) seen(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = at
}

func (s *state) lastSeen() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *state) setBlocked(b bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = b
}

// fail notes err; warn tells if it is time to log it: it is of another kind than the last one logged, or a window is over.
func (s *state) fail(err error, now time.Time) (warn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	r := reason(err)
	if r == s.warnedReason && now.Sub(s.warned) < warnEvery {
		return false
	}
	s.warned, s.warnedReason = now, r
	return true
}

// status is how the informer is doing.
func (i *informer) status() Status {
	s := &i.state
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{Scope: i.scope, Synced: s.sync, LastSeen: s.last, Phase: PhaseWatching}
	switch {
	case s.err != nil:
		out.Phase, out.Error, out.Reason = PhaseFailing, s.err.Error(), reason(s.err)
	case !s.sync:
		out.Phase = PhaseListing
	case s.blocked:
		out.Phase = PhaseBlocked
	}
	return out
}

// failed shows a request that failed and is retried after delay: in metrics always, in the log once a window.
func (i *informer) failed(ctx context.Context, doing string, err error, delay time.Duration) {
	if ctx.Err() != nil {
		return
	}
	i.noteError(doing, err)
	if i.state.fail(err, time.Now()) {
		i.log.Warn("cannot read from the API server, retrying", "scope", i.scope, "doing", doing, "err", err, "retry_in", delay)
	}
}

func (i *informer) noteError(doing string, err error) {
	i.metrics.errors.WithLabelValues(doing + "_" + reason(err)).Inc()
}

// reason is err's class, for a metric's label.
func reason(err error) string {
	var netErr net.Error
	switch {
	case errors.Is(err, errRefused):
		return "refused"
	case apierrors.IsNotFound(err):
		return "not_found"
	case apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsUnauthorized(err):
		return "unauthorized"
	case apierrors.IsTooManyRequests(err):
		return "too_many_requests"
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return "expired"
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return "timeout"
	case apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err):
		return "server_error"
	case errors.As(err, &netErr):
		return "network"
	default:
		return "other"
	}
}
