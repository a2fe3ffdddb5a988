package store

import (
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// A store has no position before the first list, or that of the previous run.
func TestPositionBeforeTheFirstList(t *testing.T) {
	alone(t, func(x *script) {
		if p, ok := x.s.Position(); ok {
			x.t.Errorf("a new store has the position %+v", p)
		}
		now := time.Now()
		c := checkpoint.Scope{
			Resource:        "configmaps",
			ResourceVersion: 10,
			History:         3,
			Initial:         true,
			SnapshotBegan:   now.Add(-time.Hour),
			ObservedSince:   now.Add(time.Hour), // the clock of that run was ahead
		}
		x.s.Continue(&c)
		p, ok := x.s.Position()
		if diff := gocmp.Diff(checkpoint.Position{Scope: c}, p); !ok || diff != "" {
			x.t.Errorf("-want +got\n%s", diff)
		}
		x.load(AtCheckpoint, 10, nil, at("a", "1", 5))
		p, _ = x.s.Position()
		want := checkpoint.Position{Scope: checkpoint.Scope{
			ResourceVersion: 10,
			History:         3,
			State:           fingerprintOf(at("a", "1", 5)).Versions,
			Forms:           fingerprintOf(at("a", "1", 5)).Forms,
			Initial:         true,
			SnapshotBegan:   now.Add(-time.Hour),
			ObservedSince:   now,
		}}
		if diff := gocmp.Diff(want, p); diff != "" {
			x.t.Errorf("-want +got\n%s", diff)
		}
	})
}

// A position of lost history stays until the bus has the gap.
func TestPositionStaysUntilTheGap(t *testing.T) {
	scripted(t, nil, func(x *script) {
		c := checkpoint.Scope{ResourceVersion: 10, History: 3}
		x.s.Continue(&c)
		x.s.Lose(Loss{From: 10, Reason: object.SelectionChanged, Unrecoverable: true})
		x.load(AtCheckpoint, 20, []*Notice{x.s.Gap(20, nil)}, at("a", "1", 15))
		x.sends("gap 10-20 selection-changed history 3")
		x.position(10)
		x.lane.acknowledge(1)
		x.sends("scope.started 20 history 3")
		x.position(20)
		x.ends()
	})
}

// The lag is the age of the oldest change that the bus has not acknowledged.
func TestLag(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		if lag := x.s.Lag(); lag != 0 {
			x.t.Errorf("the lag is %s, and nothing is outstanding", lag)
		}
		first := time.Now()
		x.watch(event(watch.Modified, at("a", "1", 11)))
		sleep(3 * time.Second)
		x.watch(event(watch.Modified, at("a", "1", 12)))
		sleep(time.Second)
		p, _ := x.s.Position()
		if lag := x.s.Lag(); lag != 4*time.Second || !p.LastSeen.Equal(first) {
			x.t.Errorf("the lag is %s, since %s", lag, p.LastSeen)
		}
		if r := x.s.Report(first); r.ResourceVersion != 10 || !r.To.Equal(first.Add(-1)) {
			x.t.Errorf("the report is %+v", r)
		}
		x.lane.acknowledge(1)
		if lag := x.s.Lag(); lag != time.Second {
			x.t.Errorf("the lag is %s, want 1s", lag)
		}
		x.settle()
		p, _ = x.s.Position()
		if r := x.s.Report(first); r.ResourceVersion != 12 || !r.To.IsZero() || x.s.Lag() != 0 || !p.LastSeen.IsZero() {
			x.t.Errorf("nothing is outstanding, and the report is %+v, the lag %s", r, x.s.Lag())
		}
		if p.Acked != 2 {
			x.t.Errorf("%d deltas are acknowledged, want 2", p.Acked)
		}
	})
}

// Nothing is claimed before the bus has what the first list made pending, and while history is
// lost.
func TestReportClaimsNothing(t *testing.T) {
	scripted(t, nil, func(x *script) {
		claims := func(when string, want uint64) {
			x.t.Helper()
			synctest.Wait()
			if got := x.s.Report(time.Now()).ResourceVersion; got != want {
				x.t.Errorf("%s, version %d is claimed, want %d", when, got, want)
			}
		}
		claims("before a list", 0)
		x.load(Fresh, 10, []*Notice{x.s.NewSnapshot(10, true)}, at("a", "1", 5))
		claims("before its start", 0)
		x.lane.acknowledge(1)
		claims("before the snapshot", 0)
		x.settle()
		claims("after it", 10)
		if r := x.s.Report(time.Now()); !r.SnapshotBegan.Equal(time.Now()) {
			x.t.Errorf("the last complete snapshot began at %s", r.SnapshotBegan)
		}
		x.s.BeginList(Relist)
		claims("during another list", 0)
		x.s.Compare(at("a", "1", 15), new(object.Scanned))
		x.s.Lose(expired)
		x.s.EndList(20, x.s.Gap(20, nil))
		claims("before the gap", 0)
		x.lane.acknowledge(1)
		claims("after the gap", 10)
		x.settle()
		claims("in the end", 20)
	})
}

// A history number only grows. Spans and events after it belong to the new history.
func TestRaiseHistory(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		x.s.SetFilter(withhold{11: true}, "", nil)
		x.watch(event(watch.Modified, at("a", "1", 11)))
		x.s.RaiseHistory(0) // not higher
		x.hides(true, "11-0")
		x.s.RaiseHistory(2)
		x.s.RaiseHistory(1)
		x.hides(true, "11-11", "1-0")
		x.watch(event(watch.Added, at("b", "2", 12)))
		x.ends("c b@12 history 2 by me")
		if p, _ := x.s.Position(); p.History != 2 || x.s.Report(time.Now()).History != 2 || x.s.View().History != 2 {
			x.t.Errorf("the position is %+v", p)
		}
	})
}

// A scope ends once nothing follows.
func TestEnds(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		if v := x.s.View(); v.Empty || v.Finished {
			x.t.Errorf("there is an object: %+v", v)
		}
		x.watch(event(watch.Deleted, at("a", "1", 11)))
		x.s.MarkGone()
		if v := x.s.View(); v.Empty || v.Finished {
			x.t.Errorf("the deletion is not acknowledged: %+v", v)
		}
		x.settle()
		if v := x.s.View(); !v.Empty || !v.Finished {
			x.t.Errorf("nothing follows: %+v", v)
		}
	})
}

// Waiters wake after each change.
func TestNotifiesOfChanges(t *testing.T) {
	x := newScript(t, nil)
	for name, change := range map[string]func(){
		"a list":   func() { x.s.BeginList(Fresh) },
		"an end":   func() { x.s.MarkGone() },
		"a notice": func() { x.s.Notify() },
	} {
		count, next := x.s.ChangeCount(), x.s.Changed()
		change()
		select {
		case <-next:
		default:
			t.Errorf("%s wakes nobody", name)
		}
		if x.s.ChangeCount() <= count {
			t.Errorf("%s is not counted", name)
		}
	}
}

// Until the bus has every change before a snapshot, the checkpoint does not have the snapshot. It
// says that one must follow.
func TestPositionBeforeASnapshot(t *testing.T) {
	scripted(t, func(o *Options) { o.Snapshots = true }, func(x *script) {
		x.observe(10, at("a", "1", 5))
		x.s.RequireSnapshot()
		x.saved = func() error { // the last step before the gate closes
			x.saved = nil
			x.watch(event(watch.Modified, at("a", "1", 11)))
			return nil
		}
		x.watch()
		x.sends("u a@11 after 5 by me")
		if p, _ := x.s.Position(); !p.Sweep || p.Snapshot != nil {
			x.t.Errorf("before the change is acknowledged, the position is %+v", p)
		}
		x.lane.acknowledge(1)
		x.sends("snapshot.started 11 of 1")
		if p, _ := x.s.Position(); p.Sweep || p.Snapshot == nil || p.Snapshot.Announced {
			x.t.Errorf("after that, the position is %+v", p)
		}
		x.ends("r a@11", "snapshot.completed 11 of 1")
	})
}

// The next run knows when the last complete snapshot began, unless one of the scope is unfinished.
func TestLastCompleteSnapshot(t *testing.T) {
	began := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		snapshot *checkpoint.Snapshot
		want     time.Time
	}{
		"complete":                  {nil, began},
		"unfinished":                {&checkpoint.Snapshot{ID: "1"}, time.Time{}},
		"a namespace is unfinished": {&checkpoint.Snapshot{ID: "1", Namespace: "team"}, began},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, nil, func(x *script) {
				x.s.Continue(&checkpoint.Scope{ResourceVersion: 10, SnapshotBegan: began, Snapshot: c.snapshot})
				x.load(AtCheckpoint, 10, nil, at("a", "1", 5))
				x.settle()
				if got := x.s.Report(time.Now()).SnapshotBegan; !got.Equal(c.want) {
					x.t.Errorf("it began at %s, want %s", got, c.want)
				}
			})
		})
	}
}
