package informers

import (
	"fmt"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
)

// Phase is what an informer is doing.
type Phase string

// The phases of an informer.
const (
	PhaseWaiting  Phase = "waiting"  // for its turn to list
	PhaseListing  Phase = "listing"  // the first list is being loaded
	PhaseWatching Phase = "watching" // live
	PhaseBlocked  Phase = "blocked"  // the queue is full; the watch goes on when there is room
	PhaseFailing  Phase = "failing"  // retried with backoff
	PhaseStale    Phase = "stale"    // silent, or failing, for so long that what is known may be out of date
	PhaseUnserved Phase = "unserved" // named by the selection, not served by the API server
	PhaseDraining Phase = "draining" // a changed selection takes effect once the bus has all that was sent
	PhaseRetiring Phase = "retiring" // no longer selected; not all that was sent, or that the objects left, is on the bus
)

// Status is how one informer is doing, for people and probes.
type Status struct {
	Scope    string
	Resource string // as kubectl names it: deployments.apps
	Phase    Phase
	Synced   bool          // a list has been loaded
	Stale    bool          // the phase is stale
	Error    string        // why it is failing
	Reason   string        // the class of Error, as in the metrics
	LastSeen time.Time     // last event, bookmark or list, zero: none yet
	Failures int           // in a row
	Silence  time.Duration // since the API server's last sign of life, 0: none yet, or the queue is full
	Lag      time.Duration // for how long the oldest change that the bus has not acknowledged is known, 0: it has all
	Held     int           // compressed bytes of the last-known objects

	Objects  int  // last-known objects; so far, while the first list is loaded
	Expected int  // how many the first list will have loaded, where the API server tells; 0 once it is
	Pending  int  // deltas that a list made due: reads not acknowledged yet, inferred ones not handed to the queue yet
	Resumed  bool // it went on from the checkpoint
	Captured bool // the first snapshot is on the bus, to its last read and its snapshot.completed
}

// hopeless tells if nothing is to be expected of the informer until somebody changes what is served, or permitted.
func (s *Status) hopeless() bool {
	return s.Phase == PhaseUnserved || apiserver.NeedsOperator(s.Reason)
}

// patience is how many times in a row a first list may fail before the snapshot of the others is complete without it:
// some 4 s.
const patience = 6

// holdsBack tells if the first snapshot is not complete without the informer's. What is loaded is on its way, whatever
// becomes of the watch. What cannot be loaded, for a reason of its own such as a conversion webhook that is gone, is not
// waited for for ever; the whole API server is.
func (s *Status) holdsBack() bool {
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

// few names the first of many scopes.
func few(scopes []string) string {
	const named = 10
	if more := len(scopes) - named; more > 0 {
		return fmt.Sprintf("%v and %d more", scopes[:named], more)
	}
	return fmt.Sprint(scopes)
}

// noneStale is nil if no informer is stale.
func noneStale(all []Status) error {
	var stale []string
	for _, st := range all {
		if st.Stale {
			stale = append(stale, st.Scope)
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("no sign of life from the API server for too long: %s", few(stale))
	}
	return nil
}

// state is the mutable part of an informer's status.
type state struct {
	mu      sync.Mutex
	sync    bool
	reading bool // a list is being loaded
	expects int
	resumed bool
	blocked bool
	err     error
	fails   int       // requests that failed since one succeeded
	failing time.Time // since when, while err is set
	last    time.Time // event, bookmark or list
	life    time.Time // last sign of life: also a watch that was opened, a page of a list
	waits   time.Time // since when a list waits for the API server, over all attempts that it has not answered; zero: none does
	marks   bool      // the watches have bookmarks

	warned       time.Time
	warnedReason string
}

func (s *state) listed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sync, s.expects = true, 0
}

func (s *state) setResumed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumed = true
}

func (s *state) setReading(r bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = r
}

// expect notes how many objects the list that is being loaded will have.
func (s *state) expect(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sync {
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

func (s *state) heard(at time.Time) {
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

// goesOn notes that an object of a list has come, and that it waits for the next one.
func (s *state) goesOn(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = at
}

// bookmarked notes that the watches have bookmarks, sendsBookmarks tells it.
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

func (s *state) setBlocked(b bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = b
	if !b {
		s.life = now // it could not have been heard before
	}
}

// stale tells if what is known may be out of date. What does not wait for the API server is not stale, nor what an
// administrator has to mend first. The caller holds mu.
func (s *state) stale(now time.Time) bool {
	switch {
	case s.blocked:
		return false
	case !s.waits.IsZero() && now.Sub(s.waits) > staleUnanswered:
		return true
	case !s.sync, s.reading:
		return false
	case s.err != nil:
		return !apiserver.NeedsOperator(apiserver.Reason(s.err)) && now.Sub(s.failing) > staleAfter
	case s.marks:
		return now.Sub(s.life) > staleAfter
	default:
		return now.Sub(s.life) > staleWithoutBookmarks
	}
}

// silence is the age of the last sign of life, 0 while the queue is full; false: there was none yet.
func (s *state) silence(now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocked || s.life.IsZero() {
		return 0, s.blocked
	}
	return max(0, now.Sub(s.life)), true
}

// fail notes err, of class r; warn tells if it is time to log it: it is of another class than the last one logged, or a
// window is over. news is called then, before anybody can see that it fails.
func (s *state) fail(err error, r string, now time.Time, news func()) (warn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.failing = now
	}
	s.err = err
	s.fails++
	if !apiserver.IsUnanswered(err) { // that it fails is an answer
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

// status is how the informer is doing.
func (i *informer) status() Status {
	objects, pending, caughtUp := i.store.Progress()
	held, lag, now := i.store.Size(), i.store.Lag(), time.Now()
	s := &i.state
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{
		Scope: i.scope, Resource: i.resource.String(), Synced: s.sync, LastSeen: s.last, Phase: PhaseWatching,
		Objects: objects, Expected: s.expects, Pending: pending, Captured: caughtUp, Resumed: s.resumed,
		Lag: lag, Held: held,
	}
	if !s.blocked && !s.life.IsZero() {
		out.Silence = max(0, now.Sub(s.life))
	}
	if s.err != nil {
		out.Error, out.Reason, out.Failures = s.err.Error(), apiserver.Reason(s.err), s.fails
	}
	out.Stale = s.stale(now)
	switch {
	case out.Stale:
		out.Phase = PhaseStale
	case s.err != nil:
		out.Phase = PhaseFailing
	case !s.sync && !s.reading:
		out.Phase = PhaseWaiting
	case !s.sync:
		out.Phase = PhaseListing
	case s.blocked:
		out.Phase = PhaseBlocked
	}
	return out
}

// alive tells if nothing of the scope can have happened without the informer's knowledge for longer than a minute or so:
// what a progress event claims.
func (i *informer) alive(now time.Time) bool {
	s := &i.state
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sync && s.err == nil && !s.stale(now)
}

// heldBack tells if an informer is waited for. waiting is one that was, and is looked at first: a thousand informers that tell of
// their progress would have all thousand looked at each time. Which one is the next is random (the order of a map): so few looks at
// all of them are needed until there is none.
func (s *Set) heldBack(waiting **running) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	holds := func(i *running) bool {
		if i == nil || s.active.informers[i.scope] != i || i.leaving == PhaseRetiring {
			return false
		}
		st := i.status()
		return st.holdsBack()
	}
	if len(s.namespaces.undecided) > 0 || holds(*waiting) {
		return true
	}
	for _, i := range s.active.informers {
		if holds(i) {
			*waiting = i
			return true
		}
	}
	return false
}
