package store

import "slices"

// snapshotPhase says how far a snapshot is. A snapshot of a list begins as bound: no change passes
// the list before the bus has its start. A snapshot of the last-known objects must not hold changes
// back for long. It begins as offered, and is given up if the bus or the checkpoint are too slow.
type snapshotPhase uint8

const (
	snapshotOffered   snapshotPhase = iota // its start is not in the lane; it may be given up
	snapshotTried                          // its start is handed to the lane; it may be given up
	snapshotBound                          // its start is not in the lane; every change waits for it
	snapshotStarting                       // its start is handed to the lane; every change waits for it
	snapshotReading                        // the bus has its start; its reads are sent
	snapshotSent                           // all of its reads are in the lane
	snapshotCompleted                      // the bus has its end
	snapshotGivenUp                        // none of its reads was sent: changes did not wait for its start
	snapshotDropped                        // history, or the log, was lost before its end
)

// String returns the name of a phase, for the log.
func (p snapshotPhase) String() string {
	return [...]string{
		snapshotOffered:   "offered",
		snapshotTried:     "tried",
		snapshotBound:     "bound",
		snapshotStarting:  "starting",
		snapshotReading:   "reading",
		snapshotSent:      "sent",
		snapshotCompleted: "completed",
		snapshotGivenUp:   "given up",
		snapshotDropped:   "dropped",
	}[p]
}

// leadsTo reports whether next may follow p.
func (p snapshotPhase) leadsTo(next snapshotPhase) bool {
	table := [...][]snapshotPhase{
		snapshotOffered: {snapshotTried, snapshotGivenUp, snapshotDropped},
		// starting: a list holds changes back anyway
		snapshotTried: {snapshotStarting, snapshotReading, snapshotGivenUp, snapshotDropped},
		snapshotBound: {snapshotStarting, snapshotDropped},
		// bound: the lane has not taken its start in time
		snapshotStarting:  {snapshotReading, snapshotBound, snapshotDropped},
		snapshotReading:   {snapshotSent, snapshotDropped},
		snapshotSent:      {snapshotCompleted, snapshotDropped},
		snapshotCompleted: {},
		snapshotGivenUp:   {},
		snapshotDropped:   {},
	}
	return slices.Contains(table[p], next)
}

// mayBeGivenUp reports whether changes may still pass the snapshot.
func (p snapshotPhase) mayBeGivenUp() bool { return p == snapshotOffered || p == snapshotTried }

// IllegalChange is logged if a change of a snapshot's phase is not in the table.
const IllegalChange = "illegal change of a snapshot's phase"

// enterLocked changes the phase of a snapshot. It is the only function that does. A start is
// announced twice if a gap has to precede it.
func (s *Store) enterLocked(snap *snapshot, next snapshotPhase) {
	if next == snap.phase {
		return
	}
	if !snap.phase.leadsTo(next) {
		s.o.Log.Error(IllegalChange, "scope", s.o.Scope, "snapshot", snap.id, "from", snap.phase.String(), "to",
			next.String())
	}
	snap.phase = next
}
