package store

import (
	"errors"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A log of the bus (a stream, a topic) may be replaced by another one, or lose records that it had
// acknowledged. The scope continues and sends everything again: a gap up to the last change that
// may have gone to the old log, followed by a snapshot.
//
// Each replacement has a number. A gap is owed while the number of the log is higher than the
// announced one. The checkpoint has the announced number and the snapshot that is due: both are
// saved before the snapshot starts. A crash before that repeats the gap.

type replacements struct { // numbers of replacements
	owed      uint64    // the last one
	since     time.Time // when the previous log was last known to be whole
	announced uint64    // the last one for which the log has a gap
}

func (r *replacements) owes() bool { return r.owed > r.announced }

// Resume makes a replacement of the log since the scope's checkpoint c count.
func (s *Store) Resume(c *checkpoint.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.announced = c.Log
	if !c.LastSeen.IsZero() && (!s.log.owes() || c.LastSeen.Before(s.log.since)) {
		// zero: the API server had not answered then
		s.log.since = c.LastSeen
	}
	s.noteReplacementLocked()
}

// Rebase makes the cursor announce a gap if the log was replaced. Live deltas wait for it.
func (s *Store) Rebase() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteReplacementLocked()
	if !s.log.owes() {
		return
	}
	if s.list.at == listed {
		s.closeGateLocked()
		s.gate.interrupt()
	}
	broadcast.Wake(s.wake)
}

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

// announceReplacementLocked inserts the gap of a replacement, if owed, before any other Notice. The
// cursor calls it between lists.
func (s *Store) announceReplacementLocked() {
	s.noteReplacementLocked()
	if s.list.at == unlisted || !s.log.owes() ||
		slices.ContainsFunc(s.gate.notices, func(n *Notice) bool { return n.rebase }) {
		return
	}
	s.closeGateLocked()
	snap := s.snaps.current
	// a snapshot of the whole scope
	follows := snap != nil && snap.namespace == "" && !snap.resumed && snap.phase == snapshotBound
	// If a snapshot is given up or dropped, another one follows, also without snapshots by time: it
	// was asked for.
	sweep := !follows && (s.o.Snapshots || snap != nil)
	switch {
	case follows:
	case snap.mayBeGivenUp():
		s.giveUpLocked(errors.New("the log of the bus was replaced: another snapshot follows"))
	default:
		s.dropSnapshotLocked() // the old log may have a part of it
	}
	n := &Notice{rebase: true}
	var number uint64
	n.event = func() *object.StreamEvent {
		s.noteReplacementLocked()
		number = s.log.owed
		// Every delta that was put into the lane so far is at or below rv, and may have gone to the
		// old log. Etcd begins at 1.
		return &object.StreamEvent{
			Kind:     object.Gap,
			Resource: s.o.Resource,
			Scope:    s.o.Scope,
			From:     1,
			To:       s.known.rv,
			Since:    s.Past(s.log.since),
			Reason:   object.CheckpointLost,
		}
	}
	n.done = func() {
		s.log.announced = number
		s.begins.announced, s.begins.continued = false, false // the new log lacks it
		s.snaps.due = s.snaps.due || sweep
	}
	s.gate.notices = slices.Insert(s.gate.notices, 0, n)
}

// LogNumber returns the number of the last replacement of the log.
func (s *Store) LogNumber() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteReplacementLocked()
	return s.log.owed
}
