package informers

import (
	"errors"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A log of the bus (a stream, a topic) may be replaced by another one, or lose records that it had acknowledged. What it had is
// lost for consumers, and neither history nor the last-known objects are: so a scope goes on from where it is. It is told anew on the
// new log: by a gap from the beginning up to the last change that may have gone to the old log, followed by a snapshot, whose sweep
// also removes what was deleted meanwhile.
//
// Each replacement has a number. A scope owes the gap while the number of its log is higher than the one it has announced. The
// checkpoint gets the number once the snapshot has begun, with the position that has the snapshot: a crash before repeats the gap.

// firstVersion is the resourceVersion of an etcd in which nothing has been written.
const firstVersion = 1

// errLogReplaced is why a snapshot is given up.
var errLogReplaced = errors.New("the log of the bus was replaced: another snapshot follows")

// Rebase has each scope whose log was replaced told anew. It does not wait.
func (s *Set) Rebase() {
	for _, i := range s.observing() {
		i.store.rebase()
	}
}

// logOf returns what tells the number of the last replacement of a log that takes events of a scope, nil: the bus cannot tell.
func (s *Set) logOf(scope *selection.Scope) func() (uint64, time.Time) {
	if s.o.Replaced == nil {
		return nil
	}
	return func() (uint64, time.Time) { return s.o.Replaced(scope.Resource, scope.Namespace) }
}

// followLog has the scope told anew from the next replacement of its log on.
func (s *store) followLog() {
	s.log.since = time.Now()
	s.noteLog()
	s.log.announced, s.log.told = s.log.owed, s.log.owed
}

// resumeLog has the scope told anew if its log was replaced since the checkpoint.
func (s *store) resumeLog(c *checkpoint.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.announced, s.log.told = c.Log, c.Log
	if !c.LastSeen.IsZero() && (!s.log.owes() || c.LastSeen.Before(s.log.since)) { // zero: the API server has not answered yet
		s.log.since = c.LastSeen
	}
	s.noteLog()
}

// logState is what a scope knows of replacements of its log, by their numbers.
type logState struct {
	owed      uint64    // the last one that the scope knows of
	since     time.Time // when the log before it was last known to be whole
	announced uint64    // up to which a gap is on the log
	told      uint64    // up to which a snapshot behind the gap has begun
}

func (l *logState) owes() bool { return l.owed > l.announced }

// rebase has the cursor announce the gap, if the log was replaced. Live deltas wait for it.
func (s *store) rebase() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noteLog(); !s.log.owes() {
		return
	}
	if s.loaded && s.listing == notListing {
		s.shutGate()
		if s.interrupt != nil {
			s.interrupt()
		}
	}
	s.wakeCursor()
}

// noteLog asks for the last replacement. The caller holds mu.
func (s *store) noteLog() {
	if s.o.Replaced == nil {
		return
	}
	if number, since := s.o.Replaced(); number > s.log.owed {
		if !since.IsZero() && (!s.log.owes() || since.Before(s.log.since)) { // one gap tells of all that are owed
			s.log.since = since
		}
		s.log.owed = number
	}
}

// announceRebase puts the gap that is owed in front of all that is announced. The cursor calls it between lists, with mu held.
func (s *store) announceRebase() {
	s.noteLog()
	if !s.loaded || !s.log.owes() || slices.ContainsFunc(s.announce, func(n *notice) bool { return n.rebase }) {
		return
	}
	s.shutGate()
	follows := s.keepsSnapshot()
	// Another snapshot follows one that is given up, also if none are taken: the reads that are dropped may be all that tells of what a
	// list has found.
	sweep := !follows && (s.o.Snapshots || s.snapshot != nil)
	if !follows {
		s.abandonSnapshot()
	}
	n := &notice{rebase: true}
	number := s.log.owed
	n.event = func() *object.StreamEvent {
		s.noteLog()
		number = s.log.owed
		// Every delta that was put into the queue so far is at or below rv. It may have gone to the old log, and if it comes to the
		// new one, nobody is harmed.
		ev := &object.StreamEvent{
			Kind: object.Gap, Resource: s.o.Resource, Scope: s.o.Scope, From: firstVersion, To: s.rv, Since: s.log.since, Reason: object.CheckpointLost,
		}
		return ev
	}
	n.done = func() {
		s.log.announced = number
		if !s.o.Snapshots {
			s.log.told = number
		}
		s.sweep = s.sweep || sweep
	}
	s.announce = slices.Insert(s.announce, 0, n)
}

// keepsSnapshot reports whether a snapshot of the whole scope begins anyway. The caller holds mu.
func (s *store) keepsSnapshot() bool {
	snap := s.snapshot
	return snap != nil && snap.namespace == "" && !snap.resumed &&
		slices.ContainsFunc(s.announce, func(n *notice) bool { return n.opens == snap && n.begins == nil && !n.sending })
}

// abandonSnapshot gives up a snapshot of which a part may be on the old log. The caller holds mu.
func (s *store) abandonSnapshot() {
	if n := s.beginning(); n != nil {
		s.giveUp(n, errLogReplaced)
		return
	}
	snap := s.snapshot
	if snap == nil {
		return
	}
	s.announce = slices.DeleteFunc(s.announce, func(n *notice) bool { return n.opens == snap })
	for key, e := range s.objects {
		if e.due == dueRead {
			s.set(key, entry{last: e.last})
		}
	}
	s.snapshot = nil
	s.line()
}

// logReplaced reports whether the log was replaced since the replacement with that number.
func (s *store) logReplaced(since uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLog()
	return s.log.owed > since
}
