package oracle

import (
	"time"
)

// The values of op, as in the contract.
const (
	Created = "c"
	Updated = "u"
	Deleted = "d"
	Read    = "r"
	Entered = "e"
	Left    = "l"
)

// Expectation is a record that must be on the bus.
type Expectation struct {
	ID  string
	Op  string
	Key ObjectKey
	UID string
	Rev uint64 // Of the change.
	// Seen is when the watch on etcd showed the change; zero: it is not known.
	Seen time.Time

	// Prev is the previous version, whether or not the selector matches it; nil if there was none.
	// Next is the new version, nil after a deletion.
	Prev, Next *Version

	// SnapshotID is the snapshot of a read. Optional is whether that snapshot was abandoned.
	SnapshotID string
	Optional   bool

	// index counts the expectations of the key.
	index int
}

// Snapshot is the revision at which the agent read all objects of a scope.
type Snapshot struct {
	ID  string
	Rev uint64
	// Abandoned is whether another snapshot replaced this one before it was completed.
	Abandoned bool
}

// View describes what an agent is configured to observe, and the conditions under which it ran.
type View struct {
	// Snapshot returns the first snapshot of the object's scope, or false if the object is in no
	// scope.
	Snapshot func(ObjectKey) (Snapshot, bool)
	// Later returns the further snapshots of that scope, in the order in which they began. Nil:
	// there are none.
	Later func(ObjectKey) []Snapshot
	// Selects is the label selector; nil selects everything.
	Selects func(labels map[string]string) bool
	// NoReads corresponds to snapshot.mode never.
	NoReads bool
	// Until is the last revision that counts; 0: all count.
	Until uint64
	// History is the number of restores of etcd so far.
	History uint64
	// The revision up to which etcd was compacted. Up to there, an agent may be unable to
	// distinguish an object that entered a selector from a created one, or one that left from a
	// deleted one.
	Forgotten uint64
	// Window is the stream's duplicate window; 0: duplicateWindow.
	Window time.Duration
	// Dead has the object of each event in the dead letters, by the event's id. MayBury is whether
	// there is a reason for them.
	Dead    map[string]ObjectKey
	MayBury bool
}

func (v View) counts(rev uint64) bool { return v.Until == 0 || rev <= v.Until }

// Expect derives the expected records from etcd's history, for each object in order.
func Expect(history map[ObjectKey][]*Version, v View) map[ObjectKey][]Expectation {
	want := make(map[ObjectKey][]Expectation, len(history))
	for key, versions := range history {
		snap, ok := v.Snapshot(key)
		if !ok {
			continue
		}
		if list := expectObject(key, versions, snap, v); len(list) > 0 {
			want[key] = list
		}
	}
	return want
}

func expectObject(key ObjectKey, versions []*Version, snap Snapshot, v View) []Expectation {
	selects := func(ver *Version) bool {
		return ver != nil && (v.Selects == nil || v.Selects(ver.Labels))
	}
	var list []Expectation
	add := func(op, id string, rev uint64, prev, next *Version) {
		e := Expectation{
			ID:    id + historyEnd(v.History),
			Op:    op,
			Key:   key,
			Rev:   rev,
			Prev:  prev,
			Next:  next,
			index: len(list),
		}
		if next != nil {
			e.UID = next.UID
		} else {
			e.UID = prev.UID
		}
		list = append(list, e)
	}

	var current *Version // Nil: no such object.
	readDone := false
	addRead := func(seen *Version, snap Snapshot) {
		add(Read, readID(seen, snap.ID), seen.Rev, nil, seen)
		e := &list[len(list)-1]
		e.SnapshotID, e.Optional = snap.ID, snap.Abandoned
	}
	readOnce := func(seen *Version) {
		if !readDone && !v.NoReads && selects(seen) {
			addRead(seen, snap)
		}
		readDone = true
	}
	var later []Snapshot
	if v.Later != nil {
		later = v.Later(key)
	}
	// readAgain adds the reads of snapshots taken before rev, the revision that replaced seen. 0:
	// seen is the last version.
	readAgain := func(seen *Version, rev uint64) {
		for len(later) > 0 && (rev == 0 || later[0].Rev < rev) {
			if selects(seen) {
				addRead(seen, later[0])
			}
			later = later[1:]
		}
	}
	for _, next := range versions {
		if !v.counts(next.Rev) {
			break
		}
		prev := current
		current = next
		if next.Deleted {
			current = nil
		}
		if next.Rev <= snap.Rev {
			continue
		}
		readOnce(prev)
		readAgain(prev, next.Rev)
		before := len(list)
		switch was, is := selects(prev), selects(current); {
		case is && prev == nil:
			add(Created, ChangeID(current), next.Rev, nil, current)
		case is && was:
			add(Updated, ChangeID(current), next.Rev, prev, current)
		case is:
			add(Entered, ChangeID(current), next.Rev, prev, current)
		case was && current == nil:
			add(Deleted, DeleteID(prev), next.Rev, prev, nil)
		case was:
			add(Left, LeftID(current), next.Rev, prev, current)
		}
		if len(list) > before {
			list[before].Seen = next.Seen
		}
	}
	readOnce(current)
	readAgain(current, 0)
	return list
}

func id(v *Version, end string) string { return v.Key.Resource + "/" + v.UID + "/" + end }

// ChangeID is the id of the event of a change, without the suffix for a restored etcd.
func ChangeID(v *Version) string { return id(v, FormatRev(v.Rev)) }

// LeftID is the id of the event of an object that left a selector.
func LeftID(v *Version) string { return ChangeID(v) + "/l" }

// DeleteID is the id of the event of a deletion.
func DeleteID(v *Version) string { return id(v, "d") }

func readID(v *Version, snapshotID string) string {
	return id(v, FormatRev(v.Rev)+"/r/"+snapshotID)
}
