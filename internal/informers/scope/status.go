package scope

import (
	"log/slog"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
)

// Status is the state of one informer, for people and probes.
type Status struct {
	Scope    string
	Resource string // as kubectl names it: deployments.apps
	Phase    Phase
	Health   Health
	Since    time.Time     // since when Health is not HealthOK, zero: it is, or that is not known
	Synced   bool          // a list has been loaded
	Error    string        // why the last request failed
	Reason   string        // the class of Error, as in the metrics
	LastSeen time.Time     // last event, bookmark or list, zero: none yet
	Failures int           // in a row
	Silence  time.Duration // since the API server's last sign of life, 0: none yet, or the queue is full
	Lag      time.Duration // for how long the oldest change that the bus has not acknowledged is known, 0: it has all
	Held     int           // compressed bytes of the last-known objects

	Objects  int  // last-known objects; so far, while the first list is loaded
	Expected int  // how many objects the first list has, if the API server reports it; 0 once it is loaded
	Pending  int  // deltas that a list made pending: reads not acknowledged yet, inferred ones not handed to the queue yet
	Resumed  bool // it resumed from the checkpoint
	Captured bool // the first snapshot is on the bus, to its last read and its snapshot.completed
}

// hopeless reports whether the informer fails until an operator changes what is served, or permitted.
func (s *Status) hopeless() bool {
	return s.Health == HealthNotServed || apiserver.NeedsOperator(s.Reason)
}

// patience is how many times in a row a first list may fail before the snapshot of the others is complete without it:
// some 4 s.
const patience = 6

// HoldsBack reports whether the first snapshot is not complete without the informer's. A list that is loaded is waited for, whatever happens to
// the watch. A list that fails for a reason of its own, such as a conversion webhook that is gone, is not waited for forever. An API
// server that is out of reach is.
func (s *Status) HoldsBack() bool {
	return !s.Captured && s.Phase != PhaseRetiring && (s.Synced || !s.hopeless() && (s.Failures < patience || apiserver.IsShared(s.Reason)))
}

const (
	// staleAfter is for how long an informer may fail, or be silent where there are bookmarks: one a minute.
	staleAfter = 3 * time.Minute
	// staleWithoutBookmarks is for how long it may be silent where there are none. A watch lasts up to 10 min, and that the next
	// one is opened is a sign of life.
	staleWithoutBookmarks = 12 * time.Minute
	// staleUnanswered is for how long a list may wait for its next object, or page. Then it is also made again (apiserver.Silence).
	staleUnanswered = apiserver.Silence
)

// state is the mutable part of an informer's status.
type state struct {
	scope   string
	log     *slog.Logger
	changed func() // called after each change of the phase

	mu      sync.Mutex
	phase   Phase
	expects int // objects, as the first list reports, while it is loaded
	// unlisted: the store has nothing but that no object existed when the resource was created.
	unlisted bool
	resumed  bool // it resumed from the checkpoint
	contact
	failure
}

// contact is when the API server last gave a sign of life.
type contact struct {
	last   time.Time // event, bookmark or list
	life   time.Time // last sign of life: also a watch that was opened, a page of a list
	waits  time.Time // since when a list waits for the API server, over all attempts that it has not answered; zero: none does
	marks  bool      // the watches have bookmarks
	unread bool      // the watch is ended because the queue is full: no sign of life is possible
}

// failure is that of the last request.
type failure struct {
	err     error     // nil: it did not fail
	fails   int       // requests that failed since one succeeded
	failing time.Time // since when, while err is set

	warned       time.Time
	warnedReason string
}

// setUnlisted notes whether the store has nothing but that no object existed when the resource was created.
func (s *state) setUnlisted(unlisted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlisted = unlisted
}

func (s *state) setResumed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumed = true
}

// expect notes how many objects the list that is being loaded will have.
func (s *state) expect(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == PhaseListing {
		s.expects = n
	}
}

// recovered notes that what failed works again; false: nothing had failed.
func (s *state) recovered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := s.err != nil
	s.err, s.fails = nil, 0
	return failed
}

// lastError is that of the last request, nil: it did not fail.
func (s *state) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *state) seen(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.waits = at, time.Time{}
	if at.After(s.life) {
		s.life = at
	}
}

// answered notes a sign of life that is no event, bookmark or list.
func (s *state) answered(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life, s.waits = at, time.Time{}
}

// asks notes that a list asks for a page.
func (s *state) asks(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits.IsZero() {
		s.waits = at
	}
}

// goesOn notes that an object of a list was received, and that the list waits for the next one.
func (s *state) goesOn(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = at
}

// bookmarked notes that the watches have bookmarks; sendsBookmarks reports it.
func (s *state) bookmarked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = true
}

func (s *state) sendsBookmarks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks
}

func (s *state) lastSeen() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// setUnread notes whether the watch is ended because its events are not taken.
func (s *state) setUnread(unread bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = unread
	if !unread {
		s.life = now // no sign of life was possible before
	}
	switch {
	case unread && s.phase == PhaseLive:
		s.toLocked(PhaseBlocked)
	case !unread && s.phase == PhaseBlocked:
		s.toLocked(PhaseLive)
	}
}

// stale reports whether the known state may be out of date, and since when there is no sign of life. A scope that does not wait for the API
// server is not stale, nor is one whose failure an operator has to remove first. The caller holds mu.
func (s *state) stale(now time.Time) (since time.Time, stale bool) {
	since, within := s.life, staleWithoutBookmarks
	switch {
	case s.unread:
		return since, false
	case now.Sub(s.waits) > staleUnanswered && !s.waits.IsZero():
		return s.waits, true
	case !s.phase.isListed(), !s.waits.IsZero():
		return since, false
	case s.err != nil && apiserver.NeedsOperator(apiserver.Reason(s.err)):
		return since, false
	case s.err != nil:
		since, within = s.failing, staleAfter
	case s.marks:
		within = staleAfter
	}
	return since, now.Sub(since) > within
}

// health returns the health, and since when it is not HealthOK. The caller holds mu.
func (s *state) health(now time.Time) (Health, time.Time) {
	since, stale := s.stale(now)
	switch {
	case s.phase.IsLeaving(): // no rule selects it any more
		return HealthOK, time.Time{}
	case stale:
		return HealthStale, since
	case s.err != nil:
		return HealthOf(apiserver.Reason(s.err)), s.failing
	default:
		return HealthOK, time.Time{}
	}
}

// silence is the age of the last sign of life, 0 while the watch is not read; false: there was none yet.
func (s *state) silence(now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread || s.life.IsZero() {
		return 0, s.unread
	}
	return max(0, now.Sub(s.life)), true
}

// fail notes err, of class r. It reports whether to log it: its class differs from the last one logged, or a window is over. Then it calls news
// before others can see the failure.
func (s *state) fail(err error, r string, now time.Time, news func()) (warn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.failing = now
	}
	s.err = err
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

// Status returns the present status.
func (i *Informer) Status() Status {
	objects, pending, caughtUp := i.store.Progress()
	held, lag, loaded, now := i.store.Size(), i.store.Lag(), i.store.IsLoaded(), time.Now()
	s := &i.state
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{
		Scope: i.name, Resource: i.resource.String(), Phase: s.phase, Synced: s.phase.isListed(), LastSeen: s.last,
		Objects: objects, Expected: s.expects, Pending: pending, Captured: caughtUp, Resumed: s.resumed,
		Lag: lag, Held: held,
	}
	if s.phase.IsLeaving() {
		out.Synced = loaded
	}
	if !s.unread && !s.life.IsZero() {
		out.Silence = max(0, now.Sub(s.life))
	}
	if s.err != nil {
		out.Error, out.Reason, out.Failures = s.err.Error(), apiserver.Reason(s.err), s.fails
	}
	out.Health, out.Since = s.health(now)
	return out
}

// alive reports whether the informer has seen everything that happened until about a minute ago: a progress event states that.
func (i *Informer) alive(now time.Time) bool {
	s := &i.state
	s.mu.Lock()
	defer s.mu.Unlock()
	_, stale := s.stale(now)
	return s.phase.isListed() && s.err == nil && !stale
}
