package informers

import (
	"sync"
	"time"
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
	PhaseUnserved Phase = "unserved" // named by the selection, not served by the API server
)

// Status is how one informer is doing, for people and probes.
type Status struct {
	Scope    string
	Resource string // as kubectl names it: deployments.apps
	Phase    Phase
	Synced   bool      // a list has been loaded
	Error    string    // why it is failing
	Reason   string    // the class of Error, as in the metrics
	LastSeen time.Time // last event or bookmark, zero: none yet
	Failures int       // in a row

	Objects  int  // last-known objects; so far, while the first list is loaded
	Expected int  // how many the first list will have loaded, where the API server tells; 0 once it is
	Pending  int  // deltas that a list made due: reads not acknowledged yet, inferred ones not handed to the queue yet
	Captured bool // the first snapshot is on the bus, to its last read and its snapshot.completed
}

// hopeless tells if nothing is to be expected of the informer until somebody changes what is served, or permitted.
func (s *Status) hopeless() bool {
	return s.Phase == PhaseUnserved || hopeless(s.Reason)
}

// patience is how many times in a row a first list may fail before the snapshot of the others is complete without it:
// some 4 s.
const patience = 6

// holdsBack tells if the first snapshot is not complete without the informer's. What is loaded is on its way, whatever
// becomes of the watch. What cannot be loaded, for a reason of its own such as a conversion webhook that is gone, is not
// waited for for ever; the whole API server is.
func (s *Status) holdsBack() bool {
	return !s.Captured && (s.Synced || !s.hopeless() && (s.Failures < patience || common(s.Reason)))
}

func hopeless(reason string) bool {
	return reason == "forbidden" || reason == "not_found" || reason == "refused"
}

// state is the mutable part of an informer's status.
type state struct {
	mu      sync.Mutex
	sync    bool
	reading bool // a list is being loaded
	expects int
	blocked bool
	err     error
	fails   int // requests that failed since one succeeded
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
	s.sync, s.expects = true, 0
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

// fail notes err, of class r; warn tells if it is time to log it: it is of another class than the last one logged, or a
// window is over.
func (s *state) fail(err error, r string, now time.Time) (warn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.fails++
	window := warnEvery
	if hopeless(r) {
		window = warnHopelessEvery
	}
	if r == s.warnedReason && now.Sub(s.warned) < window {
		return false
	}
	s.warned, s.warnedReason = now, r
	return true
}

// status is how the informer is doing.
func (i *informer) status() Status {
	objects, pending, caughtUp := i.store.progress()
	s := &i.state
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{
		Scope: i.scope, Resource: i.resource.String(), Synced: s.sync, LastSeen: s.last, Phase: PhaseWatching,
		Objects: objects, Expected: s.expects, Pending: pending, Captured: caughtUp,
	}
	switch {
	case s.err != nil:
		out.Phase, out.Error, out.Reason, out.Failures = PhaseFailing, s.err.Error(), reason(s.err), s.fails
	case !s.sync && !s.reading:
		out.Phase = PhaseWaiting
	case !s.sync:
		out.Phase = PhaseListing
	case s.blocked:
		out.Phase = PhaseBlocked
	}
	return out
}
