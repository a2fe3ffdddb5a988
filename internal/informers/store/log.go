package store

import (
	"errors"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A log of the bus (a stream, a topic) may be replaced by another one, or lose records that it had acknowledged. What it had is lost for
// consumers, but neither history nor the last-known objects are. The scope continues, and sends everything again to the new log: a gap from the
// beginning up to the last change that may have gone to the old log, then a snapshot, whose sweep also removes what was deleted meanwhile.
//
// Each replacement has a number. A gap is owed while the number of the log is higher than the announced one. The checkpoint has the announced
// number and the snapshot that is due: both are saved before the snapshot starts. A crash before that repeats the gap.

// firstVersion is the resourceVersion of an etcd in which nothing has been written.
const firstVersion = 1

// errLogReplaced is why a snapshot that is about to begin is given up.
var errLogReplaced = errors.New("the log of the bus was replaced: another snapshot follows")

// replacements is what is known of replacements of the log, by their numbers.
type replacements struct {
	owed      uint64    // the last one
	since     time.Time // when the log before it was last known to be whole
	announced uint64    // up to which the log has a gap
}

func (l *replacements) owes() bool { return l.owed > l.announced }

// followLog ignores replacements before now.
func (s *Store) followLog() {
	s.log.since = time.Now()
	s.noteReplacementLocked()
	s.log.announced = s.log.owed
}

// ResumeLog makes a replacement of the log since the checkpoint count.
func (s *Store) ResumeLog(c *checkpoint.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.announced = c.Log
	if !c.LastSeen.IsZero() && (!s.log.owes() || c.LastSeen.Before(s.log.since)) { // zero: the API server had not answered then
		s.log.since = c.LastSeen
	}
	s.noteReplacementLocked()
}

// Rebase makes the cursor announce a gap if the log was replaced. Live deltas wait for it.
func (s *Store) Rebase() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noteReplacementLocked(); !s.log.owes() {
		return
	}
	if s.list.at == listed {
		s.closeGateLocked()
		if s.gate.interrupt != nil {
			s.gate.interrupt()
		}
	}
	broadcast.Wake(s.wake)
}

// noteReplacementLocked looks for a replacement.
func (s *Store) noteReplacementLocked() {
	if s.o.Replaced == nil {
		return
	}
	if number, since := s.o.Replaced(); number > s.log.owed {
		if !since.IsZero() && (!s.log.owes() || since.Before(s.log.since)) { // one gap covers all that are owed
			s.log.since = since
		}
		s.log.owed = number
	}
}

// announceReplacementLocked puts a gap that is owed before all other notices. The cursor calls it between lists.
func (s *Store) announceReplacementLocked() {
	s.noteReplacementLocked()
	if s.list.at == unlisted || !s.log.owes() || slices.ContainsFunc(s.gate.notices, func(n *Notice) bool { return n.rebase }) {
		return
	}
	s.closeGateLocked()
	follows := s.keepsSnapshotLocked()
	// Another snapshot follows one that is given up, even if none are taken: the dropped reads may be the only deltas of what a list found.
	sweep := !follows && (s.o.Snapshots || s.snaps.current != nil)
	if !follows {
		s.abandonSnapshotLocked()
	}
	n := &Notice{rebase: true}
	number := s.log.owed
	n.event = func() *object.StreamEvent {
		s.noteReplacementLocked()
		number = s.log.owed
		// Every delta that was put into the lane so far is at or below rv. It may have gone to the old log. If the new one gets it, that does
		// no harm.
		return &object.StreamEvent{
			Kind: object.Gap, Resource: s.o.Resource, Scope: s.o.Scope, From: firstVersion, To: s.known.rv, Since: s.log.since, Reason: object.CheckpointLost,
		}
	}
	n.done = func() {
		s.log.announced = number
		s.snaps.due = s.snaps.due || sweep
	}
	s.gate.notices = slices.Insert(s.gate.notices, 0, n)
}

// keepsSnapshotLocked reports whether a snapshot of the whole scope is about to begin anyway.
func (s *Store) keepsSnapshotLocked() bool {
	snap := s.snaps.current
	return snap != nil && snap.namespace == "" && !snap.resumed &&
		slices.ContainsFunc(s.gate.notices, func(n *Notice) bool { return n.opens == snap && n.begins == nil && !n.sending })
}

// abandonSnapshotLocked gives up a snapshot of which the old log may have a part.
func (s *Store) abandonSnapshotLocked() {
	if n := s.beginningLocked(); n != nil {
		s.giveUpLocked(n, errLogReplaced)
		return
	}
	snap := s.snaps.current
	if snap == nil {
		return
	}
	s.gate.notices = slices.DeleteFunc(s.gate.notices, func(n *Notice) bool { return n.opens == snap })
	s.dropReadsLocked()
}

// LogNumber returns the number of the last replacement of the log.
func (s *Store) LogNumber() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteReplacementLocked()
	return s.log.owed
}
