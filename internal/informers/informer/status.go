package informer

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
)

// Status is the state of one informer, for people and probes.
type Status struct {
	Scope    string
	Resource string // as kubectl names it: deployments.apps
	Phase    Phase
	Health   Health
	Since    time.Time // time since which Health is not HealthOK; zero if it is, or if that is unknown
	Synced   bool      // a list has been loaded
	Error    string    // why the last request failed
	Note     string    // a peculiarity of the API server that is no failure
	Reason   string    // the class of Error, as in the metrics
	// time of the last event, bookmark or list, or of the creation of its resource; zero if there
	// was none
	LastSeen time.Time
	Failures int           // in a row
	Silence  time.Duration // time since the API server's last response; 0 if there was none yet, or the queue is full
	Lag      time.Duration // age of the oldest change that the bus has not acknowledged; 0 if there is none
	Held     int           // compressed bytes of the last-known objects

	Objects     int  // last-known objects; loaded so far during the first list
	Expected    int  // size of the first list, if the API server reports it; 0 once it is loaded
	Pending     int  // deltas that a list made pending: unacknowledged reads, and inferred deltas not in the queue yet
	Resumed     bool // it resumed from the checkpoint
	Captured    bool // the bus has the first snapshot, including snapshot.completed
	NoBookmarks bool // its watches have shown no bookmark for minutes: their silence shows nothing
}

// firstListFailures is how many failures in a row of a first list, about 4 s, the first snapshot
// waits for.
const firstListFailures = 6

// HoldsBack reports whether the first snapshot must wait for the informer. It waits for one that
// has loaded a list, whatever happens to its watch, and while the API server is unreachable. It
// does not wait forever for a list that fails for its own reason, such as a missing conversion
// webhook. It does wait for one whose pages always expire: that list is made in other ways.
func (s Status) HoldsBack() bool {
	hopeless := s.Health == HealthNotServed || apiserver.NeedsOperator(s.Reason) // until an operator intervenes
	return !s.Captured && s.Phase != PhaseRetiring &&
		(s.Synced ||
			!hopeless &&
				(s.Failures < firstListFailures || apiserver.IsShared(s.Reason) || s.Reason == apiserver.ReasonExpired))
}

const (
	// staleAfter is the limit of failures, and of silence on a watch with bookmarks. A bookmark
	// arrives each minute.
	staleAfter = 3 * time.Minute
	// unmarkedAfter is the time without a bookmark, from the opening of the first watch on, after
	// which a scope is called unmarked.
	unmarkedAfter = 2 * time.Minute
	// staleUnanswered is the limit of a list's wait for its next object or page. Then it is also
	// retried (apiserver.Silence).
	staleUnanswered = apiserver.Silence
)

// state is the mutable part of an informer's status.
type state struct {
	scope   string
	log     *slog.Logger
	changed func() // called after each change of the phase

	unlisted     atomic.Bool // the store only has the fact that no object existed at the creation of the resource
	resumed      atomic.Bool // it resumed from the checkpoint
	hasBookmarks atomic.Bool // the watches have bookmarks
	// calmUntil is the time, in Unix nanoseconds, before which IsWell need not look; 0: not known.
	calmUntil atomic.Int64

	mu      sync.Mutex
	phase   Phase
	changes uint64 // counts what may make the scope unwell, apart from time
	expects int    // objects, as the first list reports, while it is loaded
	note    string // see Status.Note
	held    heldBack
	contact
	failure
}

// contact has the times of the API server's last responses.
type contact struct {
	last time.Time // event, bookmark or list; a time of the run, as in events
	life time.Time // last response: also the opening of a watch, or a page of a list
	// time since which a list waits for the API server, including attempts without an answer; zero
	// if none waits
	waits  time.Time
	opens  time.Time // when the first watch was opened
	unread bool      // the watch is ended because the queue is full: no response is possible
}

// failure describes the failure of the last request.
type failure struct {
	err     error     // nil if it succeeded
	fails   int       // failed requests since the last success
	failing time.Time // time of the first of them, while err is set

	warned       time.Time
	warnedReason string
}

// noteLowLists records that a list at resourceVersion rv has an object at highest, so rv is no
// position.
func (s *state) noteLowLists(rv, highest uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.note != "" {
		return
	}
	s.note = fmt.Sprintf(
		"its API server returned a list at resourceVersion %d with an object at %d: the agent continues from the object's",
		rv, highest)
	s.log.Warn(
		"the resourceVersion of a list is lower than that of an object in it: continuing from the object's, changes in between may be missing",
		"scope", s.scope, "rv", rv, "highest_rv", highest, "advice",
		"report it to the owner of the API server that serves the resource")
}

// lastError returns the error of the last request, or nil.
func (s *state) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// noteAnswer records a response other than an event, bookmark or list. expects is the size of the
// list that is being loaded, 0 if unknown.
func (s *state) noteAnswer(at time.Time, expects int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life, s.waits = at, (time.Time{})
	if expects > 0 && s.phase == PhaseListing {
		s.expects = expects
	}
}

// noteOpened records that a watch was opened.
func (s *state) noteOpened(at time.Time) {
	s.noteAnswer(at, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opens.IsZero() {
		s.opens = at
	}
}

// noteWaiting records that a list waits for the API server: for a page, or, after an object was
// received (more), for the next one.
func (s *state) noteWaiting(at time.Time, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if more || s.waits.IsZero() {
		s.waits = at
	}
}

// staleSince reports whether the known state may be out of date, and since when. A scope that does
// not wait for the API server is not stale, nor is one whose failure needs an operator. It must be
// called with mu held.
func (s *state) staleSince(now time.Time) (since time.Time, stale bool) {
	since = s.life
	switch {
	case s.unread:
		return since, false
	case now.Sub(s.waits) > staleUnanswered && !s.waits.IsZero():
		return s.waits, true
	case !s.phase.isListed(), !s.waits.IsZero(), s.err != nil && apiserver.NeedsOperator(apiserver.Reason(s.err)):
		return since, false
	case s.held.why != "":
		return s.held.since, true
	case s.err != nil:
		since = s.failing
	case !s.hasBookmarks.Load(): // silence shows nothing
		return since, false
	}
	return since, now.Sub(since) > staleAfter
}

// health returns the health, and the time since which it is not HealthOK. It must be called with mu
// held.
func (s *state) health(now time.Time) (Health, time.Time) {
	since, stale := s.staleSince(now)
	switch {
	case s.phase.IsLeaving(): // no rule selects it any more
	case stale:
		return HealthStale, since
	case s.err != nil:
		return HealthOf(apiserver.Reason(s.err)), s.failing
	}
	return HealthOK, time.Time{}
}

// silence returns the time since the last response, 0 if there was none yet or the watch is not
// read. It must be called with mu held.
func (s *state) silence(now time.Time) time.Duration {
	if s.unread || s.life.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.life))
}

// noteFailure records err, of class r. It reports whether to log it: its class differs from the
// last one logged, or a window is over. Then it calls news before other goroutines can see the
// failure.
func (s *state) noteFailure(err error, r string, now time.Time, news func()) (warn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.failing = now
	}
	s.err = err
	s.changedLocked()
	s.fails++
	if !apiserver.IsUnanswered(err) { // the error is an answer
		s.waits = time.Time{}
	}
	window := warnEvery
	if apiserver.NeedsOperator(r) {
		window = warnHopelessEvery
	}
	if r == s.warnedReason && now.Sub(s.warned) < window {
		return false
	}
	s.warned, s.warnedReason = now, r
	news()
	return true
}

// IsWell reports whether the scope is observed, without a failure, and the bus has its first
// snapshot. It costs less than Status, and hardly anything while the scope is live: it is called
// each 5 s for all scopes.
func (i *Informer) IsWell(now time.Time) bool {
	s := &i.state
	if now.UnixNano() < s.calmUntil.Load() {
		return true
	}
	s.mu.Lock()
	health, _ := s.health(now)
	isWell := health == HealthOK && s.phase.isListed() && !s.phase.IsLeaving()
	changes := s.changes
	s.mu.Unlock()
	if !isWell || !i.store.IsCaughtUp() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == PhaseLive && s.changes == changes {
		s.calmUntil.Store(s.staleFrom(now).UnixNano())
	}
	return true
}

// staleFrom returns a time before which a healthy scope is not stale, unless something else
// changes. It must be called with mu held.
func (s *state) staleFrom(now time.Time) time.Time {
	from := now.Add(staleUnanswered) // a list may begin to wait
	if at := s.waits.Add(staleUnanswered); !s.waits.IsZero() && at.Before(from) {
		from = at
	}
	if at := s.life.Add(staleAfter); s.hasBookmarks.Load() && at.Before(from) {
		from = at
	}
	return from
}

// changedLocked notes what may make the scope unwell.
func (s *state) changedLocked() {
	s.changes++
	s.calmUntil.Store(0)
}

// AcquireLocks acquires and releases the locks that all work on the scope needs.
func (i *Informer) AcquireLocks() {
	i.LastSeen()
	i.coverage.isOpen()
	i.store.Lag()
}

// Status returns the current status.
func (i *Informer) Status() Status {
	known := i.store.View()
	lag := i.store.Lag()
	now := time.Now()
	s := &i.state
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{
		Scope:    i.name,
		Resource: i.resource.String(),
		Phase:    s.phase,
		Synced:   s.phase.isListed(),
		LastSeen: s.last,
		Objects:  known.Objects,
		Expected: s.expects,
		Pending:  known.Pending,
		Captured: known.CaughtUp,
		Resumed:  s.resumed.Load(),
		Lag:      lag,
		Held:     known.Bytes,
		Silence:  s.silence(now),
	}
	if s.phase.IsLeaving() {
		out.Synced = known.Loaded
	}
	if s.err != nil {
		out.Error = s.err.Error()
		out.Reason = apiserver.Reason(s.err)
		out.Failures = s.fails
	} else if s.held.why != "" {
		out.Error, out.Reason = s.held.why, ReasonHeldBack
	}
	out.Note = s.note
	isUnmarked := !s.hasBookmarks.Load() && !s.opens.IsZero() && now.Sub(s.opens) > unmarkedAfter
	out.NoBookmarks = isUnmarked && !s.phase.IsLeaving()
	out.Health, out.Since = s.health(now)
	return out
}
