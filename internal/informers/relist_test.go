package informers_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/object"
)

// hold withholds the acknowledgements of the deltas that f selects, until acknowledge.
func (r *recorder) hold(f func(*object.Delta) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds = f
}

func isGap(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.Gap }

// liveSaved starts a run, and waits until its first snapshot is complete and saved.
func liveSaved(t *testing.T, s *apiServer, m *memory, change func(*informers.Options, *recorder)) *life {
	t.Helper()
	l := live(t, s, m, change)
	eventually(t, "the snapshot to be done with", func() bool {
		_ = m.Flush(t.Context())
		c, ok := m.saved("configmaps")
		return ok && c.Snapshot == nil
	})
	return l
}

// forgetDeltas discards the deltas recorded so far.
func (r *recorder) forgetDeltas() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deltas = nil
}

func (r *recorder) gaps() (out []*object.StreamEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deltas {
		if isGap(d) {
			out = append(out, d.Stream)
		}
	}
	return out
}

// relists makes changes that no watch shows, ends the watch with a 410, and waits until the next
// list is in the store.
func (s *apiServer) relists(t *testing.T, changes func()) {
	t.Helper()
	s.gone(math.MaxUint64)
	changes()
	lists, watches, _ := s.counts()
	s.gone(s.now1())
	eventually(t, "a watch behind another list", func() bool {
		l, w, _ := s.counts()
		return l > lists && w > watches
	})
}

// The watch expires again while the first gap event is not acknowledged. The second gap covers
// both, and the changes that the first walk has found are not sent twice.
func TestSecondGapWhileFirstIsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := liveSaved(t, s, m, nil)
		l.forgetDeltas()
		l.hold(isGap)
		s.relists(t, func() {
			s.put("a", "2", nil)
			s.put("a", "3", nil)
		})
		l.wait(t, "gap 0 expired")
		s.relists(t, func() {
			s.put("a", "4", nil)
			s.put("b", "1", nil)
		})
		l.acknowledge()
		l.wait(t, "gap 0 expired", "gap 0 expired", "u a uid-1 1→2", "u a uid-1 2→3", "u a uid-1 3→4", "c b uid-2 -→1")
		if gaps := l.gaps(); gaps[0].From != gaps[1].From || !gaps[1].Recovered {
			t.Errorf("gaps %+v and %+v: want the second to begin where the first does, recovered", *gaps[0], *gaps[1])
		}
	})
}

// The changes of a first gap are pending when a second one comes. The checkpoint stays before the
// first until they are acknowledged, although they are sent after the second.
func TestCheckpointStaysBeforeBothGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := liveSaved(t, s, m, nil)
		l.forgetDeltas()
		before, _ := m.saved("configmaps")
		l.setRoom(1) // for the first gap
		s.relists(t, func() { s.put("a", "2", nil) })
		l.wait(t, "gap 0 expired")
		s.relists(t, func() { s.put("b", "1", nil) })
		l.hold(func(d *object.Delta) bool { return d.Stream == nil && d.Ref.Name() == "a" })
		l.setRoom(unbounded)
		l.wait(t, "gap 0 expired", "gap 0 expired", "u a uid-1 1→2", "c b uid-2 -→1")
		s.put("c", "1", nil)
		l.wait(t, "gap 0 expired", "gap 0 expired", "u a uid-1 1→2", "c b uid-2 -→1", "c c uid-3 -→1")
		_ = m.Flush(t.Context())
		if now, _ := m.saved("configmaps"); now.ResourceVersion != before.ResourceVersion {
			t.Errorf("the checkpoint went from %d to %d, and the change of a behind it is not acknowledged",
				before.ResourceVersion, now.ResourceVersion)
		}
		l.acknowledge()
		_ = m.Flush(t.Context())
		if now, _ := m.saved("configmaps"); now.ResourceVersion != s.now1() {
			t.Errorf("the checkpoint is at %d, want %d", now.ResourceVersion, s.now1())
		}
	})
}

// Objects that were deleted in a first gap, and are pending at a second one, end at or before the
// first gap's list. In between they must not seem to exist.
func TestEndsOfTheFirstOfTwoGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		for _, name := range []string{"again", "gone", "replaced"} {
			s.put(name, "1", nil)
		}
		l := liveSaved(t, s, m, nil)
		l.forgetDeltas()
		l.setRoom(1)                                              // for the first gap
		compact := func() { s.do(func() { s.compacted = s.rv }) } // no version can be found
		s.relists(t, func() {
			for _, name := range []string{"again", "gone", "replaced"} {
				s.delete(name)
			}
			s.put("replaced", "2", nil)
			compact()
		})
		l.wait(t, "gap 0 expired")
		first := s.now1()
		for range 2 {
			s.relists(t, func() {
				s.put("again", "2", nil)
				s.put("other", "1", nil)
				compact()
			})
		}
		l.setRoom(unbounded)
		ends := map[string]uint64{}
		eventually(t, "all ends", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, d := range l.deltas {
				if d.Op == object.Deleted {
					ends[d.Ref.Name()] = d.ResourceVersion
				}
			}
			return len(ends) == 3
		})
		for name, at := range ends {
			if at > first || at < first-4 {
				t.Errorf("%s was deleted at or before %d, by the first gap, and its deletion has %d", name, first, at)
			}
		}
	})
}

// A list shows another version of an object whose read is pending. The read sends the version that
// the snapshot began with, and the later ones follow it. After a crash before they are
// acknowledged, the last one is sent again.
func TestRelistInsideSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		s.put("b", "1", nil)
		s.put("z", "1", nil)
		l := live(t, s, m, func(_ *informers.Options, rec *recorder) { rec.room = 2 })
		l.wait(t, "snapshot.started 3", "r a uid-1 -→1")
		s.relists(t, func() {
			s.put("b", "2", nil)
			s.put("b", "3", nil)
		})
		l.hold(func(d *object.Delta) bool { return d.Stream == nil && d.Ref.Name() == "b" })
		l.setRoom(unbounded)
		want := []string{
			"snapshot.started 3", "r a uid-1 -→1", "gap 0 expired", "r b uid-2 -→1", "u b uid-2 1→2",
			"u b uid-2 2→3", "r z uid-3 -→1",
		}
		l.wait(t, want...)
		if gap := l.gaps()[0]; !gap.Recovered {
			t.Error("the gap claims that versions are missing, and every one was found")
		}
		s.put("a", "2", nil)
		l.wait(t, append(want, "u a uid-1 1→2")...)
		_ = m.Flush(t.Context())
		l.end()
		second := live(t, s, m, nil)
		told := func() bool {
			return slices.ContainsFunc(second.deltas, func(d *object.Delta) bool {
				return d.Stream == nil && d.Ref.Name() == "b" && valueOf(d.After) == "3"
			})
		}
		last := s.put("last", "1", nil)
		eventually(t, "the rest", func() bool {
			second.mu.Lock()
			defer second.mu.Unlock()
			return slices.ContainsFunc(second.deltas,
				func(d *object.Delta) bool { return d.Stream == nil && d.Ref.UID == last.uid }) &&
				slices.ContainsFunc(second.deltas,
					func(d *object.Delta) bool { return d.Stream != nil && d.Stream.Kind == object.SnapshotCompleted })
		})
		second.mu.Lock()
		defer second.mu.Unlock()
		if !told() {
			t.Errorf("version 3 of b was never acknowledged, and is not sent again: %d deltas", len(second.deltas))
		}
	})
}

// Compacted history cannot be walked back, also if more is lost before its gap is announced.
func TestGapBehindCompactedOneClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		liveSaved(t, s, m, nil).end()
		s.put("a", "2", nil)
		s.put("a", "3", nil)
		s.compact()
		l := live(t, s, m, func(_ *informers.Options, rec *recorder) { rec.holds = isGap })
		l.wait(t, "gap 0 compacted")
		s.relists(t, func() { s.put("a", "4", nil) })
		l.acknowledge()
		l.wait(t, "gap 0 compacted", "gap 0 compacted", "snapshot.started 1", "r a uid-1 -→3", "u a uid-1 3→4",
			"snapshot.completed 1")
		if gap := l.gaps()[1]; gap.Recovered {
			t.Errorf("%+v claims that everything was found", *gap)
		}
	})
}

// etcd and the checkpoint in it were restored, and history was compacted since. The lost history
// does not reveal the restore, but the bus does.
func TestResumeRestoredAndCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		liveSaved(t, s, m, nil).end()
		s.put("a", "2", nil)
		s.compact()
		l := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.LastEvent = func(context.Context, *object.Resource) (informer.LastEvent, bool, error) {
				return informer.LastEvent{Scope: "configmaps", ResourceVersion: 500}, true, nil
			}
		})
		l.wait(t, "gap 0 rewound", "snapshot.started 1", "r a uid-1 -→2", "snapshot.completed 1")
		if gap := l.gaps()[0]; gap.From != 500 {
			t.Errorf("the gap begins at %d, want 500", gap.From)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if got := l.deltas[2].History; got != 1 {
			t.Errorf("history %d, want 1", got)
		}
	})
}

// Another scope of the resource has already announced the restore, so both have the same history
// number. If each counted it separately, each would treat the number of the other as one more
// restore at every start.
func TestScopesAgreeOnHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		base := s.put("a", "1", nil).rv
		l := liveSaved(t, s, m, nil)
		s.put("a", "2", nil)
		l.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "u a uid-1 1→2")
		_ = m.Flush(t.Context())
		l.end()
		s.restore(base)
		second := live(t, s, m, func(o *informers.Options, _ *recorder) {
			o.LastEvent = func(context.Context, *object.Resource) (informer.LastEvent, bool, error) {
				return informer.LastEvent{Scope: "configmaps/other", ResourceVersion: base, History: 1}, true, nil
			}
		})
		second.wait(t, "gap 0 rewound", "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		second.mu.Lock()
		defer second.mu.Unlock()
		if got := second.deltas[2].History; got != 1 {
			t.Errorf("history %d, want 1", got)
		}
	})
}

// An object that the old selection took, and that the new one takes since a change after the
// checkpoint, has not left. A left event would follow the entered event, and end the object for
// consumers.
func TestSelectionChangedWhileObjectMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		red, blue := map[string]string{"red": "1"}, map[string]string{"blue": "1"}
		s.put("moved", "1", red)
		first := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0].LabelSelector = "red" })
		first.wait(t, "snapshot.started 1", "r moved uid-1 -→1", "snapshot.completed 1")
		_ = m.Flush(t.Context())
		first.end()
		s.put("moved", "2", blue)
		s.put("other", "1", nil)
		second := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0].LabelSelector = "blue" })
		second.waitPerName(t, "gap 0 selection-changed", "snapshot.started 0", "e moved uid-1 1→2",
			"snapshot.completed 0")
	})
}

// A restored etcd has not reached the checkpoint of a scope that is no longer selected. Nothing
// waits for that.
func TestSelectionChangedAndRewound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		base := s.put("a", "1", map[string]string{"red": "1"}).rv
		first := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0].LabelSelector = "red" })
		first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1")
		s.put("a", "2", map[string]string{"red": "1"})
		first.wait(t, "snapshot.started 1", "r a uid-1 -→1", "snapshot.completed 1", "u a uid-1 1→2")
		_ = m.Flush(t.Context())
		first.end()
		s.restore(base)
		second := live(t, s, m, func(o *informers.Options, _ *recorder) { o.Rules[0].LabelSelector = "blue" })
		eventually(t, "the new scope to be captured", func() bool {
			st := second.set.Status()
			return len(st) == 1 && st[0].Captured
		})
		second.mu.Lock()
		defer second.mu.Unlock()
		var got []string
		for _, d := range second.deltas {
			got = append(got, short(d))
		}
		if !slices.Contains(got, "gap 0 selection-changed") {
			t.Errorf("no gap tells that the selection has changed: %s", strings.Join(got, ", "))
		}
	})
}

// Until the gap that announces another form of the objects is acknowledged, a restart has to send
// it again.
func TestCheckpointKeepsFormUntilGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		liveSaved(t, s, m, nil).end()
		m.mu.Lock()
		c := m.scopes["configmaps"]
		c.Version = "v1beta1"
		m.scopes["configmaps"] = c
		m.mu.Unlock()
		l := live(t, s, m, func(_ *informers.Options, rec *recorder) { rec.holds = isGap })
		l.wait(t, "gap 0 selection-changed")
		_ = m.Flush(t.Context())
		if c, _ := m.saved("configmaps"); c.Version != "v1beta1" {
			t.Errorf("version %s is remembered, and nobody was told of it", c.Version)
		}
		l.acknowledge()
		eventually(t, "the new form to be remembered", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.Version == "v1"
		})
	})
}

// A snapshot on demand waits until all changes before it are on the bus. Otherwise, after a crash,
// the next run would complete it before it has repeated the creations among them.
func TestSnapshotWaitsForWhatLiesBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		s.put("a", "1", nil)
		l := liveSaved(t, s, m, nil)
		l.forgetDeltas()
		l.hold(func(d *object.Delta) bool { return d.Op == object.Created })
		s.put("x", "1", nil)
		l.wait(t, "c x uid-2 -→1")
		begun := make(chan error, 1)
		go func() {
			_, err := l.set.Snapshot(t.Context(), "", "")
			begun <- err
		}()
		for range 10 {
			_ = m.Flush(t.Context())
			if c, _ := m.saved("configmaps"); c.Snapshot != nil && c.ResourceVersion < c.Snapshot.ResourceVersion {
				t.Fatalf("a snapshot at %d is under way, and the checkpoint at %d", c.Snapshot.ResourceVersion,
					c.ResourceVersion)
			}
		}
		select {
		case err := <-begun:
			t.Fatalf("the snapshot has begun: %v", err)
		default:
		}
		l.wait(t, "c x uid-2 -→1")
		l.acknowledge()
		l.wait(t, "c x uid-2 -→1", "snapshot.started 2", "r a uid-1 -→1", "r x uid-2 -→1", "snapshot.completed 2")
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
	})
}

// starving is a lane that has no room for catch-up while it starves.
type starving struct {
	store.Lane
	mu  sync.Mutex
	fed chan struct{} // nil: it does not starve
}

func (l *starving) starve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fed = make(chan struct{})
}

func (l *starving) feed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.fed)
	l.fed = nil
}

func (l *starving) TryPut(key string, bytes int, d *object.Delta) bool {
	l.mu.Lock()
	starves := l.fed != nil
	l.mu.Unlock()
	return !starves && l.Lane.TryPut(key, bytes, d)
}

func (l *starving) Room() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fed != nil {
		return l.fed
	}
	return l.Lane.Room()
}

// The watch expires again and again while live deltas leave no room for catch-up. The versions that
// are kept for catch-up are bounded. Each one that is given up is in a gap that says so, and the
// deltas that are sent still lead from version to version.
func TestVersionsOwedAreBounded(t *testing.T) {
	const most, relists = 12, 30
	synctest.Test(t, func(t *testing.T) {
		s, m := newAPIServer(t), newMemory()
		for _, name := range []string{"a", "b", "c", "once"} {
			s.put(name, "0", nil)
		}
		lane := &starving{}
		l := liveSaved(t, s, m, func(o *informers.Options, r *recorder) {
			informers.OweAtMost(o, most)
			lane.Lane = r
			o.Lane = func(string) store.Lane { return lane }
		})
		l.forgetDeltas()
		before, _ := m.saved("configmaps")
		lane.starve()
		for n := range relists {
			<-time.After(3 * time.Minute) // or lists are made less and less often
			s.relists(t, func() {
				s.put("a", fmt.Sprint(n, "-1"), nil)
				s.put("a", fmt.Sprint(n, "-2"), nil)
				if n == 0 {
					s.put("once", "1", nil)
					s.put("once", "2", nil)
				}
				if n%7 == 0 {
					s.delete("b")
					s.put("b", fmt.Sprint(n), nil)
				}
				s.delete(fmt.Sprint("passing-", n-1))
				s.put(fmt.Sprint("passing-", n), "1", nil)
				if n == 1 { // between two that are recovered
					s.do(func() { s.rv, s.compacted = s.rv+1, s.rv+1 })
				}
			})
			eventually(t, "the gap to be announced", func() bool { return len(l.gaps()) == n+1 })
			synctest.Wait()
		}
		s.put("b", "live", nil)
		s.delete("c")
		lane.feed()
		last := s.put("last", "1", nil)
		eventually(t, "all to be on the bus", func() bool {
			_ = m.Flush(t.Context())
			c, _ := m.saved("configmaps")
			return c.ResourceVersion == last.rv
		})
		chained(t, s, l.recorder, before.ResourceVersion)
	})
}

// chained fails unless the deltas of each object lead from version to version, to the last one, and
// those that skip versions are inferred. Each version after rv that was not sent must be in a gap
// that is not recovered.
func chained(t *testing.T, s *apiServer, r *recorder, rv uint64) {
	t.Helper()
	gaps := r.gaps()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := map[string]bool{}
	last := map[string]uint64{}
	priors := map[string]uint64{}
	for _, v := range s.history {
		if v.before != nil {
			priors[fmt.Sprint(v.uid, v.rv)] = v.before.rv
		}
		if v.rv <= rv {
			last[v.uid] = v.rv
		}
	}
	for _, d := range r.deltas {
		if d.Stream != nil {
			continue
		}
		if uid := d.Ref.UID; d.Previous != last[uid] {
			t.Errorf("%s: previous is %d, want %d", short(d), d.Previous, last[uid])
		} else if prior := priors[fmt.Sprint(uid, d.ResourceVersion)]; !d.Inferred && d.Previous != prior {
			t.Errorf("%s: previous is %d, and %d was in between", short(d), d.Previous, prior)
		}
		last[d.Ref.UID] = d.ResourceVersion
		if d.Op == object.Deleted {
			last[d.Ref.UID] = 0
		}
		sent[fmt.Sprint(d.Ref.UID, d.ResourceVersion, d.Op == object.Deleted)] = true
	}
	for _, v := range s.history {
		if now := s.now[v.key()]; v.rv <= rv || sent[fmt.Sprint(v.uid, v.rv, v.deleted)] {
			continue
		} else if now == v {
			t.Errorf("%s at %d is there, and was not sent", v.name, v.rv)
		}
		if !slices.ContainsFunc(gaps,
			func(g *object.StreamEvent) bool { return !g.Recovered && g.From < v.rv && v.rv <= g.To }) {
			t.Errorf("%s at %d was not sent, and no gap says so", v.name, v.rv)
		}
	}
	for uid, at := range last {
		if !slices.ContainsFunc(s.history, func(v *version) bool { return v.uid == uid && v.rv == at }) && at != 0 {
			t.Errorf("the last of %s that was sent is at %d, where nothing was", uid, at)
		}
	}
}
