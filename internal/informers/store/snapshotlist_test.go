package store

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A list begins while the start of a snapshot is in the lane. The snapshot begins again after the
// gap. It reads the objects that it began with. Their changes in the list follow the reads.
func TestListDuringASnapshot(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5), at("b", "2", 6), at("c", "3", 7))
		x.lane.fill(false, true)
		answer := x.request("")
		x.sends("snapshot.started 10 of 3")
		x.relist(expired, 20, nil, at("a", "1", 15), at("c", "3", 7))
		if a := <-answer; a.err != nil || a.Objects != 3 {
			x.t.Errorf("the answer is %+v", a)
		}
		if loss := x.s.View().Loss; loss == nil || loss.Unrecoverable { // every version is found, or inferred
			x.t.Errorf("the loss is %+v", loss)
		}
		x.ends("gap 10-20 expired", "snapshot.started 10 of 3")
		x.lane.fill(false, false)
		x.sends("r a@5", "u a@15 after 5 inferred", "r b@6", "d b@20 after 6 inferred", "r c@7")
		x.position(10)
		x.ends("snapshot.completed 10 of 3")
		x.position(20)
	})
}

// A list misses an object that a snapshot has not read yet, and shows another one in a later
// version. The objects are as before in the next list. They are read, and nothing deletes them.
func TestListDuringASnapshotIsCorrected(t *testing.T) {
	objects := []*object.Object{at("a", "1", 5), at("b", "2", 6)}
	scripted(t, nil, func(x *script) {
		x.observe(10, objects...)
		x.lane.fill(false, true)
		x.request("")
		x.settle()
		x.s.BeginList(Relist)
		x.s.Compare(at("a", "1", 15), new(object.Scanned))
		x.s.EndList(20)
		x.relist(expired, 30, nil, objects...)
		x.lane.fill(false, false)
		x.ends("snapshot.started 10 of 2", "gap 10-30 expired", "r a@5", "r b@6", "snapshot.completed 10 of 2")
	})
}

// A list misses an object that a snapshot has not read yet. The log is replaced, and the snapshot
// dropped. Consumers of the former log still learn of the deletion.
func TestListDuringADroppedSnapshot(t *testing.T) {
	var b buslog
	scripted(t, b.options, func(x *script) {
		x.observe(10, at("a", "1", 5), at("b", "2", 6))
		x.lane.fill(false, true)
		x.request("")
		x.ends("snapshot.started 10 of 2")
		x.relist(expired, 20, nil, at("a", "1", 5))
		x.ends("gap 10-20 expired")
		b.number = 1
		x.s.Rebase()
		x.lane.fill(false, false)
		x.ends("gap 1-20 checkpoint-lost", "scope.started 10", "d b@20 after 6 inferred", "snapshot.started 20 of 1",
			"r a@5", "snapshot.completed 20 of 1")
	})
}

// A list that begins in the meantime keeps a snapshot from being given up: every change waits for
// it.
func TestListDuringTheStartOfASnapshot(t *testing.T) {
	t.Run("the bus is slow", func(t *testing.T) {
		scripted(t, nil, func(x *script) {
			x.observe(10, at("a", "1", 5))
			answer := x.request("")
			sleep(gateWithin - time.Second)
			x.relist(expired, 20, nil, at("a", "1", 15))
			if a := <-answer; a.err != nil {
				x.t.Error(a.err)
			}
			sleep(time.Minute)
			x.sends("snapshot.started 10 of 1") // the gap follows its acknowledgement
			x.ends("gap 10-20 expired", "snapshot.started 10 of 1", "r a@5", "u a@15 after 5 inferred",
				"snapshot.completed 10 of 1")
		})
	})
	t.Run("the bus is slow, and faster than the list", func(t *testing.T) {
		scripted(t, nil, func(x *script) {
			x.observe(10, at("a", "1", 5))
			x.request("")
			sleep(gateWithin - time.Second)
			x.s.BeginList(Relist)
			sleep(time.Minute)
			x.ends("snapshot.started 10 of 1")
			x.s.Compare(at("a", "1", 15), new(object.Scanned))
			x.s.Lose(expired)
			x.s.EndList(20, x.s.Gap(20, nil))
			x.ends("gap 10-20 expired", "r a@5", "u a@15 after 5 inferred", "snapshot.completed 10 of 1")
		})
	})
	t.Run("the lane has no room", func(t *testing.T) {
		scripted(t, nil, func(x *script) {
			x.observe(10, at("a", "1", 5))
			x.lane.fill(true, true)
			answer := x.request("")
			sleep(gateWithin - time.Second)
			x.relist(expired, 20, nil, at("a", "1", 15))
			if a := <-answer; a.err != nil {
				x.t.Error(a.err)
			}
			sleep(time.Minute)
			x.lane.fill(false, false)
			x.ends("gap 10-20 expired", "snapshot.started 10 of 1", "r a@5", "u a@15 after 5 inferred",
				"snapshot.completed 10 of 1")
		})
	})
}

// A list after lost history shows a change of an object that a resumed snapshot has not read. The
// snapshot continues with the objects of the checkpoint: the bus may have its end, and an earlier
// run may have sent these reads.
func TestLostHistoryDuringAResumedSnapshot(t *testing.T) {
	scripted(t, func(o *Options) { o.Snapshots = true }, func(x *script) {
		from := &checkpoint.Scope{ResourceVersion: 14, Snapshot: &checkpoint.Snapshot{
			ID:              "20260101T000000.000Z-10",
			Announced:       true,
			Begun:           true,
			ResourceVersion: 10,
			Objects:         2,
			Cursor:          "configmaps/shop/a",
		}}
		x.s.Continue(from)
		x.lane.fill(false, true)
		x.load(AtCheckpoint, 14, []*Notice{x.s.ResumeSnapshot("configmaps", from)}, at("a", "1", 5), at("b", "2", 6))
		x.ends("scope.started 14 continued")
		x.relist(Loss{From: 14, Reason: object.Expired}, 20, nil, at("a", "1", 5), at("b", "2", 15))
		x.ends("gap 14-20 expired")
		if p, _ := x.s.Position(); p.Sweep || p.Snapshot == nil {
			x.t.Errorf("the snapshot must continue, and the position is %+v", p)
		}
		x.lane.fill(false, false)
		x.ends("r b@6", "u b@15 after 6 inferred", "snapshot.completed 10 of 2")
		x.position(20)
	})
}
