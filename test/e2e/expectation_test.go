package e2e_test

import "time"

// The values of op, as in the contract.
const (
	created = "c"
	updated = "u"
	deleted = "d"
	read    = "r"
	entered = "e"
	left    = "l"
)

// expectation is a record that has to be on the bus.
type expectation struct {
	ID  string
	Op  string
	Key objectKey
	UID string
	Rev uint64 // Of the change.

	// Prev is the version before, seen through no selector: nil where there was none. Next is the version after, nil
	// after a deletion.
	Prev, Next *version

	// SnapshotID is that of a read, and Optional whether the snapshot was given up.
	SnapshotID string
	Optional   bool

	// index counts the expectations of the key.
	index int
}

// snapshot is where the agent began with the objects of a scope.
type snapshot struct {
	ID  string
	Rev uint64
	// Abandoned: another snapshot took its place before it was completed.
	Abandoned bool
}

// view is what an agent was told to observe.
type view struct {
	// Snapshot is that of the scope that the object is in; false: it is in none.
	Snapshot func(objectKey) (snapshot, bool)
	// Later are further snapshots of that scope, in the order in which they began. Nil: there are none.
	Later func(objectKey) []snapshot
	// Selects is the label selector; nil selects everything.
	Selects func(labels map[string]string) bool
	// NoReads is snapshot.mode never.
	NoReads bool
	// Until is the last revision that counts; 0: all count.
	Until uint64
	// History is how many restores of etcd there were before.
	History uint64
	// Forgotten is up to where etcd was compacted: whether an object entered a selector or was created, left it or was
	// deleted, may not be told there.
	Forgotten uint64
	// Window is the stream's duplicate window; 0: duplicateWindow.
	Window time.Duration
	// Dead are the ids that went to the dead letters, with their objects. MayBury: there is a reason for them.
	Dead    map[string]objectKey
	MayBury bool
}

func (v view) counts(rev uint64) bool { return v.Until == 0 || rev <= v.Until }

// expect derives from etcd's history what has to be on the bus, per object in order.
func expect(history map[objectKey][]*version, v view) map[objectKey][]expectation {
	want := make(map[objectKey][]expectation, len(history))
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

func expectObject(key objectKey, versions []*version, snap snapshot, v view) []expectation {
	selects := func(ver *version) bool {
		return ver != nil && (v.Selects == nil || v.Selects(ver.Labels))
	}
	var list []expectation
	add := func(op, id string, rev uint64, prev, next *version) {
		e := expectation{ID: id + historyEnd(v.History), Op: op, Key: key, Rev: rev, Prev: prev, Next: next, index: len(list)}
		if next != nil {
			e.UID = next.UID
		} else {
			e.UID = prev.UID
		}
		list = append(list, e)
	}

	var current *version // Nil: no such object.
	readDone := false
	addRead := func(seen *version, snap snapshot) {
		add(read, readID(seen, snap.ID), seen.Rev, nil, seen)
		e := &list[len(list)-1]
		e.SnapshotID, e.Optional = snap.ID, snap.Abandoned
	}
	readOnce := func(seen *version) {
		if !readDone && !v.NoReads && selects(seen) {
			addRead(seen, snap)
		}
		readDone = true
	}
	var later []snapshot
	if v.Later != nil {
		later = v.Later(key)
	}
	// readAgain is for the snapshots taken before rev, at which seen ceased to be the last version; 0: it is the last.
	readAgain := func(seen *version, rev uint64) {
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
		if current = next; next.Deleted {
			current = nil
		}
		if next.Rev <= snap.Rev {
			continue
		}
		readOnce(prev)
		readAgain(prev, next.Rev)
		switch was, is := selects(prev), selects(current); {
		case is && prev == nil:
			add(created, changeID(current), next.Rev, nil, current)
		case is && was:
			add(updated, changeID(current), next.Rev, prev, current)
		case is:
			add(entered, changeID(current), next.Rev, prev, current)
		case was && current == nil:
			add(deleted, deleteID(prev), next.Rev, prev, nil)
		case was:
			add(left, leftID(current), next.Rev, prev, current)
		}
	}
	readOnce(current)
	readAgain(current, 0)
	return list
}

func id(v *version, end string) string { return v.Key.Resource + "/" + v.UID + "/" + end }

func changeID(v *version) string { return id(v, formatRev(v.Rev)) }

func leftID(v *version) string { return changeID(v) + "/l" }

func deleteID(v *version) string { return id(v, "d") }

func readID(v *version, snapshotID string) string {
	return id(v, formatRev(v.Rev)+"/r/"+snapshotID)
}
