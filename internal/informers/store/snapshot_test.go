package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// elsewhere is an object of another namespace.
func elsewhere(name, uid string, rv uint64) *object.Object {
	return object.New(object.NewRef(configMaps, "team", name, uid), rv, 0, nil, []byte("{}"))
}

// started is the answer to a request for a snapshot.
type started struct {
	Started

	err error
}

// request asks for a snapshot, and answers on the channel.
func (x *script) request(namespace string) <-chan started {
	answer := make(chan started, 1)
	go func() {
		s, err := x.s.TakeSnapshot(x.ctx, "part", namespace)
		answer <- started{s, err}
	}()
	return answer
}

// The first list is read in key order. The bus has the start before the first read, and the end
// after the acknowledgement of all reads.
func TestFirstSnapshot(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.load(Fresh, 10, []*Notice{x.s.NewSnapshot(10, true)}, at("b", "2", 6), at("a", "1", 5))
		x.sends("scope.started 10 initial")
		if v := x.s.View(); v.CaughtUp || v.Empty || v.Resting || !v.Sweeping || v.Pending != 2 {
			x.t.Errorf("the view is %+v", v)
		}
		x.position(10)
		p, _ := x.s.Position()
		if snap := p.Snapshot; snap == nil || !snap.Announced || snap.Begun || snap.Objects != 2 {
			x.t.Errorf("the checkpoint has the snapshot %+v", snap)
		}
		x.lane.acknowledge(1)
		x.sends("snapshot.started 10 of 2 initial")
		x.lane.acknowledge(1)
		x.sends("r a@5", "r b@6")
		if v := x.s.View(); v.Pending != 2 || v.InFlight != 2 || v.CaughtUp {
			x.t.Errorf("the view is %+v", v)
		}
		x.lane.acknowledge(1)
		if p, _ := x.s.Position(); p.Snapshot.Cursor != "configmaps/shop/a" || !p.Snapshot.Begun || !p.Initial {
			x.t.Errorf("the checkpoint has %+v", p.Snapshot)
		}
		x.sends()
		x.lane.acknowledge(1)
		x.sends("snapshot.completed 10 of 2")
		if v := x.s.View(); !v.Sweeping || x.captured.Load() != 0 {
			x.t.Errorf("the end is not acknowledged, and the view is %+v, captured %d", v, x.captured.Load())
		}
		x.ends()
		if v := x.s.View(); !v.CaughtUp || v.Sweeping || v.Pending != 0 || !v.Resting || x.captured.Load() != 1 {
			x.t.Errorf("the view is %+v, captured %d", v, x.captured.Load())
		}
		if p, _ := x.s.Position(); p.Snapshot != nil || p.Sweep || p.Initial {
			x.t.Errorf("in the end, the position is %+v", p)
		}
		if !x.s.IsCaughtUp() || !x.s.HasBegun() || x.saves.Load() != 2 {
			x.t.Errorf("caught up %t, begun %t, saved %d times", x.s.IsCaughtUp(), x.s.HasBegun(), x.saves.Load())
		}
		want := "loading true, closed true; loading false, closed true; loading false, closed false"
		if got := strings.Join(x.gates, "; "); got != want {
			x.t.Errorf("the gate was %s, want %s", got, want)
		}
	})
}

// Changes wait for the start of the first snapshot, and pass its reads.
func TestChangesWaitForTheFirstSnapshot(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.lane.fill(false, true)
		x.load(Fresh, 10, []*Notice{x.s.NewSnapshot(10, true)}, at("a", "1", 5), at("b", "2", 6))
		go x.s.Apply(x.ctx, []Event{event(watch.Modified, at("b", "2", 11))}, func() {})
		x.sends("scope.started 10 initial")
		x.ends("snapshot.started 10 of 2 initial", "r b@6", "u b@11 after 6 by me")
		if p, _ := x.s.Position(); p.ResourceVersion != 11 || p.Snapshot.Cursor != "" {
			x.t.Errorf("the position is %d, in the snapshot %q", p.ResourceVersion, p.Snapshot.Cursor)
		}
		x.lane.fill(false, false)
		x.ends("r a@5", "snapshot.completed 10 of 2")
	})
}

// TestRequestedSnapshots asks for a snapshot of known objects.
func TestRequestedSnapshots(t *testing.T) {
	for name, c := range map[string]struct {
		namespace string
		want      []string
	}{
		"of the scope": {want: []string{
			"snapshot.started 12 of 3", "r a@5", "r b@12", "r c@7", "snapshot.completed 12 of 3",
		}},
		"of a namespace":           {"team", []string{"snapshot.started 12 of 1", "r c@7", "snapshot.completed 12 of 1"}},
		"of a namespace with none": {"none", []string{"snapshot.started 12 of 0", "snapshot.completed 12 of 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, nil, func(x *script) {
				x.observe(10, at("a", "1", 5), elsewhere("c", "3", 7))
				x.watch(event(watch.Added, at("b", "2", 12)))
				x.ends("c b@12 by me")
				sleep(time.Hour)
				asked, saves := time.Now(), x.saves.Load()
				first := x.request(c.namespace)
				synctest.Wait()
				x.lane.acknowledge(1)
				synctest.Wait()
				a := <-first
				if a.err != nil || a.Scope != "part" || a.Running || !strings.HasSuffix(a.Snapshot, "-12") {
					x.t.Errorf("the answer is %+v", a)
				}
				if x.saves.Load() != saves+2 { // before the gate closes, and before the start
					x.t.Errorf("the position was saved %d times, want 2", x.saves.Load()-saves)
				}
				x.lane.fill(true, true)
				if len(c.want) > 3 {
					again, err := x.s.TakeSnapshot(x.ctx, "part", "")
					if err != nil || !again.Running || again.Snapshot != a.Snapshot {
						x.t.Errorf("another answer is %+v, %v", again, err)
					}
				}
				x.lane.fill(false, false)
				x.ends(c.want...)
				p, _ := x.s.Position()
				if whole := c.namespace == ""; p.SnapshotBegan.Equal(asked) != whole || p.Snapshot != nil {
					x.t.Errorf("the last snapshot of the scope began at %s", p.SnapshotBegan)
				}
			})
		})
	}
}

// Two snapshots have different ids, even if nothing has happened in between. The bus drops reads
// with known ids.
func TestIDsOfSnapshotsDiffer(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.observe(10, at("a", "1", 5))
		var ids []string
		for range 3 {
			answer := x.request("")
			x.settle()
			ids = append(ids, (<-answer).Snapshot)
		}
		want := "20000101T000000.000Z-10 20000101T000001.000Z-10 20000101T000002.000Z-10"
		if got := strings.Join(ids, " "); got != want {
			x.t.Errorf("the ids are %s, want %s", got, want)
		}
	})
}

// No snapshot begins before the first list, or while the store catches up.
func TestSnapshotIsRefused(t *testing.T) {
	scripted(t, nil, func(x *script) {
		if _, err := x.s.TakeSnapshot(x.ctx, "part", ""); !errors.Is(err, errNotLoaded) {
			x.t.Errorf("before the first list: %v", err)
		}
		x.observe(10, at("a", "1", 5))
		x.s.AwaitReplay(12)
		if _, err := x.s.TakeSnapshot(x.ctx, "part", ""); !errors.Is(err, errCatchUp) || !x.s.View().Replaying {
			x.t.Errorf("before the watch has replayed: %v", err)
		}
		x.watch(bookmark(12))
		if x.s.View().Replaying {
			x.t.Error("replaying at 12, which is where the replay ends")
		}
		x.lane.fill(false, true)
		x.relist(expired, 20, nil, at("a", "1", 15))
		if _, err := x.s.TakeSnapshot(x.ctx, "part", ""); !errors.Is(err, errCatchUp) {
			x.t.Errorf("while a gap is to be announced: %v", err)
		}
		x.ends("gap 10-20 expired")
		if _, err := x.s.TakeSnapshot(x.ctx, "part", ""); !errors.Is(err, errCatchUp) {
			x.t.Errorf("while a delta is pending: %v", err)
		}
		x.lane.fill(false, false)
		x.sends("u a@15 after 5 inferred")
		x.ends()
		answer := x.request("")
		x.ends("snapshot.started 20 of 1", "r a@15", "snapshot.completed 20 of 1")
		if a := <-answer; a.err != nil {
			x.t.Error(a.err)
		}
	})
}

// TestSnapshotIsGivenUp asks for a snapshot that cannot begin. Changes wait for it 5 seconds at
// most, and a checkpoint does not say that the next run continues it.
func TestSnapshotIsGivenUp(t *testing.T) {
	t.Run("the bus is slow", func(t *testing.T) {
		scripted(t, nil, func(x *script) {
			x.observe(10, at("a", "1", 5))
			x.watch(event(watch.Modified, at("a", "1", 11)))
			answer := x.request("")
			sleep(beginWithin - time.Second)
			x.sends("u a@11 after 5 by me")
			x.watch(event(watch.Modified, at("a", "1", 12))) // nothing waits
			sleep(time.Second)
			if a := <-answer; !errors.Is(a.err, ErrNotBegun) {
				x.t.Errorf("the answer is %v", a.err)
			}
			x.ends("u a@12 after 11 by me")
		})
	})
	t.Run("the lane has no room", func(t *testing.T) {
		scripted(t, nil, func(x *script) {
			x.observe(10, at("a", "1", 5))
			x.lane.fill(true, true)
			answer := x.request("")
			synctest.Wait()
			if p, _ := x.s.Position(); p.Snapshot == nil || p.Snapshot.Announced {
				x.t.Errorf("the checkpoint has the snapshot %+v", p.Snapshot)
			}
			began := time.Now()
			a := <-answer
			if waited := time.Since(began); !errors.Is(a.err, ErrNotBegun) || waited != gateWithin {
				x.t.Errorf("after %s, the answer is %v", waited, a.err)
			}
			x.lane.fill(false, false)
			x.watch(event(watch.Modified, at("a", "1", 11)))
			x.ends("u a@11 after 5 by me")
			if p, _ := x.s.Position(); p.Snapshot != nil || p.Sweep || !p.SnapshotBegan.IsZero() {
				x.t.Errorf("the position is %+v", p)
			}
		})
	})
	t.Run("the bus does not acknowledge its start", func(t *testing.T) {
		scripted(t, nil, func(x *script) {
			x.observe(10, at("a", "1", 5))
			a := <-x.request("")
			if !errors.Is(a.err, ErrNotBegun) {
				x.t.Errorf("the answer is %v", a.err)
			}
			x.sends("snapshot.started 10 of 1")
			second := x.request("") // it waits for the start of the former one
			sleep(time.Second)
			x.sends()
			x.watch(event(watch.Modified, at("a", "1", 11)))
			x.lane.acknowledge(2)
			x.ends("u a@11 after 5 by me", "snapshot.started 11 of 1", "r a@11", "snapshot.completed 11 of 1")
			if a := <-second; a.err != nil {
				x.t.Error(a.err)
			}
		})
	})
	t.Run("a change before it has no room", func(t *testing.T) {
		scripted(t, nil, func(x *script) {
			x.observe(10, at("a", "1", 5), at("b", "2", 6))
			x.saved = func() error { // the last step before the gate closes
				x.saved = nil
				x.lane.fill(true, true)
				go x.s.Apply(x.ctx, []Event{event(watch.Modified, at("a", "1", 11))}, func() {})
				sleep(time.Second)
				return nil
			}
			if a := <-x.request(""); !errors.Is(a.err, ErrNotBegun) {
				x.t.Errorf("the answer is %v", a.err)
			}
			x.lane.fill(false, false)
			x.ends("u a@11 after 5 by me")
		})
	})
	t.Run("a position cannot be saved", func(t *testing.T) {
		scripted(t, nil, func(x *script) {
			x.observe(10, at("a", "1", 5))
			denied := errors.New("denied")
			x.saved = func() error { return denied }
			if a := <-x.request(""); !errors.Is(a.err, denied) || errors.Is(a.err, ErrNotBegun) {
				x.t.Errorf("the answer is %v", a.err)
			}
			x.saved = nil
			x.watch(event(watch.Modified, at("a", "1", 11)))
			x.ends("u a@11 after 5 by me")
		})
	})
	t.Run("a list begins", func(t *testing.T) {
		scripted(t, nil, func(x *script) {
			x.observe(10, at("a", "1", 5))
			before := x.saves.Load()
			x.saved = func() error {
				if x.saves.Load() == before+2 { // its start is about to be sent
					sleep(time.Second)
				}
				return nil
			}
			answer := x.request("")
			sleep(time.Second / 2)
			x.relist(expired, 20, nil, at("a", "1", 5))
			if a := <-answer; !errors.Is(a.err, ErrNotBegun) {
				x.t.Errorf("the answer is %v", a.err)
			}
			sleep(time.Second)
			x.ends("gap 10-20 expired")
		})
	})
}

// A snapshot of the checkpoint continues after its cursor, with the objects that have not changed
// since. The bus has the others.
func TestResumedSnapshot(t *testing.T) {
	cursor := "configmaps/shop/a"
	objects := []*object.Object{at("a", "1", 5), at("b", "2", 6), at("c", "3", 12), at("d", "4", 10)}
	for name, c := range map[string]struct {
		snapshot checkpoint.Snapshot
		filtered bool
		want     []string
	}{
		"after its cursor": {
			snapshot: checkpoint.Snapshot{Announced: true, Begun: true, Cursor: cursor},
			want:     []string{"r b@6", "r d@10", "snapshot.completed 10 of 4"},
		},
		"after its cursor, with filters": { // a later change may have been withheld
			snapshot: checkpoint.Snapshot{Announced: true, Begun: true, Cursor: cursor}, filtered: true,
			want: []string{"r b@6", "r c@12", "r d@10", "snapshot.completed 10 of 4"},
		},
		"begun, and nothing is read": {
			snapshot: checkpoint.Snapshot{Announced: true, Begun: true},
			want: []string{
				"snapshot.started 10 of 4 continued", "r a@5", "r b@6", "r d@10", "snapshot.completed 10 of 4",
			},
		},
		"not begun": {
			snapshot: checkpoint.Snapshot{Announced: true},
			want: []string{
				"snapshot.started 10 of 4", "r a@5", "r b@6", "r c@12", "r d@10", "snapshot.completed 10 of 4",
			},
		},
		"of a namespace": {
			snapshot: checkpoint.Snapshot{Announced: true, Begun: true, Namespace: "team", Cursor: cursor},
			want:     []string{"r e@8", "snapshot.completed 10 of 4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, nil, func(x *script) {
				c.snapshot.ID, c.snapshot.ResourceVersion = "20260101T000000.000Z-10", 10
				c.snapshot.Objects = 4
				from := &checkpoint.Scope{ResourceVersion: 14, Filtered: c.filtered, Snapshot: &c.snapshot}
				x.s.Continue(from)
				listed := objects
				if c.snapshot.Namespace != "" {
					listed = append(listed[:len(listed):len(listed)], elsewhere("e", "5", 8))
				}
				x.load(AtCheckpoint, 14, []*Notice{x.s.ResumeSnapshot("part", from)}, listed...)
				x.sends("scope.started 14 continued")
				x.ends(c.want...)
				x.position(14)
			})
		})
	}
}

// Snapshots follow each other at the interval, from start to start.
func TestScheduleOfSnapshots(t *testing.T) {
	const every = 10 * time.Minute
	scheduled(t, every, func(o *Options) { o.Snapshots = true }, func(x *script) {
		began := time.Now()
		x.load(Fresh, 10, []*Notice{x.s.NewSnapshot(10, true)}, at("a", "1", 5))
		x.settle()
		x.lane.lines()
		var got []string
		for range 35 * 60 {
			sleep(time.Second)
			x.settle()
			for _, l := range x.lane.lines() {
				if strings.HasPrefix(l, "snapshot.started") {
					got = append(got, time.Since(began).String())
				}
			}
		}
		if text := strings.Join(got, " "); text != "10m0s 20m0s 30m0s" {
			x.t.Errorf("snapshots began after %s", text)
		}
	})
}

// A snapshot that cannot begin at its time is tried again after a minute.
func TestSnapshotOfTheScheduleIsGivenUp(t *testing.T) {
	const every = 10 * time.Minute
	scheduled(t, every, func(o *Options) { o.Snapshots = true }, func(x *script) {
		x.load(Fresh, 10, []*Notice{x.s.NewSnapshot(10, true)}, at("a", "1", 5))
		x.settle()
		x.lane.lines()
		x.lane.fill(true, true)
		sleep(every + 30*time.Second)
		x.lane.fill(false, false)
		x.ends()
		sleep(gateWithin + 30*time.Second)
		x.ends("snapshot.started 10 of 1", "r a@5", "snapshot.completed 10 of 1")
	})
}

// A snapshot that is overdue at the start waits a minute.
func TestOverdueSnapshot(t *testing.T) {
	scheduled(t, time.Hour, func(o *Options) { o.Snapshots = true }, func(x *script) {
		x.s.Continue(&checkpoint.Scope{ResourceVersion: 10, SnapshotBegan: time.Now().Add(-3 * time.Hour)})
		x.load(AtCheckpoint, 10, nil, at("a", "1", 5))
		x.settle()
		x.sends("scope.started 10 continued")
		sleep(time.Minute - time.Second)
		x.ends()
		sleep(2 * time.Second)
		x.ends("snapshot.started 10 of 1", "r a@5", "snapshot.completed 10 of 1")
	})
}

// A snapshot that must follow begins once the watch has replayed what the bus may have, and is
// tried again if the bus is slow.
func TestSnapshotFollowsTheReplay(t *testing.T) {
	scripted(t, func(o *Options) { o.Snapshots = true }, func(x *script) {
		x.s.Continue(&checkpoint.Scope{ResourceVersion: 10})
		x.s.RequireSnapshot()
		x.s.BeginList(AtCheckpoint)
		x.s.Load(at("a", "1", 5), nil)
		x.s.AwaitReplay(13)
		x.s.EndList(10)
		x.ends("scope.started 10 continued")
		if v := x.s.View(); !v.Sweeping || v.Empty {
			x.t.Errorf("the view is %+v", v)
		}
		x.watch(event(watch.Modified, at("a", "1", 12)))
		x.ends("u a@12 after 5 by me")
		x.lane.fill(true, true)
		saves := x.saves.Load()
		x.watch(bookmark(13))
		sleep(time.Minute)
		x.sends()
		if n := x.saves.Load() - saves; n != 6 { // two for each of three attempts
			x.t.Errorf("in a minute, the position was saved %d times, want 6", n)
		}
		x.lane.fill(false, false)
		for range 60 {
			sleep(time.Second)
			x.settle()
		}
		x.ends("snapshot.started 13 of 1", "r a@12", "snapshot.completed 13 of 1")
		if v := x.s.View(); v.Sweeping {
			x.t.Errorf("the view is %+v", v)
		}
	})
}

func TestEmptySnapshot(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.s.RaiseHistory(2)
		sent := make(chan error, 1)
		go func() { sent <- x.s.SendEmptySnapshot(x.ctx, 20) }()
		x.sends("snapshot.started 20 of 0 history 2")
		x.ends("snapshot.completed 20 of 0 history 2")
		if err := <-sent; err != nil {
			x.t.Error(err)
		}
		ctx, cancel := context.WithCancel(x.ctx)
		go func() { sent <- x.s.SendEmptySnapshot(ctx, 21) }()
		x.sends("snapshot.started 21 of 0 history 2")
		cancel()
		if err := <-sent; !errors.Is(err, context.Canceled) {
			x.t.Errorf("got %v", err)
		}
		x.ends()
	})
}

// Each object of a scope that is no longer selected has left it. The end follows the
// acknowledgement of all.
func TestSendLeft(t *testing.T) {
	alone(t, func(x *script) {
		x.load(Fresh, 10, nil, at("a", "1", 5), at("b", "2", 6))
		sent := make(chan error, 1)
		ended := 0
		go func() { sent <- x.s.SendLeft(x.ctx, 20, func() { ended++ }) }()
		synctest.Wait()
		got := x.lane.lines()
		slices.Sort(got)
		if text := strings.Join(got, "; "); text != "l a@20 after 5 inferred; l b@20 after 6 inferred" {
			x.t.Errorf("sent %s", text)
		}
		x.lane.acknowledge(1)
		synctest.Wait()
		if ended > 0 {
			x.t.Error("it ends before the last acknowledgement")
		}
		x.lane.acknowledge(1)
		if err := <-sent; err != nil || ended != 1 {
			x.t.Errorf("it has ended %d times, with %v", ended, err)
		}
		x.lane.fill(true, true)
		ctx, cancel := context.WithCancel(x.ctx)
		cancel()
		if err := x.s.SendLeft(ctx, 21, func() { ended++ }); !errors.Is(err, context.Canceled) || ended != 1 {
			x.t.Errorf("it has ended %d times, with %v", ended, err)
		}
	})
}

// A scope without a store has a stream too.
func TestSendWithoutAStore(t *testing.T) {
	alone(t, func(x *script) {
		ctx, cancel := context.WithCancel(x.ctx)
		ev := &object.StreamEvent{Kind: object.ScopeEnded, Scope: "configmaps", ResourceVersion: 7}
		sent := make(chan error, 1)
		send := func() { sent <- Send(ctx, x.lane, ev, time.Now()) }
		go send()
		x.sends("scope.ended 7")
		if len(sent) > 0 {
			x.t.Error("it returns before the acknowledgement")
		}
		x.lane.acknowledge(1)
		if err := <-sent; err != nil {
			x.t.Error(err)
		}
		x.lane.fill(true, true)
		go send()
		synctest.Wait()
		cancel()
		if err := <-sent; !errors.Is(err, context.Canceled) {
			x.t.Errorf("got %v", err)
		}
	})
}

// A first list that begins again while the start of its snapshot is in the lane has a snapshot of
// its own.
func TestFirstListBeginsAgain(t *testing.T) {
	scripted(t, nil, func(x *script) {
		x.load(Fresh, 10, []*Notice{x.s.NewSnapshot(10, true)}, at("a", "1", 5))
		x.sends("scope.started 10 initial")
		x.lane.acknowledge(1)
		x.sends("snapshot.started 10 of 1 initial")
		x.s.BeginList(Fresh)
		x.ends()
		x.s.Load(at("a", "1", 15), nil)
		x.s.EndList(20, x.s.NewSnapshot(20, true))
		x.ends("snapshot.started 20 of 1 initial", "r a@15", "snapshot.completed 20 of 1")
	})
}
