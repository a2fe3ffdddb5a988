package store

import (
	"errors"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// firstVersion is the resourceVersion of an etcd in which nothing has been written.
const firstVersion = 1

// errLogReplaced is why a snapshot is given up.
var errLogReplaced = errors.New("the log of the bus was replaced: another snapshot follows")

// replacements is what a scope knows of replacements of its log, by their numbers.
type replacements struct {
	owed        uint64    // the last one that the scope knows of
	since       time.Time // when the log before it was last known to be whole
	announced   uint64    // up to which a gap is on the log
	snapshotted uint64    // up to which a snapshot behind the gap has begun
}

// followLog has the scope told anew from the next replacement of its log on.
func (s *Store) followLog() {
	s.log.since = time.Now()
	s.noteReplacementLocked()
	s.log.announced, s.log.snapshotted = s.log.owed, s.log.owed
}

// ResumeLog has the scope told anew if its log was replaced since the checkpoint.
func (s *Store) ResumeLog(c *checkpoint.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.announced, s.log.snapshotted = c.Log, c.Log
	if !c.LastSeen.IsZero() && (!s.log.owes() || c.LastSeen.Before(s.log.since)) { // zero: the API server has not answered yet
		s.log.since = c.LastSeen
	}
	s.noteReplacementLocked()
}

// Rebase has the cursor announce the gap, if the log was replaced. Live deltas wait for it.
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
	s.wakeCursor()
}

// noteReplacementLocked asks for the last replacement. The caller holds mu.
func (s *Store) noteReplacementLocked() {
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

// announceReplacementLocked puts the gap that is owed in front of all that is announced. The cursor calls it between lists, with mu held.
func (s *Store) announceReplacementLocked() {
	s.noteReplacementLocked()
	if s.list.at == unlisted || !s.log.owes() || slices.ContainsFunc(s.gate.notices, func(n *Notice) bool { return n.rebase }) {
		return
	}
	s.closeGateLocked()
	follows := s.keepsSnapshotLocked()
	// Another snapshot follows one that is given up, also if none are taken: the reads that are dropped may be all that tells of what a
	// list has found.
	sweep := !follows && (s.o.Snapshots || s.snaps.current != nil)
	if !follows {
		s.abandonSnapshotLocked()
	}
	n := &Notice{rebase: true}
	number := s.log.owed
	n.event = func() *object.StreamEvent {
		s.noteReplacementLocked()
		number = s.log.owed
		// Every delta that was put into the queue so far is at or below rv. It may have gone to the old log, and if it comes to the
		// new one, nobody is harmed.
		ev := &object.StreamEvent{
			Kind: object.Gap, Resource: s.o.Resource, Scope: s.o.Scope, From: firstVersion, To: s.known.rv, Since: s.log.since, Reason: object.CheckpointLost,
		}
		return ev
	}
	n.done = func() {
		s.log.announced = number
		if !s.o.Snapshots {
			s.log.snapshotted = number
		}
		s.snaps.due = s.snaps.due || sweep
	}
	s.gate.notices = slices.Insert(s.gate.notices, 0, n)
}

// keepsSnapshotLocked reports whether a snapshot of the whole scope begins anyway. The caller holds mu.
func (s *Store) keepsSnapshotLocked() bool {
	snap := s.snaps.current
	return snap != nil && snap.namespace == "" && !snap.resumed &&
		slices.ContainsFunc(s.gate.notices, func(n *Notice) bool { return n.opens == snap && n.begins == nil && !n.sending })
}

// abandonSnapshotLocked gives up a snapshot of which a part may be on the old log. The caller holds mu.
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
	for key, e := range s.known.objects {
		if e.pending == pendingRead {
			s.setLocked(key, entry{last: e.last})
		}
	}
	s.snaps.current = nil
	s.sortPendingLocked()
}

// LogReplaced reports whether the log was replaced since the replacement with that number.
func (s *Store) LogReplaced(since uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteReplacementLocked()
	return s.log.owed > since
}

// LogNumber is the number of the last replacement of the log.
func (s *Store) LogNumber() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteReplacementLocked()
	return s.log.owed
}

func (l *replacements) owes() bool { return l.owed > l.announced }
